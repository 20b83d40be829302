"""A slider above a picture that it redraws: the `play with it` cell of a notebook."""

import base64
import io
from collections.abc import Callable, Sequence

import ipywidgets as widgets
import matplotlib.pyplot as plt
from matplotlib.figure import Figure


class Explorer(widgets.VBox):
    """The slider and its picture. Where widgets do not run, the picture of the first value is shown.

    The picture is an image widget, not captured output: it needs no message from the front end while a cell runs,
    and executing the notebook in batch keeps it.
    """

    def __init__(self, draw: Callable[[float], Figure], slider: widgets.SelectionSlider):
        self._picture = widgets.Image(format="png", value=_png(draw(slider.value)))
        super().__init__([slider, self._picture])
        slider.observe(lambda change: setattr(self._picture, "value", _png(draw(change["new"]))), "value")

    def _repr_mimebundle_(self, **options) -> tuple[dict, dict]:
        picture = {"image/png": base64.b64encode(self._picture.value).decode()}
        slider = self.children[0]
        return super()._repr_mimebundle_(**options) | picture, {
            "image/png": {"alt": f"The picture for {slider.description} = {slider.value}."}
        }


def explore(draw: Callable[[float], Figure], name: str, options: Sequence[float], value: float) -> Explorer:
    """A slider called `name` over `options`, starting at `value`; `draw(option)` returns the figure to show."""
    slider = widgets.SelectionSlider(options=options, value=value, description=name, continuous_update=False)
    return Explorer(draw, slider)


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)
    plt.close(figure)
    return stream.getvalue()
