"""Properties of the study of every paper: its cells, runs, claims, items while nothing is measured; an invented one."""

import json
import shutil
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import ANY

import pandas as pd
import pytest
from matplotlib import pyplot as plt
from processes import python
from studies import arguments, differences, drawn_and_said, given, official, row, with_numbers

import fedlib as fl
from fedlib.report import sentences
from fedlib.report.panels import in_words
from fedlib.report.paper import FOLDER, KEY, PAPERS, PROFILES, reported
from fedlib.report.sentences import Gap, gap_to_best, nearest_kind, paired_difference, who_leads
from fedlib.report.style import data_label, metric_label, with_labels
from fedlib.studies.claim import Numbers
from fedlib.studies.item import Item, Unmeasured, enough, means
from fedlib.studies.layout import first_protocol
from fedlib.studies.pages import summary
from fedlib.studies.tasks import Run

study = cache(fl.study)  # each is made once
IMAGES = {"emnist": "emnist_byclass"}  # the name of a paper's data set in `fl.load`, where it is another one
WITHOUT_RUNS = {("pfedsim", "fig3"), ("pfedsim", "fig5a"), ("pfedhr", "partitions")}  # drawn from data or other items


@pytest.fixture(params=PAPERS)
def paper(request):
    return request.param


def test_methods_are_compared_by_their_means_over_all_seeds_as_tables_and_verdicts_are():
    rows = [("a", 0, 1.0), ("a", 0, 3.0), ("a", 1, 8.0), ("b", 0, 5.0), ("c", 2, 7.0)]
    numbers = pd.DataFrame(rows, columns=["method", "seed", "value"])
    assert means(numbers, "method").to_dict() == {"a": 4.0, "b": 5.0, "c": 7.0}
    assert list(means(numbers, "method", "b", "a").items()) == [("b", 5.0), ("a", 4.0)]
    with pytest.raises(Unmeasured):
        means(numbers, "method", "a", "d")
    assert gap_to_best(numbers, "a", "b")[:2] == (5.0 - 7.0, "c")  # b is the better of the two
    assert gap_to_best(numbers, "a", "c")[:2] == (7.0 - 5.0, "b")
    assert gap_to_best(numbers[numbers["method"] != "c"], "a")[:2] == (4.0 - 5.0, "b")
    pairs = [("a", "x", 0, 1.0), ("a", "x", 1, 9.0), ("b", "x", 0, 3.0), ("a", "y", 0, 50.0)]  # y: in one of them
    pairs = pd.DataFrame(pairs, columns=["method", "dataset", "seed", "value"])
    text = "FedAvg minus FedPer is -2.0 points in one pair of runs"
    names = {"a": "fedavg", "b": "fedper"}
    paired = partial(paired_difference, one="fedavg", other="fedper")
    assert paired(pairs.replace(names)) == f"{text} (means over all seeds: +2.0 points)."
    assert paired(pairs.drop(index=1).replace(names)) == f"{text}."
    assert paired(pairs.drop(columns="dataset")[:3].replace(names)) == f"{text} (means over all seeds: +2.0 points)."
    assert paired(pairs[2:].replace(names)) == ""
    assert pd.isna(gap_to_best(numbers, "a").noise)  # the rival has one seed
    printed = gap_to_best(numbers.assign(paper_std=numbers["method"].map({"a": 9.0, "c": 1.5})), "a")
    assert (printed.noise, printed.within_noise) == (9.0, True)
    rows = [("A", "one", 11.0), ("A", "other", 12.0), ("B", "one", 19.0)]  # readings, by what all of them have
    numbers = pd.DataFrame(rows, columns=["what", "kind", "value"]).assign(paper=10.0)
    assert "with one (distance 1.0 points) than with other (2.0)" in nearest_kind(numbers, ["what"])


def test_sentences_of_every_kind_word_for_word():
    gaps = {"CIFAR-10": Gap(0.3, "FedPer", 0.4), "EMNIST": Gap(1.0, "FedRep", 0.4)}
    words = "0.3 points ahead of FedPer on CIFAR-10, within the noise, and 1.0 points ahead of FedRep on EMNIST"
    assert sentences.best_of_all("pFedSim", gaps) == f"In 1 of 2 cases: pFedSim is {words}."
    level = {"CIFAR-10": Gap(0.04, "FedPer", 0.0)}
    assert sentences.best_of_all("pFedSim", level) == "No: pFedSim is level with FedPer on CIFAR-10."
    nan = float("nan")
    four = {"A": Gap(1, "FedPer", 0.4), "B": Gap(-2, "FedPer", nan), "C": Gap(3, "FedPer", 0.4), "D": Gap(0.2, "", nan)}
    lead = "In 3 of 4 cases: the lead of FedSimSup over the best other method measured ranges from"
    lead += " -2.0 points (B) to +3.0 points (C), 2 of them with one seed."
    assert sentences.best_of_all("FedSimSup", four) == lead
    one_seed = {place: gap._replace(noise=nan) for place, gap in four.items()}
    assert sentences.best_of_all("FedSimSup", one_seed).endswith("(C), all with one seed.")
    ahead = [sentences.points_ahead(gap, "FedAvg") for gap in (1.24, -0.3, -0.04)]
    assert ahead == ["1.2 points ahead of FedAvg", "0.3 points behind FedAvg", "level with FedAvg"]
    assert sentences.against_noise(-1.2, 0.3) == "outside the noise (standard deviation 0.3)"
    assert sentences.against_noise(1.2, nan) == "with one seed"
    near = "The result is equally near to the printed number A (distance 2.0 points) and B (2.0)."
    assert sentences.nearer_to_print(pd.DataFrame({"A": [2.0], "B": [2.01]}), "") == near
    lowest = "Accuracy falls by 1.0 points from 1 to 5 branches; its minimum, 68.0 %, is at 2."
    assert sentences.trend(pd.Series([70.0, 68.0, 68.9, 69.0, 69.04], index=[1, 2, 3, 4, 5]), "branches") == lowest
    rises = "Accuracy rises by 4.0 points from 1 to 5 branches, from 70.0 to 74.0 %."
    assert sentences.trend(pd.Series([70.0, 74.04, 74.0], index=[1, 3, 5]), "branches") == rises
    two = pd.Series({"fedavg": 61.0, "fedrep": 72.5})
    assert sentences.extremes(two, "Accuracy") == "Accuracy is 72.5 % with FedRep and 61.0 % with FedAvg."
    two = pd.DataFrame({"what": "FedAvg", "kind": ["as usual", "longer"], "value": [40.0, 46.0], "paper": 42.0})
    nearer, told = sentences.beside_printed(two).split(". ")
    assert nearer == "The result is nearer to the printed number as usual (distance 2.0 points) than longer (4.0)"
    assert told == "Accuracy of FedAvg: 46.0 % longer, 40.0 % as usual, 42.0 % printed."
    assert sentences.with_minus("-0.3 (-1.5), CIFAR-10") == "\N{MINUS SIGN}0.3 (\N{MINUS SIGN}1.5), CIFAR-10"


def test_names_in_figures_and_sentences():
    assert in_words("cifar10", "clients=10;dir=0.1") == "CIFAR-10, 10 clients, Dir(0.1)"
    assert data_label("digits for cifar10") == "digits for CIFAR-10"
    assert data_label("7500 images of cifar10 for cifar10") == "7,500 images of CIFAR-10"
    assert metric_label("weighted_f1_std") == "weighted F1, std over clients"
    assert metric_label("scalars_down") == "scalars down"
    assert with_labels("perfedavg cifar10 clients=50;dir=0.1") == "Per-FedAvg, CIFAR-10, 50 clients, Dir(0.1)"
    assert with_labels("fedcs-fc1, mnist: highest mean") == "FedCS-FC1, MNIST: highest mean"


def test_a_method_leads_the_columns_in_which_it_is_ahead_and_not_those_in_which_it_is_level():
    leads = {"a": 0.04, "b": 2.0, "c": -0.5, "d": 0.3}
    rows = [(m, at, 50 + lead * (m == "fedrep")) for at, lead in leads.items() for m in ("fedrep", "fedavg")]
    numbers = pd.DataFrame(rows, columns=["method", "data", "value"])
    says = who_leads(numbers, "fedrep", by=["data"], name=str)
    assert "leads in 2 of 4 columns" in says
    assert "from -0.5 points (c) to +2.0 points (b)" in says


def test_the_noise_of_a_number_over_clients_is_that_of_their_mean():
    key = ("table2", "fedbn", "cifar10", "label-shift", "weighted_f1")
    [number] = with_numbers(study("fedcs"), given((*key, 50.0))).numbers("table2").to_dict("records")
    [printed] = reported("fedcs").set_index(KEY).loc[[key], "std"]
    assert number["paper_std"] == pytest.approx(printed / 50**0.5)
    assert printed > 0


def test_every_printed_number_has_a_cell_on_the_papers_data(paper):
    cells = {cell.key: cell for cell in official(study(paper)).cells}
    printed = [tuple(key) for key in reported(paper).query("item != 'text'")[KEY].to_numpy()]
    assert set(printed) <= set(cells)
    for key in printed:
        assert {task.images.name for task in cells[key].tasks} <= {IMAGES.get(key[2], key[2]), ""}, key


@pytest.mark.parametrize("profile", PROFILES)
def test_keys_are_unique_one_name_is_one_run_and_stand_ins_are_declared(paper, profile):
    cells, runs = study(paper, profile).cells, {}
    assert len({cell.key for cell in cells}) == len(cells)
    for dataset, task in [(c.dataset, t) for c in cells for t in c.wanted if isinstance(t, Run)]:
        words = str(task.algorithm), task.images, str(task.partition), task.clients, str(task.setting), task.model
        kept = getattr(task.keep, "func", task.keep)
        assert runs.setdefault(task.name, (*words, task.public, kept)) == (*words, task.public, kept)
        own = profile == "paper" and task.images.name == IMAGES.get(dataset, dataset)
        assert own or task.images.stands_for == dataset
        looked_into = [run for run in getattr(task.keep, "args", ()) if isinstance(run, Run)]
        assert all(run.images == task.images for run in looked_into)  # at what it was trained on


# Items with printed numbers, how many these are, and the arguments of their runs that are no defaults where the method,
# the data set and the parts of the setting are these.
PUBLISHED = {"": {"statistics": "local", "pixels": "raw"}}
AS_PUBLISHED = {"feddyn": {"alpha": 0, "clip": None}, "fedper": {"tune_epochs": 1}}
LONG = {"rounds": 1000, "evaluate_every": 10}
TUNED, HEAD = {"tune_epochs": 1}, {"tune_epochs": 1, "tune_part": "personal"}
PROTOCOL = {
    "pfedsim": ("table3", 96, {
        "": {"clients": 100, "rounds": 200, "join_ratio": 0.1, "local_epochs": 5, "batch_size": 32, "lr": 0.01,
             "evaluate_every": 10, "model": "lenet5", **PUBLISHED[""]},
        "tinyimagenet": {"model": "mobilenetv2_pretrained"}, "fedfomo": {"explore": 0}, **AS_PUBLISHED,
        "dir=0.1": {"partition": "dirichlet(alpha=0.1, min_size=40)"},
        "dir=0.5": {"partition": "dirichlet(alpha=0.5, min_size=40)"}}),
    "fedcs": ("table1_text table2_text table3_text", 120, {
        "": {"clients": 50, "rounds": 150, "join_ratio": 0.25, "local_epochs": 2, "batch_size": 32, "lr": 0.005,
             "momentum": 0, "lr_decay": 0.8, "lr_decay_every": 50, "evaluate_every": 10, "client_metrics": True,
             "test_fraction": 0.2, "unseen": 10, "model": "lenet5_plain"},
        "label-shift": {"partition": "dirichlet_groups(alpha=0.5, groups=10, min_size=100)"},
        "feature-shift": {"partition": "mixed_domains(mixed=0.1)"},
        "local_only": {"rounds": 100, "local_epochs": 1, "join_ratio": 1, "evaluate_every": 100, "unseen": 0},
        "fedavg": TUNED, "fedavg+ft": TUNED | {"method": "fedavg"}, "fedalt": TUNED, "fedrep": HEAD,
        "fedavg+bn": TUNED | {"method": "fedavg", "model": "lenet5_bn"}, "fedbn": HEAD | {"model": "lenet5_bn"}}
        | {f"fedcs-{layer}": {"method": "fedcs", "at": layer} for layer in ("fc1", "fc2", "fc3")}),
    "pfedhr": ("table2 table3 table4_text", 126, {
        "": {"clients": 12, "rounds": 20, "join_ratio": 1 / 3, "local_epochs": 5, "batch_size": 64, "lr": 0.001,
             "optimizer": "adam", "evaluate_every": 1, "shape": (3, 32, 32), "test_fraction": 0.2, "public": 0.1},
        "clients=100": {"clients": 100, "rounds": 100, "join_ratio": 0.1},
        "models=heterogeneous": {"model": "m1+m2+m3+m4"}, "models=M1": {"model": "m1"}, "models=M4": {"model": "m4"},
        "split=iid": {"partition": "iid()"}, "split=noniid": {"partition": "classes_per_client(n_classes=2)"},
        "fedmd": {"warm_up": 1}, "fccl": {"warm_up": 1}, "fedkemf": {"server_batch": 8}, "fedgh": {"public": True},
        "fedprox": {"mu": 0.01}, "perfedavg": {"optimizer": "sgd"}, "pfedme": {"optimizer": "sgd", "lr": 0.005},
        "pfedhr;clients=100": {"average": True}, "pfedhr;public=unlabeled": {"labelled": False}}),
    "pfedmb": ("table2", 54, {
        "": {"clients": 15, "rounds": 20, "join_ratio": 1, "local_epochs": 5, "batch_size": 64, "lr": 0.05,
             "evaluate_every": 5, "tune_epochs": 5, "test_fraction": None, "validation_fraction": 0.2,
             "model": "lenet5_plain"},
        "clients=50": {"clients": 50, "rounds": 100, "join_ratio": 0.2, "evaluate_every": 25},
        "local_only;clients=50": {"rounds": 20, "join_ratio": 1, "evaluate_every": 5},  # a client trains in 20 rounds
        "local_only": {"tune_epochs": 0}, "classes=2": {"partition": "classes_per_client(n_classes=2)"},
        "classes=20;u=0.3-0.7": {"partition": "uneven_classes(n_classes=20, low=0.3, high=0.7)"},
        "dir=0.4": {"partition": "dirichlet(alpha=0.4, min_size=10)"},
        "fedprox": {"mu": 0.01}, "fedamp": {"sigma": ANY, "lam": ANY},
        "pfedmb": {"branches": ANY, "lr": ANY, "gain": False}}),
    "fedsimsup": ("table1_text table2_text", 136, {
        "": {"join_ratio": 0.1, "local_epochs": 5, "batch_size": 32, "lr": 0.1, "test_fraction": None,
             "model": "lenet4"},
        "cifar10": {"rounds": 100, "evaluate_every": 1}, "cifar100": LONG,
        "femnist": LONG | {"join_ratio": 0.01, "test_fraction": 0.1, "partition": "domains()"},
        "local_only": {"join_ratio": 0.1}, "fedrep": {"body_epochs": 3}, "fedsimsup": {"supervisor": "small_lenet4"},
        "perfedavg": {"alpha": 0.001, "beta": 0.1, "hessian": "free", "steps": 4, "tune_epochs": 3, "tune_every": 10}}
        | {f"clients={n}": {"clients": n} for n in (50, 100, 3597)}
        | {f"pat={c}": {"partition": f"classes_per_client(n_classes={c})"} for c in (2, 5, 20)}
        | {f"dir={a}": {"partition": f"dirichlet(alpha={a}, min_size=10)"} for a in (0.1, 0.5)}),
}  # fmt: skip


def together(changes, cell):
    """The parts of `changes` that are about a cell, and their arguments; the later ones count."""
    words = {"", cell.method, cell.dataset, *cell.setting.split(";")}
    parts = [part for part in changes if words.issuperset(part.split(";"))]
    return parts, {name: value for part in parts for name, value in changes[part].items()}


def test_the_paper_profile_has_the_papers_protocol(paper):
    items, n, changes = PROTOCOL[paper]
    cells = [cell for cell in official(study(paper)).cells if cell.item in items.split()]
    assert len(cells) == n
    said = set()
    for cell in cells:
        parts, named = together(changes, cell)
        said.update(parts)
        for task in cell.tasks:
            expected = {"method": cell.method, "images": IMAGES.get(cell.dataset, cell.dataset), "few": 0}
            expected |= getattr(fl, task.algorithm.name)().hyper | named  # `test_contract` has the defaults
            found, own = arguments(task), {*task.setting, *task.federate, *task.algorithm.hyper}
            assert {name: found[name] for name in own | expected.keys()} == expected, cell.key
    assert said == set(changes)


# An item: the items with the usual runs, how many numbers it has, and what differs from the usual run where the method
# and the parts of the setting are these.
FEW_MNIST = {"few": 5000, "partition": "dirichlet_groups(alpha=0.5, groups=10, min_size=10)"}
LINEAR = {"fedrep": {"method": "fedrep-linear"}}
OTHER = {"partition=0": {}, "partition=1": {"seed": 1}, "partition=2": {"seed": 2}}
BENCHMARK = {"": {"model": "lenet5", "statistics": "local"}}
BENCHMARK |= {"fedsimsup": {"supervisor": "small_lenet"}, "cifar100": {"rounds": 100, "evaluate_every": 1}}
BENCHMARK |= {
    "perfedavg": {"beta": 0.001, "steps": None, "local_epochs": 4},
    "fedprox": {"method": "fedavg", "mu": None},
}
NO_PULL = {"method": "fedrep", "lam": None, "head_epochs": None}
CONTROLS = {
    "pfedsim table3": ("table3_text", 96, PUBLISHED | AS_PUBLISHED),
    "pfedsim table6": ("table6_text", 64, PUBLISHED),
    "pfedsim other_partitions": ("table3", 9, OTHER),
    "fedcs other_partitions": ("table1", 9, OTHER),
    "pfedhr other_partitions": ("table4", 6, OTHER),
    "pfedmb other_partitions": ("branches", 6, OTHER),
    "fedsimsup other_partitions": ("table1", 6,
     {"partition=0": {}, "partition=2": {"seed": 2}, "partition=3": {"seed": 3}}),
    "fedcs table1": ("table1_text", 40, LINEAR | {"": FEW_MNIST}),
    "fedcs table2": ("table2_text", 40, LINEAR),
    "fedcs table3": ("table3_text", 40, LINEAR),
    "pfedhr table4": ("table4_text", 72,
     {"perfedavg": {"beta": 0.01}, "pfedbayes": {"noise": 0.001}, "pfedme": {"lr": 0.05}}),
    "pfedhr fewer_images": ("table4_text", 60, {"images=450": {"few": 7500}, "images=900": {"few": 15_000}}),
    "pfedmb regularisation": ("table2", 6, {"lam=1": {}, "lam=0.1": {"lam": 0.1}, "lam=0.0001": {"lam": 1e-4}}),
    "pfedmb variants_on_five_pairs": ("table1", 3,
     {"gain=yes": {"gain": True}, "alpha=labels": {"alpha": "labels", "alpha_lr": 0, "share_alpha": False}}),
    "pfedmb variants": ("branches", 48,
     {"weighted=no": {"weighted": False}, "share_alpha=yes": {"share_alpha": True}, "gain=yes": {"gain": True},
      "alpha_lr=0.1": {"alpha_lr": 0.1}, "alpha_lr=0": {"alpha_lr": 0}, "lr=x5": {"lr": 0.25},
      "alpha=labels": {"alpha_lr": 0, "alpha": "labels"}, "rounds=x2": {"rounds": 40, "evaluate_every": 10}}),
    "fedsimsup table1": ("table1_text", 72, BENCHMARK | {"femnist": BENCHMARK["cifar100"]}),
    "fedsimsup table2": ("table2_text", 64,
     BENCHMARK | {f"pat={c}": {"partition": f"shards(per_client={c})"} for c in (2, 5, 20)}),
    "fedsimsup table3_inferred": ("table3", 40,
     {part: BENCHMARK[part] for part in ("", "fedsimsup", "cifar100")}
     | {f"fedsimsup-{kind}": {"supervisor": "small_lenet+small_cnn+small_vit"} for kind in ("whole", "t", "c", "l")}),
    "fedsimsup participation": ("table1", 16, {"participants=usual": {}, "participants=twice": {"join_ratio": 0.2}}),
    "fedsimsup outer_step": ("table1_text", 8, {"beta=0.1": {}, "beta=0.001": {"beta": 0.001}}),
    "fedsimsup shards": ("table2_text", 32,
     {"partition=classes": {}, "partition=shards": {"partition": "shards(per_client=5)"}}),
    "fedsimsup network": ("table1_text table2_text", 96,
     {"network=lenet5_plain": {"model": "lenet5_plain"}, "network=lenet4": {},
      "fedsimsup;network=lenet5_plain": {"supervisor": "small_lenet"}}),
    "fedsimsup longer_training": ("table1_text", 96,
     {"": {"rounds": 1000, "evaluate_every": 10, "model": "lenet5_plain"}, "fedsimsup": {"supervisor": "small_lenet"}}),
    "fedsimsup fedrep_to_fedpac": ("table1_text", 8,
     {"step=FedRep": NO_PULL | {"body_epochs": 3}, "step=one epoch for the classifier": NO_PULL | {"body_epochs": 4},
      "step=classifiers combined": {"lam": 0}, "step=features aligned (FedPAC)": {}}),
    "fedsimsup fine_tuned_classifiers": ("table1_text", 4,
     {"": {"model": "lenet5_plain"}, "classifier=as it is": {},  # else with as many epochs as it has in a round
      "classifier=trained again": {"tune_epochs": 2, "tune_every": 10, "tune_part": "personal"}}),
}  # fmt: skip


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_changes_what_it_says_and_nothing_else(control):
    (paper, item), (items, n, changes), said = control.split(), CONTROLS[control], set()
    controls, usual = ([c for c in official(study(paper)).cells if c.item in own.split()] for own in (item, items))
    assert len(controls) == n
    for cell in controls:
        there = [one for one in usual if (one.method, one.dataset) == (cell.method, cell.dataset)]
        there = [one for one in there if f"{cell.setting};".startswith(f"{one.setting};")]
        own = min(there, key=lambda one: one.metric != cell.metric)
        parts, expected = together(changes, cell)
        said.update(parts)
        tried = own.tasks[:2] if cell.method == "fedamp" else own.tasks  # with one of two lambdas
        assert [differences(*pair) for pair in zip(cell.tasks, tried, strict=True)] == [expected] * len(tried)
    assert said == set(changes)


def test_the_deviation_over_partitions_is_told_beside_that_over_seeds_and_leads_are_paired():
    values = {"pfedsim": (80.0, 82.0, 87.0), "fedrep": (79.0, 82.0, 83.0), "fedper": (50.0, 51.0)}
    place = ("cifar10", "dir=0.1", "accuracy")
    each = [(method, f"dir=0.1;partition={p}", value) for method, own in values.items() for p, value in enumerate(own)]
    moved = [("other_partitions", method, "cifar10", place, "accuracy", value) for method, place, value in each]
    usual = [("table3", method, *place, value) for method, value in (("pfedsim", 80.0), ("fedrep", 79.0))]
    again = [("table3", "pfedsim", *place, 82.0), ("other_partitions", *moved[0][1:5], 82.0)]  # the same run
    seeds = pd.concat([given(*moved, *usual).assign(seed=0), given(*again).assign(seed=1)])
    one = with_numbers(study("pfedsim"), seeds)
    says = one.says("other_partitions")
    assert "3 partitions" in says
    assert "pFedSim 3.6 (1.4), FedRep 2.1." in says  # FedPer lacks one
    assert says.endswith("pFedSim minus FedRep is +1.7 ± 2.1 points in 3 pairs of runs.")
    drawn = {text.get_text() for text in one.figure("other_partitions").axes[0].texts}
    assert {"83.0", "81.3", "50.5"} <= drawn
    alone = seeds[~seeds["setting"].isin(["dir=0.1;partition=1", "dir=0.1;partition=2"])]
    assert with_numbers(study("pfedsim"), alone).says("other_partitions") == ""
    places = [("branches", f"clients=15;classes=2;branches={b}") for b in (1, 2)]
    places += [("other_partitions", f"{place};partition={p}") for _, place in places for p in (0, 1)]
    two = given(*[(item, "pfedmb", "cifar10", place, "accuracy", 80.0 + i) for i, (item, place) in enumerate(places)])
    lines = with_numbers(study("pfedmb"), two).figure("other_partitions").axes[0].lines
    assert len({line.get_color() for line in lines}) == 2  # of one method


def test_every_claim_has_a_judge_and_cells_for_all_that_it_asks_for(paper):
    one = study(paper)
    claims = pd.read_csv(FOLDER / paper / "claims.csv")
    assert [claim.id for claim in one.claims] == claims["id"].tolist()
    assert {claim.figure or item for claim, item in zip(one.claims, claims["item"], strict=True)} <= {*one.shown}
    declared = {cell.key for cell in one.cells}
    for claim in one.claims:
        numbers = Numbers(paper, 1, one.cells, pd.DataFrame())
        claim.cases(numbers)
        assert numbers.asked, claim.id
        assert set(numbers.asked) <= declared, claim.id


@pytest.mark.parametrize("profile", PROFILES)
def test_every_item_has_a_title_and_draws_and_says_nothing_while_nothing_is_measured(paper, profile):
    one = study(paper, profile).replace(rows={})
    assert {cell.item for cell in one.cells} <= set(one.shown)
    for name, item in one.shown.items():
        assert item.title.endswith((".", ")"))
        assert not item.drawing or len(item.alt) > 10
        assert one.says(name) == ""
        assert profile == "quick" or (paper, name) in WITHOUT_RUNS or drawn_and_said(one, name) == ""


def test_a_sentence_needs_no_figure_and_an_item_with_too_few_numbers_has_neither():
    one, drawn = Item("one", "One."), []

    @one.shows
    def _(study):
        enough(study.rows)
        yield "A sentence."
        drawn.append(True)
        yield plt.figure()

    none = study("pfedsim", "smoke").replace(cells=(), shown={"one": one}, rows={})
    some = none.replace(rows={("a run", 0): SimpleNamespace(diverged=None)})
    assert (some.says("one"), drawn) == ("A sentence.", [])
    assert some.figure("one").axes == []
    assert none.says("one") == ""
    assert none.figure("one").axes[0].texts[0].get_text().startswith("Not measured")
    assert drawn == [True]
    means = pd.Series({"a": 1.0, "b": 2.0, "c": 3.0})
    assert enough(means, "c", "a").tolist() == [3, 1]
    with pytest.raises(Unmeasured):
        enough(means, "a", "d")


def test_an_item_with_two_protocols_puts_both_beside_the_printed_numbers_and_counts_the_first_once():
    paper = study("pfedsim")
    key = ("fedavg", "cifar10", "dir=0.1", "accuracy")
    values = [("table3", *key, 26.0), ("table3_text", *key, 40.0)]
    one = with_numbers(paper, given(*values))
    wide = one.side_by_side("table3")
    assert [*wide] == [("CIFAR-10, Dir(0.1)", name) for name in ("paper", "authors' code", "paper's text")]
    assert wide.loc["FedAvg"].tolist() == ["24.77 ± 4.25", "26.00", "40.00"]
    assert one.numbers("table3", "table3_text")["paper"].tolist() == [24.77, 24.77]
    assert one.says("table3").endswith("authors' code (distance 1.2 points) than with the paper's text (15.2).")
    around = [given(("table3", *key, 24.77 + by), values[1]).assign(seed=seed) for seed, by in enumerate((-20, 20))]
    assert "code (distance 0.0 points)" in with_numbers(paper, pd.concat(around)).says("table3")  # of the mean
    board = one.scoreboard().query("n_seeds > 0").set_index("protocol")
    assert board["difference"].round(2).to_dict() == {"text": 15.23, "code": 1.23}
    assert first_protocol(board)["value"].tolist() == [26.0]
    row = summary("pFedSim", one.scoreboard(), one.ledger())
    assert (row["printed"], row["measured"]) == (296, 1)
    assert [row[name] for name in ("authors' code", "inferred settings", "paper's text")] == ["1 of 1", "", "0 of 1"]
    [code, text] = one.differences()[["item", "says"]].to_numpy().tolist()
    assert (code[0], text[0]) == ("table3", "table3_text")
    assert "within 3 points" in code[1]
    assert [f'"{control}"' in text[1] for control in ("weights", "other_partitions")] == [True, False]  # by their runs
    apart = with_numbers(paper, given(("table3", *key, 40.0))).differences()["says"].item()
    assert [f'"{control}"' in apart for control in ("weights", "other_partitions")] == [False, True]


def test_protocols_are_compared_where_their_runs_differ_and_small_profiles_have_the_first_only():
    paper, place = study("fedcs"), ("cifar10", "label-shift", "weighted_f1")
    numbers = [(item, method, *place, 50.0) for item in ("table2", "table2_text") for method in ("fedavg", "fedrep")]
    shared = with_numbers(paper, given(*numbers))
    assert "equally near to the printed number" in shared.says("table2")  # FedAvg has one run for both protocols
    assert "near to" not in with_numbers(paper, given(*numbers[::2])).says("table2")
    beside = shared.side_by_side("table2")["weighted F1"].loc[["FedRep", "FedAvg"]].to_numpy().tolist()
    assert beside == [["33.01 ± 13.88", "50.00", "50.00"], ["", "50.00", ""]]
    board = shared.scoreboard().query("n_seeds > 0")
    assert board[["item", "method", "protocol"]].to_numpy().tolist() == [
        ["table2", "fedrep", "inferred"], ["table2", "fedavg", "text"], ["table2_text", "fedrep", "text"],
    ]  # fmt: skip
    further = {"table1_text", "table2_text", "table3_inferred", "fig2_text"}
    for profile in ("smoke", "quick"):
        assert not {cell.item for cell in study("fedsimsup", profile).cells} & further


ROOT = Path(__file__).parent.parent


def test_a_sixth_paper_takes_no_more_than_150_lines():
    invented = ROOT / "tests" / "invented"
    files = [path for path in invented.rglob("*") if path.suffix in (".py", ".csv", ".toml")]
    cells = json.loads(next(invented.rglob("*.ipynb")).read_text())["cells"]
    assert sum(len(path.read_text().splitlines()) for path in files) + sum(len(cell["source"]) for cell in cells) <= 150


@pytest.mark.slow
def test_a_sixth_paper_is_a_folder_and_a_notebook_that_makes_tables_a_figure_and_verdicts(tmp_path):
    """In a copy of this repository."""
    for name in ("fedlib", "figures/reference"):
        shutil.copytree(ROOT / name, tmp_path / name)  # with what Python has compiled of it
    shutil.copytree(ROOT / "tests" / "invented" / "papers", tmp_path / "fedlib" / "papers", dirs_exist_ok=True)
    shutil.copytree(ROOT / "tests" / "invented" / "notebooks", tmp_path / "notebooks")
    command = "-m", "fedlib.tools.batch", "--profile", "smoke", "--notebook", "06", "--jobs", "1"
    python(*command, cwd=tmp_path, PYTHONPATH=tmp_path, FEDLIB_RUNS=tmp_path / "runs")
    made = tmp_path / "figures" / "smoke" / "invented"
    names = {path.name for path in made.iterdir()}
    assert {"table1.csv", "table1.svg", "table2.csv", "fig1.svg", "claims.csv"} <= names
    table = pd.read_csv(made / "table1.csv")
    assert table["value"].between(0, 100).all()
    assert table["paper"].tolist() == [70.0, 40.0, 41.0]
    assert "digits for CIFAR-10" in (made / "table1.md").read_text()
    claims = pd.read_csv(made / "claims.csv").set_index("id")
    assert (set(claims["full_size"]), set(claims["stand_in"])) == ({"not tested"}, {"digits for cifar10"})
    assert "Invented" in (made.parent / "index.html").read_text()


def test_of_several_runs_behind_a_number_the_shortest_counts():
    cell = next(cell for cell in study("fedsimsup").cells if cell.item == "table1")
    runs = tuple(cell.tasks[0]._replace(setting={"rounds": n}) for n in (100, 1000))
    assert cell._replace(tasks=runs).shortened({"rounds": 1000}) == "100 of 1,000 rounds"


def test_a_curve_is_of_the_evaluation_that_counts_and_a_number_marked_if_the_code_of_any_seed_or_run_has_changed():
    one = study("pfedsim", "smoke")
    cell = next(cell for cell in one.cells if cell.item == "table3")
    made = partial(row, cell.tasks[0].name, n_test=[10], config={"backend": "loop"})

    def of(*rows):
        return one.replace(cells=[cell], rows={(own.task, own.seed): own for own in rows})

    curves = of(made(0, (1, "before", [1]), (1, "after", [9]), when="after")).curves("table3")
    assert curves[["round", "accuracy"]].to_numpy().tolist() == [[1, 90]]
    table = of(made(0, (1, "before", [4]), code="older"), made(1, (1, "before", [5]))).table("table3")
    assert table.loc[table["n_seeds"] > 0, ["n_seeds", "changed"]].to_numpy().tolist() == [[2, True]]
    other = next(task for task in one.tasks.values() if task.name != cell.tasks[0].name)
    cell = cell._replace(tasks=(cell.tasks[0], other), read=lambda first, second: 1.0)
    table = of(made(0, (1, "before", [4])), row(other.name, 0, code="older")).table("table3")
    assert table.loc[table["n_seeds"] > 0, "changed"].tolist() == [True]
