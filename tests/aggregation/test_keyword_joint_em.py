import itertools
import math
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import strategies as st

import aggregation.keyword_joint_em as joint_em
from aggregation.exponential_weights import shares
from aggregation.keyword_joint_em import JointExponentialMechanism, required_votes
from tests.aggregation.contract import MechanismContract, PlanningContract
from tests.laws import ALPHA, p_value, probability_of_top_k

TRIALS = 2_000
DOMAIN = tuple("abcde")
NAMED = [{"a"}] * 3 + [{"b", "c", "d"}] * 2
"""One slot that names the first and the last word, or all others, decides which word leads."""

SMALL = [
    ((3, 1, 0), 1),
    ((3, 1, 0), 2),
    ((0, 4, 4, 1), 3),
    ((2, 2, 2, 2), 2),  # all tie
    ((0, 0, 0), 3),  # nothing but abstentions, and every word is released
    ((5,), 1),
    ((1, 5, 3, 3, 2), 2),
    ((1, 2, 1, 2, 1), 3),
    ((9, 0, 0, 1, 0, 9), 2),
    ((4, 4, 3, 1, 0), 5),
    ((100, 0, 3), 2),
]


def loss(counts: Sequence[int], sequence: Sequence[int]) -> int:
    return max(top - counts[word] for top, word in zip(sorted(counts, reverse=True), sequence, strict=False))


def losses(counts: Sequence[int], k: int) -> dict[tuple[int, ...], int]:
    return {s: loss(counts, s) for s in itertools.permutations(range(len(counts)), k)}


def law(counts: Sequence[int], k: int, rate: float) -> dict[tuple[int, ...], Fraction]:
    """The definition, sequence by sequence, to about 90 digits."""
    by_sequence = losses(counts, k)
    context = Context(prec=90)
    weight = {x: context.exp(context.multiply(Decimal(-rate), x)) for x in set(by_sequence.values())}
    total = sum(Fraction(weight[x]) * n for x, n in Counter(by_sequence.values()).items())
    share = {x: Fraction(w) / total for x, w in weight.items()}
    return {sequence: share[x] for sequence, x in by_sequence.items()}


def probabilities(counts: Sequence[int], k: int, rate: float) -> np.ndarray:
    """The same law in floating point, in the order of ``itertools.permutations``."""
    weight = np.exp(-rate * np.array(list(losses(counts, k).values())))
    return weight / weight.sum()


def all_counts() -> Iterator[tuple[tuple[int, ...], int]]:
    for d in range(1, 5):
        for counts in itertools.product(range(4), repeat=d):
            for k in range(1, d + 1):
                yield counts, k


def test_the_number_of_sequences_of_each_loss_is_exact() -> None:
    """Every array of up to four counts from 0 to 3, every k; and larger random ones."""
    generator = np.random.default_rng(3)
    larger = [(tuple(generator.integers(0, 12, size=7).tolist()), k) for k in range(1, 6) for _ in range(3)]
    for counts, k in itertools.chain(all_counts(), larger):
        tally = Counter(losses(counts, k).values())
        _, reach = JointExponentialMechanism(1.0, k)._rank(np.array(counts))
        expected = list(itertools.accumulate(tally[x] for x in range(max(counts) - min(counts) + 1)))
        assert joint_em._sequences(reach) == expected, (counts, k)


@pytest.mark.parametrize(("counts", "k"), SMALL)
def test_the_probability_of_a_top_k_is_that_of_the_definition(counts, k) -> None:
    mechanism = JointExponentialMechanism(1.7, k)
    by_law = sum(p for sequence, p in law(counts, k, mechanism.rate).items() if loss(counts, sequence) == 0)
    assert probability_of_top_k(mechanism, counts) == pytest.approx(float(by_law), rel=1e-13)


@pytest.mark.parametrize(("counts", "k"), [case for case in SMALL if len(case[0]) <= 5])
@pytest.mark.parametrize("epsilon", [1e-9, 1.7, 40.0])
def test_the_law_of_the_sampler_is_exact(counts, k, epsilon, monkeypatch: pytest.MonkeyPatch) -> None:
    """All randomness is enumerated: each bound on the loss with its share of integers, each way to shuffle below it."""
    mechanism = JointExponentialMechanism(epsilon, k)
    order, reach = mechanism._rank(np.array(counts))
    share = shares(mechanism._weights(reach))
    sampled: dict[tuple[int, ...], Fraction] = {}
    for part, row in zip(share, reach, strict=True):
        ways = list(itertools.product(*(range(end - place) for place, end in enumerate(row.tolist()))))
        drawn: Counter[tuple[int, ...]] = Counter()
        for way in ways:
            steps = iter(way)
            monkeypatch.setattr(secrets, "randbelow", lambda _, steps=steps: next(steps))
            drawn[joint_em._uniform_sequence(order, row)] += 1
        for sequence, times in drawn.items():
            sampled[sequence] = sampled.get(sequence, Fraction(0)) + Fraction(part * times, len(ways) * sum(share))
    expected = law(counts, k, mechanism.rate)
    assert sampled.keys() == expected.keys()
    for sequence, probability in expected.items():
        assert abs(sampled[sequence] / probability - 1) < Fraction(1, 2**120)


def against(counts: tuple[int, ...], k: int, epsilon: float, claimed: float) -> float:
    """The p-value of drawn sequences against the law at another ε."""
    mechanism = JointExponentialMechanism(epsilon, k)
    drawn = Counter(mechanism.select(np.array(counts)) for _ in range(TRIALS))
    observed = np.array([drawn[s] for s in itertools.permutations(range(len(counts)), k)])
    assert observed.sum() == TRIALS
    return p_value(observed, TRIALS, probabilities(counts, k, claimed / 4))


@pytest.mark.parametrize(("counts", "k"), SMALL)
def test_drawn_sequences_have_the_law_of_the_definition(counts, k) -> None:
    assert against(counts, k, epsilon=2.0, claimed=2.0) > ALPHA


def test_another_epsilon_is_noticed_by_that_test() -> None:
    """The test misses it with probability 2e-15."""
    assert against((1, 5, 3, 3, 2), 2, epsilon=1.0, claimed=3.0) < ALPHA


def span(one: Sequence[int], other: Sequence[int], k: int, rate: float) -> float:
    """How far apart the log-likelihood ratios of all sequences are."""
    ratios = np.log(probabilities(one, k, rate)) - np.log(probabilities(other, k, rate))
    return float(ratios.max() - ratios.min())


@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_bound_on_the_range_is_reached(k: int) -> None:
    """So half the divisor, which a sensitivity of 1 would allow, would cost twice the ε."""
    epsilon = 1.3
    # One slot stops naming the leader and the last word, and starts naming all others.
    before, after = [4, 2, 2, 2, 1], [3, 3, 3, 3, 0]
    assert span(before, after, k, JointExponentialMechanism(epsilon, k).rate) == pytest.approx(epsilon)
    assert span(before, after, k, epsilon / 2) == pytest.approx(2 * epsilon)


def test_release_gives_the_words_of_the_domain_in_order_of_their_votes() -> None:
    contributions = [{"tax", "due"}] * 60 + [{"due"}] * 60 + [{"none"}] * 200 + [None] * 10
    assert JointExponentialMechanism(50.0, 2).release(contributions, ["sum", "tax", "due", "net"]) == ("due", "tax")


class Hostile:
    """An object whose every use raises an error, even reading its ``__class__``."""

    @property
    def __class__(self):
        raise RuntimeError

    def __iter__(self):
        raise RuntimeError

    def __hash__(self):
        raise RuntimeError


def broken_off():
    yield "a"
    raise RuntimeError


def test_a_word_counts_once_a_slot_and_only_in_the_domain() -> None:
    counts = JointExponentialMechanism(1.0, 1)._count([["a", "a", "elsewhere"], {"a": 1, "c": 2}, ("c", 3)], "abc")
    assert counts.tolist() == [2, 0, 2]


def test_wrong_public_parameters_are_refused_before_any_contribution_is_looked_at() -> None:
    def untouched():
        pytest.fail("a contribution was looked at")
        yield

    with pytest.raises(ValueError, match="repeat"):
        JointExponentialMechanism(1.0, 1).release(untouched(), ["a", "b", "a"])
    with pytest.raises(ValueError, match=r"3 .* 2"):
        JointExponentialMechanism(1.0, 3).release(untouched(), ["a", "b"])
    with pytest.raises(ValueError, match=r"1 .* 0"):
        JointExponentialMechanism(1.0, 1).release(untouched(), [])


class TestJointExponentialMechanism(MechanismContract, PlanningContract):
    mechanism = JointExponentialMechanism(1.0, 3)
    noisier = JointExponentialMechanism(0.3, 3)
    wrong = [
        *({"epsilon": epsilon} for epsilon in (0.0, -1.0, 1e-10, 101.0, math.inf, math.nan)),
        *({"k": k} for k in (0, -1, len(DOMAIN) + 1)),
    ]
    contributions = st.none() | st.sets(st.sampled_from(DOMAIN))
    usable = [["a", "b"]]
    unusable = [None, 7, "a", b"a", object(), Hostile(), broken_off(), [], [7, None, ["a"]], ["a", Hostile()], math.nan]
    squared = {"removed": 1, "replaced": joint_em.LOSS_SENSITIVITY**2}
    worst = [([*NAMED, {"a", "e"}], [*NAMED, {"b", "c", "d"}])]
    euclidean = False
    step = 1

    def statistic(self, contributions):
        """The losses of all sequences."""
        counts = self.mechanism._count(contributions, DOMAIN).tolist()
        return np.array([*losses(counts, self.mechanism.k).values()])

    def release(self, mechanism, contributions):
        return mechanism.release(contributions, DOMAIN)

    def is_public(self, released):
        return len({*released} & {*DOMAIN}) == len(released) == 3

    def required(self, mechanism, *probability):
        return math.ceil(required_votes(mechanism.epsilon, mechanism.k, 40, *probability))

    def probability(self, mechanism, agreement):
        return probability_of_top_k(mechanism, [agreement] * mechanism.k + [0] * (40 - mechanism.k))


def test_required_votes_at_the_edges() -> None:
    assert required_votes(1.0, 4, 4) == 0
    assert required_votes(1.0, 1, 2, 0.01) == 0
    with pytest.raises(ValueError, match=r"3 .* 2"):
        required_votes(1.0, 3, 2)


def test_large_domains() -> None:
    """A hundred thousand words, twenty of them named by all slots."""
    counts = np.zeros(100_000, dtype=np.int64)
    counts[::5_000] = 100
    drawn = JointExponentialMechanism(20.0, 20).select(counts)
    assert sorted(drawn) == list(range(0, 100_000, 5_000))
