"""The default accountant: privacy loss distributions on a grid, composed (see :mod:`accounting.privacy.composing`).

**Everything rounds up.** Grids dominate (see :mod:`accounting.privacy.grid`), and composing them adds whatever is not
known. So the result is an upper bound on any grid; a finer one is only tighter.
"""

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache, partial

from typing_extensions import override

from accounting.privacy import adaptive
from accounting.privacy.blocks import sampled
from accounting.privacy.bounds import Accountant
from accounting.privacy.composing import Answers, Composition, Window, look
from accounting.privacy.events import Event, merge
from accounting.privacy.grid import StepChoice, discretise, smallest_step
from accounting.privacy.lattice import LATTICE, LATTICE_LOSS
from accounting.privacy.profiles import require_delta

_TAIL = 1e-7  # of delta, over all answers, is counted as certain loss by cutting the grids
_KEPT_BYTES = 1 << 28  # of spectra, for plans that are like one another


class PldAccountant(Accountant):
    """Composes every mechanism's privacy loss distribution; see the module.

    Args:
        refinement: divides the grid's step; 2 is about 4 times as accurate and twice as slow.
    """

    def __init__(self, refinement: float = 1.0) -> None:
        self._refinement = refinement

    @override
    def upper(self, events: Sequence[Event], delta: float) -> float:
        require_delta(delta)
        return _upper(tuple(events), delta, self._refinement)

    def delta(self, events: Sequence[Event], epsilon: float) -> float:
        """An upper bound of the δ at which the composition of ``events`` is (epsilon, δ)-DP.

        Raises:
            ValueError: epsilon is below 0.
        """
        if not epsilon >= 0:
            raise ValueError(f"epsilon must be at least 0, not {epsilon}")
        # Grids are cut where the tail no longer matters to the answer, which is not known before.
        for guess in (1e-6, 1e-30, 1e-290):
            plan = _Plan(events, guess)
            found = plan.delta(max(0.0, epsilon - LATTICE_LOSS), plan.step(epsilon) / self._refinement)
            if found >= 1e-3 * guess:
                break
        return found


@lru_cache(maxsize=64)
def _upper(events: tuple[Event, ...], delta: float, refinement: float) -> float:
    """Kept, as plans are compared at the noise that was just found for them."""
    plan = _Plan(events, LATTICE * delta)
    if not plan.answers:
        return 0.0
    step = plan.step()
    found = plan.epsilon(step / refinement)
    # The step suits the ε that moments promise. Where rare large losses make that far too high, refine it once.
    finer = plan.step(found)
    if finer < step / 2:
        found = min(found, plan.epsilon(finer / refinement))
    return found + LATTICE_LOSS


class SharedPldAccountant(Accountant):
    """Bounds plans that are like one another, on a grid and in windows that suit one of them.

    Any grid and any window give an upper bound. So what answers of one kind contribute is kept, and of a plan that
    differs from others in one task, that task alone is discretised and transformed.

    Args:
        events: a plan of the kind.
        epsilon: about its ε.
        delta: δ at which plans are bounded.
    """

    def __init__(self, events: Sequence[Event], epsilon: float, delta: float) -> None:
        require_delta(delta)
        self._delta = delta
        plan = _Plan(events, LATTICE * delta)
        windows = [way.window_for(LATTICE * delta) for way in plan.compose(plan.step(epsilon))]
        self._windows = windows if len(windows) > 1 else 2 * windows  # others may have two directions
        # Not a method: what is kept goes with the accountant, and does not wait for the garbage collector.
        see = partial(_see, self._windows, plan.tail, plan.iterated)
        self._seen = lru_cache(_KEPT_BYTES // sum(16 * window.size for window in self._windows))(see)

    @override
    def upper(self, events: Sequence[Event], delta: float) -> float:
        if delta != self._delta:
            raise ValueError(f"these plans are bounded at a delta of {self._delta:g}, not {delta:g}")
        merged = merge(events)
        found = [self._upper(merged, way) for way in range(len(self._windows))]
        if all(settled for _, settled in found):
            return max(epsilon for epsilon, _ in found) + LATTICE_LOSS
        return PldAccountant().upper(events, delta)

    def _upper(self, events: Sequence[Event], way: int) -> tuple[float, bool]:
        """A bound in one direction, and whether no other window gives a better one."""
        answers, window = [one for event in events for one in self._seen(event)[way]], self._windows[way]
        budget = LATTICE * self._delta + math.expm1(sum(one.log_finite for one in answers))
        if budget <= 0:
            return math.inf, True
        if not window.shows(sum(one.log_mgf for one in answers)):
            return math.inf, False
        return look(answers, window).epsilon(budget)


def _see(windows: Sequence[Window], tail: float, iterated: int, event: Event) -> list[list[Answers]]:
    """An event's answers in each window."""
    seen: list[list[Answers]] = [[] for _ in windows]
    for directions, count in _pairs(event, tail, iterated):
        for way, window in enumerate(windows):
            pair = directions[min(way, len(directions) - 1)]
            seen[way].append(Answers(discretise(pair, window.step, tail), count, window))
    return seen


class _Plan:
    """Events to be composed, with what is common to all grids and directions.

    Attributes:
        answers: number of answers.
        tail: probability of finite loss that may count as infinite, for each answer.
        iterated: number of the events to which :mod:`accounting.privacy.adaptive` applies.
    """

    def __init__(self, events: Sequence[Event], delta: float) -> None:
        merged = merge(events)
        self.answers = sum(event.count for event in merged)
        self._delta = delta
        self.tail = _TAIL * delta / max(1, self.answers)
        self.iterated = sum(map(adaptive.applies, merged))
        pairs = [pair for event in merged for pair in _pairs(event, self.tail, self.iterated)]
        self._directions = [directions for directions, _ in pairs]
        self._counts = [count for _, count in pairs]

    def step(self, epsilon: float | None = None) -> float:
        """The grid's step for an answer near ``epsilon``; if that is not known, near what moments promise."""
        if not self._counts or epsilon == math.inf:
            return math.inf
        return self._choice.step(epsilon)

    @cached_property
    def _choice(self) -> StepChoice:
        first = [pairs[0] for pairs in self._directions]
        return StepChoice(first, self._counts, self._delta, self.tail)

    def compose(self, step: float) -> list[Composition]:
        """One composition for each direction in which a unit's presence can leak."""
        if not self._counts:
            return []
        step = max(step, smallest_step((pair for pairs in self._directions for pair in pairs), self.tail))
        plds = [[discretise(pair, step, self.tail) for pair in pairs] for pairs in self._directions]
        ways = range(max(len(each) for each in plds))
        return [Composition([each[min(way, len(each) - 1)] for each in plds], self._counts) for way in ways]

    def epsilon(self, step: float) -> float:
        return max((c.epsilon(self._delta) for c in self.compose(step)), default=0.0)

    def delta(self, epsilon: float, step: float) -> float:
        return max((c.delta(epsilon) for c in self.compose(step)), default=0.0)


def _pairs(event: Event, tail: float, iterated: int) -> adaptive.Pairs:
    """Pairs whose product dominates all answers of an event, and the count of each.

    Args:
        event: event of a plan.
        tail: probability of finite loss that may count as infinite.
        iterated: number of the plan's events to which :mod:`accounting.privacy.adaptive` applies.
    """
    if adaptive.applies(event):
        return adaptive.groups(event, tail, iterated)
    return tuple((directions, event.count) for directions in sampled(event.mechanism, event.sampling))
