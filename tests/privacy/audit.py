"""A statistical attack on neighbouring inputs: are the answers further apart than an (ε, δ) claim allows?

To distinguish two neighbours, an adversary picks a set of outcomes, and guesses "the second one" when the answer falls
in it. (ε, δ)-DP bounds how well that can work: P₁ ≤ e^ε·P₀ + δ. Clopper-Pearson intervals for both probabilities turn
observed frequencies into a lower bound on ε that is wrong with probability at most ``error``.

All randomness comes from the operating system, so no seed can be fixed. Instead, every audit has enough trials: by the
exact probabilities of the outcomes, a fault that must be caught escapes less than once in 10⁸ runs (most escape less
than once in 10¹⁰). An audit that notices nothing would let anything pass, so a right claim is always tested together
with a wrong one that the same answers must refute.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from accounting.plans.plan import calibrate_plan, load_plan
from accounting.privacy.blocks import sampled
from accounting.privacy.calibration import GAUSSIAN, Grant, calibrate
from accounting.privacy.events import Event, Sampling
from accounting.privacy.pld import PldAccountant
from accounting.privacy.profiles import SymmetricProfile
from research.leaks import bounds

ERROR = 1e-8
"""Probability that one interval is wrong. Four outcomes have 28 intervals, so a right claim is caught less than once in
10⁶ audits; in fact far less often, because that takes two wrong intervals."""

LOSSES = (0.0, 1.0, 2.0)
"""Values of ε, in nats, to test claims at. At 0 the claim is a total variation distance, which few trials pin down."""

_PUBLIC_SIZE = 1000
_ONCE = """
knowledge_base: attacked
budget: {epsilon: 1, delta: 1.0e-5}
tasks:
  task:
    kind: classify
    labels: [a, b, c, d]
    prompt: {exemplar: "{text} {label}", query: "{text}"}
    release: once
    mechanism: MECHANISM
"""

Claim = Callable[[float], float]
"""A privacy profile, which maps ε to δ."""
Counts = tuple[Counter[Hashable], Counter[Hashable]]
"""How often each outcome occurred for an input and for its neighbour, in equally many trials."""


@dataclass(frozen=True)
class Verdict:
    """The finding of an audit at one δ."""

    delta: float
    claimed: float
    lower_bound: float

    @property
    def caught(self) -> bool:
        """Whether the claim is certainly false."""
        return self.lower_bound > self.claimed


def claim(mechanism: SymmetricProfile, probability: float = 1.0, kind: Literal["units", "blocks"] = "units") -> Claim:
    """Cost of one answer from a sample of this probability, as the accountant charges it, on a grid if necessary."""
    sampling = Sampling(kind, probability)
    directions, *others = sampled(mechanism, sampling)
    if others:
        return lambda loss: PldAccountant().delta([Event(mechanism, sampling)], loss)
    return lambda loss: max(float(direction.delta(loss)) for direction in directions)


def signed_once(mechanism: str) -> tuple[float, float, Claim]:
    """The noise multiplier of a one-time release, the multiplier it would have if accounted as drawn, and the promise.

    Args:
        mechanism: mechanism for the labels a to d, as in a plan.
    """
    plan = load_plan(_ONCE.replace("MECHANISM", mechanism))
    signed: Any = calibrate_plan(plan, _PUBLIC_SIZE).noise["task"].mechanism
    drawn = Grant(GAUSSIAN, Sampling("units", 1 / _PUBLIC_SIZE), 1)
    (event,) = calibrate([drawn], plan.budget.epsilon, plan.budget.delta)
    wrong: Any = event.mechanism
    return signed.noise_multiplier, wrong.noise_multiplier, lambda _loss: plan.budget.delta


def observe(one: Callable[[], Hashable], other: Callable[[], Hashable], trials: int) -> Counts:
    """Draw answers from an input and from its neighbour."""
    return Counter(one() for _ in range(trials)), Counter(other() for _ in range(trials))


def judge(counts: Counts, claimed: Claim, losses: Sequence[float] = LOSSES) -> list[Verdict]:
    """Test a claim against answers: the attacker tries every set of outcomes, in both directions."""
    trials = counts[0].total()
    outcomes = list(counts[0] | counts[1])
    hits = [
        (sum(zero[o] for o in chosen), sum(first[o] for o in chosen))
        for zero, first in (counts, counts[::-1])
        for size in range(1, len(outcomes) + 1)
        for chosen in itertools.combinations(outcomes, size)
    ]
    return [
        Verdict(delta, loss, max(epsilon_lower_bound(zero, first, trials, delta) for zero, first in hits))
        for loss in losses
        for delta in [claimed(loss)]
    ]


def caught(counts: Counts, claimed: Claim, losses: Sequence[float] = LOSSES) -> bool:
    """Whether answers refute a claim."""
    return any(verdict.caught for verdict in judge(counts, claimed, losses))


def epsilon_lower_bound(hits0: int, hits1: int, trials: int, delta: float) -> float:
    """The largest ε that P₁ ≤ e^ε·P₀ + δ certainly needs; 0 if it holds without any."""
    return bounds.epsilon_lower_bound(hits0, hits1, trials, delta, ERROR)
