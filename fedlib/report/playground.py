"""A playground: two settings side by side, redrawn after every round while they train."""

import ast
import io
import os
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

import ipywidgets as widgets
import numpy as np
import PIL.Image
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import fedlib as fl
from fedlib.algorithm import ALGORITHMS, Algorithm
from fedlib.checks import check_choice, check_count
from fedlib.federation import Federation
from fedlib.report.charts import plot_partition
from fedlib.report.explore import png
from fedlib.report.style import BLACK, GREY, RED, integer_ticks, label
from fedlib.report.templates import TEMPLATES
from fedlib.runs import Session, deterministic, prepare
from fedlib.similarity import classifier_similarity
from fedlib.stack import for_each
from fedlib.training.evaluation import MixedEvaluation

PARTITIONS = ("dirichlet", "classes_per_client", "pairs", "iid")
TRAINING = {"join_ratio": 0.5, "local_epochs": 3, "batch_size": 10, "lr": 0.1}


class Setting(NamedTuple):
    """One side of the playground."""

    data: str = "digit_styles"
    partition: str = "dirichlet"  # one of `PARTITIONS`
    strength: float = 0.1  # alpha of "dirichlet", or number of "classes_per_client"
    method: str = "pfedsim"
    hyper: str = ""  # its hyper-parameters, "generalization=0.3"

    def algorithm(self) -> Algorithm:
        """The method with its hyper-parameters; a one-sentence `ValueError` if they are not allowed."""
        check_choice("method", self.method, fl.algorithms())
        try:
            call = ast.parse(f"f({self.hyper})", mode="eval").body
            if not isinstance(call, ast.Call) or call.args:
                raise SyntaxError
            hyper = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        except (SyntaxError, ValueError):
            raise ValueError(f"hyper-parameters {self.hyper!r} must look like name=1, other='text'.") from None
        try:
            return ALGORITHMS[self.method](**hyper)
        except TypeError as error:
            raise ValueError(f"{self.method}: {error}.") from None

    def federation(self, clients: int, images: int) -> Federation:
        """The federation of `clients`, with a total of `images` images."""
        if self.data == "digit_styles":
            data = fl.load("digit_styles", per_style=600)
            data = data.subset(data.domain == data.domains.index("pen"))
        else:
            data = fl.load(self.data)
        data = data.subset(np.random.default_rng(0).permutation(len(data))[:images])
        groups = [part.tolist() for part in np.array_split(np.arange(len(data.classes)), max(1, clients // 2))]
        partition = {
            "dirichlet": lambda: fl.dirichlet(self.strength, min_size=6),
            "classes_per_client": lambda: fl.classes_per_client(max(1, round(self.strength))),
            "pairs": lambda: fl.label_groups([group for group in groups if group]),
            "iid": fl.iid,
        }[self.partition]
        return fl.federate(data, partition(), clients, public=0.1)


class Preset(NamedTuple):
    """Two settings for a demonstration, and a sentence about it, with the section of a notebook that explains it."""

    key: str  # in the address of a page: ?preset=key
    name: str
    sides: tuple[Setting, Setting]
    sentence: str
    notebook: str
    section: str


_PRESETS = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))["presets"]
PRESETS = [Preset(**one | {"sides": tuple(Setting(**side) for side in one["sides"])}) for one in _PRESETS]


class Moment(NamedTuple):
    """The state of a run after a round, as the playground shows it."""

    round: int
    accuracy: np.ndarray  # of every client [%]
    similarity: np.ndarray | None  # cosine of the classifiers of all pairs of clients, by main class
    mixture: np.ndarray | None = None  # weight of each branch (column) for each client (row), by main class


def watch(setting: Setting, federation: Federation, rounds: int) -> Iterator[Moment]:
    """Train, and yield a moment after every round."""
    plan = prepare(setting.algorithm(), federation, rounds=rounds, device="cpu", **TRAINING)
    session = Session(plan)
    test = MixedEvaluation(session.images, federation.test, session.architectures, False, False)
    state, order = session.init(), _order(federation)
    name = next(name for name in session.model.classifier if name.endswith("weight"))
    for t in range(rounds):
        with deterministic("cpu"), session.drawing("round", t):
            state = plan.algorithm.round(state, session.cohort(t))
            models = plan.algorithm.models(state)
            correct, *_ = test(models)
        accuracy = 100 * correct.numpy() / np.array([len(part) for part in federation.test])
        mixture = (plan.algorithm.trace(state) if plan.algorithm.trace else {}).get("all layers")
        mixture = None if mixture is None else mixture.numpy()[order]
        each, similarity = for_each(models, federation.n_clients), None
        if isinstance(each, dict) and name in each:  # not where classifiers have several parts
            similarity = classifier_similarity(each[name]).numpy()[np.ix_(order, order)]
        yield Moment(t + 1, accuracy, similarity, mixture)


def _order(federation: Federation) -> np.ndarray:
    return np.argsort(federation.counts().argmax(1), kind="stable")


def picture(setting: Setting, federation: Federation, seen: list[Moment], rounds: int) -> bytes:
    """A PNG file of one side after the moments `seen`: partition, accuracy by round, and similarity of classifiers."""
    figure = Figure(figsize=(3.8, 6.4))
    figure.set_layout_engine("none")
    place = {"left": 0.14, "right": 0.96, "top": 0.96, "bottom": 0.07, "hspace": 0.45}
    top, middle, bottom = figure.subplots(3, 1, height_ratios=(1, 1, 1.1), gridspec_kw=place)
    counts = federation.counts()
    plot_partition(counts[_order(federation)], top, size_key=False)
    top.set_title(f"{setting.data}: {(counts > 0).sum(1).mean():.1f} classes per client", loc="left")
    top.set_xlabel("client, by main class")
    every = np.array([moment.accuracy for moment in seen]).reshape(len(seen), federation.n_clients)
    done = [moment.round for moment in seen]
    middle.plot(done, every, color=GREY, linewidth=0.5)
    middle.plot(done, every.mean(1), color=RED, marker="o")
    middle.axhline(100 / counts.shape[1], color=BLACK, linestyle=":", linewidth=0.8)
    middle.set(xlim=(0.5, rounds + 0.5), ylim=(0, 100), xlabel="round (dotted: chance)", ylabel="accuracy [%]")
    now = f": {every[-1].mean():.0f} %" if seen else ""
    integer_ticks(middle.xaxis)
    middle.set_title(f"{label(setting.method)}{now}, mean over clients", loc="left")
    _draw_map(bottom, seen[-1] if seen else None, federation.n_clients)
    small, image = io.BytesIO(), PIL.Image.open(io.BytesIO(png(figure, dpi=130)))
    image.convert("RGB").quantize(200).save(small, format="png", optimize=True)  # a page holds many of them
    return small.getvalue()


def _draw_map(ax: Axes, moment: Moment | None, n: int) -> None:
    """The branches of all clients, or the similarity of their classifiers, from 0 to 1 in all rounds."""
    shown, first, words = np.full((n, n), np.nan), 0, ("client, by main class", "cosine of classifiers")
    if moment and moment.mixture is not None:
        shown, first, words = moment.mixture, 1, ("branch", "weight of the branch")
    elif moment and moment.similarity is not None:
        shown = moment.similarity
    elif moment:
        ax.set_title("no single classifier per client", loc="left")
    left = first - 0.5  # branches count from 1, as in Fig. 3 of pFedMB
    image = ax.imshow(shown, vmin=0, vmax=1, aspect="auto", extent=(left, left + shown.shape[1], n - 0.5, -0.5))
    ax.grid(False)
    ax.set(xlabel=words[0], ylabel="client")
    integer_ticks(ax.xaxis)
    integer_ticks(ax.yaxis)
    ax.figure.colorbar(image, ax=ax, label=words[1])


def film(setting: Setting, federation: Federation, rounds: int) -> Iterator[bytes]:
    """Train, and yield the picture of one side before the first round and after every round."""
    seen: list[Moment] = []
    yield picture(setting, federation, seen, rounds)
    for moment in watch(setting, federation, rounds):
        seen.append(moment)
        yield picture(setting, federation, seen, rounds)


class Playground(widgets.VBox):
    """The controls and the two pictures. `frames` are those of the last training, a pair for each round."""

    def __init__(self, sides: tuple[Setting, Setting], rounds: int, clients: int, images: int):
        self.clients, self.images = clients, images
        self.frames: list[tuple[bytes, bytes]] = []
        self.rounds = widgets.IntSlider(rounds, 1, 50, description="rounds")
        self.start = widgets.Button(description="Start", button_style="primary", tooltip="Train both settings.")
        self.stop = widgets.Button(description="Stop", disabled=True, tooltip="Stop after this round.")
        self.status = widgets.Label("")
        self.note = widgets.Output()
        self.presets = [widgets.Button(description=preset.name, tooltip=preset.sentence) for preset in PRESETS]
        self.controls = [self._controls(side) for side in sides]
        wide = widgets.Layout(width="365px", max_width="100%")
        self.pictures = [widgets.Image(format="png", layout=wide) for _ in sides]
        wrap = widgets.Layout(display="flex", flex_flow="row wrap")
        both = zip(self.controls, self.pictures, strict=True)
        columns = [widgets.VBox([*one.values(), image]) for one, image in both]
        presets = widgets.HBox([widgets.Label("Presets:"), *self.presets], layout=wrap)
        buttons = widgets.HBox([self.rounds, self.start, self.stop, self.status], layout=wrap)
        super().__init__([presets, buttons, self.note, widgets.HBox(columns, layout=wrap)])
        self._stopped = threading.Event()
        self.start.on_click(lambda _: self._begin())
        self.stop.on_click(lambda _: self._stopped.set())
        for button, preset in zip(self.presets, PRESETS, strict=True):
            button.layout.width = "auto"
            button.on_click(lambda _, preset=preset: self._begin(preset))

    def _begin(self, preset: Preset | None = None) -> None:
        """Train in the background, with the settings of a preset or of the controls."""
        self.note.outputs = ()
        if preset:
            self.choose(preset)
        threading.Thread(target=self.train, daemon=True).start()

    def choose(self, preset: Preset) -> None:
        """Set the controls to a preset, and show its sentence."""
        where = f"Explained in {preset.notebook}, section {preset.section}"
        if "VOILA_REQUEST_URL" not in os.environ:  # Voila shows this notebook only
            where = f"[{where}]({preset.notebook}.ipynb#{preset.section.replace(' ', '-')})"
        text = {"text/markdown": f"{preset.sentence} {where}"}  # JupyterLab follows its links to sections
        self.note.outputs = ({"output_type": "display_data", "data": text, "metadata": {}},)
        for one, side in zip(self.controls, preset.sides, strict=True):
            for name, value in side._asdict().items():
                one[name].value = value

    def _controls(self, side: Setting) -> dict[str, widgets.ValueWidget]:
        return {
            "data": widgets.Dropdown(options=sorted({*fl.datasets(), side.data}), value=side.data, description="data"),
            "partition": widgets.Dropdown(options=PARTITIONS, value=side.partition, description="partition"),
            "strength": widgets.BoundedFloatText(side.strength, min=0.02, max=100, step=0.1, description="strength"),
            "method": widgets.Combobox(options=fl.algorithms(), value=side.method, description="method"),
            "hyper": widgets.Text(side.hyper, placeholder="name=value, ...", description="parameters"),
        }

    def train(self) -> None:
        """Train both settings, round by round in turns, and redraw after every round."""
        self._lock(True)
        self.frames = []
        self._stopped.clear()
        self.status.value = "distributing the images"
        rounds = int(self.rounds.value)
        try:
            sides = [Setting(**{name: widget.value for name, widget in one.items()}) for one in self.controls]
            films = [film(side, side.federation(self.clients, self.images), rounds) for side in sides]
            start = time.monotonic()
            for t, (first, second) in enumerate(zip(*films, strict=True)):
                self.frames.append((first, second))
                for image, content in zip(self.pictures, (first, second), strict=True):
                    image.value = content
                left = (time.monotonic() - start) * (rounds - t) / max(t, 1)
                self.status.value = f"round {t} of {rounds}" + (f", about {left:.0f} s left" if 0 < t < rounds else "")
                if self._stopped.is_set():
                    self.status.value = f"stopped after round {t}"
                    break
        except Exception as error:  # of any method, in a thread: nobody else would show it
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            self.status.value = f"{kind}{error}"
        finally:
            self._lock(False)

    def _lock(self, running: bool) -> None:
        """Disable all buttons but Stop during training."""
        self.stop.disabled = not running
        for button in (self.start, *self.presets):
            button.disabled = running

    def __repr__(self) -> str:
        return f"Playground({' against '.join(str(one['method'].value) for one in self.controls)})"

    def _repr_mimebundle_(self, **options: object) -> dict[str, object]:  # pyright: ignore[reportIncompatibleMethodOverride]
        page = TEMPLATES.get_template("frames.html").render(frames=self.frames, id=f"frames{id(self)}")
        return {**(super()._repr_mimebundle_(**options) or {}), "text/html": page}


def playground(
    method: str = "pfedsim", against: str = "fedavg", *, rounds: int = 10, clients: int = 8, images: int = 600
) -> None:
    """Show two settings side by side while they train: partition, accuracy, and similarity of the classifiers.

    It trains once when it is called; after that, its controls and buttons start further runs. The buttons of `PRESETS`
    choose settings for a demonstration, with a link to its explanation. Under Voila, `?preset=skew`, `twins` or
    `branches` at the end of the address selects one of them. On a page without a kernel, a slider shows the rounds of
    the first training.

    Args:
        method: the method of the left side.
        against: the method of the right side.
        rounds: communication rounds.
        clients: number of clients.
        images: total number of images of all clients.

    Raises:
        ValueError: a method is unknown.

    Example:
        >>> fl.report.playground("fedper", against="fedavg", rounds=1, clients=2, images=60)
        Playground(fedper against fedavg)
    """
    check_count("clients", clients, 2)
    sides = Setting(method=method), Setting(method=against)
    for side in sides:
        side.algorithm()
    widget = Playground(sides, rounds, clients, images)
    asked = parse_qs(os.environ.get("QUERY_STRING", "")).get("preset")  # Voila hands over the address of the page
    for preset in PRESETS:
        if asked and preset.key in asked:
            widget.choose(preset)
    handle = display(widget, display_id=True)
    with suppress(KeyboardInterrupt):
        widget.train()
    if handle is not None:
        handle.update(widget)
