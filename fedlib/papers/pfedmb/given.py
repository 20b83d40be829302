"""A control of pFedMB: alpha is not learned but given, from the labels of all clients, which nobody would know."""

import numpy as np
import torch
from torch.nn.functional import one_hot

import fedlib as fl
from fedlib.algorithm import Algorithm

SURE = 40.0  # softmax([40, 0, ...]) is (1, 0, ...) up to float32


def pfedmb_given(branches: int) -> Algorithm:
    """pFedMB in which clients with similar labels share one branch in every layer from the start, and only train it.

    This is FedAvg inside each group. The branches have the usual scale, because nobody mixes them (`gain=False`).
    """
    learned = fl.pfedmb(branches, alpha_lr=0.0, gain=False)

    def init(model, federation):
        state, group = learned.init(model, federation), groups(federation.counts(), branches)
        chosen = SURE * one_hot(torch.as_tensor(group), branches)  # [n_clients, B]
        return state._replace(z={name: z + chosen for name, z in state.z.items()})  # z is 0 at first

    hyper = {**learned.hyper, "alpha": "labels"}
    return learned._replace(init=init, hyper=hyper, made_of=(pfedmb_given, *learned.made_of))


def groups(counts: np.ndarray, k: int) -> np.ndarray:
    """Sort clients into k groups by the shares of their labels (agglomerative clustering).

    Args:
        counts: images, [n_clients, n_classes].
        k: the number of groups.

    Returns:
        The group of each client, [n_clients].
    """
    from sklearn.cluster import AgglomerativeClustering  # imported late: it takes a second

    shares = counts / counts.sum(1, keepdims=True)
    return AgglomerativeClustering(k).fit_predict(shares)
