"""The pages of the library: one for each method, and the API by topic."""

import inspect
import re
import tomllib
from pathlib import Path

import fedlib as fl
from fedlib.algorithm import ALGORITHMS
from fedlib.files import write_text
from fedlib.report.paper import PAPERS, TITLES, reported
from fedlib.report.style import label
from fedlib.tools.site.evidence import Evidence, counted
from fedlib.tools.site.markup import ROOT, Pages, fill, place

API = tomllib.loads(Path(__file__).with_name("api.toml").read_text(encoding="utf-8"))  # by page


def source_of(name: str) -> str:
    """The paper of a method, as the first line of its file says."""
    first = (inspect.getmodule(inspect.unwrap(ALGORITHMS[name])).__doc__ or "").splitlines()[0]
    return first.partition(":")[0].rstrip(".")


def printed_in(name: str) -> list[str]:
    """The papers that print results of a method."""
    return [paper for paper in PAPERS if name in set(reported(paper)["method"].str.split(r"[-+]").str[0])]


def tests_of(name: str) -> list[str]:
    """The tests of a method: its oracle, and those of methods and papers that name it in code."""
    own = re.compile(rf"\bfl\.{name}\(|[\"']{name}[\"']")
    about = "|".join(("oracles_.*", "methods", *PAPERS))
    files = [path for path in sorted((ROOT / "tests").glob("test_*.py")) if re.fullmatch(f"test_({about})", path.stem)]
    return [f"tests/{path.name}" for path in files if own.search(path.read_text(encoding="utf-8"))]


def write_readme(path: Path = ROOT / "fedlib" / "methods" / "README.md") -> str:
    """Write the table of methods at the end of their README; returns its text."""
    words, _, _ = path.read_text(encoding="utf-8").partition("| method |")
    lines = ["| method | source | printed in the tables of | tests |", "|---|---|---|---|"]
    for name in fl.algorithms():
        links = ", ".join(f"[{Path(test).stem.removeprefix('test_')}](../../{test})" for test in tests_of(name))
        papers = ", ".join(TITLES[paper] for paper in printed_in(name)) or "-"
        lines.append(f"| `{name}` | {source_of(name)} | {papers} | {links} |")
    return write_text(path, words + "\n".join(lines) + "\n").read_text(encoding="utf-8")


def methods(evidence: Evidence) -> Pages:
    """A page for each method, and their list."""
    made: Pages = {}
    listed = []
    methods_of = evidence.board["method"].str.split(r"[-+(]").str[0]
    for name in fl.algorithms():
        path = Path(inspect.getfile(inspect.unwrap(ALGORITHMS[name]))).relative_to(ROOT).as_posix()
        rows = evidence.board[(methods_of == name) & evidence.board["paper"].notna()]
        about = {"name": name, "label": label(name), "source": source_of(name), "papers": printed_in(name)}
        tests = {Path(test).stem: place(test, made) for test in tests_of(name)}
        more = {"code": place(path, made), "tests": tests, "counted": counted(rows) if len(rows) else ""}
        made[f"methods/{name}.md"] = fill("method.md", **about, **more)
        listed.append(about)
    return made | {"methods/index.md": fill("methods.md", methods=listed)}


def api() -> Pages:
    """A page for each topic of the API, and their list."""
    made: Pages = {"api/index.md": fill("apis.md", pages=API)}
    for page, about in API.items():
        made[f"api/{page}.md"] = fill("api.md", **about)
    return made
