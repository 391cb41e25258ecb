"""Blocks of votes and of embeddings: no neighbours cost more than is charged, some cost as much, and errors show."""

import itertools
import math
from functools import cache

import mpmath
import numpy as np
import pytest
from scipy import optimize, special

from accounting.privacy import blocks, pld, rdp
from accounting.privacy.calibration import BALL, VOTES, Grant, calibrate
from accounting.privacy.events import Event, Sampling
from accounting.privacy.grid import Pld, discretise
from accounting.privacy.lattice import LATTICE
from accounting.privacy.pld import PldAccountant
from accounting.privacy.profiles import BoundedRange, Gaussian
from accounting.privacy.rdp import RdpAccountant
from accounting.privacy.subsampling import amplify

LOSSES = (0.0, 0.3, 1.0, 2.5)
SETTINGS = [(0.01, 0.5), (0.1, 1.0), (0.4, 0.35), (0.8, 2.0)]
"""Sampling probabilities, and noise multipliers."""
PAIRS = 60
ROUNDING = 1e-6


def divergence(b, other, q, sigma, loss):
    """The divergence of ``(1-q) N(0, σ²I) + q N(b, σ²I)`` from the same with ``other``, for vectors of any length.

    Given the coordinate along b, what is left is a truncated expectation of a log-normal variable; over that
    coordinate the trapezoid sum of a smooth function.
    """
    r, s = (float(np.linalg.norm(v)) / sigma for v in (b, other))
    cosine = float(b @ other) / (r * s * sigma**2) if r * s else 0.0
    rest = math.sqrt(max(0.0, 1 - cosine**2))
    t = np.linspace(-12, 12 + r, 6001)
    weights = np.exp(-t * t / 2) / math.sqrt(2 * math.pi) * (t[1] - t[0])
    ratio = 1 - q + q * np.exp(r * t - r * r / 2)
    room = (ratio * math.exp(-loss) - 1 + q) / q  # the largest likelihood of `other` that counts
    if s == 0:
        return float(weights @ np.maximum(ratio - math.exp(loss), 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        end = (np.log(np.maximum(room, 0)) + s * s / 2) / s - cosine * t
        # Without a rest, the coordinate along the other vector is the one along b or its opposite.
        below, tilted = (
            special.ndtr((end - shift) / rest) if rest > 1e-6 else np.where(end > 0, 1.0, 0.0)
            for shift in (0.0, s * rest**2)
        )
    likelihood = np.exp(s * cosine * t + (s * rest) ** 2 / 2 - s * s / 2)
    inside = (ratio - math.exp(loss) * (1 - q)) * below - math.exp(loss) * q * likelihood * tilted
    return float(weights @ np.where(room > 0, inside, 0.0))


def votes(rng, norm=1.0):
    """A vector without negative coordinates: of the largest norm or shorter, with zeros or without."""
    vector = np.abs(rng.normal(size=4)) * rng.integers(0, 2, size=4)
    length = np.linalg.norm(vector)
    return vector * (norm * min(1.0, rng.uniform(0, 1.5)) / length) if length else vector


def ball(rng):
    vector = rng.normal(size=rng.integers(1, 5))
    vector = np.pad(vector, (0, 4 - vector.size))
    return vector * (min(1.0, rng.uniform(0, 1.5)) / np.linalg.norm(vector))


FIRST, SECOND = np.eye(4)[:2]
KINDS = {
    # A slot's contribution, its worst pair, and the noise over the norm of a contribution, per unit of the multiplier.
    "votes": (votes, (FIRST, SECOND), math.sqrt(2)),
    "ball": (ball, (FIRST, -FIRST), 2.0),
}


def charged(mechanism, q, loss):
    return PldAccountant().delta([Event(mechanism, Sampling("blocks", q))], loss)


def most_above(claimed, contribution, scale):
    """By how much, relatively, the divergence of some neighbours exceeds what is charged; not positive if none does."""
    rng, worst = np.random.default_rng(20240817), -1.0
    for q, z in SETTINGS:
        neighbours = [(contribution(rng), contribution(rng)) for _ in range(PAIRS)]
        for loss in LOSSES:
            charge = claimed(z, q, loss)
            found = max(divergence(*pair, q, scale * z, loss) for pair in neighbours)
            worst = max(worst, (found - charge) / max(charge, 1e-6))
    return worst


@cache
def right(kind):
    return lambda z, q, loss: charged(Gaussian(z, kind), q, loss)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
class TestTheWorstPair:
    def test_no_neighbours_cost_more(self, kind):
        contribution, _, scale = KINDS[kind]
        assert most_above(right(kind), contribution, scale) <= ROUNDING

    def test_some_cost_as_much(self, kind):
        _, worst, scale = KINDS[kind]
        for (q, z), loss in itertools.product(SETTINGS, LOSSES):
            charge = right(kind)(z, q, loss)
            assert divergence(*worst, q, scale * z, loss) == pytest.approx(charge, rel=0.005, abs=1e-9)

    def test_an_abstention_is_allowed(self, kind):
        _, (one, _), scale = KINDS[kind]
        for pair in ((one, 0 * one), (0 * one, one)):
            assert divergence(*pair, 0.3, scale * 0.5, 0.5) < 0.95 * charged(Gaussian(0.5, kind), 0.3, 0.5)

    def test_it_never_costs_more_than_what_holds_of_anything(self, kind):
        for q, z in SETTINGS:
            for count in (1, 300):
                general, exact = (
                    [Event(Gaussian(z, contributions), Sampling("blocks", q), count)] for contributions in ("any", kind)
                )
                for accountant in (PldAccountant(), RdpAccountant()):
                    assert accountant.upper(exact, 1e-5) < accountant.upper(general, 1e-5)

    def test_a_block_that_is_always_drawn_is_a_gaussian(self, kind):
        for sampling in (Sampling("blocks", 1.0), Sampling("units", 1.0), Sampling("units", 0.2)):
            assert len(blocks.sampled(Gaussian(0.7, kind), sampling)) == 1
            known, anything = (
                PldAccountant().upper([Event(Gaussian(0.7, contributions), sampling, 3)], 1e-5)
                for contributions in (kind, "any")
            )
            assert known == anything


@pytest.mark.slow
class TestErrorsShow:
    """The search that finds no fault with the right mechanism finds each of these errors."""

    def test_votes_that_may_be_negative(self):
        signed = lambda rng: votes(rng) * rng.choice([-1, 1], size=4)  # noqa: E731
        assert most_above(right("votes"), signed, math.sqrt(2)) > 0.2

    def test_votes_of_norm_two(self):
        assert most_above(right("votes"), lambda rng: votes(rng, 2.0), math.sqrt(2)) > 0.5

    def test_a_right_angle_taken_for_the_worst_of_a_ball(self):
        at_right_angle = lambda z, q, loss: charged(Gaussian(math.sqrt(2) * z, "votes"), q, loss)  # noqa: E731
        assert most_above(at_right_angle, ball, 2.0) > 0.2

    @pytest.mark.parametrize("kept", [0, 1], ids=["removal", "addition"])
    def test_one_direction_only(self, kept, monkeypatch):
        monkeypatch.setattr(pld, "sampled", lambda *arguments: blocks.sampled(*arguments)[kept : kept + 1])
        assert most_above(right("votes"), votes, math.sqrt(2)) > 0.2


def composed(pair, q, sigma, count, delta):
    """ε of ``count`` answers for explicit neighbours, by histograms of the plane and a plain Fourier transform."""
    across = np.linspace(-8, 8, 1201) * sigma
    plane = np.stack(np.meshgrid(across, across, indexing="ij"))
    distances = [((plane - np.reshape(b, (2, 1, 1))) ** 2).sum(axis=0) for b in ([0, 0], *(b[:2] for b in pair))]
    absent, *drawn = (np.exp(-d / (2 * sigma**2)) for d in distances)
    p, other = ((1 - q) * absent + q * each for each in drawn)
    losses, masses = np.log(p / other), p / p.sum()
    step, size = 5e-4, 1 << 17
    below = np.floor(losses / step).astype(int)
    share = losses / step - below
    once = sum(
        np.bincount(((below + up) % size).ravel(), (masses * part).ravel(), size)
        for up, part in ((0, 1 - share), (1, share))
    )
    many = np.fft.irfft(np.fft.rfft(once) ** count, size)[: size // 2]
    at = step * np.arange(size // 2)
    return optimize.brentq(lambda x: many[at > x] @ -np.expm1(x - at[at > x]) - delta, 0.0, 20.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("q", "z", "count"), [(0.05, 1.0, 300), (0.3, 2.0, 40), (0.01, 0.6, 500)])
def test_many_answers_cost_what_the_worst_neighbours_give_away(kind, q, z, count):
    _, pair, scale = KINDS[kind]
    exact = composed(pair, q, scale * z, count, 1e-4)
    found = PldAccountant().bounds([Event(Gaussian(z, kind), Sampling("blocks", q), count)], 1e-4)
    assert 0.99 * exact <= found.lower <= exact * 1.0005
    assert exact * 0.9998 <= found.upper <= exact * 1.003


@pytest.mark.parametrize(
    ("z", "units", "votes", "ball", "anything"),
    [(1, 2.826, 2.323, 2.016, 3.708), (3, 0.599, 0.586, 0.577, 0.678), (10, 0.1492, 0.1488, 0.1486, 0.1556)],
)
def test_the_table_of_the_documentation(z, units, votes, ball, anything):
    def epsilon(contributions, kind):
        event = Event(Gaussian(z, contributions), Sampling(kind, 40 / 6920), 10_000)
        return float(f"{PldAccountant().upper([event], 1e-4):.{4 if z == 10 else 3}f}")

    assert epsilon("any", "units") == epsilon("votes", "units") == units
    assert [epsilon(kind, "blocks") for kind in ("votes", "ball", "any")] == [votes, ball, anything]


@pytest.mark.parametrize(
    ("exemplars", "answers", "epsilon", "units", "votes", "ball"),
    [
        (900, 10, 8.0, 0.80, 0.60, 0.46),
        (900, 50, 3.0, 2.44, 2.22, 2.18),
        (20_000, 1_000, 1.0, 1.42, 1.28, 1.18),
        (20_000, 100_000, 8.0, 2.03, 1.96, 1.90),
    ],
)
def test_the_least_noise_of_the_documentation(exemplars, answers, epsilon, units, votes, ball):
    """The figures are those of docs/choosing.md."""

    def noise(family, kind):
        (event,) = calibrate([Grant(family, Sampling(kind, 200 / exemplars), answers)], epsilon, 1e-5)
        return event.mechanism.noise_multiplier

    found = noise(VOTES, "units"), noise(VOTES, "blocks"), noise(BALL, "blocks")
    assert found == pytest.approx((units, votes, ball), abs=0.01)


class TestMoments:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(("q", "z"), [(0.02, 0.6), (0.5, 2.0)])
    def test_they_are_those_of_the_worst_neighbours(self, kind, q, z):
        _, (one, other), scale = KINDS[kind]
        sigma, order = scale * z, 3.0
        x, y = np.meshgrid(*[np.linspace(-10, 10, 2001) * sigma] * 2, indexing="ij")
        absent = np.exp(-(x**2 + y**2) / (2 * sigma**2)) / (2 * math.pi * sigma**2) * (x[1, 0] - x[0, 0]) ** 2
        first, second = (1 - q + q * np.exp(((b[0] * x + b[1] * y) - b @ b / 2) / sigma**2) for b in (one, other))
        exact = math.log(np.sum(absent * first**order * second ** (1 - order)))
        (found,), lost = rdp._one_answer(
            Event(Gaussian(z, kind), Sampling("blocks", q)), 1e-13, np.array([order]), 1e-3
        )
        assert exact <= found * (order - 1) <= exact * 1.002
        assert lost <= 2e-13


class TestOpposite:
    """The closed form for a ball."""

    @pytest.mark.parametrize("q", [1e-6, 0.03, 0.9])
    @pytest.mark.parametrize("z", [0.02, 0.5, 3.0, 400.0])
    @pytest.mark.parametrize("loss", [0.0, 1e-7, 0.02, 1.0, 9.0, 300.0])
    def test_it_is_right_to_many_digits_however_small_it_is(self, q, z, loss):
        with mpmath.workdps(400):
            w, rate, a = 1 / (2 * mpmath.mpf(LATTICE * z)), mpmath.mpf(q), mpmath.exp(mpmath.mpf(loss))
            k, apart = rate * mpmath.exp(-w * w / 2), (a - 1) * (1 - rate)
            t = mpmath.log((apart + mpmath.sqrt(apart**2 + 4 * a * k * k)) / (2 * k)) / w
            beyond = lambda m: mpmath.erfc((t - m) / mpmath.sqrt(2)) / 2  # noqa: E731
            exact = float(rate * beyond(w) - a * rate * beyond(-w) - apart * beyond(0))
        found = float(blocks.opposite(z, q).delta(loss))
        assert found == pytest.approx(exact, rel=2e-12, abs=1e-300)

    def test_it_is_a_symmetric_pairs(self):
        pair = blocks.opposite(0.5, 0.2)
        x = np.linspace(-6, 6, 241)
        h = pair.delta(x)
        assert np.all(np.diff(np.diff(h) / np.diff(np.exp(x))) >= -1e-11)
        np.testing.assert_allclose(h, 1 - np.exp(x) + np.exp(x) * pair.delta(-x), atol=1e-13)
        found = discretise(pair, 0.01, 1e-12)
        assert isinstance(found, Pld)
        assert found.probs.sum() + found.infinity == pytest.approx(1.0)


def test_what_is_not_noise_on_votes_or_embeddings_is_charged_as_anything():
    for mechanism in (Gaussian(1.0), BoundedRange(1.0)):
        ((pair,),) = blocks.sampled(mechanism, Sampling("blocks", 0.1))
        (general,) = amplify(mechanism, Sampling("blocks", 0.1))
        assert pair.delta(0.3) == general.delta(0.3)


def test_contributions_must_be_known():
    with pytest.raises(ValueError, match="votes"):
        Gaussian(1.0, "simplex")
