"""pFedHR: accuracy of the methods (Tables 2 to 4, Fig. 1) and by hyper-parameter (Figs. 3 to 6), and controls."""

from collections.abc import Sequence
from functools import partial
from itertools import product

import pandas as pd
from matplotlib.figure import Figure

import fedlib as fl
from fedlib.papers.pfedhr.sizes import HYPER, MAIN, MANY, NOBODY, PUBLIC, SPLITS, TESTED, both_kinds, where
from fedlib.report.marks import mark_chance
from fedlib.report.panels import in_words, line_panels, method_panels, shaded_panels
from fedlib.report.sentences import extremes, nearer_to_print, nearest_kind, paired_difference, who_leads
from fedlib.report.style import BLUE, RED, data_label, label
from fedlib.studies.item import Cell, Item, Read, enough, item
from fedlib.studies.partition_control import partition_control

SPLIT = {"iid": "IID", "noniid": "Non-IID"}
CHANCE = {"iid": 10.0, "noniid": 50.0}  # accuracy at chance [%] among the classes that a client is tested on
WORDS = SPLIT | {"labeled": "labelled public images", "unlabeled": "unlabelled public images"}
WORDS |= {"M": "candidates per round", "none": "rounds without a candidate [%]"}
OF_TABLE4 = ["method", "models", "dataset", "split"]  # columns that name a number
COLORS = {"IID": BLUE, "Non-IID": RED}
DROPS = {"iid": (0, 1.74, 3.92), "noniid": (0, 2.57, 5.31)}  # printed on the bars of Fig. 5: % of the accuracy at S = 1


def panel(*key: str) -> str:
    """Title of a panel: data, split, public images, metric."""
    return in_words(*(WORDS.get(word, word) for word in key))


def by_labels(numbers: pd.DataFrame) -> pd.DataFrame:
    """The numbers, with ", no labels" after the names of methods with unlabelled public images."""
    words = numbers["public"].map({"unlabeled": ", no labels"}).fillna("") if len(numbers) else ""
    return numbers.assign(method=numbers["method"] + words)


def split_style(line: str) -> dict[str, str]:
    """The colour of a split; dotted if the name has a comma, as in "IID, paper"."""
    return {"color": COLORS[line.partition(",")[0]], "linestyle": ":" if "," in line else "-"}


def accuracy_panels(numbers: pd.DataFrame, by: Sequence[str]) -> Figure:
    """Dots by method, with a line at chance among a client's own classes."""
    chance, name = (lambda rows: CHANCE[rows["split"].iloc[0]]), "chance among own classes"
    return method_panels(by_labels(numbers), by, panel, chance, reference=name)


def by_kind(numbers: pd.DataFrame, kind: str, by: Sequence[str]) -> Figure:
    """Dots by method, darker for kinds later in the alphabet."""
    return shaded_panels(by_labels(enough(numbers)).sort_values(kind, kind="stable"), kind, by, panel)


@item("Table 2: accuracy [%], mean over clients, each on its own classes.")
def table2(sizes):
    """Dots by method, measured and printed, with a line at the mean of Local-Only."""
    for (name, source), split in product(sizes.data.items(), SPLITS):
        kinds = () if split == "iid" else sizes.kinds
        for kind, method in [("none", "local_only"), *both_kinds(sizes.rivals, kinds)]:
            task = sizes.run(source, split, sizes.method(method, kind))
            seeds = sizes.seeds if split == "iid" and kind != "unlabeled" else sizes.minor
            yield Cell(method, name, where(kind, split), (task,), sizes.score, seeds=seeds)


@table2.shows
def _(study):
    numbers = study.numbers("table2")
    kinds = numbers.loc[numbers["method"] == "pfedhr", "public"].unique()
    local = numbers[numbers["method"] == "local_only"]  # a rival with every kind of public images
    with_local = pd.concat([numbers, *(local.assign(public=kind) for kind in kinds)])
    yield who_leads(with_local, "pfedhr", ["data", "split", "public"], panel)
    figure = accuracy_panels(numbers, ["data", "split"])
    for ax, (_, rows) in zip(figure.axes, numbers.groupby(["data", "split"], sort=False), strict=False):
        mark_chance(ax, rows.loc[rows["method"] == "local_only", "value"].mean(), "y", text="")
    yield figure


def of_pfedhr(sizes, *metrics: str, **reads: Read) -> list[Cell]:
    """Values that the rows of pFedHR in Table 2 keep, by metric, and others that are read from these rows."""
    reads = dict(zip(metrics, metrics, strict=True)) | reads
    cells = [cell for cell in table2.cells(sizes) if cell.method == "pfedhr"]
    return [cell._replace(read=read, metric=metric) for cell in cells for metric, read in reads.items()]


@item(
    "Control: accuracy [%] of the active clients of a round, and of all clients on all ten classes.",
    explains=("table2", "table3", "table4"),
)
def tested_clients(sizes):
    """Dots by method: light for own classes, dark for all ten classes; black bars are printed values."""
    for cell, metric in product(table2.cells(sizes), ("active", "all classes")):
        yield cell._replace(read=metric, metric=metric)
    for cell in table4.cells(sizes):
        yield cell._replace(read="active", metric="active")


@tested_clients.shows
def _(study):
    texts, key = [], ["method", "dataset", "setting"]
    own, every = study.numbers("table2"), study.numbers("tested_clients", metric="all classes")
    kinds = pd.concat([own.assign(classes="own classes"), every.assign(classes="ten classes")])
    skewed = kinds[kinds["split"] == "noniid"].pivot_table(index=[*key, "seed"], columns="classes", values="value")
    skewed = skewed.reindex(columns=["ten classes", "own classes"])
    change = (skewed["ten classes"] - skewed["own classes"]).dropna()
    if len(change):
        span = f"ranges from {change.min():+.1f} to {change.max():+.1f} points"
        texts.append(f"For Non-IID clients, accuracy on ten classes (dark) minus that on their own (light) {span}.")
    for words, numbers in {"On their own classes, Non-IID": own, "On all ten classes, Non-IID": every}.items():
        texts.append(paired_difference(by_labels(numbers), "noniid", "iid", "split", (SPLIT | {"noniid": words}).get))
    usual, active = study.numbers("table2", "table4"), study.numbers("tested_clients", metric="active")
    both = [usual.assign(clients="all clients"), active.assign(clients="the active clients")]
    table = pd.concat(both).pivot_table(index=key, columns="clients", values="value", sort=False)
    distances = table.sub(usual.groupby(key)["paper"].first(), axis=0).abs().dropna()
    yield " ".join(filter(None, [*texts, nearer_to_print(distances)]))
    yield by_kind(kinds, "classes", ["data", "split"])


@item("Table 3: accuracy [%] with 100 clients, mean over clients, each on its own classes.")
def table3(sizes):
    """Dots by method, measured and printed, one panel for each split."""
    n, active, rounds = sizes.many
    for split, (kind, method) in product(sizes.splits, both_kinds(sizes.rivals, sizes.kinds)):
        algorithm = sizes.pfedhr(kind, average=True) if method == "pfedhr" else sizes.method(method)
        task = sizes.run(sizes.data[MAIN], split, algorithm, rounds=rounds, join_ratio=active / n)
        task = sizes.detailed(task, clients=n)
        yield Cell(method, MAIN, where(kind, split, MANY), (task,), sizes.score, seeds=sizes.minor)


table3.draw(lambda study: accuracy_panels(study.numbers("table3"), ["data", "split"]))
table3.says(lambda study: who_leads(study.numbers("table3"), "pfedhr", ["data", "split", "public"], panel))


@item(
    "Table 4: accuracy [%] with one architecture, mean over clients, each on its own classes.",
    protocols={"inferred": {"steps": 10, "noise": 0.001}, "text": {}},
)
def table4(sizes, steps=1, noise=1.0):
    """Dots by method, measured and printed, one panel for each architecture, data set and split."""
    (alpha, beta), (personal_lr, lr) = sizes.maml, sizes.moreau
    sizes = sizes._replace(maml=(alpha, steps * beta), moreau=(personal_lr, steps * lr))
    for (net, model), name, split in product(sizes.alone.items(), sizes.data, sizes.splits):
        for method in (*sizes.same, "pfedhr"):
            own = {"perfedavg": {"optimizer": "sgd"}, "pfedme": {"optimizer": "sgd", "lr": sizes.moreau[1]}}
            setting = {"rounds": sizes.alone_rounds} | own.get(method, {})
            algorithm = fl.pfedbayes(sizes.zeta, noise=noise) if method == "pfedbayes" else sizes.method(method)
            task = sizes.run(sizes.data[name], split, algorithm, model, **setting)
            key = where("labeled" if method == "pfedhr" else "none", split, (12, 4, net))
            yield Cell(method, name, key, (task,), sizes.score, seeds=sizes.minor)


table4.draw(lambda study: accuracy_panels(study.numbers("table4"), ["data", "models", "split"]))
table4.says(lambda study: who_leads(study.numbers("table4"), "pfedhr", ["data", "models", "split"], panel))

LINES = {label(method): (method, where("none", "noniid", (12, 4, "M1"))) for method in ("fedavg", "perfedavg")}
other_partitions = partition_control(table4, "cifar10", LINES)


@item(
    "Control: accuracy [%] of Table 4 by the number of training images per client.", rows="images", explains=("table4",)
)
def fewer_images(sizes):  # reading A21
    """Dots by method, darker with more images per client; black bars are printed values."""
    [usual] = table4.others
    of_m1 = [cell for cell in usual.cells(sizes) if cell.method in sizes.same and cell.setting.endswith("=M1")]
    for n, cell in product(sizes.few, of_m1):
        [task], whole = cell.tasks, round(n * sizes.clients / ((1 - TESTED) * (1 - PUBLIC)))
        task = sizes.detailed(task, images=task.images._replace(few=whole))
        yield cell._replace(setting=f"{cell.setting};images={n}", tasks=(task,), seeds=1)


def by_images(study) -> pd.DataFrame:
    """The numbers of the control and of Table 4, with the number of images (kind) and the printed number."""
    ours, few = (enough(study.numbers(name)) for name in ("table4_text", "fewer_images"))
    ours = ours.merge(few[[*OF_TABLE4, "seed"]].drop_duplicates())
    few = few.drop(columns="paper").merge(ours[[*OF_TABLE4, "seed", "paper"]])
    both = pd.concat([ours.assign(kind="all images"), few.assign(kind=few["images"] + " images per client")])
    return both.dropna(subset="paper")


fewer_images.draw(lambda study: by_kind(by_images(study), "kind", ["data", "models", "split"]))
fewer_images.says(lambda study: nearest_kind(by_images(study), OF_TABLE4))


def paired(numbers: pd.DataFrame, column: str) -> pd.DataFrame:
    """The numbers of those seeds that have been measured with the most values of a column."""
    group = ["dataset", "split", "public", "method"]
    n = numbers.groupby([*group, "seed"])[column].transform("nunique")
    return numbers[n == n.groupby([numbers[name] for name in group]).transform("max")]


@item(
    "Fig. 1: accuracy [%] with public images from another domain, mean over clients, each on its own classes.",
    rows="images",
)
def fig1(sizes):
    """Dots by method: dark with public images from the clients' domain, light with those from another one."""
    for split, (kind, method) in product(sizes.splits, both_kinds(sizes.rivals, sizes.kinds)):
        own = sizes.run(sizes.data[MAIN], split, sizes.method(method, kind))
        others = {name: sizes.detailed(own, public=(source, 1.0)) for name, source in sizes.foreign.items()}
        for name, task in ({MAIN: own} | others).items():
            yield Cell(method, MAIN, where(kind, split, images=name), (task,), sizes.score, seeds=sizes.minor)


@fig1.shows
def _(study):
    numbers = study.numbers("fig1")
    table = numbers.pivot_table(index=["method", "split", "public", "seed"], columns="images", values="value").dropna()
    table = table.reindex(columns=[MAIN, *{*table} - {MAIN}])
    loss = 100 * (1 - table.drop(columns=MAIN).mean(axis=1) / table[MAIN]).dropna()
    yield extremes(loss.groupby("method").mean(), "The relative loss with public images from another domain")
    rows, named = paired(numbers, "images"), study.profile == "paper"
    words = {name: f"another domain{f': {data_label(name)}' if named else ''}" for name in rows["images"].unique()}
    kinds = "public images from " + rows["images"].map(words | {MAIN: "the clients' domain"})
    yield by_kind(rows.assign(kind=kinds), "kind", ["data", "split", "public"])


def gains(study, name: str) -> pd.DataFrame:
    """Points over Local-Only of the same seed (value), by x."""
    key, same = HYPER[name][0], ["data", "split", "public", "seed"]
    numbers = enough(study.numbers(name, metric="accuracy"))
    alone = numbers.loc[numbers[key] == NOBODY, [*same, "value"]]
    rows = enough(numbers[numbers[key] != NOBODY].merge(alone, on=same, suffixes=("", "_alone")))
    value = rows["value"] - rows["value_alone"]
    return rows.assign(x=pd.to_numeric(rows[key]), accuracy=rows["value"], value=value, method=rows["split"].map(SPLIT))


def varied(name: str, axis: str, more: str = "") -> Item:
    """Fig. 3, 4, 5 or 6; `axis`: the hyper-parameter. In Fig. 5 the printed drops are taken from our value at S = 1."""

    @item(
        f"Fig. {name[-1]}: accuracy [%] of pFedHR by {axis}; figure: gain over Local-Only [points]{more}.",
        name=name,
        rows=HYPER[name][0],
        alt=f"Gain over Local-Only by {axis}: dots are runs, lines join means over the most complete seeds{more}.",
    )
    def values(sizes):
        if name not in sizes.varied:
            return
        (key, hyper), kinds = HYPER[name], sizes.kinds if name == "fig4" else ("labeled",)
        usual = {"fig3": PUBLIC, "fig4": 4, "fig5": 1, "fig6": sizes.server_epochs}[name]
        sources = {MAIN: sizes.data[MAIN]} | ({"cifar10": sizes.half} if sizes.half else {})
        for (data, source), split, kind in product(sources.items(), sizes.splits, kinds):
            tasks = {NOBODY: sizes.run(source, split, sizes.method("local_only"))}
            for x in sorted([*sizes.varied[name], usual]):
                tasks[x] = sizes.run(source, split, sizes.pfedhr(kind, **({hyper: x} if hyper else {})))
                if not hyper and x != usual:
                    tasks[x] = sizes.detailed(tasks[x], public=(source, x / PUBLIC))
            for x, task in tasks.items():
                cell = Cell("pfedhr", data, where(kind, split, **{key: x}), (task,), sizes.score, seeds=sizes.minor)
                yield cell
                for metric in ("M", "fewer groups") if name == "fig4" and x != NOBODY else ():
                    yield cell._replace(read=metric, metric=metric)

    @values.shows
    def _(study):
        rows = gains(study, name)
        pairs, ends = rows.assign(method=rows["split"] + rows["public"]), (rows["x"].max(), rows["x"].min())
        setting = partial("{} = {:g}".format, HYPER[name][0])
        yield paired_difference(pairs, *ends, "x", setting) if ends[0] > ends[1] else ""
        whole, same = paired(rows, "x"), ["data", "public", "split", "method"]
        first = whole[whole["x"] == 1].groupby(same)[["value", "accuracy"]].mean().reset_index().assign(seed=-1)
        lines = [whole]
        for s in (1, 2, 3) if name == "fig5" else ():
            lost = first["accuracy"] * first["split"].map({split: drops[s - 1] / 100 for split, drops in DROPS.items()})
            lines.append(first.assign(x=s, value=first["value"] - lost, method=first["method"] + ", paper"))
        text = {"xlabel": axis, "ylabel": "gain over Local-Only [points]", "reference": "Local-Only"}
        look = {"named": str, "look": split_style, "chance": 0.0}
        figure = line_panels(pd.concat(lines), "x", ["data", "public"], panel, **text, **look)
        for ax, (_, own) in zip(figure.axes, rows.groupby(["data", "public"], sort=False), strict=True):
            ax.scatter(own["x"], own["value"], 14, own["method"].map(COLORS), alpha=0.5, linewidths=0)
        yield figure

    return values


fig3 = varied("fig3", "share of public images in the train part")
fig4 = varied("fig4", "number of groups K")
fig5 = varied("fig5", "depth S of the stitches", "; dotted: our value at S = 1 minus the printed drops")
fig6 = varied("fig6", "number of epochs Es on the server")
