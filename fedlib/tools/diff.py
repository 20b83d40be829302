"""`python -m fedlib.tools.diff A B`: compare executed notebooks, or folders of them, cell by cell with nbdime.

Ignored are differences that two runs of the same code may have: metadata, progress and other stderr, the ids of
widgets, the parameters that `make figures` sets (output folder, number of jobs), the outputs of cells tagged `timing`,
and rows of tables about time.
"""

import argparse
import re
import sys
from pathlib import Path

import nbformat
from nbdime import diff_notebooks
from nbdime.prettyprint import PrettyPrintConfig, pretty_print_notebook_diff
from nbformat import NotebookNode

from fedlib.tools.batch import BY_OPTION

TIMING = "timing"
SET_BY_BATCH = re.compile(rf"^({'|'.join(BY_OPTION)}) = .*\n?", re.MULTILINE)
TIMED_ROW = re.compile(r"<tr>(?:(?!</tr>).)*\b(?:time|seconds)\b.*?</tr>", re.DOTALL)
WIDGET = "application/vnd.jupyter.widget-view+json"


def essence(notebook: NotebookNode) -> NotebookNode:
    """The notebook without what a repeated run may change."""
    cells = []
    for number, cell in enumerate(notebook.cells):
        tags = cell.metadata.get("tags", [])
        kept = NotebookNode(cell_type=cell.cell_type, id=f"cell-{number}", metadata=NotebookNode(), source=cell.source)
        if cell.cell_type == "code":
            if "injected-parameters" in tags:
                kept.source = SET_BY_BATCH.sub("", cell.source)
            outputs = [] if TIMING in tags else cell.outputs
            kept |= {"execution_count": None, "outputs": [shown(o) for o in outputs if o.get("name") != "stderr"]}
        cells.append(kept)
    return NotebookNode(cells=cells, metadata=NotebookNode(), nbformat=4, nbformat_minor=5)


def shown(output: NotebookNode) -> NotebookNode:
    """An output without metadata; of a table only its HTML, without rows about time."""
    kept = NotebookNode({name: value for name, value in output.items() if name not in ("metadata", "execution_count")})
    if "data" not in output:
        return kept
    data = {kind: value for kind, value in output.data.items() if kind != WIDGET}
    if "text/html" in data:
        data = {"text/html": TIMED_ROW.sub("", data["text/html"])}
    return NotebookNode(kept | {"metadata": NotebookNode(), "data": NotebookNode(data)})


def notebooks(a: Path, b: Path) -> list[tuple[Path, Path]]:
    """The pairs to compare: two notebooks, or notebooks of one name in two folders; `ValueError` if one is missing."""
    missing = [str(path) for path in (a, b) if not path.exists()]
    if missing:
        raise ValueError(f"{missing[0]!r} does not exist; A and B are executed notebooks or folders of them.")
    if a.is_file() and b.is_file():
        return [(a, b)]
    found = [{p.relative_to(folder) for p in folder.rglob("[0-9][0-9]_*.ipynb")} for folder in (a, b)]
    if found[0] != found[1] or not found[0]:
        one_sided = ", ".join(sorted(map(str, found[0] ^ found[1]))) or "none"
        raise ValueError(f"{str(a)!r} and {str(b)!r} do not hold the same notebooks (only in one: {one_sided}).")
    return [(a / name, b / name) for name in sorted(found[0])]


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns 0 without differences, 1 with differences, 2 for a wrong argument."""
    parser = argparse.ArgumentParser(prog="python -m fedlib.tools.diff", description="Compare executed notebooks.")
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    given = parser.parse_args(arguments)
    try:
        pairs = notebooks(given.a, given.b)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    differ = 0
    for paths in pairs:
        a, b = (essence(nbformat.read(path, 4)) for path in paths)
        difference = diff_notebooks(a, b)
        differ += bool(difference)
        print(f"{paths[0].name}: {'DIFFERENT' if difference else 'the same, cell by cell'}")
        colours = PrettyPrintConfig(out=sys.stdout, use_git=False, use_diff=False, use_color=sys.stdout.isatty())
        pretty_print_notebook_diff(*map(str, paths), a, difference, colours)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
