"""A slider above a picture that it redraws, for notebooks."""

import base64
import io
from collections.abc import Callable, Sequence

import ipywidgets as widgets
import matplotlib.pyplot as plt
from matplotlib.figure import Figure


class Explorer(widgets.VBox):
    """The slider and its picture. Without a running kernel the picture of the first value is shown.

    The picture is an image widget, not captured output: it needs no message from the front end while a cell runs, and
    it is stored when a notebook is executed in batch.
    """

    def __init__(self, draw: Callable[[float], Figure], name: str, options: Sequence[float], value: float):
        slider = widgets.SelectionSlider(options=options, value=value, description=name, continuous_update=False)
        self._picture = widgets.Image(format="png", value=png(draw(slider.value)))
        super().__init__([slider, self._picture])
        slider.observe(lambda change: setattr(self._picture, "value", png(draw(change["new"]))), "value")

    # ipywidgets returns data only; IPython also takes metadata with it.
    def _repr_mimebundle_(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, **options: object
    ) -> tuple[dict[str, object], dict[str, object]]:
        picture = {"image/png": base64.b64encode(self._picture.value).decode()}
        slider = self.children[0]
        alt = f"The picture for {slider.description} = {slider.value}."
        return {**(super()._repr_mimebundle_(**options) or {}), **picture}, {"image/png": {"alt": alt}}


def explore(draw: Callable[[float], Figure], name: str, options: Sequence[float], value: float) -> Explorer:
    """Show a figure under a slider that redraws it.

    Args:
        draw: function of a value of the slider that returns the figure; the figure is closed after it has been drawn.
        name: label of the slider.
        options: values of the slider, in order.
        value: its first value, one of `options`.

    Returns:
        The widget; a notebook shows it as the last value of a cell.

    Example:
        >>> def draw(alpha):
        ...     figure, ax = plt.subplots()
        ...     ax.plot([0, alpha])
        ...     return figure
        >>> widget = fl.report.explore(draw, "alpha", options=[0.1, 1.0], value=1.0)
        >>> slider, picture = widget.children
        >>> slider.value = 0.1  # draws the picture again
    """
    return Explorer(draw, name, options, value)


def png(figure: Figure, dpi: int = 110) -> bytes:
    """The figure as a PNG file; it is closed."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=dpi)
    plt.close(figure)
    return stream.getvalue()
