"""All pages as sources, then Sphinx; the finished site replaces the old one in one step."""

import io
import os
import re
import shutil
import tempfile
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

from fedlib.tools.site import executed, library, results, texts
from fedlib.tools.site.evidence import read
from fedlib.tools.site.markup import EXTRA

HERE = Path(__file__).parent


def build(output: Path, figures: Path = Path("figures"), profile: str = "quick") -> str:
    """Make the site in `output` with `figures/<profile>/<paper>/*.ipynb`, unless Sphinx warns; returns its warnings."""
    evidence = read()
    pages = executed.pages(figures, profile) | results.pages(evidence) | library.methods(evidence) | library.api()
    pages |= texts.pages()
    pages |= texts.glossary(pages)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".site-", dir=output.parent) as folder:
        work = Path(folder)
        for name, content in pages.items():
            path = work / "source" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        warnings = sphinx(work / "source", work / "html", work / "doctrees")
        if warnings:
            return warnings
        for useless in (".buildinfo", "objects.inv", ".nojekyll"):
            (work / "html" / useless).unlink(missing_ok=True)
        if output.exists():
            os.replace(output, work / "old")
        try:
            os.replace(work / "html", output)
        except OSError:
            if (work / "old").exists():
                os.replace(work / "old", output)
            raise
    return ""


def sphinx(source: Path, output: Path, doctrees: Path) -> str:
    """Run Sphinx; returns its warnings."""
    warnings = io.StringIO()
    with patch_docutils(), docutils_namespace():
        settings = {"html_extra_path": [str((source / EXTRA).resolve())]}
        app = Sphinx(source, HERE, output, doctrees, "html", settings, None, warnings, freshenv=True)
        app.build(force_all=True)
    shutil.rmtree(output / "_sources", ignore_errors=True)
    return re.sub(r"\x1b\[[\d;]*m", "", warnings.getvalue())
