"""JupyterLab in a real browser: the first page opens, a notebook runs to its end, its slider redraws a picture.

FEDLIB_SCREENSHOTS names a folder for pictures of what the browser showed.
"""

import csv
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from processes import BROWSER, free_port, wait_for

ROOT = Path(__file__).parent.parent
SHOTS = os.environ.get("FEDLIB_SCREENSHOTS")
pytestmark = pytest.mark.slow
MINUTE = 60_000  # milliseconds
NOTEBOOK = ".jp-NotebookPanel:visible"  # JupyterLab keeps those in other tabs in the page, hidden

if BROWSER is None:
    pytest.skip("no chromium and no google-chrome here: install one to test in a browser", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

LESSON = "00_first_steps.ipynb"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """The folder that JupyterLab shows: the pages, a short version of the first lesson, and the run store."""
    root = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "notebooks", root / "notebooks", ignore=shutil.ignore_patterns(".*"))
    (root / "figures").mkdir()
    (root / "figures" / "reference").symlink_to(ROOT / "figures" / "reference")  # it is shown beside what is measured
    lesson = nbformat.read(root / "notebooks" / LESSON, 4)
    lesson.cells = [cell for cell in lesson.cells if "solution" not in cell.metadata.get("tags", [])]  # of full size
    for cell in lesson.cells:
        cell.source = cell.source.replace("BATCH, LR = 15, 2,", "BATCH, LR = 2, 1,").replace("rounds=5", "rounds=1")
    nbformat.write(lesson, root / "notebooks" / LESSON)
    for plugin, content in {
        "notebook-extension/tracker": {"windowingMode": "none"},  # cells out of sight are in the page too
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    }.items():
        path = root / "settings" / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(content))
    return root


@contextmanager
def serving(root: Path, name: str, arguments: list[str], url: str) -> Iterator[None]:
    """A server of Jupyter's, with all its files in the folder, until it is not needed any more."""
    names = {"JUPYTER_RUNTIME_DIR": "runtime", "JUPYTER_CONFIG_DIR": "config", "JUPYTERLAB_SETTINGS_DIR": "settings"}
    own = {variable: str(root / place) for variable, place in (names | {"FEDLIB_RUNS": "runs"}).items()}
    command = [sys.executable, "-m", *arguments, "--no-browser"]
    with (root / f"{name}.log").open("w") as log:
        server = subprocess.Popen(command, env=os.environ | own | {"PYTHONPATH": str(ROOT)}, stdout=log, stderr=log)
        try:
            wait_for(lambda: answers(url, server))
            yield
        finally:
            server.terminate()  # its kernels too
            server.wait(60)


@pytest.fixture(scope="module")
def lab(root):
    """The address of a running JupyterLab without its query, and its token."""
    port, token = free_port(), secrets.token_hex(16)
    options = [f"--ServerApp.port={port}", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}"]
    options += ["--allow-root", "--ServerApp.port_retries=0", "--LabApp.news_url="]
    with serving(root, "server", ["jupyter", "lab", *options], f"http://127.0.0.1:{port}/api?token={token}"):
        yield f"http://127.0.0.1:{port}", token


@pytest.fixture(scope="module")
def voila(root):
    """The address of the playground under Voila, with one round."""
    playground = nbformat.read(root / "notebooks" / "playground.ipynb", 4)
    for cell in playground.cells:
        cell.source = cell.source.replace('against="fedavg")', 'against="fedavg", rounds=1)')
    nbformat.write(playground, root / "playground.ipynb")
    port = free_port()
    arguments = ["voila", str(root / "playground.ipynb"), f"--port={port}"]
    with serving(root, "voila", arguments, f"http://127.0.0.1:{port}/voila/static/voila.js"):
        yield f"http://127.0.0.1:{port}"


def answers(url: str, server: subprocess.Popen) -> bool:
    assert server.poll() is None, "the server has ended"
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
    return True


@pytest.fixture
def page():
    """A page of a browser that reaches this machine only."""
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=2 * MINUTE)
        page = browser.new_page(viewport={"width": 1200, "height": 1000})
        page.set_default_timeout(2 * MINUTE)
        page.route(lambda url: "//127.0.0.1" not in url, lambda route: route.abort())
        try:
            yield page
        finally:
            photograph(page, "last")
            browser.close()


@pytest.fixture
def visit(lab, page):
    """A function that opens a file in JupyterLab, no other tab beside it; it returns the browser's page."""

    def visited(path: str):
        page.goto(f"{lab[0]}/lab/tree/{path}?reset&token={lab[1]}")
        return page

    return visited


@pytest.fixture(scope="module")
def board() -> str:
    """The page of the scoreboard, with the script and the style of the site."""
    pytest.importorskip("docutils", reason="docutils is not installed")
    from fedlib.tools.site import evidence, results

    [html] = re.findall(r"(?s)`{6}\{raw\} html\n(.*?)`{6}", results.scoreboard(evidence.read(), {}))
    static = ROOT / "fedlib" / "tools" / "site" / "static"
    style, script = ((static / f"site.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    return f"<!doctype html><title>board</title><style>{style}</style>{html}<script>{script}</script>"


@pytest.fixture
def open_board(board, page):
    """A function that opens the scoreboard with a query; it returns the browser's page."""

    def opened(query: str = ""):
        page.route("**/scoreboard.html*", lambda route: route.fulfill(body=board, content_type="text/html"))
        page.goto(f"http://127.0.0.1/scoreboard.html{query}")
        return page

    return opened


def photograph(page, name: str) -> None:
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{SHOTS}/{name}.png")


def run_all_cells(page, ends_with: int) -> float:
    """Run the notebook in sight, whose last cell gets the number `ends_with`; returns the seconds that it took."""
    page.locator("#jp-bottom-panel").get_by_text("| Idle").wait_for()  # before, JupyterLab drops what it should run
    start = time.monotonic()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    prompts = page.locator(f"{NOTEBOOK} .jp-CodeCell .jp-InputPrompt")
    playwright.expect(prompts.filter(has_text="[*]:")).not_to_have_count(0)
    playwright.expect(prompts.filter(has_text="[*]:")).to_have_count(0, timeout=10 * MINUTE)
    assert page.locator(f"{NOTEBOOK} pre").filter(has_text="Traceback").all_inner_texts() == []
    playwright.expect(prompts.last).to_have_text(f"[{ends_with}]:")
    return time.monotonic() - start


def train_local_only(page, scope: str = ""):
    """Choose Local-Only on the left side and train, with the keyboard only, until the picture is another one."""
    picture, method = page.locator(f"{scope} .widget-image").first, page.locator(f"{scope} input[list]").first
    before = picture.get_attribute("src")
    method.fill("local_only")
    method.press("Enter")
    start = time.monotonic()
    page.get_by_role("button", name="Start", exact=True).press("Enter")
    playwright.expect(picture).not_to_have_attribute("src", before, timeout=MINUTE)
    redrawn = time.monotonic() - start
    playwright.expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled(timeout=MINUTE)
    return redrawn


def test_the_first_page_opens_as_make_lab_opens_it_and_leads_to_a_notebook(visit):
    [first] = re.findall(r"default_url=/lab/tree/(\S+)", (ROOT / "Makefile").read_text())
    page = visit(first)
    link = page.locator(NOTEBOOK).get_by_role("link", name="01 pFedSim")
    link.wait_for()
    photograph(page, "start")
    link.click()
    page.locator(f"{NOTEBOOK} h1").filter(has_text="pFedSim").wait_for()


def test_a_notebook_runs_twice_but_trains_once_and_its_playground_trains_again_and_stops(visit, root):
    n = sum(cell.cell_type == "code" for cell in nbformat.read(root / "notebooks" / LESSON, 4).cells)
    page = visit(f"notebooks/{LESSON}")
    playwright.expect(page.locator(f"{NOTEBOOK} .jp-CodeCell")).to_have_count(n, timeout=2 * MINUTE)
    first = run_all_cells(page, ends_with=n)
    trained = {path: path.stat().st_mtime_ns for path in (root / "runs").glob("*/run.safetensors")}
    assert trained
    again = run_all_cells(page, ends_with=2 * n)
    assert {path: path.stat().st_mtime_ns for path in (root / "runs").glob("*/run.safetensors")} == trained

    picture = page.locator(f"{NOTEBOOK} .widget-image").first
    picture.scroll_into_view_if_needed()
    photograph(page, "playground_before")
    redrawn = train_local_only(page, NOTEBOOK)
    says = page.locator(f"{NOTEBOOK} .widget-label").get_by_text("round 1 of 1")
    playwright.expect(says).to_be_visible(timeout=MINUTE)
    photograph(page, "playground_after")
    print(f"The lesson ran in {first:.0f} s and again in {again:.0f} s; its playground redraws in {redrawn:.2f} s.")


def test_the_playground_is_a_page_without_code_under_voila(voila, page):
    page.goto(f"{voila}/?preset=twins", wait_until="commit")
    page.locator(".widget-image").first.wait_for()
    photograph(page, "voila")
    playwright.expect(page.locator("input[list]").first).to_have_value("pfedsim")
    assert page.get_by_text("import fedlib").count() == 0
    train_local_only(page)
    preset = page.get_by_role("button", name="pFedMB's branches")
    playwright.expect(preset).to_be_enabled()  # after Stop is disabled
    preset.press("Enter")
    playwright.expect(page.locator("input[list]").first).to_have_value("pfedmb", timeout=30_000)
    playwright.expect(page.get_by_text("Explained in 04_pfedmb")).to_be_visible()
    assert page.get_by_role("link", name="Explained in").count() == 0  # Voila serves no other notebook
    playwright.expect(page.get_by_text("round 1 of 1")).to_be_visible(timeout=MINUTE)
    photograph(page, "preset")


def shown_rows(page) -> list[list[str]]:
    texts = "rows => rows.filter(row => !row.hidden).map(row => Array.from(row.cells, cell => cell.textContent))"
    found = page.locator("#board tbody tr").evaluate_all(texts)
    return [[" ".join(text.split()) for text in row] for row in found]


def test_the_address_of_a_filter_shows_the_same_rows_again(open_board):
    page = open_board()
    everything = shown_rows(page)
    page.locator("[name=paper]").select_option("pfedmb")
    page.locator("[name=protocol]").select_option("paper's text")
    page.locator("[name=words]").fill("fedper")
    filtered = shown_rows(page)
    assert 0 < len(filtered) < len(everything)
    assert all((row[0], row[6], row[2]) == ("pFedMB", "paper's text", "FedPer") for row in filtered)
    again = open_board(page.url.partition("scoreboard.html")[2])
    assert shown_rows(again) == filtered
    again.get_by_role("button", name="Show all").click()
    assert shown_rows(again) == everything


def test_the_csv_has_the_rows_that_are_shown_in_their_order_and_no_other(open_board):
    page = open_board("?paper=fedsimsup&measured=yes")
    page.locator("#board").get_by_role("button", name="printed").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV of what is shown").click()
    head, *rows = csv.reader(Path(download.value.path()).read_text(encoding="utf-8").splitlines())
    assert " ".join(head) == "paper item method data setting metric protocol printed ours seeds gap"
    assert rows == shown_rows(page)
    assert {row[0] for row in rows} == {"FedSimSup"}


def test_a_click_on_a_dot_shows_its_table_and_marks_its_row(open_board):
    page = open_board("?paper=pfedhr")
    dots = page.locator("#board-plot a:not(.out)")
    assert 0 < dots.count() < page.locator("#board-plot a").count()
    paper, table, method, *_ = dots.last.get_attribute("aria-label").split(", ")
    dots.last.dispatch_event("click")
    assert {tuple(row[:2]) for row in shown_rows(page)} == {(paper, table)}
    assert page.locator("#board tr:target td").nth(2).inner_text() == method
    assert page.locator("#board tr:target").is_visible()


def test_the_scoreboard_fits_and_its_first_columns_stay(open_board):
    page = open_board()
    page.set_viewport_size({"width": 1000, "height": 900})  # the side bar takes the rest of 1280
    page.add_style_tag(content="html { font: 16px DejaVu Sans } .wide { width: 942px }")
    box = page.locator(".wide.tall")
    assert box.evaluate("box => box.scrollWidth - box.clientWidth") == 0
    page.add_style_tag(content=".wide { width: 700px }")
    box.evaluate("box => box.scrollBy(150, 200)")
    place = "cell => cell.getBoundingClientRect().left - cell.closest('.wide').getBoundingClientRect().left"
    first = page.locator("#board tbody tr").first.locator("td")
    assert [round(first.nth(k).evaluate(place)) for k in (0, 1)] == [0, 80]


def test_a_number_opens_its_runs(open_board):
    page = open_board("?paper=pfedsim&item=Table+3&measured=yes")
    runs = page.locator(".runs:popover-open")
    assert runs.count() == 0
    page.locator("#board tbody button:visible").first.press("Enter")
    [name] = re.findall('make evidence PAPER=pfedsim ITEM="(.*)"', runs.inner_text())
    assert f"{name}-s0.json" in runs.inner_text()
    page.keyboard.press("Escape")
    assert runs.count() == 0
