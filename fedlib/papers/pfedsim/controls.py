"""Two controls of pFedSim, in which the weights are as large as its own but do not say who is similar to whom."""

from typing import Literal

import numpy as np
import torch

import fedlib as fl
from fedlib.algorithm import Algorithm
from fedlib.streams import generator


def blind(weights: Literal["uniform", "shuffled"] = "uniform", generalization: float = 0.5) -> Algorithm:
    """pFedSim whose similarities of different clients are replaced after every round.

    A client's weight for itself stays as it is.

    Args:
        weights: "uniform": each of them becomes the mean over the pairs that were sampled together; "shuffled": they
            are dealt out to those pairs at random, Phi_ij = Phi_ji.
        generalization: rho of `pfedsim`.
    """
    made = fl.pfedsim(generalization)

    def round(state, cohort):
        state = made.round(state, cohort)
        i, j = np.triu_indices(cohort.size, 1)  # the pairs, each once
        i, j = cohort.clients[i], cohort.clients[j]
        found = state.similarity[i, j]  # [pairs]
        order = generator(*cohort.server_stream, "pairs").permutation(len(found))
        new = found[torch.from_numpy(order)] if weights == "shuffled" else found.mean().expand(len(found))
        state.similarity[i, j], state.similarity[j, i] = new, new
        return state

    hyper = {"weights": weights, "generalization": generalization}
    return Algorithm("blind", made.init, round, models=made.models, hyper=hyper, made_of=(blind, *made.made_of))
