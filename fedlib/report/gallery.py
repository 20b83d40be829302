"""`index.html`: all results of one profile on one page that needs no network, and a page for every notebook."""

import base64
import json
import re
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from nbformat.reader import NotJSONError
from PIL import Image
from pygments.formatters import HtmlFormatter

from fedlib.files import write_text
from fedlib.report.claims import VERDICTS
from fedlib.report.page import markdown_to_html, notebook_body
from fedlib.report.paper import PAPERS
from fedlib.report.style import label
from fedlib.report.templates import TEMPLATES

ROWS = 60  # rows of a table on the page; its file has all rows


class Picture(NamedTuple):
    """A figure of a report: its name, its file, the file's content as a data URI, and what it shows."""

    name: str
    file: str
    data: str
    alt: str


class Table(NamedTuple):
    """A table of a report: its name, its file, its caption, its first rows as HTML, how many there are."""

    name: str
    file: str
    caption: str
    html: str
    rows: int


def in_order(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder in numerical order: fig2 before fig10."""

    def key(path: Path) -> list[str | int]:
        return [int(text) if text.isdigit() else text for text in re.split(r"(\d+)", path.stem)]

    return sorted(folder.glob(pattern), key=key)


def pictures(folder: Path) -> list[Picture]:
    """The figures in a report's folder, with their alternative text."""
    found = []
    for path in in_order(folder, "*.png"):
        with Image.open(path) as image:
            alt = image.info.get("Description", path.stem)
        data = base64.b64encode(path.read_bytes()).decode()
        found.append(Picture(path.stem, f"{folder.name}/{path.name}", f"data:image/png;base64,{data}", alt))
    return found


def tables(folder: Path) -> list[Table]:
    """The tables in a report's folder, without the table of claims."""
    found = []
    for path in in_order(folder, "*.md"):
        if path.stem == "claims":
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("|"))  # below it: a rule, then the rows
        html = markdown_to_html("\n".join(lines[first : first + 2 + ROWS]), escape=True)
        rows = len(lines) - first - 2
        found.append(Table(path.stem, f"{folder.name}/{path.stem}.csv", " ".join(lines[:first]).strip(), html, rows))
    return found


def paper(folder: Path) -> dict[str, object]:
    """The entries of the page for one report's folder."""
    claims = pd.read_csv(folder / "claims.csv", dtype=str, keep_default_na=False)
    facts = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    return {
        "name": folder.name,
        "title": label(folder.name),
        "claims": claims.to_dict("records"),
        "counts": [int((claims["verdict"] == verdict).sum()) for verdict in VERDICTS.values()],
        "pictures": pictures(folder),
        "tables": tables(folder),
        "facts": facts,
        "provenance": json.dumps(facts, indent=2, ensure_ascii=False),
        "notebooks": [f"{folder.name}/{path.name}" for path in in_order(folder, "*.html")],
    }


def write_gallery(folder: str | Path) -> Path | None:
    """Write `index.html` into `figures/<profile>`, and a page beside every executed notebook; returns the index.

    Papers without a finished report (`claims.csv` and `provenance.json`) are left out; without any there is no index.
    """
    folder = Path(folder)
    finished = [folder / name for name in PAPERS if {"claims.csv", "provenance.json"} <= names(folder / name)]
    if not finished:
        return None
    look = TEMPLATES.get_template("style.css").render(code=HtmlFormatter(style="default").get_style_defs(".highlight"))
    for report in finished:
        for path in report.glob("*.ipynb"):
            try:
                body = notebook_body(path)
            except NotJSONError:  # incomplete: being written, or interrupted; its old page is kept
                continue
            page = TEMPLATES.get_template("notebook.html").render(title=path.stem, style=look, body=body)
            write_text(path.with_suffix(".html"), page)
    papers = list(map(paper, finished))
    missing = [label(name) for name in PAPERS if folder / name not in finished]
    index = TEMPLATES.get_template("index.html").render(
        profile=folder.name, papers=papers, verdicts=list(VERDICTS.values()), missing=missing, style=look, shown=ROWS
    )
    return write_text(folder / "index.html", index)


def names(folder: Path) -> set[str]:
    """The names of the files in a folder; none if there is no such folder."""
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()
