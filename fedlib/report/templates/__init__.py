"""The HTML of pages, tables and ledgers, filled in with Jinja."""

from pathlib import Path

import jinja2


def templates(folder: Path) -> jinja2.Environment:
    """The templates in a folder; what they insert is escaped, and a name that is not given is an error."""
    loader = jinja2.FileSystemLoader(folder)
    strict = jinja2.StrictUndefined
    return jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=strict)


TEMPLATES = templates(Path(__file__).parent)
