"""The site: no warning, complete offline, every link has a target, and its numbers are those of the files."""

import json
import os
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlparse

import nbformat
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from processes import BROWSER, python

import fedlib as fl
from fedlib.report import PAPERS
from fedlib.report.paper import PROTOCOLS, QUESTIONS, TITLES, format_pm
from fedlib.report.style import WIDE, data_label
from fedlib.studies.layout import first_protocol, item_title, printed_item
from fedlib.studies.pages import FOLDER
from fedlib.studies.rows import Row
from fedlib.studies.verdict import VERDICTS

for package in ("sphinx", "myst_nb", "furo"):
    pytest.importorskip(package, reason=f'{package} is not installed: pip install "fedlib-papers[site]"')
from fedlib.tools.site import __main__ as entry  # noqa: E402
from fedlib.tools.site import build, extension, results  # noqa: E402
from fedlib.tools.site import evidence as files  # noqa: E402
from fedlib.tools.site.executed import note  # noqa: E402
from fedlib.tools.site.markup import escape  # noqa: E402
from fedlib.tools.site.texts import users  # noqa: E402

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
TABLES = [FOLDER / f"{name}.csv" for name in ("scoreboard", "ledger", "summary")]
BOARD, LEDGER, SUMMARY = (pd.read_csv(table, dtype=str, keep_default_na=False) for table in TABLES)
PATH = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


def executed(folder: Path) -> None:
    """An executed notebook with a formula, a picture, a table, a slider, a widget and a progress bar."""
    slider = '<input type="range" aria-label="round">'
    slider += f'<img src="data:image/png;base64,{PICTURE}" alt="Round 0."><script>1;</script>'
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "a"}, "text/html": slider, "text/plain": "w"}
    about = {"alt": "A dot & more.", "width": 300}
    outputs = [
        new_output("display_data", data={"image/png": PICTURE}, metadata={"image/png": about}),
        new_output("display_data", data={"image/png": PICTURE}),
        new_output("execute_result", data=widget, execution_count=1),
        new_output("stream", name="stderr", text="cell 0/2: 10%"),
    ]
    code = new_code_cell("1", outputs=outputs)
    links = "[04](04_pfedmb.ipynb), [`take`](../fedlib/stack.py), [Words](glossary.ipynb)"
    text = f"# The dot\n\n$\\alpha_i$ and\n\n$$x^2 = 1$$\n\n{links}"
    solution = new_code_cell("2", metadata={"tags": ["solution"]})
    (folder / "quick" / "pfedsim").mkdir(parents=True)
    notebook = new_notebook(cells=[new_markdown_cell(text), code, solution], metadata={"widgets": {"state": {}}})
    nbformat.write(notebook, folder / "quick" / "pfedsim" / "01_pfedsim.ipynb")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    executed(folder)
    command = "-m", "fedlib.tools.site", "build", "--figures", folder
    assert python(*command, cwd=folder, PYTHONPATH=PATH, GITHUB_REPOSITORY="owner/name").stderr == ""
    assert sorted(path.name for path in folder.iterdir()) == ["quick", "site"]  # nothing is left over
    return folder / "site"


@cache
def read(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def ids(path: Path) -> set[str]:
    return set(re.findall(r'\sid="([^"]+)"', path.read_text(encoding="utf-8")))


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def addresses(path: Path) -> list[tuple[str, str, str]]:
    """Tag, attribute and value of all that a page links to or loads."""
    text = re.sub(r"(?s)(<(style|script)\b[^>]*>).*?</\2>", r"\1", path.read_text())
    tags = re.findall(r"<(a|link|script|img|iframe|source|object|form|use)\b([^>]*)>", text)
    found = re.compile(r'\s(href|src|srcset|data|action)="([^"]*)"')
    return [(tag, name, value) for tag, inside in tags for name, value in found.findall(inside)]


def test_every_link_leads_somewhere_and_nothing_is_fetched(site):
    for page in pages(site):
        for tag, name, value in addresses(page):
            parts, where = urlparse(value.replace("&amp;", "&")), f"{page.relative_to(site)}: {name}={value}"
            if parts.scheme in ("http", "https", "mailto") or parts.netloc:
                assert tag == "a", where
            elif parts.scheme != "data":
                target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
                assert target.is_relative_to(site), where
                assert target.is_file(), where
                assert not parts.fragment or tag == "use" or parts.fragment in ids(target), where
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    scripts = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.js"))
    assert not re.search(r"url\(['\"]?(https?:)?//|@import", styles)
    assert not re.search(r"(src|href)\s*=\s*['\"]https?://|importScripts|fetch\(['\"]https?:", scripts)


def test_every_page_can_be_read_without_eyes_and_walked_without_a_mouse(site):
    code = site / "_modules" / "fedlib" / "stack.html"  # one of many that are alike
    for path in [code, *(path for path in pages(site) if "_modules" not in path.relative_to(site).parts)]:
        page, name = read(path), path.relative_to(site)
        assert page.html["lang"] == "en", name
        assert page.title.text.strip(), name
        assert len(page.find_all("h1")) == 1, name
        assert page.find("main") or page.find(attrs={"role": "main"}), name
        assert page.select_one("nav[aria-label='All pages']"), name
        assert page.find("a", class_="skip-to-content")["href"] == "#furo-main-content", name
        assert [image["src"] for image in page.find_all("img") if not image.get("alt", "").strip()] == [], name
        assert all(box.get("tabindex") == "0" and box.get("aria-label") for box in page.select("div.wide")), name
        marks = [tag["id"] for tag in page.find_all(id=True)]
        assert len(marks) == len(set(marks)), name


# -- numbers --------------------------------------------------------------------------------------------------------
def test_every_measured_number_leads_to_the_files_of_its_runs(site):
    page = read(site / "scoreboard.html")
    boxes = {box["id"]: box for box in page.select("[popover]")}
    for row, given in zip(page.select("#board tbody tr"), BOARD.to_dict("records"), strict=True):
        button = row.select_one("button")
        assert bool(button) == (given["n_seeds"] != "0"), row["id"]
        if not button:
            continue
        box = boxes[button["popovertarget"]]
        paths = [site / link["href"] for link in box.select("a")]
        facts = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        assert len({one["seed"] for one in facts}) == int(given["n_seeds"]), row["id"]
        assert given["commit"] in {one["commit"] for one in facts}, row["id"]
        assert all(one["commit"][:7] in line.text for one, line in zip(facts, box.select("li"), strict=True))
        [(paper, names)] = re.findall('PAPER=(.*) ITEM="(.*)"', box.pre.text)
        assert (paper, {*names.split()}) == (given["paper_id"], {path.stem.rpartition("-s")[0] for path in paths})
        assert {path.parent.name for path in paths} == {given["paper_id"]}


def test_the_plot_has_a_dot_for_each_measured_percentage(site):
    page, own = read(site / "scoreboard.html"), BOARD[(BOARD["difference"] != "")]
    own = own[own["metric"].isin(["accuracy", "weighted_f1", "weighted_auc"])]
    dots = page.select("#board-plot circle")
    assert [[(float(dot["cx"]) - 45) / 4.2, (350 - float(dot["cy"])) / 3.4] for dot in dots] == [
        pytest.approx([float(row["paper"]), float(row["value"])], abs=0.05) for row in own.to_dict("records")
    ]


@pytest.mark.parametrize("paper", PAPERS)
def test_the_question_of_a_paper_is_answered_with_three_numbers_on_its_page_and_the_start_page(site, paper):
    answer = study(paper).answer()
    [card] = (card for card in read(site / "index.html").select(".paper-card") if card.a.text == TITLES[paper])
    assert card.img["src"].endswith(f"{paper}/{answer.figure}.svg")
    for place in (card, read(site / "papers" / f"{paper}.html")):
        assert QUESTIONS[paper] in place.text
        assert place.select_one("p.answer").text == answer.says
        shown = [(pair.dd.text, pair.dt.text) for pair in place.select("dl.figures div")]
        assert shown == [*answer.numbers]
        assert len(shown) == 3


@cache
def study(paper: str) -> fl.Study:
    return fl.study(paper)


def rows_of(page: BeautifulSoup, table: str) -> list[list[str]]:
    return [[cell.text for cell in row.find_all("td")] for row in page.select(f"#{table} tbody tr")]


def numbers_of(frame: pd.DataFrame) -> list[list[str]]:
    """Printed, ours, seeds and commit of all rows, from the file alone."""
    found = []
    for row in frame.to_dict("records"):
        pairs = [[float(row[name] or "nan") for name in names] for names in (("paper", "paper_std"), ("value", "std"))]
        digits = study(row["paper_id"]).item(row["item"]).digits
        printed, ours = (format_pm(*pair, digits) if pair[0] == pair[0] else "" for pair in pairs)
        found.append([printed, ours, row["n_seeds"] if row["n_seeds"] != "0" else "", row["commit"][:7]])
    return found


def test_the_scoreboard_of_the_site_is_the_file(site):
    shown = rows_of(read(site / "scoreboard.html"), "board")
    assert [row[7:10] for row in shown] == [row[:3] for row in numbers_of(BOARD)]
    assert [[row[3].partition(" (")[0], *row[4:7]] for row in shown] == [
        [data_label(r.dataset), r.setting.replace(";", ", "), r.metric.replace("_", " "), PROTOCOLS[r.protocol]]
        for r in BOARD.itertuples()
    ]
    assert sum(bool(row[7]) for row in shown) == (BOARD["paper"] != "").sum()
    assert (site / "files" / "scoreboard.csv").read_bytes() == (FOLDER / "scoreboard.csv").read_bytes()


def test_the_ledger_and_the_score_of_the_site_are_the_files(site):
    [table] = [table for table in read(site / "index.html").find_all("table") if "undecided" in table.thead.text]
    shown = [[cell.text.strip() for cell in row.find_all("td")] for row in table.select("tbody tr")]
    assert shown == SUMMARY.to_numpy().tolist()
    shown = rows_of(read(site / "ledger.html"), "claims")
    assert [[row[0], row[2], row[3]] for row in shown] == LEDGER[["id", "claim", "verdict"]].to_numpy().tolist()
    assert [row[4] for row in shown] == [
        c.measured
        + f" ({c.stand_in})" * bool(c.stand_in)
        + f". Seeds: {c.seeds}." * bool(c.seeds)
        + f" Other verdicts: {c.other_verdicts}." * bool(c.other_verdicts)
        for c in LEDGER.itertuples()
    ]


def test_the_differences_of_the_site_are_the_file_and_lead_to_their_controls(site):
    frame = pd.read_csv(FOLDER / "differences.csv")
    page = read(site / "differences.html")
    shown = [[cell.text for cell in row.find_all("td")] for row in page.select("article table tbody tr")]
    rows = frame[["measured", "apart", "name"]].to_numpy().tolist()
    assert [[int(row[1]), int(row[2]), row[3]] for row in shown] == rows
    told = [item.text.partition(": ")[2] for item in page.select("article li")]  # after the names of the tables
    lines = dict.fromkeys(line for says in frame["says"] for line in says.split("\n")[1:])
    assert set(told) == {re.sub(r'(?<=^The control )"(\w+)"', r"\1", line) for line in lines}
    assert len(page.select('article li a[href^="papers/"]')) == sum(line.startswith("The control") for line in told)
    for start in (page, read(site / "index.html")):
        [picture] = (img for img in start.select("figure img") if "differences" in img["src"])
        assert (site / picture["src"]).read_bytes() == (FOLDER / "differences.svg").read_bytes()
    assert (site / "files" / "differences.csv").read_bytes() == (FOLDER / "differences.csv").read_bytes()
    for name, title in (("items", "Tables and figures by size"), ("bench", "Speed"), ("peers", "Other libraries")):
        assert read(site / f"{name}.html").h1.text.startswith(title)


def test_the_start_page_says_what_was_reproduced_and_what_was_not(site):
    page = read(site / "index.html")
    lead = page.select_one("article p").text
    counts = LEDGER["verdict"].value_counts().reindex(VERDICTS, fill_value=0)
    measured = int((first_protocol(BOARD)["difference"] != "").sum())
    counted = f"print 710 numbers and make {len(LEDGER)} claims. {measured} of"
    assert lead.startswith(f"Five papers on personalised federated learning {counted}")
    assert f"{710 - measured} have not" in lead
    assert [int(one.text.split()[0]) for one in page.select_one(".legend").select("li")] == [n for n in counts if n]
    cards = {card.a.text: card.text for card in page.select(".paper-card")}
    for row in SUMMARY[:-1].to_dict("records"):
        assert f"{row['measured']} of {row['printed']} printed numbers" in cards[row["paper"]]
    listed = {link["href"] for link in page.select("ul.plain a")}
    decided = LEDGER[LEDGER["verdict"].isin(["holds", "refuted"])]["id"]
    assert {f"claims/{name}.html" for name in decided} <= listed
    links = [link["href"] for link in page.select(".legend a")]
    assert links == [f"ledger.html?verdict={name.replace(' ', '+')}" for name in VERDICTS if counts[name]]


def test_numbers_on_data_that_stand_in_are_counted_apart(site):
    """On the page of a paper and of a method; only the paper's own data make a number measured."""
    printed = BOARD[BOARD["paper"] != ""]
    item = read(site / "papers" / "fedcs.html").find("section", id=results.anchor(item_title("table3")))
    for own, text in (
        (printed[(printed["paper_id"] == "fedcs") & (printed["item"] == "table3")], item.text),
        (printed[printed["method"] == "fedbn"], read(site / "methods" / "fedbn.html").text),
    ):
        ours, others = own["n_seeds"].astype(int) > 0, own["stand_in"] != ""
        n, more = (ours & ~others).sum(), (ours & others).sum()
        assert more > 0
        assert f"{n} of {len(own)} printed numbers have been measured; {more} more have been" in text


def test_hours_are_written_without_an_exponent():
    for hours, said in {0.034: "0.03 hours", 0.97: "1 hour", 9.7: "10 hours", 1234.5: "1,234 hours"}.items():
        costs = pd.DataFrame([{"item": "table1", "missing": 2, "hours": hours}])
        evidence = SimpleNamespace(board=files.table(FOLDER / "scoreboard.csv"), costs={"fedcs": costs}, folder=FOLDER)
        assert results.state(evidence, "fedcs", "table1").endswith(f" 2 runs are missing, about {said} on one core.")


@pytest.mark.parametrize("paper", PAPERS)
def test_the_page_of_a_paper_has_all_its_items_and_printed_numbers(site, paper):
    page = read(site / "papers" / f"{paper}.html")
    claims = [f"../claims/{name}.html" for name in LEDGER[LEDGER["paper"] == paper]["id"]]
    assert [link["href"] for link in page.select("ul.claims a")] == claims
    for item in (name for name in study(paper).shown if not printed_item(name)[1]):
        section = page.find("section", id=results.anchor(item_title(item)))
        assert section is not None, item
        own = BOARD[(BOARD["paper_id"] == paper) & (BOARD["item"] == item)]
        others = [other.name for other in study(paper).item(item).others]  # with the same printed numbers
        more = BOARD[(BOARD["paper_id"] == paper) & BOARD["item"].isin(others)]
        shown = sorted(cell.text for cell in section.select("table.numbers td") if cell.text)
        texts = [*(text for row in numbers_of(own) for text in row[:2]), *(row[1] for row in numbers_of(more))]
        assert shown == sorted(filter(None, texts)) or own.empty, item
    names = [*study(paper).shown, *BOARD.loc[BOARD["paper_id"] == paper, "item"]]
    headings = [heading.text.rstrip("#\N{PILCROW SIGN}") for heading in page.select("#tables-and-figures h3")]
    assert headings == [*dict.fromkeys(item_title(printed_item(name)[0]) for name in names)]
    apart = pd.read_csv(FOLDER / "differences.csv").query("paper_id == @paper and item in @study(@paper).shown")
    for item, says in apart.loc[~apart["item"].str.contains("_"), ["item", "says"]].to_numpy():
        controls = page.find("section", id=results.anchor(item_title(item))).select("li a")
        told = re.findall(r'^The control "(\w+)"', says, re.MULTILINE)
        links = [(name, f"#{results.anchor(item_title(name))}") for name in told]
        assert [(link.text, link["href"]) for link in controls] == links
    counts = LEDGER.loc[LEDGER["paper"] == paper, "verdict"].value_counts().reindex(VERDICTS, fill_value=0)
    says = next(p.text for p in page.select("article p") if " claims: " in p.text).partition(" claims: ")[2]
    assert list(map(int, re.findall(r"\d+", says))) == [n for n in counts if n]
    section = page.find("section", id="printed-and-measured")
    own = first_protocol(BOARD[(BOARD["paper_id"] == paper) & (BOARD["difference"] != "")])
    own = own[own["metric"].isin(["accuracy", "weighted_f1", "weighted_auc"])]
    gaps = own["value"].astype(float) - own["paper"].astype(float)
    counts = [len(gaps), (abs(gaps) <= 3).sum(), 3, (gaps > 3).sum(), (gaps < -3).sum()]
    assert list(map(int, re.findall(r"\d+", section.text.partition("The median")[0]))) == counts
    assert f"{abs(gaps).median():.1f} points" in section.text
    assert section.img["src"].endswith(f"{paper}/printed_and_measured.svg")
    for picture in page.select("figure.drawing img"):  # a tap shows it larger, and no word is too small before
        assert picture.parent["href"] == picture["src"]
        assert int(picture["width"]) <= 96 * (WIDE + 0.1), picture["src"]


# -- ways through the site ------------------------------------------------------------------------------------------
def links(path: Path) -> set[Path]:
    hrefs = (link["href"].partition("#")[0].partition("?")[0] for link in read(path).select("article a[href]"))
    return {(path.parent / href).resolve() for href in hrefs if href and not urlparse(href).scheme}


def test_the_page_of_every_claim_is_two_clicks_from_the_start(site):
    first = links(site / "index.html")
    second = {page for one in first if one.suffix == ".html" for page in links(one)}
    wanted = {site / "claims" / f"{name}.html" for name in LEDGER["id"]}
    assert len(wanted) == 106
    assert wanted <= first | second


@pytest.mark.parametrize("name", LEDGER.groupby("paper")["id"].agg(["first", "last"]).to_numpy().ravel())
def test_the_page_of_a_claim_has_its_words_verdict_predicate_and_numbers(site, name):
    [claim] = LEDGER[LEDGER["id"] == name].to_dict("records")
    checks = pd.read_csv(ROOT / "fedlib" / "papers" / claim["paper"] / "claims.csv", dtype=str, keep_default_na=False)
    page = read(site / "claims" / f"{name}.html")
    text = re.sub(r"\s+", " ", page.article.text)
    assert page.h1.text.removesuffix("¶").strip("# \n") == claim["claim"]
    assert page.select_one(".verdict").text == claim["verdict"]
    assert re.sub(r"\s+", " ", checks.set_index("id").loc[name, "check"]) in text
    for case in re.split(r"(?<=[a-z\d])\. |; ", claim["measured"]):
        assert case.rstrip(".") in text
    own = study(claim["paper"])
    [declared] = [one for one in own.claims if one.id == name]
    keys = {cell.key for cell in own.needed(declared)}
    assert f"Numbers that the claim needs: {len(keys)};" in text
    assert len(page.select("table.numbers tbody tr")) <= len(keys)


@pytest.mark.parametrize("name", fl.algorithms())
def test_the_page_of_a_method_has_its_signature_and_example(site, name):
    page = read(site / "methods" / f"{name}.html")
    assert page.find("dt", id=f"fedlib.{name}") is not None
    assert "import fedlib as fl" in page.article.text
    assert re.search(rf">>> .*fl\.({name}\(|run\(\"{name}\")", page.article.text)
    code = next(link["href"] for link in page.select("a") if link.text == "[source]")
    assert code.startswith("../_modules/fedlib/methods/")
    assert code.endswith(f"#{name}")
    own = BOARD[BOARD["method"].str.fullmatch(rf"{name}([-+(].*)?") & (BOARD["paper"] != "")]  # variants included
    assert (f" of {len(own)} printed numbers" in page.article.text) == (len(own) > 0)


def test_what_users_call_is_on_the_pages_of_the_api(site):
    marks = set().union(*(ids(path) for path in (site / "api").glob("*.html")))
    methods = set(fl.algorithms())
    wanted = {f"fedlib.{name}" for name in fl.__all__ if name not in methods and name != "report"}
    wanted |= {f"fedlib.report.{name}" for name in fl.report.__all__ if callable(getattr(fl.report, name))}
    assert wanted - marks == set()


def test_an_executed_notebook_is_shown_with_its_outputs(site):
    page = read(site / "notebooks" / "01_pfedsim.html")
    assert [math["display"] for math in page.find_all("math")] == ["inline", "block"]
    alts = ["A dot & more.", "Figure drawn by the cell above.", "Round 0."]
    assert [image["alt"] for image in page.select(".cell_output img")] == alts
    assert page.select_one(".cell_output img")["style"] == "width: 300px"
    assert page.select_one('.cell_output input[type="range"]')
    assert "10%" not in page.text
    assert "quick" in page.select_one(".admonition").text
    hrefs = [link["href"] for link in page.select("article section > p a")]
    assert hrefs[-3:] == ["../notebooks/04_pfedmb.html", "../_modules/fedlib/stack.html#take", "../glossary.html"]
    assert "make figures" in read(site / "notebooks" / "04_pfedmb.html").select_one(".admonition").text


def test_a_notebook_can_be_opened_online_where_the_repository_is_known(site, monkeypatch):
    for colab, names in (True, ["00_first_steps", "01_pfedsim", "playground"]), (False, ["04_pfedmb"]):
        for name in names:
            links = read(site / "notebooks" / f"{name}.html").select("article p > a")
            hrefs = [link["href"] for link in links if "owner/name/" in link["href"]]
            hosts = ["mybinder.org", "colab.research.google.com"] if colab else ["mybinder.org"]
            assert [urlparse(href).netloc for href in hrefs] == hosts
            assert all(href.endswith(f"main/notebooks/{name}.ipynb") for href in hrefs[1:])
            assert hrefs[0].endswith(f"/main?urlpath=lab/tree/notebooks/{name}.ipynb")
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    assert "Binder" not in note(ROOT / "notebooks" / "01_pfedsim.ipynb", True, "quick")


def test_every_term_of_the_glossary_is_there_once_and_leads_to_code(site):
    page = read(site / "glossary.html")
    words = [term.find(string=True, recursive=False) for term in page.select("dl.glossary dt")]
    assert {"Client", "Cohort", "Round", "Stack", "State", "Message", "Item", "Cell", "Claim", "Verdict"} <= set(words)
    assert len(words) == len(set(words)) == len(page.select("dl.glossary dd"))
    assert all(meaning.find("a") for meaning in page.select("dl.glossary dd"))


def test_missing_packages_are_named_in_one_sentence_and_text_with_markup_is_shown_as_it_is(monkeypatch, capsys):
    monkeypatch.setattr(entry, "NEEDS", ("sphinx", "no_such_package"))
    assert entry.main(["build"]) == 2
    assert capsys.readouterr().err == 'The site needs no_such_package: pip install "fedlib-papers[site]".\n'
    assert escape("a_i* <b> [1] |x| `c` $2") == r"a\_i\* \<b\> \[1\] \|x\| \`c\` \$2"


def test_a_warning_of_sphinx_stops_the_build(tmp_path, monkeypatch):
    monkeypatch.setattr(extension, "every_module", lambda *_: None)  # no pages of code
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "index.md").write_text("# A\n\n```{nonsense}\n```\n")
    said = build.sphinx(*(tmp_path / name for name in ("source", "html", "doctrees")))
    assert "Unknown directive type: 'nonsense'" in said


@pytest.mark.skipif(BROWSER is None, reason="no chromium and no google-chrome here")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_of_accessibility(site, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    from playwright.sync_api import sync_playwright

    names = ["index", "scoreboard", "ledger", "use", "data", "lecturer", "bench", "items", "api/index", "api/data"]
    names += ["papers/pfedsim", "claims/cs01", "methods/index", "methods/pfedsim"]
    names += ["notebooks/01_pfedsim", "notebooks/problems1-averaging"]
    found = {}
    with sync_playwright() as p:
        page = p.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"]).new_page(color_scheme=scheme)
        for name in names:
            page.goto((site / f"{name}.html").as_uri())
            page.evaluate("document.querySelectorAll('tbody tr:nth-child(n + 60)').forEach((row) => row.remove())")
            response = axe.run(page, options={"runOnly": ["color-contrast"]} if scheme == "dark" else None).response
            found[name] = [(one["id"], one["nodes"][0]["html"]) for one in response["violations"]]
    assert {name: violations for name, violations in found.items() if violations} == {}


@pytest.mark.skipif(BROWSER is None, reason="no chromium and no google-chrome here")
def test_the_side_bars_open_with_the_keyboard_on_a_phone(site):
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as p:
        page = p.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"]).new_page()
        page.set_viewport_size({"width": 390, "height": 800})
        for name, link in ("All pages", "Scoreboard"), ("On this page", "Tables and figures"):
            page.goto((site / "papers" / "pfedsim.html").as_uri())
            expect(page.get_by_role("link", name=link, exact=True).last).not_to_be_in_viewport()
            page.locator(f"button[aria-label='{name}']:visible").first.press("Enter")
            expect(page.get_by_role("link", name=link, exact=True).last).to_be_in_viewport()
            before = "(boxes) => boxes.map((box) => getComputedStyle(box, '::before').content)"
            assert not [text for text in page.locator("nav").evaluate_all(before) if "ERROR" in text]


def test_a_claim_leads_to_the_one_before_it_and_then_to_the_one_after_it(site):
    links = [link["href"] for link in read(site / "claims" / "cs02.html").select("nav.around a")]
    assert links == ["cs01.html", "../papers/fedcs.html#claims", "cs03.html"]


def test_the_pages_that_use_a_term_most_often_come_first():
    texts = {"a.md": "A client.", "b.md": "Clients, and a client.", "changes.md": "client " * 3, "c.md": "None."}
    titles = {name: name[0].upper() for name in texts}
    assert users("Client", texts, titles) == ["[B](b.html)", "[A](a.html)"]


@pytest.mark.parametrize(("device", "name"), [("cuda", "GPU"), ("cpu", "CPU")])
def test_the_file_of_a_run_says_on_which_device_it_was_made(device, name):
    row = Row("task", 0, {"seconds": 1.0, "config": {"device": device}})
    assert results.file("pfedsim", row, {}, {})["device"] == name
