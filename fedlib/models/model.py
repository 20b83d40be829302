"""Models: architectures with initial weights and entries by use, their clients, and the outputs of their layers."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedlib.stack import Params, PerArchitecture, copies
from fedlib.streams import Stream, generator, torch_seed

Builder = Callable[[tuple[int, int, int], int], nn.Module]  # (channels, height, width), n_classes -> module


def is_statistic(name: str) -> bool:
    """True for a BatchNorm running mean or variance, which forward passes update and no gradient trains."""
    return name.endswith((".running_mean", ".running_var"))


class Model(NamedTuple):
    """An architecture: `model(w, x)` runs it with any weights `w`.

    Attributes:
        name: name of the architecture.
        net: the module; its weights are not used.
        apply: `apply(w, x)` runs the module with the weights `w`.
        weights: initial weights by name, parameters and BatchNorm statistics alike, all floating point.
        trainable: names of the entries that are trained.
        statistics: names of the BatchNorm running means and variances.
        batchnorm: names of all entries of BatchNorm layers: affine parameters and statistics.
        classifier: names of the weight of the last linear layer, and of its bias if it has one.
        redraw: `redraw(j)` returns draw j = 1, 2, ... of the initial weights, on the CPU; `weights` are draw 0.
        shape: channels, height and width of an image.
        n_classes: number of classes.
        stream: random stream of the initial weights; its first entry is the seed of the run.
        others: builders, by name, of the other architectures that clients of the same run may have.

    Example:
        >>> from fedlib.models import MODELS, build
        >>> model = build("lenet5", MODELS["lenet5"], shape=(3, 32, 32), n_classes=10, seed=0)
        >>> sorted(model.classifier)
        ['classifier.bias', 'classifier.weight']
        >>> x = torch.zeros(4, 3, 32, 32)
        >>> model(model.weights, x).shape
        torch.Size([4, 10])
        >>> z, logits = model.penultimate(model.weights, x)
        >>> z.shape
        torch.Size([4, 84])
        >>> model.independent(3)["classifier.bias"].shape
        torch.Size([3, 10])
    """

    name: str
    net: nn.Module
    apply: Callable[[Params, Tensor], Tensor]
    weights: Params
    trainable: tuple[str, ...]
    statistics: frozenset[str]
    batchnorm: frozenset[str]
    classifier: frozenset[str]
    redraw: Callable[[int], Params]
    shape: tuple[int, int, int]
    n_classes: int
    stream: Stream
    others: Mapping[str, Builder] = {}

    def __repr__(self) -> str:
        n = sum(self.weights[name].numel() for name in self.trainable)
        size = "x".join(map(str, self.shape))
        return f"Model({self.name!r}: {n:,} trainable weights, images {size}, {self.n_classes} classes)"

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.stream[0]

    def zeros(self, *shape: int) -> Tensor:
        """Zeros of this shape, with the device and dtype of the weights."""
        return next(iter(self.weights.values())).new_zeros(shape)

    @property
    def frozen(self) -> frozenset[str]:
        """Names of the entries that are neither trained nor BatchNorm statistics."""
        return frozenset(self.weights) - frozenset(self.trainable) - self.statistics

    def __call__(self, w: Params, x: Tensor) -> Tensor:
        """Logits [batch, n_classes] of images [batch, C, H, W]; in training mode the statistics in `w` are updated."""
        return self.apply(w, x)

    def penultimate(self, w: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features before the classifier, [batch, features], and logits [batch, n_classes]."""
        return self.entering(next(iter(self.classifier)).rpartition(".")[0], w, x)

    def entering(self, layer: str, w: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        """Input of the module `layer`, [batch, ...], and logits [batch, n_classes]."""
        entered = []
        hook = self.net.get_submodule(layer).register_forward_pre_hook(lambda _, inputs: entered.extend(inputs))
        try:
            logits = self(w, x)
        finally:
            hook.remove()
        return entered[0], logits

    def head(self, w: Params) -> tuple[Tensor, Tensor]:
        """Weight [..., n_classes, features] and bias [..., n_classes] of the classifier; zeros for a missing bias."""
        phi = {name.rpartition(".")[2]: w[name] for name in self.classifier}
        return phi["weight"], phi.get("bias", phi["weight"].new_zeros(phi["weight"].shape[:-1]))

    def independent(self, n: int) -> Params:
        """Stack [n, ...] of independent draws of the initial weights; the first draw is `weights`."""
        draws = [self.redraw(j) for j in range(1, n)]
        return {name: torch.stack([t, *(draw[name].to(t) for draw in draws)]) for name, t in self.weights.items()}

    def sibling(self, name: str, builder: Builder) -> "Model":
        """Build another architecture for the same images, with independent weights of the same device and dtype."""
        like = next(iter(self.weights.values()))
        other = build(name, builder, self.shape, self.n_classes, *self.stream, name)
        return other._replace(weights={key: t.to(like) for key, t in other.weights.items()})


class Assignment(NamedTuple):
    """An architecture and the clients that have it.

    Attributes:
        model: the architecture.
        clients: numbers of the clients, ascending, int64 [k].
    """

    model: Model
    clients: np.ndarray


def build(
    name: str, builder: Builder, shape: tuple[int, int, int], n_classes: int, seed: int, *names: int | str
) -> Model:
    """Make a model with initial weights from a random stream; the global random state is restored.

    Args:
        name: name of the architecture, for tables and errors.
        builder: function of `shape` and `n_classes` that returns the module.
        shape: channels, height and width of an image.
        n_classes: number of classes.
        seed: seed of the run.
        *names: further names and numbers of the stream.

    Returns:
        The model.

    Example:
        >>> from fedlib.models import MODELS, build
        >>> model = build("lenet5", MODELS["lenet5"], shape=(3, 32, 32), n_classes=10, seed=0)
        >>> sum(model.weights[name].numel() for name in model.trainable)
        62050
    """

    def draw(j: int) -> nn.Module:
        net = drawn(builder, shape, n_classes, torch_seed(seed, "weights", *names, j))
        for norm in norms(net).values():
            norm.register_buffer("num_batches_tracked", None)  # an unused integer, which cannot be averaged
        return net

    net = draw(0)
    linear = [name for name, m in net.named_modules() if isinstance(m, nn.Linear)][-1]
    return Model(
        name=name,
        net=net,
        apply=functional(net),
        weights=_weights(net),
        trainable=tuple(name for name, _ in net.named_parameters()),
        statistics=frozenset(name for name, _ in net.named_buffers()),
        batchnorm=frozenset(f"{layer}.{name}" for layer, m in norms(net).items() for name in m.state_dict()),
        classifier=frozenset(net.state_dict()).intersection([f"{linear}.weight", f"{linear}.bias"]),
        redraw=lambda j: _weights(draw(j)),
        shape=shape,
        n_classes=n_classes,
        stream=(seed, *names),
    )


def deal(model: Model, n_clients: int) -> list[Assignment]:
    """Assign architectures to random clients by the seed of the run; their numbers of clients differ by at most one.

    Args:
        model: the first architecture; `model.others` holds the others.
        n_clients: number of clients.

    Returns:
        The architectures, each with its clients in ascending order. Architectures without clients are left out.

    Example:
        >>> from fedlib.models import MODELS, build, deal
        >>> model = build("lenet5", MODELS["lenet5"], shape=(3, 32, 32), n_classes=10, seed=0)
        >>> two = model._replace(others={"lenet4": MODELS["lenet4"]})
        >>> [(each.model.name, len(each.clients)) for each in deal(two, n_clients=5)]
        [('lenet5', 3), ('lenet4', 2)]
    """
    if not model.others:
        return [Assignment(model, np.arange(n_clients))]
    architectures = [model, *(model.sibling(name, builder) for name, builder in model.others.items())]
    order = generator(model.seed, "architectures").permutation(n_clients)
    n = len(architectures)
    return [Assignment(each, np.sort(order[j::n])) for j, each in enumerate(architectures[:n_clients])]


def initial(architectures: Sequence[Assignment]) -> PerArchitecture:
    """Give every client the initial weights of its architecture.

    Args:
        architectures: the architectures with their clients; see `deal`.

    Returns:
        One stack per architecture, [k, ...]; its k rows are equal.

    Example:
        >>> from fedlib.models import MODELS, build, deal, initial
        >>> model = build("lenet5", MODELS["lenet5"], shape=(3, 32, 32), n_classes=10, seed=0)
        >>> [stack] = initial(deal(model, n_clients=5)).stacks
        >>> stack["classifier.bias"].shape
        torch.Size([5, 10])
    """
    return PerArchitecture(tuple(copies(model.weights, len(clients)) for model, clients in architectures))


@torch.no_grad()
def features(model: Model, w: Params, x: Tensor, layers: dict[str, str]) -> dict[str, Tensor]:
    """Compute the outputs of some layers in evaluation mode.

    Args:
        model: the architecture.
        w: weights by name, [...].
        x: normalised images, [N, C, H, W].
        layers: names of modules in `model.net.named_modules()`, by label.

    Returns:
        Outputs, [N, ...], by label.

    Raises:
        ValueError: a module does not exist.

    Example:
        >>> from fedlib.models import MODELS, build, features
        >>> model = build("lenet5", MODELS["lenet5"], shape=(3, 32, 32), n_classes=10, seed=0)
        >>> outputs = features(model, model.weights, torch.zeros(4, 3, 32, 32), {"first": "conv1", "last": "fc2"})
        >>> outputs["first"].shape, outputs["last"].shape
        (torch.Size([4, 6, 14, 14]), torch.Size([4, 84]))
    """
    modules, outputs, hooks = dict(model.net.named_modules()), {}, []
    if unknown := [name for name in layers.values() if name not in modules]:
        raise ValueError(f"layers={unknown} are unknown; allowed: {', '.join(filter(None, modules))}.")
    for label, name in layers.items():

        def keep(module, inputs, output, label=label):
            outputs[label] = output

        hooks.append(modules[name].register_forward_hook(keep))
    model.net.eval()
    try:
        model(w, x)
    finally:
        for hook in hooks:
            hook.remove()
    return outputs


def drawn(builder: Builder, shape: tuple[int, int, int], n_classes: int, seed: int) -> nn.Module:
    """Build a module with weights drawn from `seed`; the global random state is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = builder(shape, n_classes)
        if isinstance(net, nn.Module) and any(map(nn.parameter.is_lazy, (*net.parameters(), *net.buffers()))):
            with torch.no_grad():
                net.eval()(torch.zeros(1, *shape))  # lazy layers draw their weights in the first forward pass
            net.train()
        return net


def norms(net: nn.Module) -> dict[str, nn.Module]:
    """BatchNorm layers of a module by name."""
    return {name: m for name, m in net.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)}


def functional(net: nn.Module) -> Callable[[Params, Tensor], Tensor]:
    """`functional_call` of `net`, eight times as fast because the places of the weights are looked up only once."""
    layers, places, known = dict(net.named_modules(remove_duplicate=False)), [], entries(net)
    for entry, names in known.items():
        for path, _, name in (place.rpartition(".") for place in names):
            layer = layers[path]
            places.append((entry, layer._parameters if name in layer._parameters else layer._buffers, name))

    def apply(w: Params, x: Tensor) -> Tensor:
        if w.keys() != known.keys():  # missing weights come from the network
            return functional_call(net, w, (x,))
        own = [(held, name, held[name]) for _, held, name in places]
        try:
            for entry, held, name in places:
                held[name] = w[entry]
            return net(x)
        finally:
            for held, name, t in own:
                held[name] = t

    return apply


def entries(net: nn.Module) -> dict[str, list[str]]:
    """All names of each weight and statistic of a module, by its first name: tied weights have several names."""
    found: dict[int, list[str]] = {}
    for name, t in net.state_dict(keep_vars=True).items():
        found.setdefault(id(t), []).append(name)
    return {names[0]: names for names in found.values()}


def is_shared(net: nn.Module, weight: str) -> bool:
    """True for a weight that several layers of a module share."""
    own = net.get_parameter(weight)
    return sum(any(t is own for t in layer.parameters(recurse=False)) for layer in net.modules()) > 1


def _weights(net: nn.Module) -> Params:
    state = net.state_dict()
    return {name: state[name].detach().clone() for name in entries(net)}
