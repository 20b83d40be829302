"""Dropout of clients from a round, and stragglers, which do only the first part of their local training."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import torch
from torch.utils._pytree import tree_map

from fedlib.algorithm import Algorithm
from fedlib.stack import Tree
from fedlib.streams import generator
from fedlib.training.channel import Channel
from fedlib.training.cohort import Cohort
from fedlib.training.phase import Phase, Trainer


def unreliable(method: Algorithm, dropout: float, stragglers: float) -> Algorithm:
    """`method` with these probabilities of dropouts and of stragglers among the sampled clients; see `fl.run`."""
    # The method does not count a round without any client, so that steps tied to a round number are not skipped.

    def init(model, federation):  # copies: tensors of a checkpoint must not share memory
        return tree_map(torch.clone, method.init(model, federation))

    def round(state, cohort):
        t, k = cohort.round, cohort.size
        answers = generator(cohort.seed, "dropout").random((cohort.rounds, k)) >= dropout  # bool [rounds, k]
        late, left_out = generator(cohort.seed, "stragglers").random((cohort.rounds, 2, k))[t]
        done = dict(zip(cohort.ids.tolist(), np.where(late < stragglers, 1 - left_out, 1).tolist(), strict=True))
        everybody = replace(cohort, round=int(answers[:t].any(1).sum()), trainer=stopping(cohort.trainer, done))
        there = everybody.subset(np.flatnonzero(answers[t]))
        if there.size < k:
            cohort.channel.bytes_down += received(method, state, everybody) - received(method, state, there)
        return method.round(state, there) if there.size else state

    return method._replace(init=init, round=round, made_of=(unreliable, *method.made_of))


def stopping(trainer: Trainer, done: Mapping[int, float]) -> Trainer:
    """Stop each client after the share of its steps, rounded up, that `done` has for its number."""

    def train(phase: Phase) -> Any:
        steps = [math.ceil(done[i] * len(index)) for i, index in zip(phase.clients, phase.batches, strict=True)]
        batches = tuple(index[:n] for index, n in zip(phase.batches, steps, strict=True))
        draws = tuple({name: t[:n] for name, t in drawn.items()} for drawn, n in zip(phase.draws, steps, strict=False))
        return trainer(phase._replace(batches=batches, draws=draws))

    return train


def received(method: Algorithm, state: Tree, cohort: Cohort) -> int:
    """Bytes that the clients of a round receive before the first of them trains or sends; no state changes."""
    if not cohort.size:
        return 0
    channel, copied = Download(cohort.channel.statistics), tree_map(torch.clone, state)
    with suppress(Answer):
        method.round(copied, replace(cohort, trainer=answer, channel=channel))
    return channel.bytes_down


class Answer(Exception):
    """Raised when a client begins to train or to send."""


def answer(*_: Any) -> NoReturn:
    """Raise `Answer`."""
    raise Answer


class Download(Channel):
    """A channel from the server to the clients only."""

    up = answer
