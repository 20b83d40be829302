"""A notebook's output folder: figures, tables, claims and provenance, each written whole or not at all."""

import io
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler

from fedlib.checks import check_choice
from fedlib.files import write_bytes, write_text
from fedlib.report.claims import Ledger
from fedlib.report.paper import PAPERS
from fedlib.report.provenance import environment

PROFILES = ("smoke", "quick", "paper", "reference")


@dataclass(frozen=True, repr=False)
class Picture:
    """A saved figure as a notebook shows it: PNG with its alternative text."""

    png: bytes
    alt: str
    width: int  # pixels on the screen

    def _repr_png_(self) -> tuple[bytes, dict]:
        return self.png, {"alt": self.alt, "width": self.width}

    def __repr__(self) -> str:
        return f"Picture({self.alt!r})"


@dataclass(frozen=True)
class Report:
    """Where one notebook's results go: `folder` is `figures/<profile>/<paper>` unless told otherwise."""

    paper: str
    profile: str
    folder: Path

    def figure(self, figure: Figure, name: str, alt: str) -> Picture:
        """Write `<name>.png` (200 dpi) and `<name>.svg`, close the figure and return it for display.

        The same figure gives the same bytes. `alt` says in words what the picture shows; both files carry it.
        """
        _check_name(name)
        if not alt.strip():
            raise ValueError(f"figure {name!r} needs alt, a sentence that says what it shows; it is empty.")
        png, svg = io.BytesIO(), io.BytesIO()
        with mpl.rc_context({"svg.hashsalt": "fedlib"}):
            figure.savefig(png, format="png", dpi=200, metadata={"Title": name, "Description": alt})
            figure.savefig(svg, format="svg", metadata={"Title": name, "Description": alt, "Date": None})
        plt.close(figure)
        write_bytes(self.folder / f"{name}.png", png.getvalue())
        write_bytes(self.folder / f"{name}.svg", svg.getvalue())
        return Picture(png.getvalue(), alt, round(figure.get_figwidth() * 96))

    def table(self, frame: pd.DataFrame, name: str, caption: str = "", digits: int = 2) -> Styler:
        """Write `<name>.csv` (10 digits) and `<name>.md` (`digits` decimals); return it for display.

        The index is left out unless it has a name.
        """
        _check_name(name)
        named = [level for level in frame.index.names if level is not None]
        flat = frame.reset_index() if named else frame.reset_index(drop=True)
        flat.columns = [" ".join(map(str, c)).strip() if isinstance(c, tuple) else str(c) for c in flat.columns]
        write_text(self.folder / f"{name}.csv", flat.to_csv(index=False, lineterminator="\n", float_format="%.10g"))
        write_text(self.folder / f"{name}.md", markdown(flat, caption, digits))
        styler = Styler(flat, uuid=name, precision=digits, na_rep="-", escape="html").hide(axis="index")
        return styler.set_caption(caption) if caption else styler

    def claims(self, ledger: Ledger) -> Styler:
        """Write the ledger as `claims.csv` and `claims.md`; return it for display, verdicts coloured."""
        if ledger.paper != self.paper:
            raise ValueError(f"this report is about {self.paper!r}; the ledger is about {ledger.paper!r}.")
        counted = ", ".join(f"{number} {verdict}" for verdict, number in ledger.counts().items())
        styler = self.table(ledger.frame(), "claims", caption=f"Claims of the paper: {counted}.")
        colours = {
            "holds": "color: #00664B; font-weight: bold",
            "does not hold": "color: #A34700; font-weight: bold",
        }
        styler = styler.map(lambda verdict: colours.get(verdict, ""), subset=["verdict"])
        return styler.hide(["check"], axis="columns").set_table_styles(
            [{"selector": "td", "props": "text-align: left"}]
        )

    def provenance(self, facts: Mapping) -> dict:
        """Write `provenance.json`: versions, commit and machine, and the caller's `facts`; return all of it.

        `facts` holds what only the notebook knows: parameters, data fingerprints, seeds, seconds.
        """
        everything = _plain({"paper": self.paper, "profile": self.profile, **environment(), **facts})
        text = json.dumps(everything, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
        write_text(self.folder / "provenance.json", text + "\n")
        return everything


def open_report(paper: str, profile: str, folder: str | Path) -> Report:
    """The report of one paper at one size, into `folder`; nothing is written before the first figure or table."""
    check_choice("paper", paper, PAPERS)
    check_choice("profile", profile, PROFILES)
    return Report(paper, profile, Path(folder))


def markdown(frame: pd.DataFrame, caption: str = "", digits: int = 2) -> str:
    """A frame as a Markdown table without its index; numbers with `digits` decimals, aligned right."""

    def cell(value: object) -> str:
        if not isinstance(value, str) and pd.isna(value):
            return "-"
        if isinstance(value, float | np.floating):
            return f"{value:.{digits}f}"
        return re.sub(r"\s*\n\s*", " ", str(value)).replace("|", r"\|")

    right = [pd.api.types.is_numeric_dtype(frame[column]) for column in frame.columns]
    rows = [[cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    lines = [[cell(str(column)) for column in frame.columns], ["---:" if r else "---" for r in right], *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"{caption}\n\n{table}" if caption else table


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise ValueError(f"name={name!r} is not allowed; it must be lower-case letters, digits, '_' and '-'.")


def _plain(value: object) -> object:
    """The same value in JSON's types; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | np.ndarray):
        return [_plain(item) for item in (sorted(value) if isinstance(value, set) else value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
