"""The embedded data sets: made in memory from scans and fonts, the same every time."""

import numpy as np
import pytest
from processes import python
from refusals import refused

from fedlib.data import EMBEDDED, glyphs, ink, load, scans

SETS = {  # shape, classes, domains, and options that make it small
    "characters": ((6200, 1, 28, 28), 62, 100, {"writers": 10}),
    "digit_pairs": ((6000, 3, 32, 32), 100, 1, {"per_class": 5}),
    "digit_styles": ((6000, 3, 32, 32), 10, 6, {"per_style": 100}),
    "digits": ((5391, 3, 32, 32), 10, 1, {"copies": 1}),
}
each_set = pytest.mark.parametrize("name", EMBEDDED)


@each_set
def test_an_embedded_set_has_its_classes_and_domains_in_both_splits_and_no_image_blank_or_twice(name):
    data, (shape, n_classes, n_domains, _) = load(name), SETS[name]
    assert (data.name, data.x.shape) == (name, shape)
    assert len(data.classes) == len(set(data.classes)) == n_classes
    assert len(data.domains) == len(set(data.domains)) == n_domains
    for part in (0, 1):
        rows = data.split == part
        assert np.bincount(data.y[rows], minlength=n_classes).min() > 0
        assert np.bincount(data.domain[rows], minlength=n_domains).min() > 0
    assert 0.15 < (data.split == 1).mean() < 0.25
    flat = data.x.reshape(len(data), -1)
    assert len(np.unique(flat, axis=0)) == len(flat)
    assert (flat.max(axis=1).astype(int) - flat.min(axis=1)).min() > 40


of_scans = pytest.mark.parametrize(
    ("make", "options"),
    [(scans.digits, {"copies": 1}), (scans.digit_pairs, {"per_class": 10}), (scans.digit_styles, {"per_style": 200})],
    ids=["digits", "digit_pairs", "digit_styles"],
)


def test_every_sheet_has_scans_of_all_digits_and_is_held_out_as_a_whole():
    _, digit, sheet, held_out = scans.scans()
    counts = np.bincount(10 * sheet + digit, minlength=500)
    assert (counts.min(), counts.max()) == (3, 4)
    np.testing.assert_array_equal(held_out, sheet % 5 == 0)


@of_scans
def test_images_show_scans_of_their_source_only(make, options, monkeypatch):
    real, made = scans.scans(), []
    source = real.sheet if make is scans.digit_pairs else np.arange(len(real.digit))
    monkeypatch.setattr(scans, "_others", lambda rng, scan: 0 * scan)  # fragments are of scan 0
    for mask in (real.mask, np.where((source % 2 == 0)[:, None, None], real.mask, 0.0)):  # odd sources are blank
        monkeypatch.setattr(scans, "scans", lambda mask=mask: real._replace(mask=mask))
        made.append(make.__wrapped__(**options))
    same = (made[0].x == made[1].x).all(axis=(1, 2, 3))
    np.testing.assert_array_equal(same, made[0].source % 2 == 0)


@pytest.mark.parametrize("part", [0, 1], ids=["train", "test"])
@of_scans
def test_the_images_of_a_split_show_scans_of_that_split_only(make, options, part, monkeypatch):
    expected = make(**options)
    real = scans.scans()
    erased = np.where((real.held_out == part)[:, None, None], real.mask, 0.0)  # the other split's scans are blank
    monkeypatch.setattr(scans, "scans", lambda: real._replace(mask=erased))
    data = make.__wrapped__(**options)
    same = (data.x == expected.x).all(axis=(1, 2, 3))
    assert same[expected.split == part].all()
    assert not same[expected.split != part].any()


def test_the_mask_of_a_digit_is_where_its_colour_is_seen(monkeypatch):
    real, pictures = ink.contrasting, []
    for shade in (0.0, 1.0):
        monkeypatch.setattr(ink, "contrasting", lambda *args, shade=shade: np.full_like(real(*args), shade))
        pictures.append(scans.digits.__wrapped__(copies=1, seed=2).x[:, 0].astype(int))
    changed, mask = pictures[1] - pictures[0], scans.digit_masks(copies=1, seed=2)
    assert mask.shape == changed.shape
    assert (changed[mask == 0] <= 1).all()  # rounded
    assert (changed[mask >= 128] > 25).all()  # at least 0.8 ink, of which a line leaves 0.4
    assert 0.02 < (mask >= 128).mean(axis=(1, 2)).min() < (mask >= 128).mean(axis=(1, 2)).max() < 0.5


def test_writers_may_write_every_character_several_times():
    data = load("characters", writers=5, copies=3)
    assert (np.bincount(data.domain * 62 + data.y) == 3).all()
    assert len(np.unique(data.x.reshape(len(data), -1), axis=0)) == 5 * 62 * 3
    assert data.source is None  # every one is written anew
    data = load("characters")
    assert (np.bincount(data.domain * 62 + data.y) == 1).all()  # none is in both splits


@each_set
def test_the_same_seed_gives_the_same_images_and_another_seed_others(name):
    options, make = SETS[name][3], EMBEDDED[name].__wrapped__
    first = make(**options, seed=3)
    assert make(**options, seed=3).fingerprint == first.fingerprint
    assert load(name, **options).fingerprint != first.fingerprint


def test_another_process_with_other_threads_makes_the_same_images():
    made = "load('digits', copies=1).fingerprint, load('characters', writers=10).fingerprint"
    other = python("-c", f"from fedlib.data import load; print({made})", OMP_NUM_THREADS=2)
    assert tuple(other.stdout.split()) == eval(made)


def test_an_embedded_set_is_made_once_and_writes_nothing(tmp_path):
    root = tmp_path / "root"
    assert load("digits", root=root) is load("digits", root=root)
    assert not root.exists()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("digits", {"copies": 0}),
        ("digits", {"seed": -1}),
        ("digit_pairs", {"per_class": 1}),
        ("digit_styles", {"per_style": 2000}),
        ("characters", {"writers": 1.5}),
        ("characters", {"copies": 0}),
    ],
)
def test_a_size_that_cannot_be_is_refused(name, options):
    argument, value = next(iter(options.items()))
    refused(f"{argument}={value} is not allowed", load, name, **options)


def test_fonts_have_all_characters_and_no_two_of_a_font_look_alike():
    masks = glyphs.glyphs().reshape(len(glyphs.FONTS), 62, -1)
    assert masks.sum(axis=2).min() > 20
    for font in masks:
        assert len(np.unique(font, axis=0)) == 62


def test_a_map_moves_ink_to_where_it_says():
    mask = np.zeros((1, 9, 9))
    mask[0, 4, 6] = 1  # half way to the right edge
    one, none = np.ones((1, 2)), np.zeros(1)

    def place(angle: float = 0, slant: float = 0, shift: tuple[float, float] = (0, 0)) -> list[int]:
        maps = ink.affine(none + angle, one, none + slant, np.array([shift]))
        return np.argwhere(ink.warp(mask, maps, (9, 9))[0] > 0.9).tolist()

    assert place() == [[4, 6]]
    assert place(angle=90) == [[2, 4]]  # counter-clockwise: up
    assert place(shift=(2 / 9, 4 / 9)) == [[6, 7]]
    assert place(slant=0.5) == [[4, 6]]  # the middle line stays


def test_a_thicker_pen_covers_more_and_keeps_blank_paper_blank():
    mask = scans.scans().mask[:20]
    thin, thick = (ink.stroke(mask, np.full(20, weight)) for weight in (-0.1, 0.2))
    assert (thick.sum(axis=(1, 2)) > thin.sum(axis=(1, 2))).all()
    np.testing.assert_array_equal(ink.stroke(np.zeros((1, 4, 4)), np.array([0.2])), 0)


def test_contrasting_colours_keep_their_distance():
    rng = np.random.default_rng(0)
    paper = rng.uniform(0.05, 0.95, (500, 3))
    gap = np.abs(ink.brightness(ink.contrasting(rng, paper, 0.3)) - ink.brightness(paper))
    assert (gap >= 0.3).mean() > 0.98


def test_the_scans_are_scikit_learn_s_wherever_it_keeps_its_file(monkeypatch):
    quickly = scans._table()
    monkeypatch.setattr(scans, "find_spec", lambda name: None)
    assert np.array_equal(scans._table(), quickly)
    assert quickly.shape == (1797, 65)
