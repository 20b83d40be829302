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
from fedlib.report.paper import PAPERS
from fedlib.report.style import label
from fedlib.report.templates import TEMPLATES
from fedlib.studies.study import study
from fedlib.studies.verdict import shares
from fedlib.tools.page import markdown_to_html, notebook_body

ROWS = 60  # rows of a table on the page; its file has all rows


class Shown(NamedTuple):
    """A table or figure of a report.

    Attributes:
        name: its name.
        title: its caption.
        picture: content of its PNG file as a data URI; "": it has none.
        drawing: its SVG file.
        alt: what the picture shows.
        table: its first rows as HTML; "": it has none.
        file: the CSV file.
        rows: how many there are.
    """

    name: str
    title: str
    picture: str = ""
    drawing: str = ""
    alt: str = ""
    table: str = ""
    file: str = ""
    rows: int = 0


def in_order(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder in numerical order: fig2 before fig10."""

    def key(path: Path) -> list[str | int]:
        return [int(text) if text.isdigit() else text for text in re.split(r"(\d+)", path.stem)]

    return sorted(folder.glob(pattern), key=key)


def shown(folder: Path, name: str, title: str) -> Shown:
    """What a report's folder has of one item: its figure, its table, or both."""
    found = Shown(name, title)
    picture, table = folder / f"{name}.png", folder / f"{name}.md"
    if picture.exists():
        with Image.open(picture) as image:
            alt = str(image.info.get("Description", name))
        data = base64.b64encode(picture.read_bytes()).decode()
        uri, drawing = f"data:image/png;base64,{data}", f"{folder.name}/{name}.svg"
        found = found._replace(picture=uri, drawing=drawing, alt=alt)
    if table.exists() and (folder / f"{name}.csv").exists():
        lines = table.read_text(encoding="utf-8").splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("|"))  # below it: a rule, then the rows
        html = markdown_to_html("\n".join(lines[first : first + 2 + ROWS]), escape=True)
        title = found.title or " ".join(lines[:first]).strip()
        found = found._replace(title=title, table=html, file=f"{folder.name}/{name}.csv", rows=len(lines) - first - 2)
    return found


def items(folder: Path) -> list[Shown]:
    """All tables and figures of a report: those of the paper in its order, then the others."""
    known = study(folder.name).shown
    names = {path.stem for path in (*in_order(folder, "*.png"), *in_order(folder, "*.csv"))} - {"claims", "hero"}

    def key(name: str) -> tuple[bool, list[int], str]:
        return not re.match(r"(table|fig)\d", name), [int(n) for n in re.findall(r"\d+", name)], name

    found = [shown(folder, name, known[name].title if name in known else "") for name in sorted(names, key=key)]
    return [item for item in found if item.picture or item.table]


def paper(folder: Path) -> dict[str, object]:
    """The entries of the page for one report's folder."""
    claims = pd.read_csv(folder / "claims.csv", dtype=str, keep_default_na=False)
    facts = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    hero, says = shown(folder, "hero", ""), folder / "hero.md"
    all_items = items(folder)
    return {
        "name": folder.name,
        "title": label(folder.name),
        "claims": claims.to_dict("records"),
        "bars": {"at full size": shares(claims["full_size"]), "here": shares(claims["verdict"])},
        "hero": hero,
        "says": says.read_text(encoding="utf-8").strip() if says.exists() else "",
        "items": all_items,
        "names": {item.name for item in all_items},
        "stand_ins": ", ".join(dict.fromkeys(text for text in claims["stand_in"] if text)),
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
        profile=folder.name, papers=papers, missing=missing, style=look, most=ROWS, site=has_site(folder)
    )
    return write_text(folder / "index.html", index)


def has_site(folder: Path) -> bool:
    """Whether the site stands beside the results of a profile: `make site`."""
    return (folder.parent / "site" / "index.html").exists()


def names(folder: Path) -> set[str]:
    """The names of the files in a folder; none if there is no such folder."""
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()
