"""Plots of a partition: one circle per client and class, and some images of some clients."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection
from matplotlib.figure import Figure

from fedlib.federation import Federation
from fedlib.report.style import BLUE, TEXT, integer_ticks


def plot_partition(
    counts: np.ndarray, ax: Axes | None = None, classes: Sequence[str] | None = None, *, size_key: bool = True
) -> Axes:
    """Draw the number of images by client and class: one circle for each pair, with area proportional to the number.

    The largest circle fills its cell; with many clients cells are thin, and it may extend into neighbouring ones.

    Args:
        counts: images, [n_clients, n_classes]; see `Federation.counts`.
        ax: axes to draw on. Default: the current ones.
        classes: names of the classes. Default: their numbers.
        size_key: whether to write the number of images of the largest circle above the axes.

    Returns:
        The axes.

    Raises:
        ValueError: `counts` or `classes` have another shape.

    Source:
        pFedSim, Fig. 3.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.1, min_size=10), clients=3)
        >>> ax = fl.report.plot_partition(federation.counts(), classes=federation.data.classes)
        >>> ax.get_xlabel(), ax.get_ylabel()
        ('client', 'class')
    """
    counts = np.asarray(counts)
    if counts.ndim != 2 or not counts.size or (counts < 0).any():
        raise ValueError(f"counts has shape {counts.shape}; it must be [clients, classes] without negative numbers.")
    clients, labels = counts.shape
    if classes is not None and len(classes) != labels:
        raise ValueError(f"classes has {len(classes)} names; counts has {labels} classes.")
    ax = plt.gca() if ax is None else ax
    ax.set(xlim=(-0.9, clients - 0.1), ylim=(-0.9, labels - 0.1), xlabel="client", ylabel="class")
    integer_ticks(ax.xaxis)
    if classes is not None and labels <= 20:
        ax.set_yticks(range(labels), classes)
    else:
        integer_ticks(ax.yaxis)

    box = ax.get_window_extent()
    sides: dict[Literal["x", "y"], float] = {"x": box.width / clients, "y": box.height / labels}
    thin = min(sides, key=lambda side: sides[side])
    room = max(sides.values()) / sides[thin]  # long side of a cell / thin side
    largest = np.clip({"x": clients, "y": labels}[thin] / 30, 0.95, np.clip(room, 2.0, 3.5))
    client, label = np.nonzero(counts)
    diameter = np.sqrt(counts[client, label] / max(counts.max(), 1)) * largest
    diameter = np.maximum(diameter, 0.1)  # in cells of the thin side; one sample stays visible
    places = {"offsets": np.column_stack([client, label]), "offset_transform": ax.transData, "units": thin}
    look = {"facecolors": BLUE, "edgecolors": "white", "linewidths": 0.2, "alpha": 0.8}
    circles = EllipseCollection(diameter, diameter, np.zeros(len(diameter)), **places, **look)
    ax.add_collection(circles, autolim=False)
    if size_key:
        ax.set_title(f"largest circle: {counts.max():,} samples", loc="right", fontsize=7, color="#444444")
    return ax


def plot_clients(federation: Federation, clients: Sequence[int] = (0, 1, 2), images: int = 8) -> Figure:
    """Draw some training images of some clients, a row for each client, with its share of each class.

    Args:
        federation: the clients.
        clients: numbers of the clients to show.
        images: number of images of each client.

    Returns:
        The figure.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.1, min_size=10), clients=3)
        >>> len(fl.report.plot_clients(federation, images=4).axes)
        12
    """
    data, side = federation.data, (TEXT - 0.6) / images
    size = (TEXT, len(clients) * min(side + 0.1, 0.8))
    figure, axes = plt.subplots(len(clients), images, figsize=size, squeeze=False)
    for row, client in zip(axes, clients, strict=True):
        own = federation.train[client]
        own = own[np.argsort(data.y[own], kind="stable")]  # by class
        for ax, i in zip(row, own[np.linspace(0, len(own) - 1, images).astype(int)], strict=True):
            picture = data.x[i].transpose(1, 2, 0)
            ax.imshow(picture, cmap="gray_r")  # the colour map is for images of one channel
            ax.set_title(data.classes[data.y[i]], fontsize=7, pad=1)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
        row[0].set_ylabel(f"client {client}", rotation=0, ha="right", va="center")
    return figure
