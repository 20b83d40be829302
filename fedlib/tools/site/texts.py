"""Pages written by hand: use, contributing, changes, the pages in `pages/`, and the glossary."""

import re
from pathlib import Path

import nbformat

from fedlib.tools.site.markup import EXTRA, PLACES, ROOT, Pages, relink

PAGES = Path(__file__).parent / "pages"
TABLES = {  # linked from pages, each with the text above it
    "figures/reference/evidence/items.md": "",
    "figures/reference/bench/bench.md": "# Speed\n\n![Bars and lines of the table](bench.svg)\n\n",
    "figures/reference/bench/peers.md": "# Other libraries\n\n",
}
ELSEWHERE = ("Contents and status",)  # sections of the README that the start page replaces


def pages() -> Pages:
    """All pages written by hand, except the glossary."""
    made: Pages = {}
    _, *sections = re.split(r"^## ", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    kept = [f"## {section}" for section in sections if section.partition("\n")[0] not in ELSEWHERE]
    made["use.md"] = relink("# Use fedlib\n\n" + "".join(kept), "use.html", ".", made)
    files = ["CONTRIBUTING.md", "CHANGELOG.md", *TABLES]
    files += [path.relative_to(ROOT).as_posix() for path in sorted(PAGES.glob("*.md"))]
    for file in files:
        text = TABLES.get(file, "") + (ROOT / file).read_text(encoding="utf-8")
        text = relink(text, PLACES[file], Path(file).parent.as_posix(), made)
        made[PLACES[file].replace(".html", ".md")] = "---\norphan: true\n---\n" * (file in TABLES) + text
    for table in ("scoreboard", "ledger", "summary", "differences"):
        path = ROOT / "figures" / "reference" / "evidence" / f"{table}.csv"
        made[f"{EXTRA}files/{table}.csv"] = path.read_bytes()
    return made


def glossary(pages: Pages) -> Pages:
    """The page of all terms in `glossary.ipynb`, each with the code that defines it and the pages that use it."""
    made: Pages = {}
    texts = {name: content for name, content in pages.items() if isinstance(content, str) and name.endswith(".md")}
    titles = {name: title[1] for name, text in texts.items() if (title := re.search(r"^# (.+)", text, re.MULTILINE))}
    parts = ["# Glossary\n", "Each term, with the function or class that defines it here.\n"]
    text = "\n\n".join(cell.source for cell in nbformat.read(ROOT / "notebooks" / "glossary.ipynb", 4).cells)
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        parts += [f"## {title}\n", "```````{glossary}"]
        terms = re.findall(r"^- \*\*(.+?)\*\*( \(.+?\))?: (.*(?:\n  .*)*)", body, re.MULTILINE)
        for word, note, meaning in sorted(terms, key=lambda term: term[0].lower()):
            meaning = relink(re.sub(r"\s*\n\s*", " ", meaning), "glossary.html", "notebooks", made)
            parts += [word, "  " + f"{note} {meaning}".strip()]
            if used := users(word, texts, titles):
                parts += ["", "  Used on: " + ", ".join(used) + "."]
            parts.append("")
        parts.append("```````\n")
    made["glossary.md"] = "\n".join(parts)
    return made


def users(word: str, texts: dict[str, str], titles: dict[str, str]) -> list[str]:
    """Links to the four pages that use a word most often; claims and changes are left out."""
    own = re.compile(rf"\b{re.escape(word.lower())}s?\b")
    shown = [name for name in titles if not name.startswith(("claims/", "changes", "index"))]
    counts = {name: len(own.findall(texts[name].lower())) for name in shown}
    best = sorted(filter(counts.get, counts), key=lambda name: (-counts[name], name))[:4]
    words = [titles[name].replace("`", "") + " (method)" * name.startswith("methods/") for name in best]
    return [f"[{text}]({name.removesuffix('.md')}.html)" for name, text in zip(best, words, strict=True)]
