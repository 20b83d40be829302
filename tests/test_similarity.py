"""Similarity measures: identities, NumPy oracles and numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch
from refusals import refused

from fedlib import similarity as sim
from fedlib.report.paper import reported


def features(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def cka_in_feature_space(x, y):
    x, y = (a.reshape(len(a), -1) for a in (x, y))
    x, y = x - x.mean(0), y - y.mean(0)
    return np.linalg.norm(y.T @ x) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))


def test_data_similarity_counts_pooled_samples_of_shared_classes_and_ldb_is_positive_if_the_other_model_is_better():
    assert sim.data_similarity([0, 0, 1, 2], [2, 2, 3, 3]) == 3 / 8
    assert (sim.data_similarity(np.arange(5), torch.arange(5)), sim.data_similarity([0, 1], [2, 3])) == (1, 0)
    refused("got 0 and 1", sim.data_similarity, [], [1])
    assert (sim.ldb(1.5, 1.0, 2.0), sim.ldb(1.0, 1.5, 2.0)) == (0.25, -0.25)
    refused("distance=0", sim.ldb, 1.0, 1.0, 0)


def test_cka_gram_form_equals_the_feature_space_form_and_flattens_maps_and_constant_features_have_none():
    x, y = features(2, 30, 2, 3, 3), features(3, 30, 5) ** 3
    assert sim.linear_cka(x, y) == pytest.approx(cka_in_feature_space(x, y), abs=1e-12)
    assert sim.linear_cka(x.astype("float32"), y) == pytest.approx(cka_in_feature_space(x, y), abs=1e-5)
    assert math.isnan(sim.linear_cka(np.ones((5, 2)), features(0, 5, 2)))
    refused(r"got \[5, 6\] inputs", sim.linear_cka, features(0, 5, 2), features(0, 6, 2))


def test_row_cosines_and_classifier_similarity_match_numpy():
    w = features(4, 3, 5, 7)
    cosine = (w[0] * w[2]).sum(-1) / np.linalg.norm(w[0], axis=-1) / np.linalg.norm(w[2], axis=-1)
    np.testing.assert_allclose(sim.row_cosines(w[0], w[2]), cosine, rtol=1e-7)
    np.testing.assert_allclose(sim.classifier_similarity(w)[0, 2], cosine.mean(), rtol=1e-7)
    assert cosine.min() < 0  # signed: nothing is clipped


@pytest.mark.parametrize("kind", sim.KINDS)
def test_similarity_matrix_is_symmetric_finite_non_negative_and_scale_free(kind):
    w = features(6, 5, 4, 8).astype("float32")
    w[1] = w[0]  # equal classifiers: the cap keeps them finite
    w[2] = -w[0]  # opposite ones
    w[3, 0] = 0
    matrix = sim.similarity_matrix(w, kind)
    assert torch.equal(matrix, matrix.T)
    assert torch.isfinite(matrix).all()
    assert (matrix >= 0).all()
    assert (matrix[0, 2], matrix.max()) == (0, matrix[0, 0])
    assert matrix[0, 1].item() == pytest.approx(matrix[0, 0].item(), rel=1e-6)
    scaled = w.copy()
    scaled[4] *= 1000
    torch.testing.assert_close(sim.similarity_matrix(scaled, kind), matrix, rtol=1e-6, atol=1e-7)


def test_similarity_matrix_refuses_bad_arguments_in_one_sentence():
    refused("did you mean 'per_class'", sim.similarity_matrix, np.ones((2, 3, 4)), "per_clas")
    refused("cap=0 is not allowed", sim.similarity_matrix, np.ones((2, 3, 4)), cap=0)
    refused(r"\(2, 3\); it must be \[clients, classes, features\]", sim.similarity_matrix, np.ones((2, 3)))


def test_update_cosine_sees_updates_not_weights():
    start = {"a": torch.full((2,), 100.0), "b": torch.full((1, 1), 100.0)}
    i = {"a": start["a"] + torch.tensor([3.0, 0.0]), "b": start["b"] + 4}
    j = {"b": start["b"] + 1, "a": start["a"]}  # another order of names
    assert sim.update_cosine(i, j, start) == pytest.approx(0.8)
    assert sim.update_cosine(i, i, start) == pytest.approx(1)
    assert sim.parameter_distance(i, start) == pytest.approx(5)
    refused("differ in these parameters: b", sim.update_cosine, {"a": start["a"]}, j, start)
    turned = i | {"b": i["b"][0]}  # as many numbers
    refused(r"differ in the shape of b: \(1, 1\) and \(1,\)", sim.parameter_distance, turned, start)


def test_bn_distance_is_the_wasserstein_distance_of_gaussians():
    i = {"bn1": (torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.0])), "bn2": (torch.zeros(1), torch.ones(1))}
    j = {"bn1": (torch.tensor([3.0, 1.0]), torch.tensor([1.0, 5.0])), "bn2": (torch.zeros(1), torch.full((1,), 3.0))}
    assert sim.bn_distance(i, j) == 5 + 2  # sqrt(3^2 + 4^2) in bn1, 2 in bn2
    assert (sim.wdb(i, j), sim.wdb(i, i)) == (1 / 7, math.inf)
    refused("BatchNorm layers: bn2", sim.bn_distance, i, {"bn1": j["bn1"]})


def test_bn_statistics_of_a_trained_net_feed_the_distance_matrix():
    nets = [torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)) for _ in range(3)]
    for k, net in enumerate(nets):
        net[1].running_mean += k
        net[1].running_var *= (1 + k) ** 2
    each = [sim.bn_statistics(net.state_dict()) for net in nets]
    assert set(each[0]) == {"1"}
    stacked = {"1": tuple(torch.stack([s["1"][part] for s in each]) for part in (0, 1))}
    distances = sim.bn_distances(stacked)
    assert distances[0, 2].item() == pytest.approx(math.sqrt(4 * 2**2 + 4 * 2**2))
    assert distances[1, 2].item() == sim.bn_distance(each[1], each[2])
    refused("at least one BatchNorm layer", sim.bn_distances, {})


def test_the_printed_numbers_of_pfedsim_table_2_agree_with_data_similarity_as_stated():
    table = reported("pfedsim").query("item == 'table2'").pivot(index="setting", columns="method", values="mean")
    assert len(table) == 4
    said = {"CS": (1, 0.995), "MDB": (0.67, 0.92), "LDB": (0.67, 0.92), "WDB": (-0.33, -0.50)}  # tau and r
    for metric, both in said.items():
        assert sim.agreement(table[metric], table["DataSimilarity"]) == pytest.approx(both, abs=0.005)


def test_agreement_with_ties_is_tau_b_and_pearsons_r_with_a_constant_nan_and_with_another_length_an_error():
    tau, r = sim.agreement([1, 1, 1, 2, 3], [5, 3, 4, 4, 9])
    assert tau == pytest.approx((5 - 1) / math.sqrt((10 - 3) * (10 - 1)))  # 5 of 10 pairs agree, 1 does not; 3 ties, 1
    assert r == pytest.approx(7 / math.sqrt(3.2 * 22))
    assert all(map(math.isnan, [*sim.agreement([1, 1, 1], [1, 2, 3]), *sim.agreement([1, 2, 3], [2, 2, 2])]))
    refused(r"\(2,\) and \(3,\)", sim.agreement, [1, 2], [1, 2, 3])
