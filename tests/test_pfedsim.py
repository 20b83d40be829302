"""pFedSim: how long its phases last. Whole runs have an oracle."""

import pytest

import fedlib as fl

SETTING = dict(rounds=4, join_ratio=0.5, local_epochs=1, batch_size=8, lr=0.05)


@pytest.mark.parametrize(("rho", "warm"), [(0.0, 0), (0.29, 2), (0.3, 3), (0.7, 7), (1.0, 10)])
def test_the_warm_up_lasts_floor_rho_t_rounds(rho, warm, federation):
    """0.7 * 10 is 7.000000000000001 or 6.999..., depending on how it is computed: the floor must be 7."""
    setting = SETTING | {"rounds": 10, "evaluate_every": 1, "join_ratio": 0.2}
    personal = fl.run(fl.pfedsim(generalization=rho), federation, **setting, progress=False)
    average = fl.run("fedavg", federation, **setting, progress=False)
    merged = personal.accuracy.merge(average.accuracy, on=["round", "client"])
    same = merged.groupby("round").apply(lambda g: (g["loss_x"] == g["loss_y"]).all())
    assert same[same].index.tolist() == list(range(1, warm + 1))
