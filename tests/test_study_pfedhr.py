"""The study of pFedHR: its cells, what its rows keep, and its claims on constructed numbers."""

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from studies import changed, differences, done, given, judged, official, printed, verdicts

import fedlib as fl
from fedlib.methods.pfedhr import decompose
from fedlib.methods.pfedhr.record import Round
from fedlib.models import MODELS, build
from fedlib.papers.pfedhr.distillation import all_knowing, control, taught
from fedlib.papers.pfedhr.measure import matched, of_active, on_all_classes
from fedlib.papers.pfedhr.sizes import PROFILES, where
from fedlib.studies import cost, runner
from fedlib.studies.cost import hours
from fedlib.studies.study import study
from fedlib.studies.tasks import Images, Run, images

IMAGES = Images("digits", (("copies", 1),))
FEDERATE = {"test_fraction": 0.2, "public": 0.1}


@pytest.fixture(scope="module")
def paper():
    return official(study("pfedhr", "paper"))


def frame(item, values, metric="accuracy", method="pfedhr"):
    """Numbers by (dataset, setting)."""
    return given(*((item, method, *at, metric, value) for at, value in values.items()))


# -- cells --------------------------------------------------------------------------------------------------------


def test_few_images_of_cifar10_stand_in_where_four_architectures_train():
    for cell in study("pfedhr", "paper").cells:
        whole = cell.official or cell.tasks
        four = all(isinstance(t, Run) and t.model == "m1+m2+m3+m4" and t.images.few == 0 for t in whole)
        assert bool(cell.official) == (cell.dataset == "cifar10" and four)
        for few, own in zip(cell.tasks, cell.official, strict=bool(cell.official)):
            assert differences(few, own) == {"few": 7500, "stands_for": "cifar10"}


def test_few_images_are_run_before_all_of_them(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    (tmp_path / "cifar10.npz").touch()
    todo = [job for job in runner.missing([study("pfedhr")], ["search"], tmp_path) if job.seed == 0]
    for labelled in (True, False):  # those of a claim, and the others
        few = [job.task.images.few for job in todo if job.task.algorithm.hyper["labelled"] == labelled]
        assert few == [7500, 7500, 0, 0]


def test_models_are_averaged_in_table_3_only(paper):
    runs = [(cell.item, task) for cell in paper.cells for task in cell.tasks if isinstance(task, Run)]
    assert {item for item, task in runs if task.algorithm.hyper.get("average")} == {"table3"}


@pytest.mark.parametrize("partition", [fl.iid(), fl.classes_per_client(2)])
def test_7500_images_are_450_train_images_of_a_client(partition):
    data = fl.load("digits", copies=1)
    federation = fl.federate(data, partition, 12, **FEDERATE)
    assert 7500 * federation.train_counts.sum(1).mean() / len(data) == pytest.approx(450, rel=0.01)


def test_fewer_images_cost_less():
    assert cost._size(Images("cifar10", train=1000))[0] == cost._size(Images("cifar10", few=1000))[0] == 1000
    assert cost._size(Images("cifar10"))[0] == 60_000


def test_other_public_images_are_as_large_a_share_as_those_of_the_clients_kind(paper):
    shown = [(c, c.tasks[0]) for c in paper.cells if (c.item, c.dataset) in {("fig1", "svhn"), ("fig3", "svhn")}]
    shares = [(c.item, c.setting.rpartition("=")[2], t.public[0].name, t.public[1]) for c, t in shown if t.public]
    assert {(*place, round(share, 9)) for *place, share in shares} == {
        ("fig1", "mnist", "mnist", 1),
        ("fig1", "cifar10", "cifar10", 1),
        ("fig3", "0.02", "svhn", 0.2),
        ("fig3", "0.05", "svhn", 0.5),
    }


# -- claims -------------------------------------------------------------------------------------------------------


def test_with_the_printed_numbers_all_claims_about_tables_hold(paper):
    found = verdicts(paper, printed("pfedhr"))
    assert (found["ph01":"ph09"] == "holds").all()
    assert (found["ph10":"ph20"] == "not tested").all()  # the paper prints no numbers in its figures


@pytest.mark.parametrize(
    ("claim", "cell", "value"),
    [
        ("ph01", ("table2", "pfedhr", "cifar10", where("labeled", "iid")), 72.0),  # FedGH: 72.69
        ("ph02", ("table2", "pfedhr", "mnist", where("unlabeled", "noniid")), 92.5),  # FCCL: 92.88
        ("ph03", ("table2", "pfedhr", "svhn", where("unlabeled", "iid")), 83.9),  # with labels 83.68
        ("ph04", ("table4", "fedavg", "mnist", where("none", "noniid", (12, 4, "M4"))), 95.0),  # IID: 94.24
        ("ph05", ("table3", "fccl", "svhn", where("unlabeled", "iid", (100, 10, "heterogeneous"))), 79.5),
        ("ph06", ("table3", "fedmd", "svhn", where("labeled", "iid", (100, 10, "heterogeneous"))), 82.0),
        ("ph07", ("table4", "pfedme", "cifar10", where("none", "iid", (12, 4, "M4"))), 82.0),  # pFedHR: 81.54
        ("ph08", ("table4", "pfedhr", "mnist", where("labeled", "iid", (12, 4, "M4"))), 96.0),  # above the best
        ("ph08", ("table4", "pfedhr", "mnist", where("labeled", "iid", (12, 4, "M4"))), 94.0),  # more than 1 below
        ("ph09", ("table4", "fedavg", "cifar10", where("none", "iid", (12, 4, "M4"))), 57.0),  # M1: 43.05
    ],
)
def test_one_number_on_the_other_side_refutes_a_claim_about_all(paper, claim, cell, value):
    assert verdicts(paper, changed(printed("pfedhr"), value, *cell, "accuracy"))[claim] == "refuted"


def test_the_best_of_some_rivals_can_refute_that_pfedhr_leads_but_not_show_it(paper):
    table, setting = printed("pfedhr"), where("labeled", "iid")
    some = table[(table["item"] == "table2") & (table["dataset"] == "cifar10") & (table["setting"] == setting)]
    some = some[some["method"] != "fedgh"]
    assert verdicts(paper, some)["ph01"] == "consistent so far"
    behind = some.assign(value=some["value"].where(some["method"] != "pfedhr", 60.0))
    assert verdicts(paper, behind)["ph01"] == "refuted"


def test_below_the_best_baseline_needs_all_baselines(paper):
    table = printed("pfedhr")
    keep = (table["dataset"] == "mnist") & (table["item"] == "table4")
    best = {"pfedbayes", "perfedavg", "pfedme"}  # pFedHR is above the others, which shows nothing
    assert verdicts(paper, table[keep])["ph08"] == "holds"
    assert verdicts(paper, table[keep & ~table["method"].isin(best)])["ph08"] == "consistent so far"


# item: claim, name of the value, values, heights of the bars in the paper's figure, read off by eye
BARS = {
    "fig3": ("ph13", "share", (0.02, 0.05, 0.1), {"iid": (80.5, 82.0, 83.5), "noniid": (79.2, 81.5, 83.0)}),
    "fig5": ("ph16", "S", (1, 2, 3), {"iid": (83.7, 82.2, 80.5), "noniid": (83.4, 81.5, 79.1)}),
    "fig6": ("ph17", "Es", (3, 4, 5, 10), {"iid": (83.7, 81.0, 80.8, 80.0), "noniid": (83.4, 81.0, 80.8, 80.0)}),
}
GROUPS = {"labeled": {"iid": (82, 83.5, 85), "noniid": (81, 83, 83.5)}}
GROUPS["unlabeled"] = {"iid": (82, 83, 84), "noniid": (79, 80, 81)}


def bars(item, dataset="svhn", iid=lambda heights: heights):
    """The bars of a figure, those of IID changed."""
    _, key, xs, heights = BARS[item]
    heights = heights | {"iid": iid(heights["iid"])}
    values = {where("labeled", s, **{key: x}): y for s in heights for x, y in zip(xs, heights[s], strict=True)}
    return frame(item, {(dataset, setting): y for setting, y in values.items()})


def by_groups(**iid):
    """Fig. 4 with other bars for IID."""
    values = {kind: own | ({"iid": iid[kind]} if kind in iid else {}) for kind, own in GROUPS.items()}
    bars = [(kind, s, k, own[s][k - 3]) for kind, own in values.items() for s in own for k in (3, 4, 5)]
    return frame("fig4", {("svhn", where(kind, s, K=k)): y for kind, s, k, y in bars})


def reverse(heights):
    return heights[::-1]


@pytest.mark.parametrize("item", BARS)
def test_the_papers_bars_are_for_its_claims_and_their_reverse_is_against(paper, item):
    claim = BARS[item][0]
    assert verdicts(paper, bars(item))[claim] == "holds"
    assert verdicts(paper, bars(item, iid=reverse))[claim] == "refuted"


@pytest.mark.parametrize("item", BARS)
def test_on_cifar10_which_stands_for_svhn_a_figure_proves_and_refutes_nothing(paper, item):
    claim, there = BARS[item][0], bars(item, "cifar10", reverse)
    found = judged(paper, bars(item, "cifar10")).loc[claim, ["verdict", "stand_in"]].tolist()
    assert found == ["consistent so far", "cifar10 for svhn"]
    assert verdicts(paper, there)[claim] == "undecided"
    assert verdicts(paper, there, bars(item))[claim] == "holds"  # SVHN itself is here


def test_more_groups_may_have_one_panel_with_a_step_down_but_none_that_falls(paper):
    step, two = {"labeled": (82, 86, 85)}, {"labeled": (82, 86, 85), "unlabeled": (82, 81, 84)}
    found = [verdicts(paper, by_groups(**iid))["ph14"] for iid in ({}, step, two, {"labeled": (85, 86, 82)})]
    assert found == ["holds", "holds", "refuted", "refuted"]


def with_other_images(losses):
    """Fig. 1 from the points that methods lose with MNIST, and with CIFAR-10."""
    frames = []
    for kind, rivals in {"labeled": ("fedmd", "fedgh"), "unlabeled": ("fedkemf", "fccl")}.items():
        for method, split in [(m, s) for m in (*rivals, "pfedhr") for s in ("iid", "noniid")]:
            lost = {"svhn": 0.0} | dict(zip(("mnist", "cifar10"), losses[method], strict=True))
            values = {("svhn", where(kind, split, images=name)): 80.0 - loss for name, loss in lost.items()}
            frames.append(frame("fig1", values, method=method))
    return pd.concat(frames)


def test_foreign_public_images(paper):
    losses = {"fedmd": (4, 5), "fedgh": (5, 6), "fedkemf": (5, 5), "fccl": (8, 9), "pfedhr": (0.5, 2)}
    found = verdicts(paper, with_other_images(losses))
    assert (found["ph10":"ph12"] == "holds").all()  # within a point for 4 of 8
    found = verdicts(paper, with_other_images(losses | {"pfedhr": (3, 4.5), "fccl": (-1, 4)}))
    assert (found["ph10":"ph12"] == "refuted").all()


def tried(item, **values):
    """Numbers about candidates, the same for both splits of CIFAR-10."""
    settings = [("cifar10", where("labeled", split)) for split in ("iid", "noniid")]
    return [frame(item, dict.fromkeys(settings, value), name.replace("_", " ")) for name, value in values.items()]


def test_claims_about_candidates(paper):
    shown = tried("search", fall_of_M=0, rise_of_none=0, most_without_any=5, two_or_more=95, kinds=4, repeated=0)
    shown += tried("fig7", changed=90, sources=3, legal=100)
    claims = ["ph15", "ph18", "ph19"]
    assert verdicts(paper, *shown)[claims].tolist() == ["holds"] * 3
    bad = tried("search", fall_of_M=0, rise_of_none=0, most_without_any=0, two_or_more=95, kinds=4, repeated=5)
    bad += tried("fig7", changed=90, sources=3, legal=99)
    assert verdicts(paper, *bad)[claims].tolist() == ["refuted"] * 3


def controlled(own, local, chance):
    places = [(d, s) for d in ("svhn", "cifar10") for s in ("iid", "noniid")]
    yield frame("table2", {(d, where("labeled", s)): own for d, s in places})
    yield frame("table2", {(d, where("none", s)): local for d, s in places}, method="local_only")
    yield frame("other_teachers", {(d, control(s, "random candidate")): chance for d, s in places})


@pytest.mark.parametrize(
    ("numbers", "verdict"), [((70, 69, 69.5), "holds"), ((70, 70, 69), "refuted"), ((70, 69, 70.5), "refuted")]
)
def test_a_teacher_must_help_more_than_none_and_than_any(paper, numbers, verdict):
    assert verdicts(paper, *controlled(*numbers))["ph20"] == verdict


# -- runs ---------------------------------------------------------------------------------------------------------


def task(**other):
    setting = {"rounds": 1, "local_epochs": 1, "lr": 0.01}
    return Run(fl.fedavg(), IMAGES, fl.classes_per_client(2), 5, setting, federate=FEDERATE)._replace(**other)


def test_public_images_change_and_the_clients_do_not():
    own, few, other = task(), task(public=(IMAGES, 0.6)), task(public=(IMAGES._replace(few=900), 1.0))
    assert len({own.name, few.name, other.name}) == 3
    a, b, c = (one.arguments(0)["federation"] for one in (own, few, other))
    for made in (b, c):
        assert all(np.array_equal(x, y) for x, y in zip(a.train + a.test, made.train + made.test, strict=True))
    n = round(0.6 * len(a.public))
    assert np.array_equal(b.public.x, a.public.x[:n])
    assert len(c.public) == pytest.approx(0.1 * 0.8 * 0.8 * 900, rel=0.1)  # a fifth of them test the clients
    refused("needs a share", task(public=(IMAGES, 0.2), federate={}).arguments, 0)


def test_active_clients_have_just_trained_and_all_classes_are_those_of_all_test_images():
    federation = task(images=IMAGES._replace(few=500)).arguments(0)["federation"]
    setting = {"rounds": 4, "join_ratio": 0.5, "local_epochs": 1, "batch_size": 40, "lr": 0.1, "seed": 3}
    result = fl.run("local_only", federation, "m1_thin+m2_thin", **setting, progress=False)
    accuracy, loss = (result.accuracy[name].to_numpy().reshape(4, 5) for name in ("accuracy", "loss"))
    trained = loss[1:] != loss[:-1]  # [rounds 2 to 4, clients]: the others have kept their models
    assert trained.sum(1).tolist() == [2] * 3
    last = [own[who].mean() for own, who in zip(accuracy[1:], trained, strict=True)]
    assert of_active(result, 5, 0.5) == pytest.approx(np.mean(last))

    test, data = np.concatenate(federation.test), federation.data
    x = torch.from_numpy((data.x[test] - data.x.mean()) / data.x.std()).float()
    right = []
    for model, clients in result.architectures:
        model.net.eval()
        right += [model(result.weights(int(i)), x).argmax(1).numpy() == data.y[test] for i in clients]
    assert on_all_classes(result, federation, 10**6) == pytest.approx(100 * np.mean(right))


def test_a_teacher_has_changed_if_its_blocks_have_and_not_if_they_are_another_clients():
    networks = [decompose(build(name, MODELS[name], (3, 32, 32), 10, 0)) for name in ("m1_thin", "m2_thin")]
    teachers = [[(0, 1), (1, 3)], [(2, 1), (1, 3)], [(1, 1), (1, 3), (1, 4)]]  # networks 0 and 2 are of one kind

    def seen(**match):
        rest = dict.fromkeys(Round._fields) | {"networks": [0, 1, 0], "candidates": teachers}
        return Round(**rest | {"clients": [int(name[1:]) for name in match], "match": list(match.values())})

    history = [seen(c4=0, c7=0, c9=0), seen(c4=-1, c9=2), seen(c2=2, c4=1, c7=2, c9=0)]
    kept = matched(history, networks)
    assert kept["changed"] == pytest.approx(100 / 3, abs=1e-3)  # client 7 of 4, 7 and 9
    assert kept["sources"] == (2 + 2 + 2 + 1 + 2 + 1 + 2 + 1) / 8
    assert (kept["client"], kept["rounds"]) == (9, [1, 3])


def test_images_on_a_frame(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.integers(1, 256, (20, 8, 8), dtype=np.uint8), np.arange(20) % 10
    np.savez(tmp_path / "tiny.npz", x_train=x, y_train=y, x_test=x, y_test=y, classes=y[:10].astype(str))
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    plain, framed = images(Images("tiny")), images(Images("tiny", shape=(3, 13, 12)))
    assert framed.x.shape == (40, 3, 13, 12)
    assert np.array_equal(framed.x[:, :, 2:10, 2:10], np.repeat(plain.x, 3, axis=1))
    assert framed.x.sum() == 3 * plain.x.sum()


def test_a_run_with_several_architectures_costs_their_mean(monkeypatch):
    seconds = {"m1": 1.0, "m2": 2.0, "m4": 9.0}
    monkeypatch.setattr(cost, "seconds_per_sample", lambda network, shape, n_classes: seconds[network.name])
    one = {name: hours(task(model=name)) for name in ("m1", "m2", "m4", "m1+m2+m4")}
    assert one["m1+m2+m4"] == pytest.approx((one["m1"] + one["m2"] + one["m4"]) / 3)


def test_clients_with_an_all_knowing_teacher():
    few = IMAGES._replace(few=500)
    made = PROFILES["smoke"].run(few, "iid", taught("m1_thin", 0.0, 1), "m1_thin", batch_size=32, rounds=1)
    arguments = made.arguments(0) | {"progress": False}
    algorithms = {"weightless": arguments["algorithm"], "taught": taught("m1_thin", 5.0, 1), "alone": fl.local_only()}
    losses = {name: fl.run(**{**arguments, "algorithm": own}).accuracy["loss"] for name, own in algorithms.items()}
    assert losses["weightless"].equals(losses["alone"])
    assert not losses["taught"].equals(losses["alone"])
    federation, train = arguments["federation"], np.concatenate(arguments["federation"].train)
    untrained, trained = (all_knowing(federation, torch.device("cpu"), "m1_thin", n, 16, 3e-3)[train] for n in (0, 20))
    assert untrained.softmax(1).max() < 0.3
    assert (trained.argmax(1).numpy() == federation.data.y[train]).mean() > 0.5
    assert "taught" not in fl.algorithms()


def test_what_rows_keep_is_read_once_in_smoke(tmp_path):
    smoke = study("pfedhr", "smoke", seeds=1)
    iid = {(c.item, c.method): c.tasks[0].name for c in reversed(smoke.cells) if "noniid" not in c.setting}
    wanted = [iid[kind] for kind in (("table1", "fedmd"), ("table2", "pfedhr"), ("table2", "local_only"))]
    some = done(smoke.replace(cells=[c for c in smoke.cells if c.tasks[0].name in wanted]), tmp_path)
    measured = some.measured()
    assert len(some.rows) == 3
    assert measured["value"].notna().all()
    tables = {"table1", "table2", "tested", "candidates", "search", "fig7", "teachers", "other_teachers"}
    assert set(measured["item"]) == tables | {"fig1", "fig4"}
    value = measured[measured["method"] != "local_only"].set_index(["item", "metric"])["value"]
    assert value["table1", "uses labels"] == 1
    assert value["table1", "bytes up"] == 4 * 10 * 15  # logits of a round's public images
    assert value["fig7", "legal"] == 100
    row = some.rows[wanted[1], 0]
    last = row.accuracy[row.accuracy["round"] == 2]
    assert value["table2", "accuracy"] == pytest.approx(last["accuracy"].mean())
    assert row.kept["M by groups"][2] == row.kept["M"]  # with K = 4, as in the run
