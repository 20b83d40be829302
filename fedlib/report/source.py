"""The code behind a formula, shown in the notebook that explains it."""

import inspect
from collections.abc import Callable

from IPython.display import Code


def source(function: Callable) -> Code:
    """The source of a fedlib function, highlighted."""
    return Code(inspect.getsource(function), language="python")
