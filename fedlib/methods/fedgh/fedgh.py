"""FedGH (Yi et al., ACM MM 2023, Algorithm 1): one global header for different extractors, trained on class means."""

from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, need_public
from fedlib.checks import above, at_least
from fedlib.methods.fedgh.adapter import adapted
from fedlib.models import Group
from fedlib.models.mixture import deal, initial
from fedlib.stack import PerArchitecture
from fedlib.training.losses import cross_entropy


class State(NamedTuple):
    v: PerArchitecture  # headers included
    weight: Tensor  # [n_classes, width]: the global header
    bias: Tensor  # [n_classes]


def header_loss(weight: Tensor, bias: Tensor, z: Tensor, y: Tensor, there: Tensor) -> Tensor:
    """Mean cross-entropy over the class means z [n, width] of classes y [n] for which `there` [n] is 1."""
    errors = F.cross_entropy(z @ weight.T + bias, y, reduction="none")
    return (errors * there).sum() / there.sum()


@algorithm
def fedgh(
    width: Annotated[int, at_least(1)] = 64,
    header_steps: Annotated[int, at_least(1)] = 100,
    header_lr: Annotated[float, above(0)] = 0.01,
    public: bool = True,
) -> Algorithm:
    """A round starts from the global header; clients train all of their network and send means of features by class.

    Extractors end in an adapter, linear and ReLU, to `width` features (`models.adapter`), since theirs differ. After
    training a client sends, for each class of its train part, the mean of the features in evaluation mode and, with
    `public`, the same of the labelled public images (pFedHR lists the method so; the original needs none). The server
    takes `header_steps` steps of size `header_lr` on the header, all means at once. Extractors are private, BatchNorm
    included. Evaluated: own extractor with the header as the client trained it last.
    """

    def groups(model, federation):
        return [Group(adapted(own, width), clients) for own, clients in deal(model, federation.n_clients)]

    def init(model, federation):
        if public:
            need_public("fedgh", federation)
        own = groups(model, federation)
        header = own[0].model.head(own[0].model.weights)
        return State(initial(own), *(t.clone() for t in header))

    def means(part, w):  # [k, n_classes, width], and [k, n_classes]: 1 for a class that is there
        z, _ = part.class_features(w)
        return part.receive({"z": z, "there": (part.class_counts > 0).to(z.dtype)})

    def round(state, cohort):
        sent = []
        for part in cohort.parts():
            header = part.broadcast({"weight": state.weight, "bias": state.bias})  # [k, ...]
            own = {name: header[name.rpartition(".")[2]] for name in part.model.classifier}
            w = part.train(cross_entropy, part.mine(state.v) | own)
            part.keep(state.v, w)
            sent += [means(part, w)] + ([means(part.on_public(), w)] if public else [])
        z, there = (torch.cat([own[name] for own in sent]) for name in ("z", "there"))
        y = torch.arange(z.shape[1], device=z.device).repeat(len(z))
        weight, bias = (t.clone().requires_grad_() for t in (state.weight, state.bias))
        sgd = torch.optim.SGD([weight, bias], header_lr)
        for _ in range(header_steps):
            sgd.zero_grad()
            header_loss(weight, bias, z.flatten(0, 1), y, there.flatten()).backward()
            sgd.step()
        return State(state.v, weight.detach(), bias.detach())

    return Algorithm("fedgh", init, round, models=lambda state: state.v, groups=groups, mixed=True)
