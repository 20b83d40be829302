"""The pages of results: the start page, the scoreboard, the ledger, and a page for each paper and for each claim.

No sentence about a result is typed; all are made from the files of the evidence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

import nbformat
import pandas as pd

from fedlib.report.paper import KEY, PAPERS, QUANTITIES, TITLES, format_pm, readings
from fedlib.report.style import base_method, label
from fedlib.studies.differences import percentages
from fedlib.studies.layout import item_title
from fedlib.studies.pages import ALT, differences_page, how_near, in_markdown, score
from fedlib.studies.verdict import MEANING, VERDICTS, shares
from fedlib.tools.site.evidence import Evidence, counted, names, numbers, side_by_side
from fedlib.tools.site.markup import EXTRA, ROOT, Pages, anchor, escape, fill

WORDS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")


def pages(evidence: Evidence) -> Pages:
    """All pages of results, and their pictures."""
    made: Pages = {"scoreboard.md": scoreboard(evidence), "ledger.md": ledger(evidence)}
    says = f"Grey band: {how_near(evidence.board)}"
    picture = figure(made, drawing(evidence, "", "differences", made), ALT, "", says, up="")
    made |= {"index.md": start(evidence, picture), "differences.md": differences_page(evidence.apart, section, picture)}
    for paper in PAPERS:
        made |= paper_page(evidence, paper)
        claims = evidence.ledger[evidence.ledger["paper"] == paper].to_dict("records")
        ids = ["", *(claim["id"] for claim in claims), ""]
        for claim, *around in zip(claims, ids, ids[2:], strict=False):
            made |= claim_page(evidence, claim, around)
    return made


# -- start ---------------------------------------------------------------------------------------------------------


def in_words(counts: pd.Series) -> str:
    """The number of claims by verdict, without zeros."""
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def lead(summary: pd.DataFrame) -> str:
    """The number of measured numbers and of claims by verdict, in three sentences."""
    total = summary.drop(columns="paper").sum()
    n_claims = int(total[list(VERDICTS)].sum())
    return (
        f"{WORDS[len(summary)]} papers on personalised federated learning print {total['printed']} numbers and make "
        f"{n_claims} claims. {total['measured']} of these numbers have been measured here at the paper's own size so "
        f"far; {total['printed'] - total['measured']} have not. Claims by verdict: {in_words(total)}."
    )


def question(paper: str) -> str:
    """The question of a paper's notebook, as the first page of the notebooks says it."""
    text = "\n".join(cell.source for cell in nbformat.read(ROOT / "notebooks" / "start.ipynb", 4).cells)
    found = re.search(rf"^## .*\(\d\d_{paper}\.ipynb\)\n(.*?\?)", text, re.MULTILINE)
    return found[1].strip() if found else ""


def citation(paper: str) -> str:
    """The citation of a paper in the README, as Markdown."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^- {TITLES[paper]}: (.*(?:\n  .*)*)", text, re.MULTILINE)
    return re.sub(r"\s+", " ", found[1]) if found else ""


def start(evidence: Evidence, picture: str) -> str:
    """The start page; `picture` is shown beside the score."""
    ledger, summary = evidence.ledger, evidence.summary
    cards = [
        {
            "id": paper,
            "name": TITLES[paper],
            "question": question(paper),
            "printed": row["printed"],
            "measured": row["measured"],
            "bar": shares(ledger.loc[ledger["paper"] == paper, "verdict"]),
            "claims": int((ledger["paper"] == paper).sum()),
        }
        for paper, row in zip(PAPERS, summary.to_dict("records"), strict=True)
    ]
    named = ledger.assign(paper=ledger["paper"].map(TITLES))
    found = {verdict: named[named["verdict"] == verdict].to_dict("records") for verdict in VERDICTS[:-1]}
    left = ledger.loc[ledger["verdict"] == "not tested", "paper"].value_counts()
    open_ = [(paper, TITLES[paper], int(left.get(paper, 0))) for paper in PAPERS]
    parts = [
        "# What five papers claim, and what was measured\n",
        f"{escape(lead(summary))}\n",
        fill("bar.html", bar=shares(ledger["verdict"]), n=len(ledger), legend=True, meaning=MEANING),
        fill("cards.html", cards=cards),
        "## Which claims hold, and which do not\n",
        fill("found.html", found=found, open=open_, meaning=MEANING),
        "## The score\n",
        score(summary),
        "\n" + picture,
        "\nAll numbers are in [the scoreboard](scoreboard.html), all claims in [the ledger](ledger.html); "
        "[differences](differences.html) says where our numbers are not the printed ones, and what controls say about "
        "the cause. The README shows the same table. [One rule](ledger.html) judges all claims, and every number is a "
        "file with its seed, its commit and a fingerprint of its code.\n",
        "## Where to go\n",
        fill("doors.html"),
        TOC,
    ]
    return "\n".join(parts)


def _toctree(caption: str, *entries: str) -> str:
    return "```{toctree}\n:hidden:\n:caption: " + caption + "\n\n" + "\n".join(entries) + "\n```\n"


LESSONS = [f"{TITLES[p]} notebook <notebooks/{i:02d}_{p}>" for i, p in enumerate(PAPERS, 1)]
LESSONS = ["First steps <notebooks/00_first_steps>", "Playground <notebooks/playground>", *LESSONS]
RESULTS = ["scoreboard", "ledger", "Differences <differences>", *(f"{TITLES[p]} <papers/{p}>" for p in PAPERS)]
TOC = "\n".join(
    [
        _toctree("Results", *RESULTS),
        _toctree("Learn", *LESSONS, "glossary", "lecturer"),
        _toctree("Library", "use", "data", "runs", "trust", "methods/index", "api/index"),
        _toctree("Project", "contributing", "changes"),
    ]
)

# -- scoreboard and ledger ------------------------------------------------------------------------------------------


def shown_numbers(evidence: Evidence, frame: pd.DataFrame) -> list[dict[str, object]]:
    """Rows of numbers as text, with what they link to. `frame` has a column `paper_id`."""
    rows = []
    for row in frame.to_dict("records"):
        paper, item, method = row["paper_id"], row["item"], row["method"]
        digits = evidence.studies[paper].item(item).digits
        done, changed = row["n_seeds"] > 0, row["changed"] == "True"
        rows.append(
            {
                "paper": paper,
                "paper_name": TITLES[paper],
                "item": item_title(item),
                "anchor": anchor(item_title(item)),
                "method": method if method in QUANTITIES else label(method),
                "page": "" if method in QUANTITIES else base_method(method),
                "dataset": row["dataset"],
                "setting": row["setting"].replace(";", ", "),
                "metric": row["metric"].replace("_", " "),
                "printed": format_pm(row["paper"], row["paper_std"], digits) if pd.notna(row["paper"]) else "",
                "ours": format_pm(row["value"], row["std"], digits) if done else "",
                "seeds": row["n_seeds"] if done else "",
                "difference": f"{row['difference']:+.{digits}f}" if pd.notna(row["difference"]) else "",
                "commit": row["commit"][:7],
                "note": "; ".join(filter(None, ["code has changed since" * changed, row["stand_in"]])),
            }
        )
    return rows


def scoreboard(evidence: Evidence) -> str:
    """The page of all printed numbers."""
    board = evidence.board
    total = evidence.summary.drop(columns="paper").sum()
    more = len(board) - int(total["printed"])
    text = (
        f"All {total['printed']} printed numbers with ours beside them; {total['measured']} have been measured at the "
        f"paper's own size so far. {more} further rows are numbers that a claim needs and the paper does not print."
    )
    how = (
        "*Printed* and *ours* are mean and standard deviation; *seeds* is the number of runs behind ours, *difference* "
        "is ours less the printed one, *commit* is the version of the code that measured it. "
        "[The same table as a file](files/scoreboard.csv)."
    )
    rows = shown_numbers(evidence, board)
    return "\n".join(["# Scoreboard\n", escape(text) + "\n", how + "\n", fill("scoreboard.html", rows=rows)])


def ledger(evidence: Evidence) -> str:
    """The page of all claims."""
    frame = evidence.ledger
    claims = [row | {"paper_name": TITLES[row["paper"]]} for row in frame.to_dict("records")]
    total = evidence.summary.drop(columns="paper").sum()
    text = f"All {len(frame)} claims of the {len(PAPERS)} papers: {in_words(total)}."
    rule = (
        "[One rule](trust.html#how-a-claim-is-judged) judges all of them. A claim makes comparisons; one counts if the "
        "difference is larger than its noise, and only *so far* if the noise is unknown or rivals are not measured. On "
        "data that stand in for the paper's a claim can neither hold nor be refuted."
    )
    words = "\n".join(f"- **{verdict}**: {meaning}" for verdict, meaning in MEANING.items())
    parts = ["# Ledger\n", escape(text) + "\n", rule + "\n", words + "\n"]
    parts += ["[The same table as a file](files/ledger.csv).\n", fill("ledger.html", claims=claims)]
    return "\n".join(parts)


# -- papers and claims ----------------------------------------------------------------------------------------------


def section(paper: str, item: str) -> str:
    """The address of an item of a paper on the site."""
    return f"papers/{paper}.html#{anchor(item_title(item))}"


def drawing(evidence: Evidence, paper: str, item: str, made: Pages) -> str:
    """The figure of an item as a file of the site, or ""; without a paper, one of all papers."""
    source = evidence.folder / paper / f"{item}.svg"
    if not source.exists():
        return ""
    file = "/".join(filter(None, ("pictures/evidence", paper, f"{item}.svg")))
    made[EXTRA + file] = source.read_bytes()
    return file


def item_figure(evidence: Evidence, paper: str, item: str, made: Pages, title: str = "") -> str:
    """The figure of an item with its sentence; "" if it has not been measured."""
    file, about = drawing(evidence, paper, item, made), evidence.studies[paper].item(item)
    says = evidence.says[paper].get(item, "")
    return figure(made, file, about.alt or about.title, title, says) if file else ""


def hero(evidence: Evidence, paper: str, made: Pages) -> tuple[str, str]:
    """The figure that stands for a paper, the first one that was measured, and its item; or a sentence and ""."""
    for item, about in evidence.studies[paper].shown.items():
        if about.drawing and not about.scheme and (shown := item_figure(evidence, paper, item, made, about.title)):
            return shown, item
    return "No figure has been measured at the paper's size yet.\n", ""


def figure(made: Pages, file: str, alt: str, title: str, says: str = "", up: str = "../") -> str:
    """A figure with its alternative text, title and what it says; `up` leads from the page to the start page."""
    box = re.search(rb'viewBox="0 0 ([\d.]+) ([\d.]+)"', made[EXTRA + file])  # type: ignore[arg-type]
    size = [round(4 / 3 * float(side)) for side in box.groups()] if box else [672, 384]
    return fill("figure.html", file=up + file, alt=alt, title=title, says=says, size=size)


def paper_page(evidence: Evidence, paper: str) -> Pages:
    """The page of a paper, with its pictures."""
    made: Pages = {}
    name = TITLES[paper]
    claims = evidence.ledger[evidence.ledger["paper"] == paper]
    [row] = evidence.summary[evidence.summary["paper"] == name].to_dict("records")
    number = PAPERS.index(paper) + 1
    picture, on_top = hero(evidence, paper, made)
    counted = (
        f"{name} prints {row['printed']} numbers; {row['measured']} have been measured here at its own size. "
        f"Its {len(claims)} claims: {in_words(pd.Series(row))}."
    )
    parts = [
        f"# {name}\n",
        f"**{escape(question(paper))}**\n" if question(paper) else "",
        f"{citation(paper)}.\n" if citation(paper) else "",
        escape(counted) + "\n",
        fill("bar.html", bar=shares(claims["verdict"]), n=len(claims), legend=True, meaning=MEANING),
        f"[The notebook](../notebooks/{number:02d}_{paper}.html) explains the method step by step; "
        f"[the scoreboard](../scoreboard.html?paper={paper}) lists the numbers.\n",
        picture,
        *agreement(evidence, paper, made),
        "## Claims\n",
        fill("claims.html", claims=claims.to_dict("records")),
        "## Tables and figures\n",
        *(
            part
            for item in names(evidence, paper)
            for part in item_section(evidence, paper, item, made, item == on_top)
        ),
        "## Readings\n",
        "Where the paper is silent or contradicts itself, and what is done here.\n",
        fill("readings.html", readings=readings(paper).to_dict("records")),
    ]
    made[f"papers/{paper}.md"] = "\n".join(filter(None, parts))
    made[f"{EXTRA}files/{paper}_readings.csv"] = readings(paper).to_csv(index=False).encode()
    return made


def agreement(evidence: Evidence, paper: str, made: Pages) -> list[str]:
    """The section that shows every measured percentage against the printed one; nothing if there is none."""
    own = percentages(evidence.board[evidence.board["paper_id"] == paper])
    file = drawing(evidence, paper, "printed_and_measured", made) if len(own) else ""
    if not file:
        return []
    says = f"Look at the distance from the diagonal, where both agree: {how_near(own)} "
    says += f"The median distance is {own['difference'].abs().median():.1f} points."
    if own[["paper_std", "std"]].gt(0).any(axis=None):
        says += " Bars are standard deviations: the printed one to the sides, that of our seeds upwards."
    alt = "A point for each percentage: the printed one to the right, the measured one upwards, and the diagonal."
    return ["## Printed and measured\n", figure(made, file, alt, "", says)]


def item_section(evidence: Evidence, paper: str, item: str, made: Pages, on_top: bool) -> list[str]:
    """The section of an item: title, figure unless it is `on_top` of the page, printed and measured numbers, gaps."""
    own, rows = evidence.studies[paper], numbers(evidence, paper, item)
    about = own.item(item)
    parts = [f"### {item_title(item)}\n"]
    if about.title != item:
        title = re.sub(r"^(Tables?|Figs?\.|Eqs?\.) [^:]{1,12}: ", "", about.title)
        parts.append(escape(title[0].upper() + title[1:]) + "\n")
    parts.append("" if on_top else item_figure(evidence, paper, item, made))
    known = rows[["paper", "value"]].notna().any(axis=1).sum() if len(rows) else 0
    if known:
        wide = side_by_side(evidence, paper, item)
        top = [(place, len(list(same))) for place, same in groupby(place for place, _ in wide.columns)]
        sources = ["paper" if source == "paper" else "here" for _, source in wide.columns]
        body = [(str(index), list(zip(line, sources, strict=True))) for index, *line in wide.itertuples(name=None)]
        name = f"{item_title(item)} of {TITLES[paper]}"
        parts.append(fill("numbers.html", name=name, corner=wide.index.name, top=top, sources=sources, body=body))
    parts.append(escape(state(evidence, paper, item)) + "\n")
    apart = evidence.apart
    for says in apart.loc[(apart["paper_id"] == paper) & (apart["item"] == item), "says"]:
        first, *lines = in_markdown(says, lambda control: f"#{anchor(item_title(control))}")
        parts += [first + "\n", "\n".join(f"- {line}" for line in lines) + "\n"]
    return parts


def state(evidence: Evidence, paper: str, item: str) -> str:
    """The measured share of an item, and the cost of the missing runs, in a sentence or two."""
    rows = numbers(evidence, paper, item)
    costs = evidence.costs[paper]
    [table] = costs[costs["item"] == item].to_dict("records") or [None]
    printed, ours = int(rows["paper"].notna().sum()), int((rows["n_seeds"] > 0).sum())
    nothing = "The paper prints no number here" + (f"; {ours} have been measured." if ours else ".")
    text = f"{counted(rows)}." if printed else nothing
    if table is None:
        return text if ours or printed else text + " The notebook shows it."
    if table["missing"]:
        runs = "run is" if table["missing"] == 1 else "runs are"
        hours = f"{table['hours']:,.0f}" if table["hours"] >= 1 else f"{table['hours']:.1g}"
        text += f" {table['missing']} {runs} missing, about {hours} hours on one core."
    return text


def claim_page(evidence: Evidence, claim: dict[str, str], around: Sequence[str]) -> Pages:
    """The page of a claim: its words, its predicate, the verdict, the numbers that it needs and its figure."""
    made: Pages = {}
    paper, item = claim["paper"], claim["figure"]
    own = evidence.studies[paper]
    declared = {one.id: one for one in own.claims}
    cells = own.needed(declared[claim["id"]]) if claim["id"] in declared else []
    frames = [
        numbers(evidence, paper, one).assign(paper_id=paper, item=one) for one in dict.fromkeys(c.item for c in cells)
    ]
    keys = {cell.key for cell in cells}
    all_rows = pd.concat([frame for frame in frames if len(frame)]) if any(map(len, frames)) else pd.DataFrame()
    asked = [row for row in all_rows.to_dict("records") if tuple(row[k] for k in KEY) in keys]
    done = sum(row["n_seeds"] > 0 for row in asked)
    counts, _, cases = claim["measured"].partition(". ")
    title = item_title(item)
    parts = [
        "---\norphan: true\n---\n",
        f"# {escape(claim['claim'])}\n",
        fill("claim.html", claim=claim, name=TITLES[paper], meaning=MEANING, title=title, anchor=anchor(title)),
        "## How it is judged\n",
        f"{escape(claim['check'])}\n",
        "## What was measured\n",
        (escape(f"{counts}; seeds: {claim['seeds'] or 'none'}") + ".\n" if claim["measured"] else "Nothing yet.\n"),
        "\n".join(f"- {escape(case)}" for case in cases.split("; ") if case) + "\n",
        (f"Other data stand in for the paper's: {escape(claim['stand_in'])}.\n" if claim["stand_in"] else ""),
        (f"Numbers that the claim needs: {len(keys)}; measured: {done}.\n" if keys else ""),
        (fill("needed.html", rows=shown_numbers(evidence, pd.DataFrame(asked)), id=claim["id"]) if asked else ""),
    ]
    if shown := item_figure(evidence, paper, item, made, own.item(item).title):
        parts += ["## Figure\n", shown]
    parts.append(fill("around.html", before=around[0], after=around[1], paper=paper, name=TITLES[paper]))
    made[f"claims/{claim['id']}.md"] = "\n".join(filter(None, parts))
    return made
