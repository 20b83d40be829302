"""The playground: two settings that train side by side, its pictures, and what a page without a kernel shows."""

import io
import re

import numpy as np
import PIL.Image
import pytest

import fedlib as fl
from fedlib.report.playground import Moment, Playground, Setting, picture, watch


@pytest.fixture(scope="module")
def federation():
    return Setting(strength=0.4).federation(clients=3, images=90)


def test_it_sees_what_a_run_sees(federation):
    moments = list(watch(Setting(method="fedper"), federation, 2))
    training = dict(join_ratio=0.5, local_epochs=3, batch_size=10, lr=0.1)
    result = fl.run("fedper", federation, rounds=2, **training, progress=False)
    for moment, (_, rows) in zip(moments, result.accuracy.groupby("round"), strict=True):
        assert moment.accuracy == pytest.approx(rows["accuracy"].to_numpy())
    assert [moment.round for moment in moments] == [1, 2]
    similarity = moments[-1].similarity
    assert similarity.shape == (3, 3)
    assert np.diag(similarity) == pytest.approx(1)
    assert np.allclose(similarity, similarity.T)
    assert similarity[~np.eye(3, dtype=bool)].max() < 1


def test_clients_with_one_model_have_one_classifier_and_mixed_parts_none(federation):
    [moment] = watch(Setting(method="fedavg"), federation, 1)
    assert moment.similarity == pytest.approx(1)
    [moment] = watch(Setting(method="fedsimsup"), federation, 1)
    assert moment.similarity is None


def test_both_sides_train_and_a_stop_ends_both():
    widget = Playground((Setting(method="fedper"), Setting(method="fedavg")), rounds=4, clients=3, images=90)
    said = []
    widget.says.observe(lambda change: said.append(change["new"]), "value")
    widget.says.observe(lambda change: widget.stop.click() if change["new"] == "round 2 of 4" else None, "value")
    widget.train()
    assert len(widget.frames) == 3  # before the first round, and after two
    assert said[-1] == "stopped after round 2"
    assert (widget.start.disabled, widget.stop.disabled) == (False, True)
    assert [image.value for image in widget.pictures] == list(widget.frames[-1])
    page = widget._repr_mimebundle_()["text/html"]
    pictures = re.findall(r"<img [^>]*>", page)
    assert len(pictures) == 6
    assert sum("display: none" in one for one in pictures) == 4
    assert 'max="2" value="2"' in page


def test_a_mistake_is_said_in_one_sentence_and_nothing_is_trained():
    widget = Playground((Setting(method="fedper", hyper="rho=2"), Setting()), rounds=1, clients=3, images=90)
    widget.train()
    assert "rho" in widget.says.value
    with pytest.raises(ValueError, match="must look like"):
        Setting(hyper="print(1)").algorithm()
    with pytest.raises(ValueError, match="partition='even' is unknown"):
        fl.report.playground(partition="even")
    assert Setting(method="pfedsim", hyper="generalization=0.25").algorithm().hyper["generalization"] == 0.25


def test_its_picture_is_small_and_shows_the_round(federation):
    seen = [Moment(1, np.array([10.0, 50.0, 30.0]), None)]
    content = picture(Setting(), federation, seen, 5)
    assert len(content) < 60_000
    assert PIL.Image.open(io.BytesIO(content)).size[0] > 400
    assert content != picture(Setting(), federation, [], 5)
