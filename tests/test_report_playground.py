"""The playground and the slider of a notebook: what they train and draw, and what a page without a kernel shows."""

import base64
import io
import re
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import PIL.Image
import pytest
import torch
from matplotlib.figure import Figure
from refusals import refused

import fedlib as fl
from fedlib.report.explore import png
from fedlib.report.playground import PRESETS, Moment, Playground, Setting, _draw_map, picture, watch
from fedlib.similarity import classifier_similarity


@pytest.fixture(scope="module")
def federation():
    return Setting(strength=0.4).federation(clients=3, images=90)


def test_it_sees_what_a_run_sees_and_with_mixed_parts_no_similarity_of_classifiers(federation):
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
    order = [1, 2, 0]  # by main class
    assert federation.counts()[order].argmax(1).tolist() == [3, 6, 9]
    phi = [result.weights(i)["classifier.weight"] for i in order]
    assert similarity[0, 2] == pytest.approx(classifier_similarity(torch.stack(phi))[0, 2].item(), abs=1e-5)
    [moment] = watch(Setting(method="fedavg"), federation, 1)
    assert moment.similarity == pytest.approx(1)
    [moment] = watch(Setting(method="fedsimsup"), federation, 1)
    assert moment.similarity is None
    [moment] = watch(Setting(method="pfedmb", hyper="share_alpha=True"), federation, 1)
    result = fl.run(fl.pfedmb(share_alpha=True), federation, rounds=1, **training, progress=False)
    assert moment.mixture == pytest.approx(result.trace["all layers"][-1].numpy()[order])


def test_both_sides_train_and_a_stop_ends_both(monkeypatch):
    clock = SimpleNamespace(monotonic=count().__next__)  # a second for each look at it
    monkeypatch.setattr(sys.modules[Playground.__module__], "time", clock)
    widget = Playground((Setting(method="fedper"), Setting(method="fedavg")), rounds=4, clients=3, images=90)
    said = []
    widget.status.observe(lambda change: said.append(change["new"]), "value")
    widget.status.observe(lambda change: "round 2 of" in change["new"] and widget.stop.click(), "value")
    widget.train()
    assert len(widget.frames) == 3  # before the first round, and after two
    assert (said[-1], said[-3]) == ("stopped after round 2", "round 1 of 4, about 6 s left")
    assert (widget.start.disabled, widget.stop.disabled) == (False, True)
    assert [image.value for image in widget.pictures] == list(widget.frames[-1])
    page = widget._repr_mimebundle_()["text/html"]
    pictures = re.findall(r"<img [^>]*>", page)
    assert len(pictures) == 6
    assert sum("display: none" in one for one in pictures) == 4
    assert 'max="2" value="2"' in page


@pytest.mark.parametrize("number", range(len(PRESETS)))
def test_a_preset_chooses_settings_trains_and_leads_to_the_section_that_explains_it(number, monkeypatch):
    preset, begun = PRESETS[number], []
    monkeypatch.setattr(Playground, "train", lambda self: begun.append(self))
    widget = Playground((Setting(), Setting()), rounds=1, clients=4, images=120)
    widget.presets[number].click()
    while not begun:
        pass
    for controls, side in zip(widget.controls, preset.sides, strict=True):
        assert Setting(**{name: control.value for name, control in controls.items()}) == side
        [moment] = watch(side, side.federation(4, 120), 1)
        assert (moment.mixture is not None) == (side.method == "pfedmb")
    notebook = Path(__file__).parent.parent / "notebooks" / f"{preset.notebook}.ipynb"
    text = "".join(cell.source for cell in nbformat.read(notebook, 4).cells)
    assert f"## {preset.section}\n" in text
    [note] = widget.note.outputs
    assert f"]({notebook.name}#{preset.section.replace(' ', '-')})" in note["data"]["text/markdown"]


def test_the_address_of_a_page_names_a_preset(monkeypatch, capsys):
    monkeypatch.setattr(Playground, "train", lambda self: None)
    for query, chosen in {"a=1&preset=branches": "pfedmb", "preset=none": "fedper", "": "fedper"}.items():
        monkeypatch.setenv("QUERY_STRING", query)
        fl.report.playground("fedper")
        assert f"Playground({chosen} against" in capsys.readouterr().out


def test_the_two_clients_of_a_pair_have_the_same_classes():
    owned = Setting(partition="pairs").federation(clients=5, images=300).counts() > 0
    assert (owned[0] == owned[1]).all()
    assert not (owned[0] & owned[-1]).any()


def test_its_map_keeps_place_and_scale_from_round_to_round():
    shown = []
    for moment in (None, Moment(1, np.zeros(3), np.eye(3) / 2), Moment(2, np.zeros(3), None, np.eye(3)[:, :2] / 4)):
        figure = Figure()
        _draw_map(ax := figure.subplots(), moment, 3)
        shown.append((ax.get_position().bounds, ax.images[0].get_clim()))
    assert shown[0] == shown[1] == shown[2]
    assert shown[0][1] == (0, 1)
    assert [*ax.get_xlim(), *ax.get_ylim()] == [0.5, 2.5, 2.5, -0.5]  # two branches from 1, three clients from 0


def test_a_mistake_is_said_in_one_sentence_and_nothing_is_trained(monkeypatch):
    widget = Playground((Setting(method="fedper", hyper="rho=2"), Setting()), rounds=1, clients=3, images=90)
    widget.train()
    assert "rho" in widget.status.value
    broken = fl.fedavg()._replace(round=lambda state, cohort: None)
    monkeypatch.setattr(Setting, "algorithm", lambda setting: broken)
    widget = Playground((Setting(), Setting()), rounds=1, clients=3, images=90)
    widget.train()
    assert widget.status.value.startswith("AttributeError: ")
    assert not widget.start.disabled
    monkeypatch.undo()
    refused("must look like", Setting(hyper="print(1)").algorithm)
    refused("method='fedpr' is unknown", fl.report.playground, "fedpr")
    assert Setting(method="pfedsim", hyper="generalization=0.25").algorithm().hyper["generalization"] == 0.25


def test_its_picture_is_small_and_shows_the_round(federation, monkeypatch):
    seen, drawn, module = [Moment(1, np.array([10.0, 50.0, 45.0]), None)], [], sys.modules[Playground.__module__]
    monkeypatch.setattr(module, "png", lambda figure, dpi: drawn.append(figure) or png(figure, dpi))
    content = picture(Setting(), federation, seen, 5)
    top, middle, *_ = drawn[0].axes
    order, (circles,) = [1, 2, 0], top.collections  # by main class
    assert circles.get_offsets().tolist() == np.argwhere(federation.counts()[order]).tolist()
    assert top.get_title("left") == "digit_styles: 6.3 classes per client"  # 4, 6 and 9
    *_, mean, chance = middle.lines
    assert (list(mean.get_ydata()), list(chance.get_ydata())) == ([35], [10, 10])  # of ten classes
    assert len(content) < 60_000
    assert PIL.Image.open(io.BytesIO(content)).size[0] > 400
    assert content != picture(Setting(), federation, [], 5)


def test_moving_the_slider_redraws_the_picture_and_closes_the_figures():
    drawn = []

    def draw(value):
        drawn.append(value)
        figure, ax = plt.subplots()
        ax.plot([0, value])
        return figure

    explorer = fl.report.explore(draw, "alpha", [0.1, 0.5, 1.0], 0.5)
    slider, picture = explorer.children
    before = bytes(picture.value)
    slider.value = 1.0
    assert drawn == [0.5, 1.0]
    assert bytes(picture.value).startswith(b"\x89PNG")
    assert bytes(picture.value) != before
    assert not plt.get_fignums()
    data, about = explorer._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]) == bytes(picture.value)
    assert about["image/png"]["alt"] == "The picture for alpha = 1.0."
