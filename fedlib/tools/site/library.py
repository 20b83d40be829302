"""The pages of the library: one for each method, and the API by topic."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import fedlib as fl
from fedlib.algorithm import ALGORITHMS
from fedlib.files import write_text
from fedlib.report.paper import PAPERS, TITLES, reported
from fedlib.report.style import label
from fedlib.tools.site.evidence import Evidence, counted
from fedlib.tools.site.markup import ROOT, Pages, escape, place

API = {  # page: title, what it is for, and the names by module
    "running": (
        "Run and compare",
        "One round loop runs all methods; a sweep runs many of them.",
        {"fedlib": "run grid sweep slurm_share Sweep RunResult algorithms models"},
    ),
    "data": (
        "Data and clients",
        "Images, and which client has which of them.",
        {
            "fedlib": "load datasets Dataset federate Federation Partition iid dirichlet dirichlet_groups shards "
            "classes_per_client uneven_classes label_groups domains mixed_domains index_lists partition_file flower",
            "fedlib.data": "data_root digit_masks read_npz write_npz",
        },
    ),
    "evidence": (
        "Studies and evidence",
        "What a paper's tables, figures and claims need, what has been measured, and the rule that judges.",
        {
            "fedlib": "study evidence Study",
            "fedlib.studies.study": "Item Cell Claim Numbers",
            "fedlib.studies.verdict": "judge Case Verdict",
            "fedlib.studies.number": "Number largest smallest mean missing",
        },
    ),
    "report": (
        "Tables, figures, playground",
        "From frames of results to what a notebook shows; `fl.report`.",
        {"fedlib.report": " ".join(name for name in fl.report.__all__ if not name.isupper())},
    ),
    "own_methods": (
        "Write a method",
        "What a method is made of: its value, the clients of a round, local training, and stacks.",
        {
            "fedlib": "algorithm Algorithm",
            "fedlib.algorithm": "Global Personal Partial init_global one_for_all tuned",
            "fedlib.training": "Cohort Batch train cross_entropy evaluate logits client_logits class_features "
            "mean_loss",
            "fedlib.stack": "Shared PerArchitecture repeat copies own_copies take put row select drop mix client_mean "
            "uniform_mean sq_distance n_bytes",
            "fedlib.checks": "at_least above at_most below",
        },
    ),
    "models": (
        "Models",
        "Architectures by name, and how clients with different ones are dealt out.",
        {
            "fedlib.models": "build Model Architecture Ensemble deal features lenet4 lenet5 lenet5_bn lenet5_plain "
            "mobilenetv2 mobilenetv2_pretrained resnet18 resnet18_gn"
        },
    ),
    "similarity": (
        "Similarity",
        "How alike models, layers, classifiers and data are.",
        {
            "fedlib.similarity": "classifier_similarity similarity_matrix row_cosines linear_cka cka_matrix "
            "data_similarity update_cosine parameter_distance bn_distance ldb wdb agreement"
        },
    ),
}


def pages(evidence: Evidence) -> Pages:
    """The pages of methods and of the API."""
    return methods(evidence) | api()


# -- methods --------------------------------------------------------------------------------------------------------


def source_of(name: str) -> str:
    """The paper of a method, as the first line of its file says."""
    first = (inspect.getmodule(inspect.unwrap(ALGORITHMS[name])).__doc__ or "").splitlines()[0]  # type: ignore[union-attr]
    return first.partition(":")[0].rstrip(".")


def printed_in(name: str) -> list[str]:
    """The papers that print results of a method."""
    return [paper for paper in PAPERS if name in set(reported(paper)["method"].str.split(r"[-+]").str[0])]


def tests_of(name: str) -> list[str]:
    """The tests that are about a method: its oracle, and those of methods and papers that name it in code."""
    own = re.compile(rf"\bfl\.{name}\(|[\"']{name}[\"']")
    about = "|".join(("oracles_.*", "baselines", "personal", *PAPERS))
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
    lines = []
    methods_of = evidence.board["method"].str.split(r"[-+(]").str[0]
    for name in fl.algorithms():
        papers = printed_in(name)
        links = ", ".join(f"[{TITLES[p]}](../papers/{p}.html)" for p in papers) or "no table of the five papers"
        rows = evidence.board[(methods_of == name) & evidence.board["paper"].notna()]
        path = Path(inspect.getfile(inspect.unwrap(ALGORITHMS[name]))).relative_to(ROOT).as_posix()
        tests = ", ".join(f"[{Path(test).stem}](../{place(test, made)})" for test in tests_of(name))
        parts = [
            f"# {label(name)}\n",
            f"`fl.{name}`: {escape(source_of(name))}. Printed in: {links}"
            + (f"; [{counted(rows)}](../scoreboard.html?method={name}).\n" if len(rows) else ".\n"),
            directive("autofunction", f"fedlib.{name}"),
            f"The code is [one file](../{place(path, made)}#{name}). Tests: {tests}.\n",
            "Every method fulfils the same [contract](../_modules/tests/test_contract.html): shapes and bytes are "
            "right, the same seed gives the same bits, a resumed run gives the same result, and the defaults run.\n",
        ]
        made[f"methods/{name}.md"] = "\n".join(parts)
        lines.append(f"| [{label(name)}]({name}.html) | `fl.{name}` | {escape(source_of(name))} | {links} |")
    head = ["| method | function | source | printed in |", "|---|---|---|---|"]
    text = [
        "# Methods\n",
        "Each is a function of its hyper-parameters that returns an `Algorithm` for `fl.run`. The page of a method "
        "says what a client minimises, what the server does, what happens to BatchNorm and which model is evaluated, "
        "and has an example.\n",
        *head,
        *lines,
        "\n```{toctree}\n:hidden:\n\n" + "\n".join(fl.algorithms()) + "\n```\n",
    ]
    return made | {"methods/index.md": "\n".join(text)}


# -- API ------------------------------------------------------------------------------------------------------------


def directive(kind: str, name: str) -> str:
    """A directive of autodoc."""
    options = "\n   :members:\n" if kind == "autoclass" else ""
    return f"```{{eval-rst}}\n.. {kind}:: {name}{options}\n```\n"


def api() -> Pages:
    """A page for each topic of the API, and their list."""
    made: Pages = {}
    lines = []
    for page, (title, about, modules) in API.items():
        parts = [f"# {title}\n", f"{about}\n"]
        for module, names in modules.items():
            if len(modules) > 1:
                parts.append(f"## `{module}`\n")
            where = importlib.import_module(module)
            for name in names.split():
                kind = "autoclass" if inspect.isclass(getattr(where, name)) else "autofunction"
                parts.append(directive(kind, f"{module}.{name}"))
        made[f"api/{page}.md"] = "\n".join(parts)
        lines.append(f"| [{title}]({page}.html) | {about} |")
    text = [
        "# API\n",
        "With `import fedlib as fl`, `fl.load`, `fl.federate`, `fl.run` and `fl.sweep` are enough to begin. "
        "The examples on these pages run as tests. Methods have [pages of their own](../methods/index.html).\n",
        "| | |\n|---|---|",
        *lines,
        "\n```{toctree}\n:hidden:\n\n" + "\n".join(API) + "\n```\n",
    ]
    return made | {"api/index.md": "\n".join(text)}
