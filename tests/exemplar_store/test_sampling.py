"""The sampler's law, checked exactly where it can be and statistically where it cannot.

The same checks must reject wrong samplers.
"""

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import comb
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import exemplar_store
from exemplar_store import sampling
from tests.laws import ALPHA, p_value

RUNS = 20_000
UNITS = 12
ENSEMBLE = 4

Sampler = Callable[[float], np.ndarray]
"""From a probability to each unit's slot, -1 for the units not drawn: int array (UNITS,)."""


# The checks: what Poisson sampling with independent slots makes of (runs, UNITS) outcomes.


def each_unit_is_drawn_with_the_probability(outcomes: np.ndarray, q: float) -> float:
    return p_value(np.sum(outcomes >= 0, axis=0), len(outcomes), q)


def the_sample_size_is_binomial(outcomes: np.ndarray, q: float) -> float:
    sizes = np.bincount(np.sum(outcomes >= 0, axis=1), minlength=UNITS + 1)
    return p_value(sizes, len(outcomes), stats.binom.pmf(np.arange(UNITS + 1), UNITS, q))


def two_units_are_drawn_independently(outcomes: np.ndarray, q: float) -> float:
    drawn = (outcomes >= 0).astype(int)
    return p_value((drawn.T @ drawn)[np.triu_indices(UNITS, 1)], len(outcomes), q * q)


def each_slot_is_as_likely(outcomes: np.ndarray, q: float) -> float:
    counts = np.array([np.sum(outcomes == slot, axis=0) for slot in range(ENSEMBLE)])
    return p_value(counts, len(outcomes), q / ENSEMBLE)


def two_units_go_to_independent_slots(outcomes: np.ndarray, q: float) -> float:
    in_slot = [(outcomes == slot).astype(int) for slot in range(ENSEMBLE)]
    two = np.triu_indices(outcomes.shape[1], 1)
    pairs = np.array([[(a.T @ b)[two] for a in in_slot] for b in in_slot])
    return p_value(pairs, len(outcomes), (q / ENSEMBLE) ** 2)


def the_number_in_a_slot_is_binomial(outcomes: np.ndarray, q: float) -> float:
    """The whole law is checked, including its variance: slots of equal sizes have only the right mean."""
    units = outcomes.shape[1]
    sizes = np.array([np.sum(outcomes == slot, axis=1) for slot in range(ENSEMBLE)])
    counts = np.array([np.bincount(of_slot, minlength=units + 1) for of_slot in sizes])
    return p_value(counts, len(outcomes), stats.binom.pmf(np.arange(units + 1), units, q / ENSEMBLE))


def two_units_share_a_slot_one_time_in_as_many_as_there_are(outcomes: np.ndarray, q: float) -> float:
    first, second = np.triu_indices(outcomes.shape[1], 1)
    together = (outcomes[:, first] == outcomes[:, second]) & (outcomes[:, first] >= 0)
    return p_value(np.sum(together, axis=0), len(outcomes), q * q / ENSEMBLE)


CHECKS = (
    each_unit_is_drawn_with_the_probability,
    the_sample_size_is_binomial,
    two_units_are_drawn_independently,
    each_slot_is_as_likely,
    two_units_go_to_independent_slots,
    the_number_in_a_slot_is_binomial,
    two_units_share_a_slot_one_time_in_as_many_as_there_are,
)


def the_sampler(q: float) -> np.ndarray:
    outcome = np.full(UNITS, -1)
    drawn = sampling.poisson_sample(UNITS, q)
    outcome[drawn] = sampling.below(ENSEMBLE, drawn.size)
    return outcome


def fixed_size(q: float) -> np.ndarray:
    """Wrong: always the same number of units."""
    outcome = np.full(UNITS, -1)
    drawn = np.argsort(sampling.words(UNITS))[: round(UNITS * q)]
    outcome[drawn] = sampling.below(ENSEMBLE, drawn.size)
    return outcome


def pieces_of_a_shuffle(ensemble: int, units: int) -> np.ndarray:
    """Wrong: the units shuffled and cut into equal pieces."""
    slots = np.empty(units, np.int64)
    for slot, piece in enumerate(np.array_split(np.argsort(sampling.words(units)), ensemble)):
        slots[piece] = slot
    return slots


def cut_after_shuffle(q: float) -> np.ndarray:
    """Wrong: the right units, but shuffled and cut into equal slots."""
    outcome = np.full(UNITS, -1)
    drawn = sampling.poisson_sample(UNITS, q)
    outcome[drawn] = pieces_of_a_shuffle(ENSEMBLE, drawn.size)
    return outcome


def drawn_too_often(q: float) -> np.ndarray:
    """Wrong: a probability that is off by five per cent."""
    return the_sampler(1.05 * q)


def failed_checks(sampler: Sampler, q: float) -> set[str]:
    outcomes = np.array([sampler(q) for _ in range(RUNS)])
    return {check.__name__ for check in CHECKS if check(outcomes, q) < ALPHA}


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.05, 0.2, 1 / 3, 0.7])  # stretches of 16 (more than there are units), 4, 2 and 1
def test_units_are_drawn_independently_and_go_to_independent_slots(q):
    assert failed_checks(the_sampler, q) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "q", "fails"),
    [
        (fixed_size, 1 / 3, {"the_sample_size_is_binomial", "two_units_are_drawn_independently"}),
        (cut_after_shuffle, 1 / 3, {"two_units_go_to_independent_slots"}),
        (drawn_too_often, 0.7, {"each_unit_is_drawn_with_the_probability"}),
    ],
)
def test_the_checks_reject_a_wrong_sampler(wrong: Sampler, q: float, fails: set[str]):
    assert failed_checks(wrong, q) >= fails


@pytest.mark.slow
@pytest.mark.parametrize("q", [1e-4, 1e-2])
def test_large_populations_are_sampled_evenly(q):
    positions, runs = 10 * 2**20, 30
    draws = [sampling.poisson_sample(positions, q) for _ in range(runs)]
    for drawn in draws:
        assert np.all(np.diff(drawn) > 0)
        assert drawn[0] >= 0
        assert drawn[-1] < positions
    total = np.concatenate(draws)
    tenths = np.bincount(total // (positions // 10), minlength=10)
    assert p_value(tenths, runs * positions // 10, q) > ALPHA
    bits = np.array([np.sum(total >> bit & 1) for bit in range(8)])  # even within a stretch
    assert p_value(bits, total.size, 0.5) > ALPHA


@pytest.mark.parametrize("q", [0.9, 0.5, 0.3, 0.01, 1 / 257, 2.0**-9])
def test_the_number_drawn_in_a_stretch_is_binomial_to_120_bits(q):
    bits, high, low = sampling._stretch_law(q)
    size, exact = 1 << bits, Fraction(q)
    assert size * exact <= 1 < 2 * size * exact
    law = [comb(size, k) * exact**k * (1 - exact) ** (size - k) for k in range(len(high) + 1)]
    thresholds = [int(h) << 64 | int(w) for h, w in zip(high, low, strict=True)]
    got = [Fraction(b - a, 2**128) for a, b in zip([0, *thresholds], [*thresholds, 2**128], strict=True)]
    beyond = 1 - sum(law)
    assert sum(abs(g - p) for g, p in zip(got, law, strict=True)) + beyond < Fraction(1, 2**120)


@pytest.mark.parametrize("q", [1e-300, 5e-324, 1e-30])
def test_a_probability_too_small_for_doubles_to_add_is_still_handled(q):
    assert sampling.poisson_sample(10**9, q).size == 0


def test_probability_zero_draws_no_unit_and_one_draws_every_unit():
    assert sampling.poisson_sample(1000, 0).tolist() == []
    assert sampling.poisson_sample(100_000, 1).tolist() == list(range(100_000))
    assert sampling.poisson_sample(0, 1).tolist() == []


@pytest.mark.parametrize("q", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_probability_out_of_range_is_refused(q):
    with pytest.raises(ValueError, match="probability"):
        sampling.poisson_sample(10, q)


def test_the_cost_does_not_grow_with_the_population(monkeypatch):
    """The cost is counted in random words drawn, to which all the work is proportional."""
    used = []
    original = sampling.words

    def counted(count: int) -> np.ndarray:
        used.append(count)
        return original(count)

    monkeypatch.setattr(sampling, "words", counted)
    totals = []
    for positions in (10**4, 10**12):
        used.clear()
        sampling.poisson_sample(positions, 400 / positions)
        totals.append(sum(used))
    # At most 800 stretches of two words, and a word for each position drawn (mean 400; 1,000 is 30 deviations off) with
    # redraws.
    assert max(totals) < 2 * 800 + 2 * 1000


def test_words_that_would_favour_small_numbers_are_drawn_again(monkeypatch):
    # 2**64 = 3·n + 1: the last word alone would make 0 more likely than 1 and 2.
    supply: Iterator[list[int]] = iter([[2**64 - 1, 4], [2**64 - 1], [5]])
    monkeypatch.setattr(sampling, "words", lambda count: np.array(next(supply), np.uint64))
    assert sampling.below(3, 2).tolist() == [2, 1]


def test_a_full_slot_keeps_a_uniform_choice_in_uniform_order():
    slots = np.array([0, 1, 0, 0, 1, 0, 0])  # five rows in slot 0, two in slot 1, none in slot 2
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(RUNS):
        first, second, third = sampling.deal(slots, sampling.words(slots.size), 3, 2)
        assert set(second) == {1, 4}
        assert third.size == 0
        outcome = (*first.tolist(), int(second[0]))
        counts[outcome] = counts.get(outcome, 0) + 1
    # 5·4 ordered pairs in slot 0, and independently 2 orders in slot 1.
    assert len(counts) == 40
    assert p_value(np.array(list(counts.values())), RUNS, 1 / 40) > ALPHA


def test_a_slot_below_the_maximum_keeps_everything():
    kept = sampling.deal(np.array([2, 2, 0]), sampling.words(3), 4, 5)
    assert [sorted(rows.tolist()) for rows in kept] == [[2], [], [0, 1], []]
    assert [rows.size for rows in sampling.deal(np.empty(0, np.int64), sampling.words(0), 2, 5)] == [0, 0]


def test_no_predictable_generator_is_used():
    files = sorted(Path(exemplar_store.__file__).parent.glob("**/*.py"))
    assert len(files) > 5
    for file in files:
        assert not re.search(r"import .*\brandom\b|from random\b|(numpy|np)\.random\b", file.read_text()), file.name
