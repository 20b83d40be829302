"""Lists of items as some papers still have them; see `fedlib.studies.item`."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedlib.studies import item as new


def Cell(item: str, *args: Any, **about: Any) -> new.Cell:
    """A cell with its item first."""
    return new.Cell(*args, **about, item=item)


def Item(title, rows="method", draw=None, alt="", says=None, digits=2):
    """An item without a name."""
    made = new.Item("", title, rows=rows, digits=digits, alt=alt)
    made.drawing, made.sentence = draw, says
    return made


def items(shown: Mapping[str, new.Item], controls: Mapping[str, Sequence[str]]) -> list[new.Item]:
    """The items with their names and the tables that they explain."""
    for name, one in shown.items():
        one.name, one.explains = name, tuple(table for table, names in controls.items() if name in names)
    return list(shown.values())
