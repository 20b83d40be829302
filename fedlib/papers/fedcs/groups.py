"""FedCS: data of client groups and domains (Figs. 3 to 5), and their scores over the rounds (Figs. 2, 9 and 10)."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from fedlib.papers.fedcs.diagnosis import DOMAINS, GROUPS
from fedlib.papers.fedcs.scores import CHANCE, client_scores, group_curves, when
from fedlib.papers.fedcs.sizes import PROFILES, SHIFT, federation_of, run
from fedlib.report.charts import plot_partition
from fedlib.report.marks import panels
from fedlib.report.panels import line_panels
from fedlib.report.style import BLACK, BLUE, PALETTE, RED, data_label, label
from fedlib.studies.item import Cell, Item, enough, item
from fedlib.studies.tasks import Kept, Probe, profile_of

OTHER_DIGITS = {"mnist_m": "MNIST-M-style", "digits": "digits in colour", "printed_digits": "printed digits"}


def group_number(key: str, metric: str, moment: str, last: int, row) -> float:
    """The final mean of a group or domain of clients ("group=3"), or a measure of the differences between them."""
    if "domain" in key:
        accuracy = client_scores("accuracy", moment, row)
        domain = domain_of(len(accuracy))
        means = {f"domain={d}": accuracy[domain == d].mean() for d in np.unique(domain)}
        return float(means.get(key, np.ptp([*means.values()])))
    rounds, groups = np.array(row.kept[f"rounds {moment}"]), np.array(row.kept[f"groups {metric} {moment}"], float)
    numbers = {f"group={g}": mean for g, mean in enumerate(groups[-1])}
    numbers |= {"gap": groups[-1, :-2].mean() - groups[-1, -2:].mean(), "width": np.ptp(groups[-1])}  # gap: to unseen
    return float((numbers | {"spread": groups[rounds > rounds[-1] - last].std(axis=1).mean()})[key])


def domain_of(n: int) -> np.ndarray:
    """The domain of each of n clients; "mixed" for the last ones, which mix all domains."""
    return np.array([*(str(i % DOMAINS) for i in range(n - DOMAINS)), *["mixed"] * DOMAINS])


def domain_names(study) -> list[str]:
    """Names of the five domains; their numbers until Fig. 5 has been measured."""
    rows, data = study.rows_behind("fig5"), study.numbers("fig5")["data"]
    others = OTHER_DIGITS if any(" for " in name for name in data) else {}
    names = rows[0].kept["domains"] if rows else [f"domain {d}" for d in range(DOMAINS)]
    return [others.get(name) or data_label(name) for name in names]


def by_group(name: str, data: str, metric: str) -> Item:
    """Fig. 2, 9 or 10: scores of client groups over the rounds."""
    quantity = {"f1": "weighted F1", "accuracy": "accuracy"}[metric]

    @item(
        f"Fig. {name[3:]}: {quantity} [%] by client group over the rounds; red: groups never seen in training.",
        name=name,
        alt=f"Lines of {quantity} by group of clients over the rounds, a panel per method; unseen groups are red.",
    )
    def groups(sizes):
        groups = range(sizes.of_domain + 1 if data == "digit5" else GROUPS)
        keys = [*(f"group={g}" for g in groups), "gap", "width", "spread"]
        keys += [*(f"domain={d}" for d in (*range(DOMAINS), "mixed")), "domain_width"] if data == "digit5" else []
        for method, key in product(sizes.panels[data], keys):
            read = partial(group_number, key, metric, when(method), sizes.last)
            setting, value = (key, quantity.lower().replace(" ", "_")) if "=" in key else (SHIFT[data], key)
            yield Cell(method, data, setting, (run(sizes, data, method),), read, value, sizes.seeds[data])

    @groups.shows
    def _(study):
        gaps = study.means(name, "method", metric="gap")
        least = f"; the absolute difference is smallest with {label(gaps.abs().idxmin())}" if len(gaps) > 1 else ""
        told = ", ".join(f"{gap:+.1f} with {label(method)}" for method, gap in gaps.items())
        yield f"Training groups (blue) minus unseen groups (red), in points: {told}{least}." if told else ""
        colors = {"train": BLUE, "unseen": RED, "mixed": BLACK, **dict(zip(domain_names(study), PALETTE, strict=False))}
        curves = group_curves(study, name, metric).groupby(["method", "who", "group", "round"], sort=False)["value"]
        means = curves.mean().rename(index=label, level=0).reset_index().rename(columns={"group": "seed"})
        frame = pd.concat([means, domain_curves(study)]) if name == "fig10" else means
        text = {"line": "who", "named": str, "ylabel": f"{quantity} [%]", "ylim": (0, 102), "ends": True, "height": 1.5}
        look = {"look": lambda who: {"color": colors[who]}}
        yield line_panels(frame, "round", ["method"], str, CHANCE, **text, **look)

    return groups


def domain_curves(study) -> pd.DataFrame:
    """Mean accuracy by round of the clients of each domain and of those that mix domains, as further panels."""
    names, tables = dict(zip(map(str, range(DOMAINS)), domain_names(study), strict=True)) | {"mixed": "mixed"}, []
    for method in study.numbers("fig10")["method"].unique():
        accuracy = pd.concat([row.accuracy for row in study.rows_behind("fig10", method=method)])
        accuracy["who"] = domain_of(accuracy["client"].max() + 1)[accuracy["client"]]
        means = accuracy[accuracy["when"] == when(method)].groupby(["who", "round"])["accuracy"].mean().reset_index()
        tables.append(means.assign(method=f"{label(method)} by domain", seed=0, who=means["who"].map(names)))
    return pd.concat(tables).rename(columns={"accuracy": "value"})


fig2, fig9 = by_group("fig2", "cifar10", "f1"), by_group("fig9", "cifar10", "accuracy")
fig10 = by_group("fig10", "digit5", "accuracy")


def counts(seed: int, profile: str, name: str) -> Kept:
    """Sizes of the clients of a federation, and their images by class and by domain."""
    federation = federation_of(PROFILES[profile], name)
    own = [np.concatenate(parts) for parts in zip(*federation.parts, strict=True)]
    ids, place = np.unique(federation.data.domain, return_inverse=True)
    sizes = federation.sizes
    return {
        "clients": federation.n_clients,
        "unseen": federation.unseen,
        "samples": int(sizes.sum()),
        "smallest": int(sizes.min()),
        "largest": int(sizes.max()),
        "of class": federation.counts().tolist(),
        "of domain": [np.bincount(place[rows], minlength=len(ids)).tolist() for rows in own],
        "domains": [federation.data.domains[d] for d in ids],
    }


def partition(title: str, datasets: Sequence[str], draw: Callable[..., None]) -> Item:
    """Fig. 3, 4 or 5. `draw(study, ax, counts)` draws one; its docstring is the alternative text."""
    name = draw.__name__

    @item(title, name=name, digits=0, alt=draw.__doc__)
    def sizes_of_clients(sizes):
        for data, metric in product(datasets, ("clients", "unseen", "samples", "smallest", "largest")):
            arguments = (profile_of(sizes, PROFILES), data)
            task = Probe("counts", counts, arguments, sizes.data[data], exact=True, sizes=str(sizes))
            yield Cell("partition", data, SHIFT[data], (task,), metric, metric)

    @sizes_of_clients.shows
    def _(study):
        kinds = {str(r.kept["of class"]): (d, r.kept) for d in datasets for r in study.rows_behind(name, dataset=d)}
        (_, first), *others = enough([*kinds.values()])  # each partition once
        labels = study.numbers(name).groupby("dataset")["data"].first()
        where = " of the upper panel" if others else ""
        start = f"{first['unseen']} of {first['clients']} clients (right of the dotted line) never train"
        sizes = f"the smallest client{where} has {first['smallest']:,} images, the largest {first['largest']:,}"
        yield f"{start}." if name == "fig4" else f"{start}; {sizes}."
        figure, axes = panels(len(kinds), 2.0, across=1)
        for ax, (data, one) in zip(axes, kinds.values(), strict=True):
            draw(study, ax, one)
            ax.set_title(data_label(labels[data]), loc="left")
            ax.axvline(one["clients"] - one["unseen"] - 0.5, color="black", linestyle=":")
            ax.set_xlabel("client (right of the dotted line: never seen in training)")
        if name == "fig4":
            figure.legend(*axes[0].get_legend_handles_labels(), title="class", loc="outside right upper", reverse=True)
        yield figure

    return sizes_of_clients


@partial(partition, "Fig. 3: number of images of every client by group, with label shift.", ("mnist", "cifar10"))
def fig3(study, ax, one: Kept) -> None:
    """Clients and their ten groups, with circles by number of images; the last clients are unseen."""
    group = np.arange(one["clients"]) // (one["clients"] // GROUPS)
    images = np.sum(one["of class"], axis=1)[:, None] * (np.arange(GROUPS) == group[:, None])
    plot_partition(images, ax, [*map(str, range(GROUPS))]).set_ylabel("group")


@partial(partition, "Fig. 4: share of every class at every client, with label shift.", ("mnist", "cifar10"))
def fig4(study, ax, one: Kept) -> None:
    """Stacked bars of class shares, one bar per client; the last clients are unseen."""
    share = np.array(one["of class"]) / np.sum(one["of class"], axis=1, keepdims=True)
    for c, color in enumerate(PALETTE):
        ax.bar(range(len(share)), share[:, c], 0.9, share[:, :c].sum(1), color=color, label=str(c))
    ax.set(ylabel="share of classes", xlim=(-0.6, len(share) - 0.4))
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(False)


@partial(partition, "Fig. 5: number of images of every client by domain, with feature shift.", ("digit5",))
def fig5(study, ax, one: Kept) -> None:
    """Clients and domains, with circles by number of images; the last clients are unseen, and some mix all domains."""
    plot_partition(np.array(one["of domain"]), ax, domain_names(study)).set_ylabel("domain")
