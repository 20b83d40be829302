"""Teacher and pupil, and what the server tries: the figures of pFedHR about the method itself."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fedlib.methods.pfedhr.record import Round
from fedlib.papers.pfedhr.draw import (
    ALL_KNOWING,
    CHANCE,
    NOBODY,
    PRINTED,
    SPLIT,
    TEACHERS,
    curves,
    lessons,
    places,
    taught_by,
    titles,
)
from fedlib.papers.pfedhr.keep import unpacked
from fedlib.report import plot_block_map, plot_candidates, plot_chain
from fedlib.report.marks import arrow, box, name_ends, panels, plot_nothing, seeds_and_mean
from fedlib.report.partition_plots import plot_partition
from fedlib.report.style import BLACK, GREEN, GREY, PALETTE, RED, TEXT, WIDE
from fedlib.studies.rows import Row
from fedlib.studies.study import Study
from fedlib.studies.tasks import Run

# -- teacher and pupil --------------------------------------------------------------------------------------------


def draw_teachers(study: Study) -> Figure:
    """Above: how good teachers and pupils are, by round. Below: what pupils gain over Local-Only."""
    if not places(study):
        return plot_nothing()
    place = places(study)[0]
    figure, (ax, gains) = plt.subplots(2, 1, figsize=(WIDE, 4.4), sharex=True)
    alone, printed = (curves(taught_by(study, who, *place)) for who in (NOBODY, PRINTED))
    ax.set(ylabel="accuracy [%]", ylim=(0, 100), title="how good they are")
    ends = {"its pupils": seeds_and_mean(ax, printed, BLACK)}
    taught = lessons(taught_by(study, PRINTED, *place))
    if len(taught):
        right = taught.pivot_table(index="round", columns="seed", values="right")
        ends["teachers"] = seeds_and_mean(ax, right, RED)
    knows = [row.kept["teacher on test images"] for row in taught_by(study, ALL_KNOWING, *place).values()]
    if knows:
        ax.axhline(np.mean(knows), color=GREEN, linestyle="--")
        ends["all-knowing teacher"] = (printed.index[-1], float(np.mean(knows)), GREEN)
    name_ends(ax, ends, CHANCE[place[1]])
    gains.axhline(0, color=GREY)
    ends = {}
    for who in (PRINTED, "better stitched", ALL_KNOWING):
        own = curves(taught_by(study, who, *place))
        if len(own) and len(alone):
            name, color = TEACHERS[who]
            ends[name] = seeds_and_mean(gains, (own - alone).dropna(axis=1, how="all"), color)
    gains.set(xlabel="round", ylabel="points over Local-Only", title="what the pupils gain")
    gains.set_xticks([t for t in printed.index if len(printed) < 8 or t % 5 == 0])
    gains.set_xlim(right=printed.index[-1])
    name_ends(gains, ends)
    return figure


def final_gain(study: Study, teacher: str, place: tuple[str, str]) -> np.ndarray:
    """Points over Local-Only in the table's accuracy, one number per seed."""
    frame = study.numbers("other_teachers", metric="accuracy")
    frame = frame[(frame["dataset"] == place[0]) & (frame["split"] == place[1])]
    own, alone = (frame[frame["teacher"] == who].set_index("seed")["value"] for who in (teacher, NOBODY))
    return (own - alone).dropna().to_numpy()


def plus_minus(values: np.ndarray) -> str:
    """Their mean, and their standard deviation if there are several."""
    std = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):+.1f}{std}"


def say_teachers(study: Study) -> str:
    """Teacher and pupil in the last round, and what came of it."""
    if not places(study):
        return ""
    place = places(study)[0]
    taught, pupils = lessons(taught_by(study, PRINTED, *place)), curves(taught_by(study, PRINTED, *place))
    if taught.empty:
        return ""
    last = taught["round"].max()
    teacher, pupil = taught[taught["round"] == last]["right"].mean(), pupils.loc[last].mean()
    text = f"Look at the upper panel: in round {last} the teachers name {teacher:.0f} % of their clients' images"
    text += f" (chance: {CHANCE[place[1]]:.0f} %) and the clients' own networks {pupil:.0f} %, so the teachers know "
    text += f"{'less' if teacher < pupil else 'more'} than their pupils."
    gain, most = final_gain(study, PRINTED, place), final_gain(study, ALL_KNOWING, place)
    if len(gain) and len(most):
        text += f" In the end a client has {plus_minus(gain)} points over Local-Only with them, and {plus_minus(most)} "
        text += "with a teacher that was trained on the images of all clients."
    return text


def draw_other_teachers(study: Study) -> Figure:
    """Across: how good a teacher is; up: what its pupils gain over Local-Only. One dot for each seed."""
    shown = places(study)
    if not shown:
        return plot_nothing()
    figure, axes = panels(len(shown), 2.8, across=1)
    frame, knows = (study.numbers("other_teachers", metric=metric) for metric in ("accuracy", "teachers"))
    for ax, (dataset, split), title in zip(axes, shown, titles(study.only("other_teachers"), shown), strict=True):
        here = frame[(frame["dataset"] == dataset) & (frame["split"] == split)]
        alone, means = here[here["teacher"] == NOBODY].set_index("seed")["value"], {}
        ax.axhline(0, color=GREY)
        if len(alone):
            ax.axvline(alone.mean(), color=GREY, linestyle="--")
            beside = {"textcoords": "offset points", "color": GREY}
            ax.annotate("as good as Local-Only", (alone.mean(), 0), (3, 2), ax.get_xaxis_transform(), **beside)
        for who, (name, color) in TEACHERS.items():
            gain = here[here["teacher"] == who].set_index("seed")["value"] - alone
            right = knows[(knows["dataset"] == dataset) & (knows["split"] == split) & (knows["teacher"] == who)]
            both = pd.DataFrame({"x": right.set_index("seed")["value"], "y": gain}).dropna()
            if len(both):
                ax.plot(both["x"], both["y"], "o", color=color, alpha=0.5, markersize=4)
                ax.plot(both["x"].mean(), both["y"].mean(), "D", color=color, markersize=7)
                means[f" {name}"] = (both["x"].mean(), both["y"].mean(), color)
        ax.set(xlabel="images that teachers name [%]", ylabel="points over Local-Only", title=title)
        ax.margins(x=0.3, y=0.25)
        name_ends(ax, means)
    return figure


def say_other_teachers(study: Study) -> str:
    """Gains by teacher, on the first data set."""
    if not places(study):
        return ""
    place, gains = places(study)[0], []
    for who, (name, _) in TEACHERS.items():
        values = final_gain(study, who, place)
        if who != NOBODY and len(values):
            gains.append((name, values))
    if len(gains) < 2:
        return ""
    best = max(gains, key=lambda pair: pair[1].mean())
    text = "; ".join(f"{name} {plus_minus(values)}" for name, values in gains)
    spread = max(values.mean() for _, values in gains) - min(values.mean() for _, values in gains)
    stds = [float(np.std(values, ddof=1)) for _, values in gains if len(values) > 1]
    told = "with one seed: too few to tell"
    if stds:
        told = f"{'less' if spread < 2 * max(stds) else 'more'} than twice the spread of the seeds"
    return (
        f"Look at the height of the diamonds, points over Local-Only by teacher: {text}. The largest is that of "
        f"'{best[0]}'; all of them lie within {spread:.1f} points, {told}."
    )


def draw_pupils(study: Study) -> Figure:
    """One dot for each client and round: its teacher's lead over it, and what it then gains over Local-Only."""
    dots = pupils(study)
    if dots.empty:
        return plot_nothing()
    figure, ax = plt.subplots(figsize=(WIDE, 3.0))
    means = {}
    ax.axhline(0, color=GREY)
    ax.axvline(0, color=GREY, linestyle="--")
    for who, own in dots.groupby("teacher", sort=False):
        name, color = TEACHERS[str(who)]
        ax.plot(own["lead"], own["gain"], "o", color=color, alpha=0.35, markersize=3.5, markeredgewidth=0)
        ax.plot(own["lead"].mean(), own["gain"].mean(), "D", color=color, markersize=7, markeredgecolor="white")
        means[f" {name}"] = (own["lead"].mean(), own["gain"].mean(), color)
    ax.set(
        xlabel="teacher minus pupil, when the teacher is made [points]",
        ylabel="pupil over Local-Only,\na round later [points]",
    )
    name_ends(ax, means, weight="bold")
    return figure


def pupils(study: Study) -> pd.DataFrame:
    """teacher, lead and gain of every client in every round that begins with a new teacher."""
    table = []
    for place in places(study)[:1]:
        alone = {seed: by_client(row) for seed, row in taught_by(study, NOBODY, *place).items()}
        for who in (PRINTED, "better stitched", ALL_KNOWING):
            for seed, row in taught_by(study, who, *place).items():
                own = by_client(row)
                made = [(t, i, right) for t, i, right, _ in row.kept.get("lessons", [])]
                if who == ALL_KNOWING:
                    made = [(t, i, row.kept["teacher on test images"]) for t in own.index for i in own.columns]
                for t, i, right in made:
                    if seed in alone and t + 1 in own.index:
                        table.append((who, right - own.loc[t, i], own.loc[t + 1, i] - alone[seed].loc[t + 1, i]))
    return pd.DataFrame(table, columns=["teacher", "lead", "gain"])


def by_client(row: Row) -> pd.DataFrame:
    """Accuracy [%] by round (rows) and client (columns)."""
    return row.accuracy.pivot_table(index="round", columns="client", values="accuracy")


def say_pupils(study: Study) -> str:
    """How many teachers were behind their pupils, and whether a better one helps more."""
    dots = pupils(study)
    own = dots[dots["teacher"] == PRINTED]
    if own.empty:
        return ""
    behind = (own["lead"] < 0).sum()
    text = f"Look left and right of the dashed line: {behind} of {len(own)} teachers of pFedHR are behind their pupil; "
    r = np.corrcoef(dots["lead"], dots["gain"])[0, 1]
    if np.isfinite(r):
        text += f"over all dots a teacher's lead and its pupil's gain have a correlation of {r:.2f}: "
        text += "a better teacher helps more." if r > 0.3 else "how good the teacher is hardly matters for the pupil."
    return text


# -- what the server tries ----------------------------------------------------------------------------------------


def first_run(study: Study) -> Row | None:
    """The run that is looked into: seed 0 of the first data set and split."""
    for place in places(study):
        for row in taught_by(study, PRINTED, *place).values():
            if row.kept.get("full"):
                return row
    return None


def pool_of(row: Row, seen: Round) -> tuple[list[list[str]], list[str]]:
    """Names of the blocks of every upload, and whose it is."""
    names = list(row.kept["architectures"].items())
    short = [name.split("_")[0].upper() for name, _ in names]
    whose = [f"client {i} ({short[n]})" for i, n in zip(seen.clients, seen.networks, strict=True)]
    return [names[n][1] for n in seen.networks], whose


def draw_round(study: Study) -> Figure:
    """All blocks of the last round, and the candidates made of them."""
    row = first_run(study)
    if row is None:
        return plot_nothing()
    seen = unpacked(row.kept["full"][-1])
    blocks, whose = pool_of(row, seen)
    figure, (left, right) = plt.subplots(2, 1, figsize=(WIDE, 5.6), height_ratios=[1.5, 1])
    words = [f"{whose[b].replace('client ', '')} {blocks[b][h - 1]}" for b, h in seen.group]
    plot_block_map(seen.distance, words, list(seen.group.values()), left)
    left.set_title("blocks that do the same share a frame")
    got = [
        [str(i) for i, m in zip(seen.clients, seen.match, strict=True) if m == j] for j in range(len(seen.candidates))
    ]
    if seen.candidates:
        plot_candidates(blocks, seen.candidates, [f"to {', '.join(own)}" if own else "" for own in got], right)
    right.set_title("candidates, and the clients that get them")
    handles = [Rectangle((0, 0), 1, 1, color=PALETTE[b]) for b in range(len(whose))]
    right.legend(handles, whose, loc="lower center", bbox_to_anchor=(0.45, -0.35), ncols=2)
    return figure


def say_round(study: Study) -> str:
    """Candidates, sources and stitches of the last round."""
    row = first_run(study)
    if row is None:
        return ""
    seen = unpacked(row.kept["full"][-1])
    if not seen.candidates:
        return f"In round {row.kept['full'][-1]['round']} there was no candidate."
    mixed = sum(len({b for b, _ in chain}) > 1 for chain in seen.candidates)
    right = [100 * share for share in seen.right if share >= 0]
    return (
        f"Look at the colours: {mixed} of {len(seen.candidates)} candidates of round {row.kept['full'][-1]['round']} "
        "have blocks of several clients; a diamond is a stitch. After their training they name "
        f"{min(right):.0f} to {max(right):.0f} % of the images of the clients that get them."
    )


def draw_fig7(study: Study) -> Figure:
    """The teacher of one client after the first round, and after the last one."""
    row = first_run(study)
    pair = [(facts["round"], unpacked(facts)) for facts in row.kept["full"]] if row else []
    both = set.intersection(*(taught_clients(seen) for _, seen in pair)) if pair else set()
    if row is None or not both:
        return plot_nothing()
    client = min(both)
    figure, axes = plt.subplots(len(pair), 1, figsize=(WIDE, 1.6 * len(pair)), squeeze=False)
    for ax, (t, seen) in zip(axes[:, 0], pair, strict=True):
        blocks, whose = pool_of(row, seen)
        place = seen.clients.index(client)
        plot_chain(blocks, whose, seen.candidates[seen.match[place]], ax)
        ax.set_title(f"round {t}: teacher of client {client}, {100 * seen.right[place]:.0f} % right", loc="left")
    return figure


def taught_clients(seen: Round) -> set[int]:
    """The clients with a teacher."""
    return {client for client, m in zip(seen.clients, seen.match, strict=True) if m >= 0}


def draw_lesson(row: Row, t: int) -> Figure:
    """The teachers of a round, a row for each pupil: their blocks, whose they are, and both accuracies."""
    own, names = by_client(row), list(row.kept["architectures"].values())
    taught = [lesson[1:] for lesson in row.kept["lessons"] if lesson[0] == t]
    clients = sorted({owner for _, _, blocks in taught for owner, *_ in blocks} | {i for i, *_ in taught})
    seat = {client: position for position, client in enumerate(clients)}
    kinds = {owner: n for _, _, blocks in taught for owner, n, _ in blocks}
    chains = [[(seat[owner], h) for owner, _, h in blocks] for *_, blocks in taught]
    notes = [f"teacher {right:.0f} %, pupil {own.loc[t, i]:.0f} %" for i, right, _ in taught]
    figure, ax = plt.subplots(figsize=(TEXT, 2.4))
    plot_candidates([names[kinds.get(client, 0)] for client in clients], chains, notes, ax)
    ax.set_yticks(range(len(taught)), [f"client {i}" for i, *_ in taught])
    for position, tick in enumerate(ax.get_yticklabels()):
        tick.set_color(PALETTE[seat[taught[position][0]]])
    ax.set_xlim(ax.get_xlim()[0], ax.get_xlim()[1] + 1.2)
    ax.set_title(f"after round {t}: whose blocks teach whom (colours are clients, a diamond is a stitch)", loc="left")
    return figure


def draw_candidates(study: Study) -> Figure:
    """Candidates and rounds without any, by number of groups."""
    found = {"candidates in a round": "M", "rounds without any [%]": "none"}
    figure, axes = plt.subplots(2, 1, figsize=(WIDE, 3.6), sharex=True)
    for ax, (title, metric) in zip(axes, found.items(), strict=True):
        table, ends = study.numbers("candidates", metric=metric), {}
        for (dataset, split, public), own in table.groupby(["dataset", "split", "public"], sort=False):
            mean = own.assign(K=own["K"].astype(int)).groupby("K")[["value"]].mean()
            color = PALETTE[list(SPLIT).index(str(split))]
            look = {"marker": "os"[split == "noniid"], "alpha": 1 if public == "labeled" else 0.4}
            end = seeds_and_mean(ax, mean, color, **look)
            if public == "labeled" and dataset == table["dataset"].iloc[0]:
                ends[SPLIT[str(split)]] = end
        ax.set(title=title, ylim=(0, None))
        name_ends(ax, ends)
    axes[1].set_xlabel("groups K")
    return figure


def say_candidates(study: Study) -> str:
    """How the number of candidates falls with K."""
    frame = study.numbers("candidates", metric="M")
    mean = frame.assign(K=frame["K"].astype(int)).groupby("K")["value"].mean()
    if len(mean) < 2:
        return ""
    none = study.numbers("candidates", metric="none")
    none = none.assign(K=none["K"].astype(int)).groupby("K")["value"].mean()
    falls = bool((mean.diff().iloc[1:] <= 0).all())
    return (
        f"Look from left to right: from K = {mean.index[0]} to {mean.index[-1]} the number of candidates goes from "
        f"{mean.iloc[0]:.1f} to {mean.iloc[-1]:.1f}, {'never rising' if falls else 'with rises between'}; with K = "
        f"{none.idxmax()} {none.max():.0f} % of the rounds have none."
    )


def draw_fig2(study: Study) -> Figure:
    """The method as a drawing; it needs no run."""
    figure, ax = plt.subplots(figsize=(WIDE, 4.6))
    ax.set(xlim=(-0.4, 6.6), ylim=(-4.1, 3.3))
    ax.set_axis_off()
    steps = {
        (1.4, 3.0): "1 cut the uploads\ninto blocks",
        (4.9, 3.0): "2 group blocks that do\nthe same (equations 3, 4)",
    }
    steps |= {(2.6, -0.9): "3 chain one of each group, stitch, train on public images"}
    steps |= {(3.1, -3.9): "4 each client learns from its labels and from\nthe candidate most like its own network"}
    for (x, y), text in steps.items():
        ax.text(x, y, text, ha="center", va="center")
    for b, (name, blocks) in enumerate((("M1", "CCFF"), ("M2", "CCCFF"), ("M3", "CCCCFF"))):
        ax.text(0.1, 2 - b, f"client {b + 1}\n{name}", va="center", ha="center")
        for h, block in enumerate(blocks):
            square(ax, 0.8 + 0.36 * h, 2 - b, block, PALETTE[b])
    for k, block in enumerate("CCF"):
        ax.text(4.2, 2 - k, f"group {k + 1}", va="center", ha="center")
        for b in range(3):
            square(ax, 4.9 + 0.36 * b, 2 - k, block, PALETTE[b])
    for m, chain in enumerate([((1, "C"), (2, "C"), (0, "F")), ((2, "C"), (0, "C"), (1, "F"))]):
        ax.text(4.1, -1.7 - m, f"teacher of client {2 - m}", va="center")
        for x, (b, block) in enumerate(chain):
            square(ax, 2.4 + 0.6 * x, -1.7 - m, block, PALETTE[b])
            if x:
                ax.plot(2.1 + 0.6 * x, -1.7 - m, "D", color="white", markeredgecolor="black", markersize=4)
    arrow(ax, (3.1, 1), (3.7, 1))
    arrow(ax, (5.6, -0.4), (4.2, -1.4), bend=-0.35)
    arrow(ax, (2.0, -2.2), (0.1, -0.5), bend=-0.3)
    return figure


def draw_partitions(study: Study) -> Figure:
    """Images of each class that each client has, by split, in the first data set."""
    figure, axes = plt.subplots(2, 1, figsize=(WIDE, 4.2))
    for ax, (split, name) in zip(axes, SPLIT.items(), strict=True):
        task = next(
            t for cell in study.cells for t in cell.tasks if cell.item == "table2" and f"split={split}" in cell.setting
        )
        assert isinstance(task, Run)
        plot_partition(task.arguments(0)["federation"].train_counts, ax)
        ax.set_title(name, loc="left")
    return figure


def square(ax: Axes, x: float, y: float, text: str, color: str) -> None:
    """One block."""
    box(ax, (x, y), (0.3, 0.5), text, facecolor=color, edgecolor=BLACK, linewidth=0.6)
