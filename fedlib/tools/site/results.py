"""The pages of results: the start page, the scoreboard, the ledger, and a page for each paper and for each claim.

No sentence about a result is typed by hand; all are generated from the files of the evidence.
"""

import re
from collections.abc import Hashable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.report.output import markdown
from fedlib.report.paper import KEY, PAPERS, PROTOCOLS, QUANTITIES, QUESTIONS, TITLES, format_pm, readings
from fedlib.report.provenance import git
from fedlib.report.style import PALETTE, base_method, data_label, label
from fedlib.studies.layout import first_protocol, item_title, percentages, printed_item
from fedlib.studies.pages import ALT, differences_page, how_near, in_markdown
from fedlib.studies.rows import Row, path_of
from fedlib.studies.verdict import VERDICTS
from fedlib.tools.site.evidence import Evidence, counted, names, numbers, runs, side_by_side
from fedlib.tools.site.markup import EXTRA, ROOT, Pages, anchor, fill, place

PICTURES = "pictures/evidence"  # folder of the figures on the site
LESSONS = ["First steps <notebooks/00_first_steps>", "Playground <notebooks/playground>"]
LESSONS += [f"{TITLES[paper]} notebook <notebooks/{i:02d}_{paper}>" for i, paper in enumerate(PAPERS, 1)]
PROBLEMS = [f"notebooks/{sheet.stem}" for sheet in sorted((ROOT / "notebooks").glob("problems*.ipynb"))]
TOCTREES = {  # the navigation of the site
    "Results": ["scoreboard", "ledger", "Differences <differences>", *(f"{TITLES[p]} <papers/{p}>" for p in PAPERS)],
    "Learn": [*LESSONS, *PROBLEMS, "glossary", "lecturer"],
    "Library": ["use", "data", "runs", "trust", "methods/index", "api/index"],
    "Project": ["contributing", "changes"],
}


def pages(evidence: Evidence) -> Pages:
    """All pages of results, and their pictures."""
    made: Pages = {}
    for path in evidence.folder.rglob("*.svg"):
        made[f"{EXTRA}{PICTURES}/{path.relative_to(evidence.folder).as_posix()}"] = path.read_bytes()
    ledger = evidence.ledger
    made["ledger.md"] = fill("ledger.md", claims=ledger.to_dict("records"), bar=bar(evidence.summary.iloc[-1]))
    made["scoreboard.md"] = scoreboard(evidence, made)
    picture = figure(evidence, "", "differences", ALT, says=f"Grey band: {how_near(evidence.board)}", up="")
    made["index.md"] = start(evidence, picture)
    made["differences.md"] = differences_page(evidence.apart, section, picture)
    for paper in PAPERS:
        made[f"papers/{paper}.md"] = paper_page(evidence, paper)
        made[f"{EXTRA}files/{paper}_readings.csv"] = readings(paper).to_csv(index=False).encode()
        claims = ledger[ledger["paper"] == paper].to_dict("records")
        ids = ["", *(claim["id"] for claim in claims), ""]
        for claim, before, after in zip(claims, ids, ids[2:], strict=False):
            made[f"claims/{claim['id']}.md"] = claim_page(evidence, claim, before, after)
    return made


def bar(row: Mapping[Hashable, int]) -> dict[str, int]:
    """The number of claims by verdict, as parts of a bar, from a row of the summary."""
    return {verdict: row[verdict] for verdict in VERDICTS if row[verdict]}


def citation(paper: str) -> str:
    """The citation of a paper in the README, as Markdown."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^- {TITLES[paper]}: (.*(?:\n  .*)*)", text, re.MULTILINE)
    return re.sub(r"\s+", " ", found[1]) if found else ""


def start(evidence: Evidence, picture: str) -> str:
    """The start page; `picture` is shown beside the score."""
    total, cards = evidence.summary.iloc[-1], []
    for paper, row in zip(PAPERS, evidence.summary.to_dict("records"), strict=False):
        own, answer = evidence.studies[paper], evidence.studies[paper].answer()
        card = dict(id=paper, name=TITLES[paper], question=QUESTIONS[paper], answer=answer, bar=bar(row))
        if answer:
            card |= dict(picture=drawing(evidence, paper, answer.figure), alt=own.item(answer.figure).alt)
        cards.append(row | card)
    shown = dict(total=total, bar=bar(total), claims=evidence.ledger.to_dict("records"), papers=cards, picture=picture)
    return fill("index.md", **shown, score=markdown(evidence.summary), toctrees=TOCTREES)


def shown_number(evidence: Evidence, row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """A row of numbers with its `paper_id`, as texts for the page and its links."""
    paper, item, method = row["paper_id"], row["item"], row["method"]
    digits, done = evidence.studies[paper].item(item).digits, row["n_seeds"] > 0
    return {
        "paper": paper,
        "key": (item, method, *(row[name] for name in KEY[2:])),
        "item": item_title(item),
        "section": item_title(printed_item(item)[0]),
        "method": method if method in QUANTITIES else label(method),
        "page": "" if method in QUANTITIES else base_method(method),
        "dataset": data_label(row["dataset"]),
        "stand_in": " ".join(map(data_label, row["stand_in"].split())),
        "setting": row["setting"].replace(";", ", "),
        "metric": row["metric"].replace("_", " "),
        "printed": format_pm(row["paper"], row["paper_std"], digits) if pd.notna(row["paper"]) else "",
        "ours": format_pm(row["value"], row["std"], digits) if done else "",
        "seeds": row["n_seeds"] if done else "",
        "difference": f"{row['difference']:+.{digits}f}" if pd.notna(row["difference"]) else "",
        "changed": row["changed"] == "True",
    }


def scoreboard(evidence: Evidence, made: Pages) -> str:
    """The page of all printed numbers, with the files of the runs behind ours."""
    log = git(ROOT, "log", "--all", "--format=%H %cs") or ""  # none outside a checkout
    days = dict(line.split() for line in log.splitlines())
    behind = {paper: runs(one) for paper, one in evidence.studies.items()}
    compared = {*percentages(evidence.board).index}
    rows, details = [], {}  # one entry of `details` for all numbers of the same runs and table
    for k, row in enumerate(evidence.board.to_dict("records")):
        paper, item, entry = row["paper_id"], row["item"], shown_number(evidence, row)
        entry |= {"id": anchor("-".join((paper, *entry["key"]))), "protocol": PROTOCOLS[row["protocol"]]}
        entry |= {"x": row["paper"], "y": row["value"]} if k in compared else {}
        own = dict.fromkeys(behind[paper].get(entry["key"], ()) if entry["ours"] else ())
        if own and (paper, item, *own) not in details:
            files = [file(paper, one, days, made) for one in own]
            names = [*dict.fromkeys(one.task for one in own)]
            details[paper, item, *own] = {**entry, "id": f"runs-{len(details)}", "names": names, "files": files}
        if own:
            entry["runs"] = details[paper, item, *own]["id"]
        rows.append(entry)
    total, colours = evidence.summary.iloc[-1], dict(zip(PAPERS, PALETTE, strict=False))
    return fill("scoreboard.md", rows=rows, total=total, details=[*details.values()], colours=colours)


def file(paper: str, row: Row, days: dict[str, str], made: Pages) -> dict[str, object]:
    """The file of a run or measurement on the site, and when and where it was made."""
    facts, path = row.facts, path_of(paper, row.task, row.seed)
    commit = facts.get("commit") or ""
    return {
        "where": place(path.relative_to(ROOT).as_posix(), made),
        "name": path.name,
        "commit": commit[:7],
        "day": days.get(commit, ""),
        "seconds": f"{facts['seconds']:,.0f}",
        "torch": facts.get("packages", {}).get("torch", ""),
        "machine": facts.get("machine", ""),
        "device": {"cuda": "GPU", "cpu": "CPU"}.get(facts.get("config", {}).get("device"), ""),
    }


def section(paper: str, item: str) -> str:
    """The address of an item of a paper on the site."""
    return f"papers/{paper}.html#{anchor(item_title(printed_item(item)[0]))}"


def drawing(evidence: Evidence, paper: str, item: str) -> str:
    """The address of the figure of an item, or "" without one; `paper=""`: a figure of all papers."""
    file = Path(paper, f"{item}.svg")
    return f"{PICTURES}/{file.as_posix()}" if (evidence.folder / file).exists() else ""


def item_figure(evidence: Evidence, paper: str, item: str, title: str = "") -> str:
    """The figure of an item with its sentence; "" if it has not been measured."""
    about, says = evidence.studies[paper].item(item), evidence.says[paper].get(item, "")
    return figure(evidence, paper, item, about.alt or about.title, title, says)


def hero(evidence: Evidence, paper: str) -> tuple[str, str]:
    """The figure that represents a paper, the first measured one, and its item; otherwise a sentence and ""."""
    for item, about in evidence.studies[paper].shown.items():
        if about.drawing and not about.scheme and (shown := item_figure(evidence, paper, item, about.title)):
            return shown, item
    return "No figure has been measured at the paper's size yet.\n", ""


def figure(
    evidence: Evidence, paper: str, item: str, alt: str, title: str = "", says: str = "", up: str = "../"
) -> str:
    """A `drawing` with its alternative text, title and sentence, or ""; `up` leads from the page to the start page."""
    file = drawing(evidence, paper, item)
    if not file:
        return ""
    text = (evidence.folder / paper / f"{item}.svg").read_text(encoding="utf-8")
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
    size = [round(4 / 3 * float(side)) for side in box.groups()]
    return fill("figure.md", file=up + file, alt=alt, title=title, says=says, size=size)


def paper_page(evidence: Evidence, paper: str) -> str:
    """The page of a paper."""
    name, claims = TITLES[paper], evidence.ledger[evidence.ledger["paper"] == paper]
    [row] = evidence.summary[evidence.summary["paper"] == name].to_dict("records")
    picture, on_top = hero(evidence, paper)
    shown = dict(paper=paper, name=name, number=PAPERS.index(paper) + 1, citation=citation(paper), row=row)
    shown |= dict(question=QUESTIONS[paper], answer=evidence.studies[paper].answer(), hero=picture, bar=bar(row))
    shown |= dict(claims=claims.to_dict("records"), readings=readings(paper).to_dict("records"))
    items = [item_section(evidence, paper, item, item == on_top) for item in names(evidence, paper)]
    return fill("paper.md", **shown, agreement=agreement(evidence, paper), items=items)


def agreement(evidence: Evidence, paper: str) -> str:
    """The figure of every measured percentage against the printed one; "" if there is none."""
    own = first_protocol(percentages(evidence.board[evidence.board["paper_id"] == paper]))
    if own.empty:
        return ""
    says = f"On the diagonal both agree: {how_near(own)} "
    says += f"The median distance is {own['difference'].abs().median():.1f} points."
    if own[["paper_std", "std"]].gt(0).any(axis=None):
        says += " Bars are standard deviations: horizontal for the printed numbers, vertical for our seeds."
    alt = "A point for each percentage: printed value on the x axis, measured value on the y axis; and the diagonal."
    return figure(evidence, paper, "printed_and_measured", alt, says=says)


def item_section(evidence: Evidence, paper: str, item: str, on_top: bool) -> dict[str, object]:
    """The section of an item: title, figure unless it is `on_top` of the page, printed and measured numbers, gaps."""
    title, rows = evidence.studies[paper].item(item).title, numbers(evidence, paper, item)
    title = re.sub(r"^(Tables?|Figs?\.|Eqs?\.) [^:]{1,12}: ", "", title) if title != item else ""
    wide = side_by_side(evidence, paper, item) if rows[["paper", "value"]].notna().any(axis=None) else None
    places = [] if wide is None else groupby(place for place, _ in wide.columns)
    gaps = evidence.apart[(evidence.apart["paper_id"] == paper) & (evidence.apart["item"] == item)]
    return {
        "heading": item_title(item),
        "title": title[:1].upper() + title[1:],
        "picture": "" if on_top else item_figure(evidence, paper, item),
        "table": wide,
        "places": [(place, len(list(same))) for place, same in places],
        "state": state(evidence, paper, item),
        "differences": [*map(differences, gaps["says"])],
    }


def differences(says: str) -> tuple[str, list[str]]:
    """The first line about differences, and the others; controls are links, because their sections have the results."""
    first, *lines = in_markdown(says, lambda control: f"#{anchor(item_title(control))}")
    controls = [found[1] for line in lines if (found := re.match(r"The control (\[\w+\]\(\S+?\))", line))]
    text = [f"Controls that examine the cause: {', '.join(controls)}."] if controls else []
    return first, text + [line for line in lines if not line.startswith("The control")]


def state(evidence: Evidence, paper: str, item: str) -> str:
    """The measured share of an item, and the cost of its missing runs, in one or two sentences."""
    rows = numbers(evidence, paper, item)
    costs = evidence.costs[paper]
    [table] = costs[costs["item"] == item].to_dict("records") or [None]
    ours = int((rows["n_seeds"] > 0).sum())
    text = "The paper prints no number here" + (f"; we have measured {ours}." if ours else ".")
    if rows["paper"].notna().any():
        text = f"{counted(rows)}."
    elif table is None and not ours:
        text += " The notebook shows this item."
    if table and table["missing"]:
        runs = "run is" if table["missing"] == 1 else "runs are"
        hours = f"{table['hours']:,.0f}" if table["hours"] >= 1 else f"{table['hours']:.1g}"
        text += f" {table['missing']} {runs} missing, about {hours} hour{'s' * (hours != '1')} on one core."
    return text


def claim_page(evidence: Evidence, claim: dict[str, str], before: str, after: str) -> str:
    """The page of a claim: its text, predicate, verdict, figure, and the numbers that it needs."""
    paper, item = claim["paper"], claim["figure"]
    own = evidence.studies[paper]
    cells = [cell for one in own.claims if one.id == claim["id"] for cell in own.needed(one)]
    keys = {cell.key for cell in cells}
    rows = [
        shown_number(evidence, row)
        for one in dict.fromkeys(cell.item for cell in cells)
        for row in numbers(evidence, paper, one).assign(paper_id=paper, item=one).to_dict("records")
        if tuple(row[name] for name in KEY) in keys
    ]
    picture, title = item_figure(evidence, paper, item, own.item(item).title), item_title(item)
    around = {"before": before, "after": after}
    return fill("claim.md", claim=claim, title=title, needed=len(keys), rows=rows, picture=picture, **around)
