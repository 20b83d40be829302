"""A second implementation of all parts of a run, for oracles, in plain PyTorch modules and NumPy.

It shares with the library only the data, the architectures and their initial weights, and the names of the random
streams. An oracle is a whole run: unequal clients, some of them absent, one never seen, every setting off its default.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import corners
from torch import Tensor, nn

import fedlib as fl
from fedlib.federation import Federation
from fedlib.models import Model
from fedlib.runs.prepare import prepare
from fedlib.streams import generator, torch_seed

SETTING = dict(rounds=3, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05, momentum=0.3, seed=3)
EXACT = SETTING | dict(lr_decay=0.7, lr_decay_every=2, dtype="float64", evaluate_every=1, progress=False)
Weights = dict[str, Tensor]
Loss = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]  # (net, x, y, indices of the samples) -> scalar


def ragged() -> Federation:
    """Seven clients with 4 to 31 images to train on and other ones to test on; the last one is never seen.

    Client 1 has images of one class only; 30 images are public.
    """
    data, rng = corners(320, seed=2), np.random.default_rng(0)
    left = {c: rng.permutation(np.flatnonzero(data.y == c)).tolist() for c in range(4)}
    train = [[3, 9, 6, 2], [0, 7, 0, 0], [9, 1, 1, 20], [1, 1, 1, 1], [5, 5, 8, 1], [0, 14, 3, 0], [4, 4, 4, 4]]
    test = [[2, 4, 3, 1], [0, 5, 0, 0], [4, 1, 1, 9], [1, 1, 1, 0], [2, 2, 3, 1], [0, 6, 2, 0], [3, 3, 3, 3]]

    def deal(counts: list[list[int]]) -> tuple[np.ndarray, ...]:
        shares = ([left[c].pop() for c, n in enumerate(own) for _ in range(n)] for own in counts)
        return tuple(rng.permutation(own).astype(np.int64) for own in shares)

    parts = {"train": deal(train), "test": deal(test)}
    federation = Federation(data, fl.iid(), **parts, test_fraction=0.3, seed=0, unseen=1)
    return federation.with_public(corners(30, seed=5))


class Oracle:
    """The run of a method with the setting `EXACT`, or another one: its participants, and operations of a client."""

    def __init__(self, model: str = "lenet5", federation: Federation | None = None, **setting: Any):
        self.federation = federation or ragged()
        self.setting = EXACT | {"model": model} | setting
        plan = prepare("local_only", self.federation, **{k: v for k, v in self.setting.items() if k != "progress"})
        self.model, self.weights = plan.model, plan.model.weights
        self.rounds, self.n_clients = range(self.setting["rounds"]), self.federation.n_clients
        self.n = np.array([len(own) for own in self.federation.train])
        rng, seen = generator(self.seed, "cohorts"), self.n_clients - self.federation.unseen
        k = int(self.setting["join_ratio"] * seen)
        self.cohorts = [sorted(rng.choice(seen, k, replace=False).tolist()) for _ in self.rounds]

    def run(self, method: fl.Algorithm, **setting: Any) -> fl.RunResult:
        """The library's run."""
        return fl.run(method, self.federation, **self.setting | setting)

    @property
    def seed(self) -> int:
        return self.setting["seed"]

    def rate(self, t: int) -> float:
        return self.setting["lr"] * self.setting["lr_decay"] ** (t // self.setting["lr_decay_every"])

    def net(self, w: Mapping[str, Tensor]) -> nn.Module:
        """A trainable network of this architecture with these weights."""
        net = copy.deepcopy(self.model.net).double().train()
        net.load_state_dict(w, strict=False)
        return net

    def images(self, index: Iterable[int], public: bool = False) -> tuple[Tensor, Tensor]:
        """Samples with channel mean 0 and standard deviation 1 over all images of the data set, and their labels."""
        data, index = self.federation.public if public else self.federation.data, np.asarray(index)
        return self.normalised(data.x[index] / 255), torch.tensor(data.y[index])

    def normalised(self, pixels: np.ndarray) -> Tensor:
        """Pixels from 0 to 1 with channel mean 0 and standard deviation 1 over all images of the data set."""
        mean, std = self.moments
        return torch.tensor((pixels - mean) / std)

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Channel means and standard deviations of all images of the data set, in float32 as the library keeps them."""
        whole = self.federation.data.x / 255
        mean, std = (f(axis=(0, 2, 3))[:, None, None] for f in (whole.mean, whole.std))
        return mean.astype(np.float32).astype(float), std.astype(np.float32).astype(float)

    def batches(self, i: int, t: int, epochs=None, samples=None, name="local", size=None, purpose="train"):
        """Client i's mini-batches in round t: a fresh order each epoch, the last batch filled up from its start."""
        samples, size = self.federation.train[i] if samples is None else samples, size or self.setting["batch_size"]
        for epoch in range(self.setting["local_epochs"]) if epochs is None else epochs:
            order = generator(self.seed, purpose, t, "batches", i, name, epoch).permutation(samples).tolist()
            missing = -len(order) % size
            whole = [order[place % len(order)] for place in range(len(order) + missing)]
            yield from (np.array(whole[start : start + size]) for start in range(0, len(whole), size))

    def train(self, net: nn.Module, i: int, t: int, loss=None, parameters=None, rate=None, public=False, **which):
        """Client i's SGD or Adam of round t, on `net`, in its place; `batches` says on what."""
        parameters = list(net.parameters() if parameters is None else parameters)
        rate = self.rate(t) if rate is None else rate
        if self.setting.get("optimizer") == "adam":
            optimiser = torch.optim.Adam(parameters, rate)
        else:
            optimiser = torch.optim.SGD(parameters, rate, momentum=self.setting["momentum"])
        for index in self.batches(i, t, **which):
            x, y = self.images(index, public)
            net.zero_grad()
            error = F.cross_entropy(net(x), y) if loss is None else loss(net, x, y, torch.tensor(index))
            error.backward()
            optimiser.step()

    def trained(self, w: Mapping[str, Tensor], i: int, t: int, *args: Any, **which: Any) -> Weights:
        """Client i's model after its training in round t from `w`; see `train`."""
        net = self.net(w)
        self.train(net, i, t, *args, **which)
        return weights_of(net)

    def averaged(self, w: Weights, t: int, v: dict[int, Weights] | None = None, *args: Any, **which: Any) -> Weights:
        """A round of FedAvg from `w`; the entries of `v` are personal and stay with the clients."""
        models = {i: self.trained(w | v[i] if v else w, i, t, *args, **which) for i in self.cohorts[t]}
        if v:
            v |= {i: select(own, v[i]) for i, own in models.items()}
        return mean(models.values(), self.n[self.cohorts[t]])

    def tuned(self, models: Mapping[int, Weights], epochs=1, part="all", **which: Any) -> dict[int, nn.Module]:
        """Every client's network after SGD on all or some entries, on its train part, at the end of the last round."""
        nets = {i: self.net(w) for i, w in models.items()}
        for i, net in nets.items():
            parameters = {"all": list(net.parameters()), "head": self.classifier(net), "body": self.extractor(net)}
            how = dict(parameters=parameters[part], epochs=range(epochs), purpose="tune")
            self.train(net, i, self.rounds[-1], **how | which)
        return nets

    def classifier(self, net: nn.Module) -> list[nn.Parameter]:
        return [p for name, p in net.named_parameters() if name.startswith("classifier.")]

    def extractor(self, net: nn.Module) -> list[nn.Parameter]:
        return [p for name, p in net.named_parameters() if not name.startswith("classifier.")]


class Mixture(Oracle):
    """A run in which clients have different architectures: its `model` is "a+b+c"."""

    def __init__(self, model: str, federation: Federation | None = None, **setting: Any):
        super().__init__(model, federation, **setting)
        others = (self.model.sibling(name, builder) for name, builder in self.model.others.items())
        self.architectures = [self.model, *others]
        order = generator(self.seed, "architectures").permutation(self.n_clients).tolist()
        self.kind = {i: place % len(self.architectures) for place, i in enumerate(order)}

    def of(self, i: int) -> Model:
        """Client i's architecture and its initial weights."""
        return self.architectures[self.kind[i]]

    def own(self, i: int, w: Mapping[str, Tensor] | None = None) -> nn.Module:
        """A new network of client i's architecture, with these weights or the initial weights."""
        net = copy.deepcopy(self.of(i).net).double().train()
        net.load_state_dict(self.of(i).weights if w is None else w, strict=False)
        return net

    def alike(self, t: int) -> list[list[int]]:
        """The clients of a cohort by architecture."""
        parts = ([i for i in self.cohorts[t] if self.kind[i] == j] for j in range(len(self.architectures)))
        return [part for part in parts if part]

    def assert_run(self, result: fl.RunResult, nets: Mapping[int, nn.Module]) -> None:
        """The run ends with these networks, of every client by its number, and tests them."""
        assert sorted(nets) == list(range(self.n_clients))
        for i, net in nets.items():
            row = sorted(j for j in self.kind if self.kind[j] == self.kind[i]).index(i)
            for name, t in weights_of(net).items():
                found = result.models.stacks[self.kind[i]][name][row]
                torch.testing.assert_close(found, t, rtol=1e-7, atol=1e-10, msg=partial(_which, i, name))
        assert_tested(result, self, nets.__getitem__)


@contextmanager
def drawing(*stream: int | str) -> Iterator[None]:
    """Inside, PyTorch draws from this stream: dropout, initial weights."""
    with torch.random.fork_rng():
        torch.manual_seed(torch_seed(*stream))
        yield


def weights_of(net: nn.Module) -> Weights:
    entries = net.state_dict().items()
    return {name: t.detach().clone() for name, t in entries if not name.endswith("num_batches_tracked")}


def select(w: Mapping[str, Tensor], names: Iterable[str]) -> Weights:
    return {name: w[name] for name in names}


def near(w: Mapping[str, Tensor], mu: float) -> Loss:
    """Cross-entropy + mu / 2 ||v - w||^2, v the parameters of a network."""

    def loss(net: nn.Module, x: Tensor, y: Tensor, _: Tensor) -> Tensor:
        far = sum(((p - w[name]) ** 2).sum() for name, p in net.named_parameters())
        return F.cross_entropy(net(x), y) + mu / 2 * far

    return loss


def mean(models: Iterable[Mapping[str, Tensor]], weights: Iterable[float] | None = None) -> Weights:
    """Weighted mean of models, entry by entry; the weights need not sum to 1 (default: equal ones)."""
    models = list(models)
    shares = None if weights is None else np.asarray(list(weights), float)
    stacks = {name: [w[name].numpy() for w in models] for name in models[0]}
    return {name: torch.from_numpy(np.average(own, axis=0, weights=shares)) for name, own in stacks.items()}


def assert_models(result: fl.RunResult, models: Mapping[int, Weights] | Weights, tolerance: float = 1e-7) -> None:
    """The run ends with these models: of every client by its number, or one for all of them."""
    models = models if 0 in models else {0: models}
    for i, own in models.items():
        for name, t in own.items():
            close = dict(rtol=tolerance, atol=tolerance / 1000, msg=partial(_which, i, name))
            torch.testing.assert_close(result.models[name][i], t, **close)
    rows = next(iter(result.models.values())).unbind()
    assert len(rows) == len(models) or (len(models) == 1 and all(torch.equal(rows[0], row) for row in rows))


def assert_run(result: fl.RunResult, oracle: Oracle, models: Mapping[int, Weights] | Weights, nets=None) -> None:
    """The run ends with these models, of every client or one for all, and tests them; after tuning it tests `nets`."""
    assert_models(result, models)
    assert_tested(replace(result, when="before"), oracle, lambda i: oracle.net(models[i] if 0 in models else models))
    if nets is not None:
        assert_tested(replace(result, when="after"), oracle, nets.__getitem__)


def _which(i: int, name: str, found: str) -> str:
    return f"{name} of client {i}: {found}"


def assert_tested(result: fl.RunResult, oracle: Oracle, nets: Callable[[int], nn.Module], tolerance=1e-6) -> None:
    """The last evaluation has, for every client, the accuracy and the loss of `nets(i)` on its test part."""
    last = result.accuracy[(result.accuracy["round"] == len(oracle.rounds)) & (result.accuracy["when"] == result.when)]
    assert len(last) == oracle.n_clients
    for i, row in last.set_index("client").iterrows():
        x, y = oracle.images(oracle.federation.test[i])
        with torch.no_grad():
            logits = nets(i).eval()(x)
        assert row["n_test"] == len(y)
        assert row["accuracy"] == pytest.approx(100 * (logits.argmax(1) == y).double().mean().item())
        assert row["loss"] == pytest.approx(F.cross_entropy(logits, y).item(), rel=tolerance)
