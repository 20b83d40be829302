"""The rule by which claims are judged, on constructed numbers."""

import math
import re
from itertools import product
from pathlib import Path

import pytest
import studies
from hypothesis import given
from hypothesis import strategies as st

from fedlib.studies.claim import Numbers
from fedlib.studies.item import Cell
from fedlib.studies.number import UNMEASURED, Number, fact, kth_largest, largest, mean, point, smallest
from fedlib.studies.tasks import Probe
from fedlib.studies.verdict import MEANING, Case, interval, judge

TRUST = Path(__file__).parent.parent / "fedlib/tools/site/pages/trust.md"


def test_the_page_about_trust_has_the_words_of_the_verdicts():
    rows = re.findall(r"^\| ([a-z ]+) \| (.+) \|$", TRUST.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) == MEANING | {"verdict": "meaning"}
    assert [verdict for verdict, _ in rows[1:]] == list(MEANING)


def cases(*effects):
    return [Case(f"column {i}", effect) for i, effect in enumerate(effects)]


CLEAR, AGAINST, NOISE = point(2.0, 0.5), point(-2.0, 0.5), point(0.3, 0.5)
MOST = "most", 2
NOTHING, AT_MOST, AT_LEAST = UNMEASURED, Number(-math.inf, 2.0, 0.5), Number(-2.0, math.inf, 0.5)


@pytest.mark.parametrize(
    ("effects", "verdict", "rule"),
    [
        ((CLEAR, CLEAR), "holds", ()),
        ((CLEAR, AGAINST), "refuted", ()),
        ((CLEAR, NOISE), "undecided", ()),
        ((CLEAR, NOTHING), "consistent so far", ()),
        ((NOISE, NOTHING), "undecided", ()),
        ((AGAINST, NOTHING), "refuted", ()),
        ((NOTHING, NOTHING), "not tested", ()),
        ((AT_MOST,), "not tested", ()),
        ((AT_MOST, CLEAR), "consistent so far", ()),
        ((AT_LEAST, NOTHING), "not tested", ()),
        ((AT_LEAST, NOISE), "undecided", ()),
        ((Number(-math.inf, -2.0, 0.5), AT_LEAST), "refuted", ()),
        ((Number(2.0, math.inf, 0.5), CLEAR), "holds", ()),
        ((Number(-9.0, 9.0, 0.5), CLEAR), "consistent so far", ()),
        ((point(-0.5, 0.5), CLEAR), "undecided", ()),  # a difference as large as the noise decides nothing
        ((point(0.0),), "holds", ()),  # without noise
        ((), "not tested", ()),
        ((CLEAR, CLEAR, AGAINST), "holds", MOST),
        ((CLEAR, AGAINST, AGAINST), "refuted", MOST),
        ((CLEAR, AGAINST, NOISE), "undecided", MOST),
        ((CLEAR, CLEAR, NOTHING), "holds", MOST),
        ((CLEAR, NOTHING, NOTHING), "consistent so far", MOST),
        ((CLEAR, AGAINST, NOTHING), "undecided", MOST),
        ((AGAINST, AGAINST, NOTHING), "refuted", MOST),
    ],
)
def test_all_cases_must_be_for_it_or_most_of_them(effects, verdict, rule):
    assert judge(cases(*effects), *rule).verdict == verdict


def test_a_stand_in_proves_and_refutes_nothing_is_named_and_does_not_weaken_what_the_papers_own_data_say():
    for own, beside, verdict in (
        ((), CLEAR, "consistent so far"),
        ((), AGAINST, "undecided"),
        ((AGAINST,), CLEAR, "refuted"),
        ((AGAINST, AGAINST), AGAINST, "refuted"),
        ((CLEAR, CLEAR), AGAINST, "undecided"),
        ((CLEAR, CLEAR), CLEAR, "consistent so far"),
    ):
        judged = judge(cases(*own, beside._replace(stand_in="digits for cifar10")))
        assert (judged.verdict, judged.stand_in) == (verdict, "digits for cifar10")
    both = CLEAR._replace(stand_in="digits for cifar10, 5 of 10 epochs"), CLEAR._replace(stand_in="5 of 10 epochs")
    assert {judge(cases(*both)).stand_in, (both[0] + both[1]).stand_in} == {"digits for cifar10, 5 of 10 epochs"}
    other = CLEAR._replace(stand_in="digits for cifar10")
    assert judge(cases(CLEAR, CLEAR, other), "most", 2).verdict == "holds"
    assert judge(cases(CLEAR, other, other), "most", 2).verdict == "consistent so far"
    assert judge(cases(other), "identity").verdict == "consistent so far"
    best = largest([point(82.0, 0.5), point(70.0, 0.5, stand_in="digits for cifar10")])  # which is no stand-in
    assert judge([Case("ahead", point(84.0, 0.5) - best)]).verdict == "consistent so far"
    assert judge(cases(AGAINST, other)).measured.startswith("0 for, 1 for so far, 1 against. ")


def test_an_identity_is_counted_apart_and_can_be_refuted_and_a_fact_knows_as_much_as_its_numbers():
    assert judge(cases(fact(True)), "identity").verdict == "identity"
    assert judge(cases(fact(True), fact(False)), "identity").verdict == "refuted"
    assert judge(cases(fact(True, CLEAR, NOTHING)), "identity").verdict == "not tested"
    other = CLEAR._replace(stand_in="digits for cifar10")
    assert fact(True, CLEAR, other) == point(1.0, stand_in="digits for cifar10")._replace(is_fact=True)
    assert not fact(False, CLEAR, point(2.0, 0.5, sure=False)).sure
    assert fact(True, AT_MOST, CLEAR).missing


def test_an_interval_is_of_the_smallest_effect_that_every_seed_has_by_a_table_of_students_t():
    def seed(**gaps):
        return [Case(name, point(gap)) for name, gap in gaps.items()]

    seeds = [
        seed(one=1.0, other=3.0, same=0.0),
        seed(one=2.0, other=6.0, same=0.0),
        seed(one=1.5, other=-9.0, same=0.0),
    ]
    low, high = -4.3027 * 7.93725 / 3**0.5, 4.3027 * 7.93725 / 3**0.5  # 3, 6 and -9: mean 0, standard deviation 7.9
    assert interval(seeds) == f"{low:+.2f} to {high:+.2f}, other, 3 seeds"
    seeds[1][1] = Case("other", UNMEASURED)
    assert interval(seeds) == "+0.26 to +2.74, one, 3 seeds"
    assert interval([*seeds, [Case("one", UNMEASURED), Case("other", UNMEASURED)]]) == interval(seeds)
    assert interval(seeds[:1]) == interval([]) == interval([seed(one=1.0), seed(one=1.0)]) == ""
    assert interval([seed(one=1.0), seed(other=math.inf)]) == ""
    assert interval([seed(one=1.0, other=5.0), seed(other=3.0)]) == interval([seed(other=5.0), seed(other=3.0)])


def test_what_was_measured_is_said_with_the_names_of_figures():
    text = judge(cases(CLEAR, AGAINST, NOTHING)).measured
    assert text == "1 for, 1 against, 1 open. column 0: +2.00 ± 0.50; column 1: -2.00 ± 0.50"
    text = judge(cases(AT_MOST, AT_LEAST, Number(-9.0, 8.0))).measured
    assert text.endswith("column 0: <= +2.00 ± 0.50; column 1: >= -2.00 ± 0.50; column 2: -9.00 to +8.00")
    text = judge(cases(NOISE, AT_MOST, point(-2.0, 0.5, sure=False))).measured
    assert text.startswith("0 for, 0 against, 1 against so far, 1 within the noise, 1 open. ")
    assert str(Case("fedbn mnist weighted_f1", fact(False))) == "FedBN, MNIST, weighted F1: false"
    assert str(Case("one", fact(True))) == "one: true"
    assert str(Case("perfedavg cifar10 dir=0.1", point(1.0, 0.5))) == "Per-FedAvg, CIFAR-10, Dir(0.1): +1.00 ± 0.50"
    assert str(Case("ifca, cifar10 clients=15;classes=2", point(-1.0))).startswith("IFCA, CIFAR-10, 15 clients, 2 ")


def test_arithmetic_keeps_the_larger_noise_and_the_substitute_data():
    a, b = point(80.0, 1.5), point(70.0, 0.5, stand_in="digits for cifar10")
    assert (a - b)[:4] == (10.0, 10.0, 1.5, "digits for cifar10")
    assert (5 - b)[:3] == (-65.0, -65.0, 0.5)
    assert (2 * b)[:3] == (140.0, 140.0, 1.0)
    assert (b / a)[:3] == (0.875, 0.875, pytest.approx(0.875 * 1.5 / 80))
    assert (a / UNMEASURED).missing
    assert abs(b - a)[:3] == (10.0, 10.0, 1.5)
    assert abs(UNMEASURED).missing
    far = abs(Number(-5.0, -3.0, low_sure=False))  # its bounds are turned around
    assert (far.low, far.high, far.high_sure) == (3.0, 5.0, False)
    assert mean([a, b])[:3] == (75.0, 75.0, pytest.approx(math.sqrt(2.5) / 2))


def test_unknown_noise_of_any_number_is_that_of_the_largest_and_saves_no_lead_that_another_rival_refutes():
    a, b = point(80.0, 1.0), point(82.0, 2.0)
    assert largest([a, b]) == b
    assert smallest([a, b]) == a
    assert largest([a, b, UNMEASURED]) == b._replace(high=math.inf)
    assert largest([UNMEASURED]).missing
    assert not largest([a, point(82.0, sure=False)]).sure
    assert not largest([point(80.0, sure=False), b]).sure  # which may be the larger one
    rivals = largest([point(82.0, 0.5), point(70.0, sure=False), UNMEASURED])
    assert judge([Case("behind", point(80.0, 0.5) - rivals)]).verdict == "refuted"
    assert judge([Case("behind", point(80.0, 0.5, sure=False) - rivals)]).verdict == "undecided"
    assert judge([Case("behind", point(80.0, 0.5) - largest([point(82.0, sure=False)]))]).verdict == "undecided"
    ahead = point(84.0, 0.5) - largest([point(82.0, 0.5), point(70.0, sure=False)])
    assert judge([Case("ahead", ahead)]).verdict == "consistent so far"


BOUND = st.integers(-9, 9)
INTERVAL = st.tuples(BOUND, BOUND, st.sampled_from(["point", "at most", "at least", "between", "missing"]))


def bounded(low, high, kind):
    low, high = sorted((float(low), float(high)))
    bounds = {"point": (low, low), "at most": (-math.inf, high), "at least": (low, math.inf), "between": (low, high)}
    return Number(*bounds.get(kind, (-math.inf, math.inf)))


def sure_part(number):
    """The bounds of a number that rest on known noise only."""
    low, high = number.low if number.low_sure else -math.inf, number.high if number.high_sure else math.inf
    return number._replace(low=low, high=high)


def inside(number, rng):
    """A number from an interval, often one of its ends."""
    ends = max(number.low, -99.0), min(number.high, 99.0)
    return rng.choice([*ends, rng.uniform(*ends)])


@given(st.lists(INTERVAL, min_size=4, max_size=4), st.integers(1, 4), st.booleans(), st.randoms(use_true_random=False))
def test_an_interval_contains_the_result_and_is_no_wider_than_it_must_be(bounds, k, finite, rng):
    numbers = [bounded(low, high, "between" if finite else kind) for low, high, kind in bounds]
    numbers = [n._replace(low_sure=rng.random() < 0.7, high_sure=rng.random() < 0.7) for n in numbers]
    operations = {
        "difference": (lambda a, b, *_: a - b, lambda a, b, *_: a - b),
        "sum": (lambda a, b, *_: a + b, lambda a, b, *_: a + b),
        "multiple": (lambda a, *_: a * -2.0, lambda a, *_: -2.0 * a),
        "absolute": (lambda a, *_: abs(a), lambda a, *_: abs(a)),
        "mean": (lambda *all_: mean(all_), lambda *all_: sum(all_) / len(all_)),
        "k-th": (lambda *all_: kth_largest(all_, k), lambda *all_: sorted(all_, reverse=True)[k - 1]),
        "largest": (lambda *all_: largest(all_), lambda *all_: max(all_)),
        "smallest": (lambda *all_: smallest(all_), lambda *all_: min(all_)),
    }
    for name, (of_intervals, of_values) in operations.items():
        result, without_unsure = of_intervals(*numbers), of_intervals(*(sure_part(number) for number in numbers))
        if name != "absolute":
            assert result.low_sure == (without_unsure.low == result.low) or result.low == -math.inf, name
            assert result.high_sure == (without_unsure.high == result.high) or result.high == math.inf, name
        values = [of_values(*(inside(number, rng) for number in numbers)) for _ in range(8)]
        assert all(result.low - 1e-9 <= value <= result.high + 1e-9 for value in values), name
        if all(number.low > -math.inf and number.high < math.inf for number in numbers):
            ends = [of_values(*each) for each in product(*((n.low, n.high) for n in numbers))]
            assert result.high == pytest.approx(max(ends)), name
            through_zero = name == "absolute" and numbers[0].low < 0 < numbers[0].high
            assert result.low == pytest.approx(0.0 if through_zero else min(ends)), name


def test_the_noise_is_the_larger_of_our_seeds_and_the_papers_and_with_one_seed_the_papers():
    cells = [Cell(method, "cifar10", "dir=0.1", (), item="table3") for method in ("pfedsim", "fedavg")]
    values = [("pfedsim", 80.0), ("pfedsim", 90.0), ("fedavg", 45.0)]
    rows = [("table3", method, "cifar10", "dir=0.1", "accuracy", value) for method, value in values]
    numbers = Numbers("pfedsim", 1, cells, studies.given(*rows))
    two, one = (numbers("table3", method, "cifar10", "dir=0.1") for method in ("pfedsim", "fedavg"))
    assert (two.value, two.noise) == (85.0, pytest.approx(math.sqrt(50)))  # printed: 0.84
    assert (one.value, one.noise) == (45.0, 4.25)  # printed
    assert two.sure
    assert one.sure
    assert numbers("table3", "fedbn", "cifar10", "dir=0.1").missing
    assert [key[1] for key in numbers.asked] == ["pfedsim", "fedavg", "fedbn"]
    assert numbers.seeds == "1 to 2"


def test_one_seed_without_a_printed_deviation_neither_shows_nor_refutes_anything():
    key = ("fig1", "local_only", "cifar10", "layer=0", "cka")
    one, two = (Numbers("pfedsim", 1, [], studies.given(*[(*key, 0.9)] * seeds))(*key) for seeds in (1, 2))
    assert (one.sure, two.sure) == (False, True)
    found = [judge([Case("layer 0", number - least)]).verdict for number in (one, two) for least in (0.8, 0.95)]
    assert found == ["consistent so far", "undecided", "holds", "refuted"]
    assert judge([Case("a fact of the rules", one - 0.8)], "identity").verdict == "identity"
    assert not mean([one, two]).sure
    assert not (two - one).sure
    assert not (one - two).sure
    assert not largest([one]).sure


def test_what_nothing_is_drawn_for_needs_one_seed():
    key = ("table8a", "partition", "domainnet", "domain=Real", "num_samples")
    counted = Cell(*key[1:4], (Probe("table8a", print, exact=True),), metric="num_samples", item="table8a")
    drawn = counted._replace(tasks=(Probe("table8a", print),))
    exact, one_seed = (Numbers("pfedsim", 1, [cell], studies.given((*key, 9.0))) for cell in (counted, drawn))
    assert exact(*key).sure
    assert not one_seed(*key).sure
    assert (exact.seeds, one_seed.seeds) == ("", "1")


def test_the_noise_of_a_mean_over_clients_is_smaller_than_their_spread_by_the_square_root():
    key = ("table2", "fedcs-fc1", "cifar10", "label-shift", "weighted_f1")
    frame = studies.given((*key, 69.0))
    over_clients, over_seeds = (Numbers("fedcs", clients, [], frame)(*key).noise for clients in (50, 1))
    assert over_clients == pytest.approx(4.69 / math.sqrt(50))
    assert over_seeds == 4.69  # printed
