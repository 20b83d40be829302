"""Clients with different architectures, public images, Adam on the clients, and the networks M1 to M4."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from archives import pictures
from phases import batches_of
from refusals import refused
from test_baselines import cohort_of

import fedlib as fl
from fedlib.data import Dataset
from fedlib.engine.backends import BACKENDS
from fedlib.models import MODELS, THIN, build
from fedlib.stack import repeat
from fedlib.training.batches import client_batches
from fedlib.training.local import train
from fedlib.training.losses import cross_entropy

SETTING = dict(rounds=2, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05, progress=False)


def test_public_images_are_the_same_share_of_every_class_nobodys_and_of_the_official_train_part(tiny):
    alone, shown = (fl.federate(tiny, fl.iid(), 4, test_fraction=0.25, public=share) for share in (0.0, 0.2))
    assert alone.public is None
    assert np.bincount(shown.public.y).tolist() == [9, 9, 9, 9]  # of 60: 3/4 would train, a fifth of that
    dealt = np.concatenate([*shown.train, *shown.test])
    assert len(dealt) == len(set(dealt.tolist())) == 240 - 36
    assert sum(map(len, shown.test)) == 60  # a quarter of all, as without public images
    pixels = {x.tobytes() for x in tiny.x[dealt]}
    assert not any(x.tobytes() in pixels for x in shown.public.x)
    assert not np.array_equal(shown.public.y, np.sort(shown.public.y))
    again, other = (fl.federate(tiny, fl.iid(), 4, seed=seed, public=0.2).fingerprint for seed in (0, 1))
    assert fl.federate(tiny, fl.iid(), 4, public=0.2).fingerprint == again != other
    split = (np.arange(240) >= 160).astype(np.uint8)
    shown = fl.federate(replace(tiny, split=split), fl.iid(), 4, test_fraction=None, public=0.1)
    assert len(shown.public) == 16
    assert (shown.public.split == 0).all()
    assert (sum(map(len, shown.train)), sum(map(len, shown.test))) == (144, 80)
    rare = tiny.subset(np.concatenate([np.flatnonzero(tiny.y != 3), np.flatnonzero(tiny.y == 3)[:4]]))
    public = fl.federate(rare, fl.iid(), 4, test_fraction=0.25, public=0.1).public
    assert np.bincount(public.y).tolist() == [5, 5, 5, 1]  # a rare class has one, too


def test_other_public_images_are_those_of_all_clients_who_stay_as_they_were_and_make_another_run(tiny, federation):
    bare = replace(federation, public=None)
    assert len({bare.fingerprint, federation.fingerprint, federation.with_public(tiny).fingerprint}) == 3
    runs = [fl.run("fedavg", own, **SETTING) for own in (bare, federation)]
    assert runs[0].folder != runs[1].folder
    assert all(torch.equal(t, runs[1].models[name]) for name, t in runs[0].models.items())
    assert runs[1].config["public"] == "40 images of tiny"
    assert "public" not in runs[0].config
    public = replace(federation.public, y=np.sort(federation.public.y))
    cohort = cohort_of(federation.with_public(public), 0).on_public(np.arange(12))
    assert cohort.class_counts.tolist() == [[10, 2, 0, 0]] * cohort.size


def seen_twice(w, batch, table):
    """A loss that looks its samples up by their place."""
    return cross_entropy(w, batch) + (table["y"][batch.index] - batch.y).abs().sum() + batch.split(2)[1].index.sum()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_says_which_samples_it_holds(backend, federation):
    cohort = cohort_of(federation, 0, backend)
    start, labels = repeat(cohort.model.weights, cohort.size), torch.from_numpy(federation.data.y)
    train(cohort, seen_twice, start, {"y": labels.expand(cohort.size, -1)}, epochs=[0], batches_per_step=2)
    seen = cohort.losses.pop().double()
    train(cohort, cross_entropy, start, epochs=[0], batches_per_step=2)
    steps = [client_batches(federation.train[i], [0], 8, batches_of(0, i), 2) for i in cohort.ids]
    expected = torch.tensor([own[:, 8:].sum(1).double().mean() for own in steps])
    torch.testing.assert_close(seen - cohort.losses[0], expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("name", THIN)
def test_the_thin_forms_of_m1_to_m4_have_the_same_layers(name):
    model, thin = (build(name, MODELS[n], (3, 32, 32), 10, seed=0) for n in (name, f"{name}_thin"))
    wide, narrow = (sum(own.weights[n].numel() for n in own.trainable) for own in (model, thin))
    assert wide / narrow == pytest.approx(THIN[name] ** 2, rel=0.15)
    assert thin.weights.keys() == model.weights.keys()
    for n, t in thin.weights.items():
        width = [-(-size // THIN[name]) for size in model.weights[n].shape[:1]]
        assert n in model.classifier or list(t.shape[:1]) == width


def test_mixtures_and_public_images_that_make_no_sense_are_refused(federation):
    refused(r"model='m1\+m1' is not .* be named only once", fl.run, "local_only", federation, "m1+m1", **SETTING)
    refused("model='m5' is unknown", fl.run, "local_only", federation, "m1+m5", **SETTING)
    one = np.zeros(4, np.int64)
    other = Dataset("other", pictures(4, 3, 16, 16), np.arange(4), tuple("abcd"), one.astype(np.uint8), one, ("a",))
    refused(r"other cannot be public for tiny: it has images of \(3, 16, 16\) and 4", federation.with_public, other)
