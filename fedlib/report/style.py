"""The style of all figures, and a colour, marker and line for each method."""

import re
import zlib
from contextlib import suppress
from typing import Any, Literal

import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import MaxNLocator

from fedlib.algorithm import ALGORITHMS, LOOKS, Look
from fedlib.checks import check_choice

COLUMN, TEXT = 3.4, 7.0  # figure widths in inches: one column of a paper, the whole text width
WIDE = 4.8  # the widest figure whose words of 8 points can be read on a phone

# Okabe and Ito's colours, safe for colour-blind readers, with a darker yellow, visible on white, and a stronger red.
COLOURS = dict(black="#000000", grey="#7A7A7A", blue="#0072B2", sky="#56B4E9", green="#009E73")
COLOURS |= dict(orange="#E69F00", yellow="#B5A300", pink="#CC79A7", brown="#7B4A21", red="#CC3311")
BLACK, GREY, BLUE, SKY, GREEN, ORANGE, YELLOW, PINK, BROWN, RED = COLOURS.values()
PALETTE = (BLUE, RED, GREEN, ORANGE, PINK, SKY, BROWN, YELLOW, GREY, BLACK)

PRINTED = {"color": BLACK, "markeredgewidth": 1.3, "linestyle": "", "zorder": 1}  # a bar, or a dash in a line's colour

OF_YOURS = (BLUE, GREEN, ORANGE, PINK, SKY, BROWN, YELLOW)  # colours of methods without a declared one
LINES = {"-": "-", "--": (0, (4, 1.5)), ":": (0, (1, 1.2)), "-.": (0, (5, 1.5, 1, 1.5)), "---": (0, (8, 2))}

# Printed names of data sets.
_DATA = {"mnist": "MNIST", "svhn": "SVHN", "digit5": "Digit-5", "femnist": "FEMNIST", "emnist": "EMNIST"}
_DATA |= {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "mnist_m": "MNIST-M", "usps": "USPS"}
_DATA |= {"cinic10": "CINIC-10", "tinyimagenet": "Tiny-ImageNet", "domainnet": "DomainNet"}
_DATA |= {"synthetic_digits": "Synthetic Digits"}
_SETTING = {"dir": "Dir({})", "pat": "{} classes each", "classes": "{} classes each", "clients": "{} clients"}
_SETTING |= {"step": "{}", "split": "{}", "models": "{}"}
_SETTING |= {"public": "{} public images", "public=none": "no public images"}
_WORDS = {"iid": "IID", "noniid": "Non-IID", "labeled": "labelled", "unlabeled": "unlabelled"}  # values of settings
METRIC_LABELS = {"weighted_f1": "weighted F1", "weighted_auc": "weighted AUC"}
_METRICS = METRIC_LABELS | {"xi_p_1e-4s": "time [0.1 ms]", "rand_indices": "ARI", "tau": "Kendall's tau"}
_METRICS |= {"r": "Pearson's r", "j_ratio": "J ratio", "num_branches": "branches", "num_classes": "classes"}


def use_style() -> None:
    """Set matplotlib's and seaborn's defaults for the figures of this project; call it once, after the imports.

    Example:
        >>> import matplotlib as mpl
        >>> fl.report.use_style()
        >>> mpl.rcParams["font.size"]
        8.0
    """
    texts = ("font.size", "axes.labelsize", "axes.titlesize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
    properties = dict.fromkeys((*texts, "legend.title_fontsize"), 8) | {"figure.titlesize": 9, "svg.hashsalt": "fedlib"}
    properties |= {"font.sans-serif": ["DejaVu Sans"]}  # comes with matplotlib: the same letters on every machine
    properties |= {"figure.figsize": (COLUMN, 2.4), "figure.dpi": 110, "savefig.dpi": 200, "image.cmap": "viridis"}
    properties |= {"legend.frameon": False, "legend.handlelength": 3.2}  # long enough to distinguish the dashes
    properties |= {"lines.linewidth": 1.3, "lines.markersize": 4, "figure.constrained_layout.use": True}
    properties |= {"axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True}
    properties |= {"grid.color": "#E4E4E4", "grid.linewidth": 0.5, "xtick.major.width": 0.6, "ytick.major.width": 0.6}
    sns.set_theme(context="paper", style="ticks", palette=list(PALETTE), rc=properties)


def integer_ticks(axis: Axis, most: int | Literal["auto"] = "auto") -> None:
    """Put ticks at whole numbers only, about `most` at most."""
    axis.set_major_locator(MaxNLocator(most, integer=True, steps=[1, 2, 5, 10]))


def bare(ax: Axes) -> None:
    """Remove grid, frame and tick marks."""
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def base_method(name: str) -> str:
    """The algorithm behind a variant's name: "fedcs-fc2" -> "fedcs", "pfedsim(rho=0.5)" -> "pfedsim"."""
    base = re.split(r"\W", name, maxsplit=1)[0]
    if base not in ALGORITHMS:
        check_choice("method", name, [*ALGORITHMS, *(variant for look in LOOKS.values() for variant in look.variants)])
    return base


def label(name: str) -> str:
    """Write a method's name as the papers print it.

    Args:
        name: name of an algorithm (one of your own keeps its name) or of a variant; text after the name is kept.

    Returns:
        The printed name.

    Raises:
        ValueError: the method is unknown.

    Example:
        >>> fl.report.label("fedavg"), fl.report.label("fedavg+ft"), fl.report.label("pfedsim(cap=0.1)")
        ('FedAvg', 'FedAvg+FT', 'pFedSim(cap=0.1)')
    """
    base = base_method(name)
    look = LOOKS.get(base, Look())
    return look.variants[name][0] if name in look.variants else (look.label or base) + name[len(base) :]


def data_label(name: str) -> str:
    """Write the names of data sets as the papers print them, "cifar10" as "CIFAR-10"; other words are kept."""
    name = re.sub(r"( of (\w+)) for \2$", r"\1", name)  # "7500 images of cifar10 for cifar10"
    name = re.sub(r"\d+(?= images)", lambda found: f"{int(found[0]):,}", name)
    return " ".join(_DATA.get(word, word) for word in name.split(" "))


def setting_label(part: str) -> str:
    """Write a part of a setting in words, "dir=0.1" as "Dir(0.1)"; other text is kept."""
    name, _, value = part.partition("=")
    return _SETTING.get(part) or _SETTING.get(name, part).format(_WORDS.get(value, value))


def metric_label(name: str) -> str:
    """Write the name of a metric in words: "weighted_f1_std" is "weighted F1, std over clients"."""
    base = name.removesuffix("_std")
    return _METRICS.get(base, base.replace("_", " ")) + ", std over clients" * (base != name)


def with_labels(text: str) -> str:
    """Write the names of methods, data sets, settings and metrics in a text as in figures."""
    named = re.sub(r"[^\s,:]+", lambda word: _labelled(word[0]), text.replace(";", ", "))
    return named.replace("\0 \0", ", ").replace("\0", "")  # a comma between neighbours


def _labelled(word: str) -> str:
    """The label of a name, between zeros; other words are kept."""
    shown = setting_label(word) if "=" in word else METRIC_LABELS.get(word) or _WORDS.get(word) or data_label(word)
    with suppress(ValueError):
        shown = label(word)
    return word if shown == word else f"\0{shown}\0"


def method_style(name: str) -> dict[str, Any]:
    """Look up the line of a method, the same in every figure.

    A variant has the colour and marker of its method. The line of an undeclared variant, and the colour and marker of a
    method of your own, depend only on the name.

    Args:
        name: name of an algorithm or of a variant of one.

    Returns:
        Its color, marker and linestyle, as for `ax.plot`.

    Raises:
        ValueError: the method is unknown.

    Example:
        >>> fl.report.method_style("fedavg")
        {'color': '#000000', 'marker': 'o', 'linestyle': '-'}
    """
    base = base_method(name)
    look, i = LOOKS.get(base, Look()), zlib.crc32(base.encode())
    line = look.line or ("-" if look.colour else ("--", ":", "-.")[i % 3])
    if name in look.variants:
        line = look.variants[name][1]
    elif name != base:
        lines = [other for other in ("-", "--", ":", "-.") if other != line]
        line = lines[zlib.crc32(name.encode()) % len(lines)]
    color = COLOURS[look.colour] if look.colour else OF_YOURS[i % 7]
    return {"color": color, "marker": look.marker or "osD^v<>"[i // 7 % 7], "linestyle": LINES[line]}
