"""`python -m fedlib.tools.diff A B`: compare executed notebooks, or folders of them, cell by cell with nbdime.

Differences that two runs of the same code may have are ignored: metadata, progress and other stderr, the ids of
widgets, the parameters that `make figures` sets (output folder, number of jobs), the outputs of cells tagged `timing`,
and rows of tables about time.
"""

import argparse
import re
import sys
from pathlib import Path

import nbformat
from nbdime import diff_notebooks
from nbdime.diffing.notebooks import set_notebook_diff_ignores
from nbdime.prettyprint import PrettyPrintConfig, pretty_print_notebook_diff
from nbformat import NotebookNode

from fedlib.tools.batch import BY_OPTION

TIMING = "timing"
SET_BY_BATCH = re.compile(rf"^({'|'.join(BY_OPTION)}) = .*\n?", re.MULTILINE)
TIMED_ROW = re.compile(r"<tr>(?:(?!</tr>).)*\b(?:time|seconds)\b.*?</tr>", re.DOTALL)
WIDGET = "application/vnd.jupyter.widget-view+json"
IGNORED = dict.fromkeys(("/metadata", "/cells/*/metadata", "/cells/*/outputs/*/metadata"), True)
IGNORED |= {"/cells/*": ("id", "execution_count"), "/cells/*/outputs/*": ("execution_count",)}


def essence(path: Path) -> NotebookNode:
    """The notebook without the parts that a repeated run may change; tables as HTML only."""
    notebook = nbformat.read(path, 4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            tags = cell.metadata.get("tags", [])
            if "injected-parameters" in tags:
                cell.source = SET_BY_BATCH.sub("", cell.source)
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr" and TIMING not in tags]
            for data in (output.data for output in cell.outputs if "data" in output):
                data.pop(WIDGET, None)
                if html := data.get("text/html"):
                    data.clear()
                    data["text/html"] = TIMED_ROW.sub("", html)
    return notebook


def notebooks(a: Path, b: Path) -> list[tuple[Path, Path]]:
    """The pairs to compare: two notebooks, or equally named ones in two folders; `ValueError` if one is missing."""
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
    set_notebook_diff_ignores(IGNORED)
    differ = 0
    for paths in pairs:
        a, b = map(essence, paths)
        difference = diff_notebooks(a, b)
        differ += bool(difference)
        print(f"{paths[0].name}: {'DIFFERENT' if difference else 'the same, cell by cell'}")
        colours = PrettyPrintConfig(out=sys.stdout, use_git=False, use_diff=False, use_color=sys.stdout.isatty())
        pretty_print_notebook_diff(*map(str, paths), a, difference, colours)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
