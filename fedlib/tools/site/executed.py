"""The notebooks as pages: the executed copies of a profile, or the sources of those that were not executed."""

import base64
import hashlib
import html
import os
import re
from pathlib import Path

import nbformat
from nbformat.notebooknode import NotebookNode
from nbformat.reader import NotJSONError

from fedlib.tools.site.markup import EXTRA, ROOT, Pages, fill, relink, up

PICTURE = re.compile(r"data:image/(png|jpeg);base64,([A-Za-z0-9+/=\s]+)")
OWN_PAGES = ("start", "glossary")  # notebooks with other pages


def pages(figures: Path, profile: str) -> Pages:
    """A page for each notebook, with its pictures; `figures/<profile>/<paper>/*.ipynb` are the executed copies."""
    made: Pages = {}
    for source in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if source.stem in OWN_PAGES:
            continue
        name, copy = f"notebooks/{source.name}", figures / profile / source.stem.partition("_")[2] / source.name
        try:
            notebook, done = nbformat.read(copy, 4), True
        except (FileNotFoundError, NotJSONError):  # not there, or not complete
            notebook, done = nbformat.read(source, 4), False
        made[name] = nbformat.writes(page(notebook, name, note(source, done, profile), made)) + "\n"
    return made


def note(source: Path, done: bool, profile: str) -> str:
    """The note on top of the page, and links to Binder and Colab where GitHub's runners name the repository."""
    paper = source.stem.partition("_")[2] if re.match(r"\d[1-9]_", source.stem) else ""
    colab = "google.colab" in source.read_text(encoding="utf-8")  # the notebook installs fedlib there
    online = {"repository": os.environ.get("GITHUB_REPOSITORY"), "colab": colab, "name": source.name}
    return fill("note.md", done=done, profile=profile, paper=paper, **online)


def page(notebook: NotebookNode, name: str, first: str, made: Pages) -> NotebookNode:
    """A notebook for the site: links lead to its pages, outputs are pictures, tables or text, never widgets."""
    notebook.metadata.pop("widgets", None)
    notebook.metadata.setdefault("language_info", {"name": "python"})
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = relink(cell.source, name, "notebooks", made)
            cell.source = PICTURE.sub(lambda found: picture(*found.groups(), name, made), cell.source)
        elif cell.cell_type == "code":
            cell.outputs = [shown(output, name, made) for output in cell.outputs if output.get("name") != "stderr"]
            tags = cell.metadata.get("tags", [])
            cell.metadata["tags"] = [*tags, "hide-cell"] if "solution" in tags else tags
    title, _, rest = notebook.cells[0].source.partition("\n")
    notebook.cells[0].source = f"{title}\n\n{first}\n{rest}"
    return nbformat.v4.upgrade(notebook) if notebook.nbformat_minor < 5 else notebook


def shown(output: NotebookNode, name: str, made: Pages) -> NotebookNode:
    """An output in one format, with pictures as files."""
    data = output.get("data")
    if data is None:
        return output
    if "text/html" in data:
        content = PICTURE.sub(lambda found: picture(*found.groups(), name, made), data["text/html"])
        output.data = {"text/html": content.replace("<img ", '<img loading="lazy" ')}
    elif "image/png" in data:
        meta = output.metadata.get("image/png", {})
        address = picture("png", data["image/png"], name, made)
        alt = html.escape(meta.get("alt") or "Figure drawn by the cell above.")
        width = f' style="width: {meta["width"]}px"' if "width" in meta else ""
        output.data = {"text/html": f'<img loading="lazy" src="{address}" alt="{alt}"{width}>'}
    else:
        output.data = {"text/plain": data.get("text/plain", "")}
    return output


def picture(kind: str, code: str, name: str, made: Pages) -> str:
    """An embedded picture, "png" or "jpeg" in base64, as a file of the site; returns its address."""
    content = base64.b64decode(code)
    file = f"pictures/{hashlib.sha256(content).hexdigest()[:16]}.{kind}"
    made[EXTRA + file] = content
    return up(name) + file
