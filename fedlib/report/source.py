"""Show the source code of a function in a notebook."""

import inspect
from collections.abc import Callable

from IPython.display import Code


def source(function: Callable[..., object]) -> Code:
    """Show the source of a function, highlighted.

    Args:
        function: a function or class.

    Returns:
        The source, for display.

    Example:
        >>> import fedlib as fl
        >>> fl.report.source(fl.report.format_pm).data.splitlines()[0]
        'def format_pm(mean: float, std: float = float("nan"), digits: int = 2) -> str:'
    """
    return Code(inspect.getsource(function), language="python")
