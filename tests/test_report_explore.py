"""The slider of a notebook: it redraws, and it shows a static picture where widgets do not run."""

import base64

import matplotlib.pyplot as plt

from fedlib import report


def test_moving_the_slider_redraws_the_picture_and_closes_the_figures():
    drawn = []

    def draw(value):
        drawn.append(value)
        figure, ax = plt.subplots()
        ax.plot([0, value])
        return figure

    explorer = report.explore(draw, "alpha", [0.1, 0.5, 1.0], 0.5)
    slider, picture = explorer.children
    before = bytes(picture.value)
    slider.value = 1.0
    assert drawn == [0.5, 1.0]
    assert bytes(picture.value).startswith(b"\x89PNG")
    assert bytes(picture.value) != before
    assert not plt.get_fignums()
    data, about = explorer._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]) == bytes(picture.value)
    assert about["image/png"]["alt"] == "The picture for alpha = 1.0."
