"""The HTML of pages, tables and ledgers, filled in with Jinja."""

import base64
import re
from pathlib import Path

import jinja2
from markupsafe import Markup


def finding(says: str) -> Markup:
    """A paragraph whose first sentence, the finding of a figure, is bold; "" without a sentence."""
    first, *rest = re.split(r'(?<=[.?!])(?= ["A-Z])', says, maxsplit=1)
    return Markup("<p><strong>{}</strong>{}</p>").format(first, "".join(rest)) if says else Markup("")


def templates(folder: Path) -> jinja2.Environment:
    """The templates in a folder; inserted values are escaped, and an undefined name is an error."""
    loader = jinja2.FileSystemLoader(folder)
    strict = jinja2.StrictUndefined
    made = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=strict)
    made.filters |= {"finding": finding, "base64": lambda content: base64.b64encode(content).decode()}
    return made


TEMPLATES = templates(Path(__file__).parent)
