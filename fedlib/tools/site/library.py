"""The pages of the library: one for each method, and the API by topic."""

import inspect
import re
from pathlib import Path

import fedlib as fl
from fedlib.algorithm import ALGORITHMS
from fedlib.files import write_text
from fedlib.report.paper import PAPERS, TITLES, reported
from fedlib.report.style import label
from fedlib.tools.site.evidence import Evidence, counted
from fedlib.tools.site.markup import ROOT, Pages, fill, place

API = {  # page: title, purpose, and the names by module
    "running": (
        "Run and compare",
        "One loop of rounds runs every method; a sweep executes many runs.",
        {"fedlib": "run grid sweep slurm_share Sweep RunResult algorithms models"},
    ),
    "data": (
        "Data and clients",
        "Images, and their division among clients.",
        {
            "fedlib": "load datasets Dataset federate Federation Partition iid dirichlet dirichlet_groups shards "
            "classes_per_client uneven_classes label_groups domains mixed_domains index_lists partition_file flower",
            "fedlib.data": "data_root digit_masks read_npz write_npz",
        },
    ),
    "evidence": (
        "Studies and evidence",
        "The runs behind a paper's tables, figures and claims, the measured numbers, and the rule that judges claims.",
        {
            "fedlib": "study evidence compare Study",
            "fedlib.studies.study": "Item Cell Claim Numbers",
            "fedlib.studies.compare": "Comparison",
            "fedlib.studies.verdict": "judge Case Verdict",
            "fedlib.studies.number": "Number largest smallest mean",
        },
    ),
    "report": (
        "Tables, figures, playground",
        "Tables, figures and widgets of the notebooks, from frames of results; `fl.report`.",
        {"fedlib.report": " ".join(name for name in fl.report.__all__ if not name.isupper())},
    ),
    "additions": (
        "Additions to any method",
        "Compressed uploads, differential privacy, early stopping, fairness, and the model of a client as a file.",
        {"fedlib": "compressed private epsilon run_early early_stopping fairness export"},
    ),
    "own_methods": (
        "Write a method",
        "The parts of a method: its value, the clients of a round, local training, and stacks.",
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
        "Architectures by name, and their assignment to clients.",
        {
            "fedlib": "pretrained",
            "fedlib.models": "build Model Architecture Ensemble deal features lenet4 lenet5 lenet5_bn lenet5_plain "
            "mobilenetv2 mobilenetv2_pretrained resnet18 resnet18_gn",
        },
    ),
    "similarity": (
        "Similarity",
        "Similarity of models, layers, classifiers and data.",
        {
            "fedlib.similarity": "classifier_similarity similarity_matrix row_cosines linear_cka cka_matrix "
            "data_similarity update_cosine parameter_distance bn_distance ldb wdb agreement"
        },
    ),
}


def source_of(name: str) -> str:
    """The paper of a method, as the first line of its file says."""
    first = (inspect.getmodule(inspect.unwrap(ALGORITHMS[name])).__doc__ or "").splitlines()[0]  # type: ignore[union-attr]
    return first.partition(":")[0].rstrip(".")


def printed_in(name: str) -> list[str]:
    """The papers that print results of a method."""
    return [paper for paper in PAPERS if name in set(reported(paper)["method"].str.split(r"[-+]").str[0])]


def tests_of(name: str) -> list[str]:
    """The tests of a method: its oracle, and those of methods and papers that name it in code."""
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
    for page, (title, about, modules) in API.items():
        made[f"api/{page}.md"] = fill("api.md", title=title, about=about, modules=modules)
    return made
