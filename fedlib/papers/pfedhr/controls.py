"""A control of pFedHR that no server could have: one teacher for everybody, trained on all clients' images."""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm
from fedlib.federation import Federation
from fedlib.methods.pfedhr import public_training
from fedlib.models import MODELS, build, deal, initial
from fedlib.stack import PerArchitecture, repeat
from fedlib.training import logits, on_device, train


class Taught(NamedTuple):
    """The clients' networks, and the logits of their teacher."""

    v: PerArchitecture
    answers: Tensor  # [samples, n_classes]


def all_knowing(
    federation: Federation, device: torch.device, name: str, epochs: int, batch_size: int, lr: float
) -> Tensor:
    """Logits [samples, n_classes] of a network that was trained with Adam on the train parts of all clients."""
    images = on_device(federation.data, device)
    model = build(name, MODELS[name], federation.data.x.shape[1:], len(federation.data.classes), seed=0)
    own = torch.from_numpy(np.concatenate(federation.train)).to(device)
    theirs = images._replace(x=images.x[own], y=images.y[own])
    w = {entry: t.to(device) for entry, t in model.weights.items()}
    w = public_training(theirs, True, epochs, batch_size, lr, 1.0, (0,))(model, w, 0)
    return logits(model, w, images, torch.arange(len(images.y), device=device))


def taught(teacher: str = "m4", lam: float = 0.2, epochs: int = 5, batch_size: int = 64, lr: float = 1e-3) -> Algorithm:
    """Local-Only with equation (6) and the same teacher for every client in every round.

    The teacher is the network of this name, trained for `epochs` on the train parts of all clients. With `lam=0` it is
    Local-Only. Evaluated: own model.
    """

    def loss(w, batch, answers):  # ONE client; eq. 6
        z = batch.model(w, batch.x)
        divergence = F.kl_div(z.log_softmax(1), answers[batch.index].softmax(1), reduction="batchmean")
        return F.cross_entropy(z, batch.y) + lam * divergence

    def init(model, federation):
        answers = model.zeros(len(federation.data), model.n_classes)
        return Taught(initial(deal(model, federation.n_clients)), answers)

    def round(state, cohort):
        if cohort.round == 0:  # not in `init`, which also runs when a finished run is read
            answers = all_knowing(cohort.federation, state.answers.device, teacher, epochs, batch_size, lr)
            state = state._replace(answers=answers.to(state.answers.dtype))
        for part in cohort.by_architecture():
            part.keep(state.v, train(part, loss, part.mine(state.v), repeat(state.answers, part.size)))
        return state

    hyper = {"teacher": teacher, "lam": lam, "epochs": epochs, "batch_size": batch_size, "lr": lr}
    made_of = (taught, MODELS[teacher])
    return Algorithm("taught", init, round, models=lambda state: state.v, mixed=True, hyper=hyper, made_of=made_of)
