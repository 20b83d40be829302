"""A notebook's output folder: figures, tables, claims and provenance. Files are never incomplete."""

from __future__ import annotations

import ast
import inspect
import io
import json
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import HTML, Code, Image
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler
from pandas.io.formats.style_render import CSSDict

from fedlib.checks import check_choice
from fedlib.files import write_bytes, write_text
from fedlib.report.paper import PAPERS, PROFILES, PROTOCOLS, QUESTIONS, format_pm, readings
from fedlib.report.provenance import environment
from fedlib.report.style import COLOURS
from fedlib.report.templates import TEMPLATES

if TYPE_CHECKING:
    from fedlib.studies.study import Study

WRAPPED = "white-space: pre-wrap; overflow-wrap: anywhere; word-break: normal; font-family: ui-monospace, monospace"
REMARK = re.compile(rf" \(({'|'.join(COLOURS)}|upper panel|lower panel)\)|, ({'|'.join(COLOURS)})(?=\))")  # on a figure
SENTENCE_END = re.compile(r"(?<=\.)(?<!Fig\.)\s")
LEFT: list[CSSDict] = [{"selector": "td", "props": "text-align: left"}]  # a table of sentences


@dataclass(frozen=True)
class Report:
    """The output folder of one notebook, made by `open`. Its methods write files and return an object to display.

    Attributes:
        paper: one of `PAPERS`.
        profile: size of the runs, one of "smoke", "quick" and "paper".
        folder: folder of all files, by custom `figures/<profile>/<paper>`.

    The name of a file has lower-case letters, digits, "_" and "-". A study contains the runs done so far; an item that
    it does not have raises `ValueError`.
    """

    paper: str
    profile: str
    folder: Path

    def figure(self, figure: Figure, name: str, alt: str, says: str = "") -> Image:
        """Write `<name>.png` (200 dpi) and `<name>.svg`, and close the figure. The same figure gives the same bytes.

        Both files hold `alt`, a description of the figure; the PNG also holds `says`, its meaning, as a comment.

        Raises:
            ValueError: `name` is not allowed, or `alt` is empty.
        """
        _check_name(name)
        if not alt.strip():
            raise ValueError(f"figure {name!r} has an empty alt; give a sentence that describes the figure.")
        png, svg = io.BytesIO(), io.BytesIO()
        about = {"Title": name, "Description": alt} | ({"Comment": says} if says else {})
        with mpl.rc_context({"svg.hashsalt": "fedlib"}):
            figure.savefig(png, format="png", dpi=200, metadata=about)
            figure.set_layout_engine("none")  # the layout is final
            figure.savefig(svg, format="svg", metadata={"Title": name, "Description": alt, "Date": None})
        plt.close(figure)
        write_bytes(self.folder / f"{name}.png", png.getvalue())
        write_bytes(self.folder / f"{name}.svg", svg.getvalue())
        return Image(png.getvalue(), width=round(figure.get_figwidth() * 96), alt=alt)

    def table(self, frame: pd.DataFrame, name: str, caption: str = "", digits: int = 2) -> Styler:
        """Write `<name>.csv` (10 digits) and `<name>.md`.

        Args:
            frame: the table; its index is left out unless it has a name.
            name: name of the files.
            caption: sentence above the table.
            digits: decimals of numbers in `<name>.md` and on the screen.
        """
        _check_name(name)
        named = [level for level in frame.index.names if level is not None]
        flat = _flat(frame.reset_index() if named else frame.reset_index(drop=True))
        write_table(self.folder / name, flat, markdown(flat, caption, digits))
        styler = Styler(flat, uuid=name, precision=digits, na_rep="-", escape="html")
        return styler.hide(axis="index").set_caption(caption)

    def item(self, study: Study, name: str, hero: bool = False) -> HTML:
        """Write and show a table or figure of a paper, with printed numbers beside measured ones.

        `<name>.csv` and `<name>.md` hold the table, `<name>.png` and `<name>.svg` the figure; with `hero`, the figure
        represents the paper on the page of all results, as `hero.png`.
        """
        table = ""
        if study.item(name).drawing is None or any(cell.item == name for cell in study.cells):
            long, wide = study.table(name), study.side_by_side(name)
            write_table(self.folder / name, long, markdown(_flat(wide.reset_index()), study.item(name).title))
            table = Styler(wide, escape="html").set_table_attributes('class="numbers"').to_html()
        return self._show(study, name, name, table, hero)

    def hero(self, study: Study, name: str) -> HTML:
        """Show the figure that a notebook begins with, and its sentence; the files are `hero.png` and `hero.svg`.

        It is drawn from the numbers measured at the paper's size or, if there are none, from the runs of this notebook.
        """
        full = study.at_full_size
        shown = full if (full.frame["item"] == name).any() else study.run(name, progress=False)
        return self._show(shown, name, anchor="hero", hero=True)

    def _show(self, study: Study, name: str, anchor: str, table: str = "", hero: bool = False) -> HTML:
        """The figure, the table and the sentence of an item; the figure of a `hero` represents the paper."""
        about, says = study.item(name), study.says(name)
        figure = study.figure(name) if about.drawing else None
        picture = self.figure(figure, name, str(figure.get_label()) or about.alt, says) if figure else None
        if hero:
            for kind in ("png", "svg"):
                write_bytes(self.folder / f"hero.{kind}", (self.folder / f"{name}.{kind}").read_bytes())
            write_text(self.folder / "hero.md", about.title + "\n")
        return _html("item.html", name=anchor, about=about, table=table, says=says, picture=picture)

    def items(self, study: Study, *names: str) -> HTML:
        """Write and show further tables and figures, each folded below its title."""
        return HTML("\n".join(_folded(study.item(name).title, str(self.item(study, name).data)) for name in names))

    def verdicts(self, study: Study) -> HTML:
        """Judge all claims of the paper, at this size and at the paper's; write `claims.csv` and `claims.md`."""
        here, full = study.ledger(), study.at_full_size.ledger()
        ledger = here.assign(full_size=full["verdict"], measured_at_full_size=full["measured"])
        counted = ", ".join(f"{verdict}: {n}" for verdict, n in full["verdict"].value_counts().items())
        text = markdown(ledger.drop(columns="check"), f"Claims at full size: {counted}.")
        write_table(self.folder / "claims", ledger, text)
        claims, same = ledger.to_dict("records"), study.profile == "paper"
        return _html("claims.html", claims=claims, same=same, counted=counted)

    def differences(self, study: Study) -> HTML:
        """Show the differences from the printed results at the paper's size; they are written as `differences.csv`."""
        frame = study.at_full_size.differences()
        write_table(self.folder / "differences", frame)
        tables, first = [], {}  # the sentence of a control stands at its first table
        for item, says in frame[["item", "says"]].to_numpy():
            one = study.item(item)
            anchor = one.name.removesuffix(f"_{one.protocol}")
            several = one.others or anchor != one.name  # then the name contains the source of the settings
            name = one.title.split(":")[0] + f" ({PROTOCOLS[one.protocol]})" * bool(several)
            lines = [
                line if first.setdefault(line, name) == name else f"{line.partition(':')[0]}: see {first[line]}."
                for line in says.split("\n")
            ]
            tables.append((anchor, name, lines))
        return _html("differences.html", tables=tables)

    def answer(self, study: Study) -> HTML:
        """Show the answer to the paper's question: a sentence and three numbers, measured at the paper's size."""
        return _html("answer.html", question=QUESTIONS[self.paper], answer=study.at_full_size.answer())

    def learned(self, study: Study, **topics: str) -> HTML:
        """Show the results by topic, such as `table3="The accuracy"`: the first sentence of each item.

        Without numbers at the paper's size, those of this size are used.
        """
        lines = []
        for item, topic in topics.items():
            check_choice("item", item, study.shown)
            full, here = study.at_full_size.says(item), study.says(item)
            text = REMARK.sub("", SENTENCE_END.split(full or here)[0])
            lines.append((item, topic, text, "full size" if full else "here"))
        return _html("learned.html", lines=lines)

    def readings(self) -> HTML:
        """The paper's `readings` as a folded table, for display only."""
        frame = readings(self.paper)
        table = Styler(frame, uuid="all-readings", escape="html").hide(axis="index").set_table_styles(LEFT)
        title = f"{len(frame)} passages where the paper is silent or contradicts itself, and the choices made here"
        return HTML(_folded(title, table.to_html()))

    def provenance(self, facts: Mapping[str, object]) -> dict[str, object]:
        """Write and return `provenance.json`: versions, commit and machine, and further facts by name."""
        facts = {"paper": self.paper, "profile": self.profile, **environment(), **facts}
        facts = json.loads(json.dumps(facts, default=_plain), parse_constant=lambda _: None)  # NaN becomes null
        text = json.dumps(facts, indent=2, sort_keys=True, ensure_ascii=False)
        write_text(self.folder / "provenance.json", text + "\n")
        return dict(facts)


def open_report(paper: str, profile: str, folder: str | Path) -> Report:
    """Make the report of one paper at one size. Nothing is written before the first figure or table.

    Args:
        paper: one of `PAPERS`.
        profile: size of the runs, one of "smoke", "quick" and "paper".
        folder: folder of all files; it is made when it is needed.

    Returns:
        The report.

    Raises:
        ValueError: the paper or the profile is unknown.

    Example:
        >>> report = fl.report.open("pfedsim", "quick", folder="figures/quick/pfedsim")
        >>> figure, ax = plt.subplots()
        >>> report.figure(figure, "fig1", alt="Empty axes.")
        <IPython.core.display.Image object>
        >>> table = report.table(pd.DataFrame({"accuracy": [79.1]}), "table1", caption="Accuracy [%].")
        >>> sorted(path.name for path in report.folder.iterdir())
        ['fig1.png', 'fig1.svg', 'table1.csv', 'table1.md']
    """
    check_choice("paper", paper, PAPERS)
    check_choice("profile", profile, PROFILES)
    return Report(paper, profile, Path(folder))


def write_table(path: Path, frame: pd.DataFrame, text: str = "", digits: int = 10) -> None:
    """Write a frame as `<path>.csv` with this number of digits, and the text as `<path>.md`."""
    csv = frame.to_csv(index=False, lineterminator="\n", float_format=f"%.{digits}g")
    write_text(path.with_suffix(".csv"), csv)
    if text:
        write_text(path.with_suffix(".md"), text)


def markdown(frame: pd.DataFrame, caption: str = "", digits: int = 2, missing: str = "-") -> str:
    """Write a frame as a Markdown table, without its index, with numbers aligned right."""

    def cell(value: object) -> str:
        if not isinstance(value, str) and pd.isna(value):  # pyright: ignore[reportArgumentType, reportCallIssue]
            return missing
        if isinstance(value, float | np.floating):
            return f"{value:.{digits}f}"
        return re.sub(r"\s*\n\s*", " ", str(value)).replace("|", r"\|")

    right = [pd.api.types.is_numeric_dtype(frame[column]) for column in frame.columns]
    rows = [[cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    lines = [[cell(str(column)) for column in frame.columns], ["---:" if r else "---" for r in right], *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"{caption}\n\n{table}" if caption else table


def with_deviations(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame of measured and printed numbers for reading: mean ± standard deviation as one text, short commits."""
    shown = frame.copy()
    for mean, std in (("value", "std"), ("paper", "paper_std")):
        if {mean, std} <= {*shown}:
            shown[mean] = [format_pm(*pair) for pair in shown[[mean, std]].to_numpy(float)]
            shown = shown.drop(columns=std)
    if "difference" in shown:
        shown["difference"] = [f"{d:+.2f}" if np.isfinite(d) else "" for d in shown["difference"].astype(float)]
    if "commit" in shown:
        shown["commit"] = shown["commit"].fillna("").str[:7]
    if "changed" in shown:
        shown["changed"] = ["code has changed since" if changed is True else "" for changed in shown["changed"]]
    return shown


def source(function: Callable[..., object]) -> HTML:
    """Show the source of a function in a notebook, highlighted; a long docstring is folded below its first line.

    Args:
        function: a function or class.

    Returns:
        The source, for display; long lines are wrapped.

    Example:
        >>> shown = fl.report.source(fl.fedavg).data
        >>> shown.startswith("<details><summary>Full description of fedavg</summary>")
        True
    """
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    body = getattr(ast.parse("\n".join(lines)).body[0], "body", [])
    text, first = inspect.getdoc(function) or "", body[0] if body else None
    folded = ""
    if first is not None and text and first.lineno < (first.end_lineno or 0):
        indent, title = " " * first.col_offset, text.splitlines()[0]
        lines[first.lineno - 1 : first.end_lineno] = [f'{indent}"""{title}"""']
        folded = _folded(f"Full description of {function.__name__}", f"<pre>{escape(text)}</pre>")
    code = Code("\n".join(lines), language="python")._repr_html_()
    return HTML((folded + str(code)).replace("<pre>", f'<pre style="{WRAPPED}">'))


def _html(template: str, **entries: object) -> HTML:
    return HTML(TEMPLATES.get_template(template).render(**entries))


def _folded(title: str, html: str) -> str:
    return f"<details><summary>{escape(title)}</summary>\n{html}\n</details>"


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with one level of column names."""
    names = [" ".join(map(str, c)).strip() if isinstance(c, tuple) else str(c) for c in frame.columns]
    return frame.set_axis(names, axis=1)


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise ValueError(f"name={name!r} is not allowed; it must be lower-case letters, digits, '_' and '-'.")


def _plain(value: object) -> object:
    """A NumPy value, set or path as a JSON type."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return sorted(value) if isinstance(value, set) else str(value)
