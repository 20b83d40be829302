"""Tables, figures, ledger and scoreboard of all papers, made from the rows of evidence."""

import gc
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from fedlib.files import write_file, write_text
from fedlib.report.output import markdown, with_deviations, write_table
from fedlib.report.paper import KEY, PAPERS, PROFILES, PROTOCOLS, QUESTIONS, TITLES, reported
from fedlib.report.style import PALETTE, WIDE, use_style
from fedlib.studies import rows as row_files
from fedlib.studies.item import Item
from fedlib.studies.layout import IN_PERCENT, POINTS, first_protocol, item_title, percentages
from fedlib.studies.study import Study, study
from fedlib.studies.verdict import VERDICTS

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "figures" / "reference" / "evidence"
HEADS = tomllib.loads(Path(__file__).with_name("heads.toml").read_text(encoding="utf-8"))  # texts above the tables


def differences_page(frame: pd.DataFrame, link: Callable[[str, str], str], picture: str) -> str:
    """`Study.differences` of all papers as Markdown; `link(paper, item)` is the address of a table or a control."""
    keys = frame[["paper_id", "item"]].to_numpy()
    tables = [f"[{TITLES[paper]}, {item_title(item)}]({link(paper, item)})" for paper, item in keys]
    shown = frame.assign(table=tables, farthest=frame["name"].map(plain), printed=frame["paper"], ours=frame["value"])
    shown = shown[["table", "measured", "apart", "farthest", "printed", "ours", "difference"]]
    sections: dict[str, dict[str, list[str]]] = {}
    for paper, item, says in frame[["paper_id", "item", "says"]].to_numpy():
        _, *lines = in_markdown(says, partial(link, paper))
        for line in lines:
            sections.setdefault(paper, {}).setdefault(line, []).append(item_title(item))
    parts = [
        f"## {TITLES[paper]}\n\n" + "".join(f"- {', '.join(tables)}: {line}\n" for line, tables in lines.items())
        for paper, lines in sections.items()
    ]
    return "\n".join([HEADS["differences"], picture + "\n", markdown(shown, digits=1), *parts])


def in_markdown(says: str, link: Callable[[str], str]) -> list[str]:
    """Lines about differences as Markdown; the name of a control links to `link(name)`."""
    lines = plain(says).split("\n")
    return [re.sub(r'(?<=^The control )"(\w+)"', lambda name: f"[{name[1]}]({link(name[1])})", line) for line in lines]


def plain(text: str) -> str:
    """Escape text for Markdown."""
    return re.sub(r"([\\`*<>$\[\]])", r"\\\1", text)


def build(folder: Path = FOLDER) -> pd.DataFrame:
    """Write all tables and figures made from the rows, several papers at the same time; returns the summary."""
    papers = sorted(PAPERS, key=lambda paper: -len(row_files.read(paper)))  # the longest first
    made = dict(zip(papers, Parallel(n_jobs=-1)(delayed(_build_paper)(paper, folder) for paper in papers), strict=True))
    columns = zip(*(made[paper] for paper in PAPERS), strict=True)
    whole, ledger, apart, items = (pd.concat(frames, ignore_index=True) for frames in columns)
    with mpl.rc_context():
        use_style()
        _save(all_differences(whole), folder / "differences")

    def link(paper: str, item: str) -> str:  # to the figure, or to the table without one
        kinds = (kind for kind in ("svg", "md") if (folder / paper / f"{item}.{kind}").exists())
        return f"{paper}/{item}.{next(kinds)}"

    picture = f"![{ALT}](differences.svg)\n\n*Grey band: {how_near(whole)}*"
    _write(apart, folder / "differences", differences_page(apart, link, picture))
    for name, table in (("scoreboard", whole), ("ledger", ledger), ("items", items)):
        _write(table, folder / name)
    parts = [(TITLES[p], whole[whole["paper_id"] == p], ledger[ledger["paper"] == p]) for p in PAPERS]
    frame = pd.DataFrame(summary(*part) for part in [*parts, ("all", whole, ledger)])
    _write(frame, folder / "summary")
    return frame


def write_score(summary: pd.DataFrame, readme: Path = ROOT / "README.md") -> None:
    """Write the summary and the answers to the papers' questions into the README, in place of the old ones."""
    old = readme.read_text(encoding="utf-8")
    text = re.sub(r"\| paper \| printed \|(.*\n\|)+.*\n", lambda _: markdown(summary), old)
    for paper, title in TITLES.items():
        if answer := study(paper).answer():
            line = f"- **{title}.** {QUESTIONS[paper]} {answer.says}"
            text = re.sub(rf"- \*\*{title}\.\*\* .*", lambda _, line=line: line, text)
    write_text(readme, text)


def summary(name: str, board: pd.DataFrame, ledger: pd.DataFrame) -> dict[str, object]:
    """A row of the summary: printed and measured numbers, percentages near the printed ones by protocol, verdicts."""
    first, gaps = first_protocol(board), percentages(board).groupby("protocol")["difference"]
    near = {protocol: f"{(own.abs() <= POINTS).sum()} of {len(own)}" for protocol, own in gaps}
    counted = {"paper": name, "printed": first["paper"].count(), "measured": first["difference"].count()}
    counted |= {words: near.get(protocol, "") for protocol, words in PROTOCOLS.items()}
    return counted | {verdict: (ledger["verdict"] == verdict).sum() for verdict in VERDICTS}


def _build_paper(paper: str, folder: Path) -> tuple[pd.DataFrame, ...]:
    """Write the tables and figures of a paper; returns its scoreboard, ledger, differences and `completeness`."""
    gc.set_threshold(1_000_000)  # the garbage of figures is small, and looking for it takes a sixth of the time
    one = study(paper)
    board = one.scoreboard().assign(paper_id=paper)
    done = set(one.frame["item"])
    with mpl.rc_context():
        use_style()
        for item in sorted(done):
            _write(one.table(item), folder / paper / item)
        for item, about in one.shown.items():
            if about.drawing and (item in done or about.scheme):
                _save(one.figure(item), folder / paper / item)
        _save(printed_and_measured(one, board), folder / paper / "printed_and_measured")
    columns = ["paper_id", *KEY, "protocol", "value", "std", "n_seeds"]
    columns += ["paper", "paper_std", "difference", "commit", "changed", "stand_in"]
    ledger, apart = one.ledger().assign(paper=paper), one.differences().assign(paper_id=paper)
    return board[columns], ledger, apart, completeness(one)


def completeness(full: Study) -> pd.DataFrame:
    """The tables and figures of a paper, with the counts of their numbers: printed, made by each profile, measured."""
    lines, printed = [], Counter(reported(full.paper)["item"])
    made = {profile: Counter(cell.item for cell in study(full.paper, profile).cells) for profile in PROFILES}
    counts = {"printed": printed, **made, "measured": Counter(full.frame.drop_duplicates(KEY)["item"])}
    for item in dict.fromkeys([*full.shown, *printed]):
        shown = full.shown.get(item) or Item(item, "Numbers in the text")
        line = {"paper_id": full.paper, "item": item, "title": shown.title, "figure": "yes" if shown.drawing else ""}
        lines.append(line | {name: count[item] for name, count in counts.items()})
    return pd.DataFrame(lines)


def printed_and_measured(one: Study, board: pd.DataFrame) -> Figure:
    """Plot every measured percentage, with its first protocol, against the printed one; on the diagonal they agree."""
    board = first_protocol(board)
    printed, both = (board["metric"].isin(IN_PERCENT) & board["paper"].notna()).sum(), percentages(board)
    figure, ax = plt.subplots(figsize=(WIDE, WIDE), layout="constrained")
    ax.plot([0, 100], [0, 100], color="0.7", linewidth=1, zorder=0)
    for (item, metric), rows in both.groupby(["item", "metric"], sort=False):
        name = ", ".join(filter(None, (item_title(str(item)), IN_PERCENT[str(metric)])))
        bars = {"xerr": rows["paper_std"].fillna(0), "yerr": rows["std"].fillna(0)}
        ax.errorbar(rows["paper"], rows["value"], **bars, fmt="o", markersize=4, linewidth=0.8, label=name)
    places, bars = both[["paper", "value"]].to_numpy(float), both[["paper_std", "std"]].fillna(0).to_numpy(float)
    ends = np.concatenate([places - bars, places + bars]) if len(both) else np.array([0.0, 100.0])
    margin = 0.05 * max(float(np.ptp(ends)), 1)
    limits = ends.min() - margin, ends.max() + margin
    ax.set(xlim=limits, ylim=limits, aspect="equal", xlabel="printed [%]", ylabel="measured [%]")
    ax.set_title(f"{TITLES[one.paper]}: {len(both)} of {printed} printed percentages", loc="left")
    if len(both):
        ax.legend(frameon=False)
    return figure


def all_differences(board: pd.DataFrame) -> Figure:
    """Draw the difference of every measured percentage from the printed one as a line, in a row for each table."""
    tables = percentages(board).groupby(["paper_id", "item"], sort=False)["difference"]
    figure, ax = plt.subplots(figsize=(WIDE, 0.8 + 0.3 * len(tables)), layout="constrained")
    ax.axvspan(-POINTS, POINTS, color="0.9", zorder=0)
    beside = {"x": 1.03, "transform": ax.get_yaxis_transform(), "va": "center"}
    ax.text(y=-0.8, s=f"within\n{POINTS:g} points", **beside)
    for row, ((paper, _), gaps) in enumerate(tables):
        lines = {"markersize": 11, "markeredgewidth": 1.5, "alpha": 0.6}
        ax.plot(gaps, [row] * len(gaps), "|", color=PALETTE[PAPERS.index(paper)], **lines)
        ax.text(y=row, s=f"{(gaps.abs() <= POINTS).sum()} of {len(gaps)}", **beside)
    ax.set_yticks(range(len(tables)), [f"{TITLES[paper]}, {item_title(item)}" for paper, item in tables.groups])
    ax.set(xlabel="measured minus printed [points]", ylim=(len(tables) - 0.5, -0.5))
    return figure


ALT = "One row per table, with a line for each number at its difference from the printed one, and a grey band."


def how_near(board: pd.DataFrame) -> str:
    """Count the measured percentages near the printed ones, above and below them."""
    gaps = percentages(first_protocol(board))["difference"]
    near, above, below = (gaps.abs() <= POINTS).sum(), (gaps > POINTS).sum(), (gaps < -POINTS).sum()
    start = f"of {len(gaps)} measured percentages, each under the first protocol of its table, {near} lie within"
    return f"{start} {POINTS:g} points of the printed ones, {above} farther above and {below} farther below."


def _write(frame: pd.DataFrame, path: Path, text: str = "") -> None:
    """Write a table as CSV and as Markdown, the latter with its head or as `text`."""
    head = HEADS.get(path.name, "").rstrip()
    write_table(path, frame, text or markdown(with_deviations(frame), head, missing=""), digits=6)


def _save(figure: Figure, path: Path) -> None:
    canvas, figure.dpi = FigureCanvasSVG(figure), 72  # the dpi of the file
    if engine := figure.get_layout_engine():
        engine.execute(figure)  # the last bits of a layout differ between builds
    figure.set_layout_engine("none")
    for ax in figure.axes:
        ax.set_position(np.round(ax.get_position(original=True).bounds, 6).tolist())
    figure.dpi = mpl.rcParams["savefig.dpi"]  # for images in the figure
    write_file(path.with_suffix(".svg"), lambda file: canvas.print_svg(file, metadata={"Date": None}))
    plt.close(figure)
