"""FedGH (Yi et al., ACM MM 2023, Algorithm 1): a global header for different extractors, trained on class means."""

import copy
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedlib.algorithm import Algorithm, algorithm, need_public
from fedlib.checks import Count, Positive
from fedlib.models import Assignment, Model, build, deal, initial
from fedlib.stack import PerArchitecture, cat
from fedlib.training import class_features, cross_entropy, train


class Header(NamedTuple):
    """A linear layer."""

    weight: Tensor  # [n_classes, width]
    bias: Tensor  # [n_classes]


class State(NamedTuple):
    """Private networks, and the global header."""

    v: PerArchitecture  # headers included
    header: Header


def adapted(model: Model, width: int) -> Model:
    """Replace the last linear layer by Linear(p, width), ReLU and Linear(width, n_classes); all other weights stay."""
    parent, _, leaf = next(iter(model.classifier)).rpartition(".")[0].rpartition(".")

    def builder(shape, n_classes):
        net = copy.deepcopy(model.net)
        inside = net.get_submodule(parent)
        ending = nn.Linear(getattr(inside, leaf).in_features, width), nn.ReLU(), nn.Linear(width, n_classes)
        setattr(inside, leaf, nn.Sequential(*ending))
        return net

    other = build(f"{model.name}-{width}", builder, model.shape, model.n_classes, *model.stream, "adapter")
    like = next(iter(model.weights.values()))
    return other._replace(weights={name: model.weights.get(name, t.to(like)) for name, t in other.weights.items()})


@algorithm(label="FedGH", colour="green", marker="^", line="--")
def fedgh(width: Count = 64, header_steps: Count = 100, header_lr: Positive = 0.01, public: bool = True) -> Algorithm:
    """Different feature extractors under one global header, which the server trains on class means.

    A client joins its extractor with the global header (a linear layer) and minimises cross-entropy over both. Because
    extractors have different numbers of features, each ends in an adapter, a linear layer with a ReLU, to `width`
    features (`adapted`). After training a client sends the mean features of each class of its training samples, in
    evaluation mode. With `public` it also sends those of the labelled public images, as in pFedHR's description; the
    original needs no public images.

    The server takes `header_steps` steps of gradient descent on the header, each on the cross-entropy of all means at
    once. Extractors are private, BatchNorm included, and may have different architectures. A client is evaluated with
    its extractor and its last trained header.

    Args:
        width: number of features, at least 1.
        header_steps: steps of the server in a round, at least 1.
        header_lr: size of these steps, above 0.
        public: whether class means of the public images are sent as well.

    Raises:
        ValueError: with `public`, if the federation has no public images.

    Source:
        Yi et al., "FedGH: Heterogeneous Federated Learning with Generalized Global Header", ACM MM 2023.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.fedgh(public=False), federation, "lenet5+m1", rounds=1, progress=False)
        >>> result.state.header.weight.shape  # the same for both architectures
        torch.Size([10, 64])
    """

    def architectures(model, federation):
        dealt = deal(model, federation.n_clients)
        return [Assignment(adapted(network, width), clients) for network, clients in dealt]

    def init(model, federation):
        if public:
            need_public("fedgh", federation)
        dealt = architectures(model, federation)
        network = dealt[0].model
        return State(initial(dealt), Header(*(t.clone() for t in network.head(network.weights))))

    def with_header(peers, v, header):  # [k, ...]: the clients' networks after the download
        return v | {name: getattr(header, name.rpartition(".")[2]) for name in peers.model.classifier}

    def means(peers, v):  # class means [k, n_classes, width]; [k, n_classes]: 1 for a class that is present
        z, _ = class_features(peers, v)
        return peers.receive((z, (peers.class_counts > 0).to(z.dtype)))

    def trained(header, z, present):  # the header after the server's steps
        y, z, present = torch.arange(z.shape[1], device=z.device).repeat(len(z)), z.flatten(0, 1), present.flatten()
        header = Header(*(t.clone().requires_grad_() for t in header))
        sgd = torch.optim.SGD(header, header_lr)
        for _ in range(header_steps):
            sgd.zero_grad()
            errors = F.cross_entropy(z @ header.weight.T + header.bias, y, reduction="none")
            ((errors * present).sum() / present.sum()).backward()
            sgd.step()
        return Header(*(t.detach() for t in header))

    def round(state, cohort):
        sent = []
        for peers in cohort.by_architecture():
            start = with_header(peers, peers.mine(state.v), peers.broadcast(state.header))
            v = train(peers, cross_entropy, start)  # [k, ...]
            peers.keep(state.v, v)
            sent += [means(peers, v)] + ([means(peers.on_public(), v)] if public else [])
        z, present = cat(sent)
        return state._replace(header=trained(state.header, z, present))

    return Algorithm("fedgh", init, round, models=lambda state: state.v, architectures=architectures, mixed=True)
