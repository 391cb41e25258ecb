"""A statistical attack on neighbouring inputs: are the answers further apart than an (ε, δ) claim allows?

An adversary who must tell two neighbours apart picks a set of outcomes and says "the second one" when the answer falls
in it. (ε, δ)-DP bounds how well that can work: P₁ ≤ e^ε·P₀ + δ. Clopper-Pearson intervals for both probabilities turn
observed frequencies into a lower bound on ε that is wrong with probability at most ``error``.

All randomness is the operating system's, so no seed can be fixed. Every audit is sized instead: from the exact
probabilities of the outcomes, what must be caught escapes less than once in 10⁸ runs (most escape less than once in
10¹⁰). And because an audit that sees nothing would let anything pass, a right claim is always tested together with a
wrong one that the same answers must refute.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scipy import stats

from accounting.plans.plan import calibrate_plan, load_plan
from accounting.privacy.blocks import sampled
from accounting.privacy.calibration import GAUSSIAN, Grant, calibrate
from accounting.privacy.events import Event, Sampling
from accounting.privacy.pld import PldAccountant
from accounting.privacy.profiles import SymmetricProfile

ERROR = 1e-8
"""Chance that one interval is wrong. Four outcomes have 28, so a right claim is caught less than once in 10⁶ audits;
far less often in fact, because it takes two wrong intervals."""

LOSSES = (0.0, 1.0, 2.0)
"""Where claims are tested, ε in nats. At 0 the claim is a total variation distance, which few trials pin down."""

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
"""A privacy profile: from ε to δ."""
Counts = tuple[Counter[Hashable], Counter[Hashable]]
"""How often each outcome came out, for an input and for its neighbour; equally many trials."""


@dataclass(frozen=True)
class Verdict:
    """What the audit found at one δ."""

    delta: float
    claimed: float
    lower_bound: float

    @property
    def caught(self) -> bool:
        """Whether the claim is certainly false."""
        return self.lower_bound > self.claimed


def claim(mechanism: SymmetricProfile, probability: float = 1.0, kind: Literal["units", "blocks"] = "units") -> Claim:
    """What one answer costs, drawn from a sample of that probability: as it is charged, on a grid if it must be."""
    sampling = Sampling(kind, probability)
    directions, *others = sampled(mechanism, sampling)
    if others:
        return lambda loss: PldAccountant().delta([Event(mechanism, sampling)], loss)
    return lambda loss: max(float(direction.delta(loss)) for direction in directions)


def signed_once(mechanism: str) -> tuple[float, float, Claim]:
    """The noise multiplier of a release that is made once, the one if it was accounted as drawn, and what is promised.

    Args:
        mechanism: of the labels a to d, as a plan writes it.
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
    """Hold a claim against answers: try every set of outcomes as the attacker's, both ways round."""
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
    """Largest ε that P₁ ≤ e^ε·P₀ + δ certainly needs, 0 if none."""
    low1 = stats.beta.ppf(ERROR, hits1, trials - hits1 + 1) if hits1 else 0.0
    high0 = stats.beta.ppf(1 - ERROR, hits0 + 1, trials - hits0) if hits0 < trials else 1.0
    return max(0.0, math.log((low1 - delta) / high0)) if low1 > delta else 0.0
