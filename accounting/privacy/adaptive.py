"""The cost of several answers of a bounded range to an analyst who chooses each question after seeing the last answer.

The profile of :class:`accounting.privacy.profiles.BoundedRange` takes the worst pair of log-ratios in [t - ε, t] anew
at each loss. An analyst must choose t before the answer, so composing the profile charges for more than can be
learnt. The truth is a value iteration. Let ``W_n(a)`` be the largest hockey-stick divergence at ``a = e^x`` of n
answers, with the unit against without, over all strategies. Then ``W_0(a) = max(0, 1 - a)`` and

    W_n(a) = max over t of  E[r W_(n-1)(a / r)],

where r is the sampled likelihood ratio, ``1 - q + q e^t`` or ``1 - q + q e^(t-ε)``, with mean 1 without the unit. All
``W_n`` are convex and so are ``r -> r W(a / r)``, hence two outcomes are the worst of all with such ratios.

The computed value is never below:

- *Between grid points of x* the convex W lies below its chord in e^x.
- *Between grid points of t*: both ratios are linear in ``e^t``, so between two nodes they lie within the straight lines
  from the nodes' ratios, and ``G(r) = r W(a / r)`` below its chords. With ``D = r_h - r_l`` and the chord's slope
  ``S = (G(r_h) - G(r_l)) / D`` at a node, and p the probability of the lower ratio that makes the mean 1, multiplying
  out gives: the maximum between nodes 0 and 1 exceeds the larger of their values by at most
  ``max(D_0, D_1) (p_1 - p_0) max(0, S_1 - S_0) / 4``. Nodes' ratios are rounded outwards, which by convexity of G only
  raises the value; their probabilities follow from them.
- *Beyond the grid* W falls, in either order, so the last value is an upper bound.
- *Rounding*: all terms are positive, so sums err relatively, by less than what every value is raised by.

``W_n - max(0, 1 - a)`` is kept, in which nothing cancels. For ``a >= 1`` it is the divergence of removing a unit, for
``a < 1`` a times that of adding one at 1/a, so one iteration serves both directions.

The result is itself a pair, and products of such pairs dominate any interleaving of their answers with each other and
with other mechanisms (Theorem 18 in ``docs/privacy/composition.md``). So a large number of answers is composed of
groups of some hundred: :func:`groups` splits them, which costs little.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from accounting.privacy.events import Event, Sampling
from accounting.privacy.grid import second_moment
from accounting.privacy.profiles import Array, BoundedRange
from accounting.privacy.subsampling import Direction, amplify

_TOGETHER, _GROUP = 320, 128  # that many answers' choices of t are optimised together, else in groups of the latter
_FEW, _SMALLEST_GROUP = 8, 8  # of more different events groups are smaller; those of 8 answers cost some 4 % of ε
_NODES = 49  # of t
_STEP = 0.05  # of one answer's deviation
_MOST_POINTS = 1 << 15  # on either side of loss 0
LARGEST_LOSS = 600.0
"""Largest loss of a group; larger likelihood ratios do not fit a double."""
_WHOLE = 1e-300  # a tail so small that the grid reaches to the largest loss
_VALUE_SLACK = 1e-14  # relative, of sums of a few terms
_OUTWARD = 1e-13  # relative, of losses on the grid

Pairs = tuple[tuple[tuple[Direction, ...], int], ...]


def applies(event: Event) -> bool:
    """Whether the answers are of a bounded range, drawn such that one pair of neighbours has one likelihood ratio."""
    always = event.sampling.probability == 1
    return isinstance(event.mechanism, BoundedRange) and (always or event.sampling.kind == "units")


@lru_cache(maxsize=256)
def groups(event: Event, tail: float, different: int = 1) -> Pairs:
    """Pairs whose product dominates the answers of an event to which this :func:`applies`, and the count of each.

    Args:
        event: event of n answers.
        tail: probability of finite loss that may count as infinite, for each group.
        different: number of the plan's events to which this applies; each takes iterations of its own.
    """
    largest = _largest(_range(event), event.sampling.probability)
    together, group = _TOGETHER, _GROUP
    if different > _FEW:
        together = group = max(_SMALLEST_GROUP, _GROUP * _FEW // different)
    size = min(event.count if event.count <= together else group, max(1, int(LARGEST_LOSS / largest)))
    whole, rest = divmod(event.count, size)
    if size == 1:
        return ((amplify(event.mechanism, event.sampling), event.count),)
    directions = _dominating(event, (size, rest) if rest else (size,), tail)
    return tuple(zip(directions, (whole, 1), strict=False))


@lru_cache(maxsize=128)  # a plan has up to 100 tasks
def composed(epsilon: float, answers: int) -> Direction:
    """The pair that dominates answers of a bounded range, asked of one sample in an adaptive order.

    Args:
        epsilon: range of each answer, in nats; answers times this is at most :data:`LARGEST_LOSS`.
        answers: number of answers.
    """
    event = Event(BoundedRange(epsilon), Sampling("units", 1.0), answers)
    ((direction,),) = _dominating(event, (answers,), _WHOLE)
    return direction


def _dominating(event: Event, sizes: tuple[int, ...], tail: float) -> list[tuple[Direction, ...]]:
    """The directions of the pairs that dominate such numbers of adaptive answers, the largest number first."""
    iteration = _Iteration(event)
    furthest = sizes[0] * iteration.largest
    reach = iteration.deviation * math.sqrt(-2 * sizes[0] * math.log(tail)) + iteration.largest
    while True:
        losses, found = iteration.run(min(reach, furthest), sizes)
        left = max(max(above[-1], below[-1]) for above, below in found)
        if left <= tail or reach >= furthest:
            break
        reach *= 1.5
    pairs = []
    for above, below in found:
        functions = Chords(losses, above), Chords(losses, below)
        pairs.append(Direction(*functions, *(f.last for f in functions)))
    if event.sampling.probability == 1:
        return [(pair,) for pair in pairs]
    return [(pair, pair.swapped()) for pair in pairs]


class _Iteration:
    def __init__(self, event: Event) -> None:
        epsilon, q = _range(event), event.sampling.probability
        self._one = amplify(event.mechanism, event.sampling)[0]
        self.deviation = math.sqrt(second_moment(self._one))
        self.largest = _largest(epsilon, q)
        # Nodes are dense in the middle, where the best t of many answers lies.
        spread = np.linspace(-1, 1, _NODES)
        t = epsilon * (0.5 + 0.5 * np.sign(spread) * np.abs(spread) ** 1.5)
        self._losses = [x if q == 1 else np.log1p(q * np.expm1(x)) for x in (t, t - epsilon)]

    def run(self, reach: float, sizes: Sequence[int]) -> tuple[Array, list[tuple[Array, Array]]]:
        """Losses from 0 up; and on them, for each number of answers, the divergences of removing and adding a unit."""
        # The largest loss is a multiple of the step, so that nothing is beyond n times that.
        cells = math.ceil(self.largest / max(_STEP * self.deviation, reach / _MOST_POINTS))
        step = (1 + 2 * _OUTWARD) * self.largest / cells
        points = math.ceil(reach / step) + 1
        x: Array = step * np.arange(-points, points + 1, dtype=np.float64)
        nodes = _Nodes(self._losses, step, points)
        up = np.maximum(x, 0.0)
        value = np.where(x >= 0, self._one.upper(up), np.exp(x) * self._one.upper_swapped(up[::-1]))
        found = {}
        for answers in range(1, max(sizes) + 1):
            if answers > 1:
                value = nodes.next(value)
            if answers in sizes:
                found[answers] = value[points:], value[points::-1] * np.exp(x[points:])
        return x[points:], [found[size] for size in sizes]


class _Nodes:
    """Pairs for some values of t on a grid of losses.

    Args:
        losses: losses of the likelier and of the less likely outcome, (nodes,) each.
        step: distance of the grid points.
        points: number of grid points on either side of 0.
    """

    def __init__(self, losses: Sequence[Array], step: float, points: int) -> None:
        self._step, self._points = step, points
        self._places = [_outward(x / step) for x in losses]
        high, low = (places * step for places in self._places)
        self._width = np.exp(low) * np.expm1(high - low)
        self._ratios = np.exp(high), np.exp(low)
        self._probs = -np.expm1(low) / self._width, np.expm1(high) / self._width
        wider = np.maximum(self._width[1:], self._width[:-1])
        # Of two probabilities that add up to 1 the smaller one changes without cancellation.
        likelier, lower = (np.diff(probs) for probs in self._probs)
        moved = np.where(self._probs[1][1:] < 0.5, lower, -likelier)
        self._correction = (1 + 1e-9) / 4 * wider * moved
        self._margin = math.ceil(max(float(np.abs(places).max()) for places in self._places)) + 2
        self._fading = np.exp(step * np.arange(-self._margin, 0))
        index: Array = np.arange(-points, points + 1, dtype=np.float64)
        self._kinks = [[_kink(place - index, index, step) for place in places] for places in self._places]

    def next(self, value: Array) -> Array:
        """The best strategy's value with one answer more."""
        padded = np.concatenate([value[0] * self._fading, value, np.full(self._margin, value[-1])])
        best, before_value, before_slope, before_noise = (np.zeros(value.size) for _ in range(4))
        for i, width in enumerate(self._width):
            high, low = (
                ratios[i] * self._interpolated(padded, float(places[i])) + kinks[i]
                for ratios, places, kinks in zip(self._ratios, self._places, self._kinks, strict=True)
            )
            here = (1 + _VALUE_SLACK) * (self._probs[0][i] * high + self._probs[1][i] * low)
            slope, noise = (high - low) / width, _VALUE_SLACK / width * (high + low)
            if i:
                between = np.maximum(before_value, here)
                between += self._correction[i - 1] * (np.maximum(slope - before_slope, 0.0) + before_noise + noise)
                np.maximum(best, between, out=best)
            before_value, before_slope, before_noise = here, slope, noise
        return best

    def _interpolated(self, padded: Array, place: float) -> Array:
        """The values that many grid points below, by chords in e^x."""
        cells = math.floor(place)
        whole, above, below = math.expm1(self._step), (cells + 1 - place) * self._step, (place - cells) * self._step
        start, size = self._margin - cells, 2 * self._points + 1
        found = math.expm1(above) / whole * padded[start : start + size]
        if below > 0:
            found += math.exp(above) * math.expm1(below) / whole * padded[start - 1 : start - 1 + size]
        return np.asarray(found)


def _outward(places: Array) -> Array:
    """Places on a grid moved away from 0 a little, onto a grid point if that is so near."""
    moved = places * (1 + _OUTWARD)
    nearest = np.round(moved)
    onto = (np.abs(nearest) >= np.abs(moved)) & (np.abs(nearest - moved) <= 4 * _OUTWARD * np.abs(moved))
    return np.asarray(np.where(onto, nearest, moved))


def _range(event: Event) -> float:
    if not isinstance(event.mechanism, BoundedRange):
        raise TypeError(f"{type(event.mechanism).__name__} has no bounded range")
    return event.mechanism.epsilon


def _largest(epsilon: float, q: float) -> float:
    """The largest loss of one answer."""
    return epsilon if q == 1 else math.log1p(q * math.expm1(epsilon))


def _kink(distance: Array, index: Array, step: float) -> Array:
    """``max(0, r - a)`` where a is at least 1, else ``max(0, a - r)``, which is the same up to a linear function of r.

    Args:
        distance: distance from the loss of a to that of r, in steps, (n,).
        index: loss of a, in steps, (n,).
        step: distance of the grid points.
    """
    outside = np.maximum(np.where(index >= 0, distance, -distance), 0.0) * step
    return np.asarray(np.exp(step * index) * np.where(index >= 0, np.expm1(outside), -np.expm1(-outside)))


class Chords:
    """Divergences between grid points by straight lines in e^x, beyond the grid the last value.

    Args:
        losses: (n,) from 0 up.
        values: (n,) of the divergence.
    """

    def __init__(self, losses: Array, values: Array) -> None:
        self._losses, self._values = losses, np.minimum(values, 1.0)
        self._step = float(losses[1])
        self.last = float(self._values[-1])

    def __call__(self, x: Array) -> Array:
        """The divergence at losses of at least 0; any shape."""
        inside = np.clip(x * (1 - _OUTWARD), 0.0, self._losses[-1])
        k = np.minimum((inside / self._step).astype(np.int64), self._losses.size - 2)
        share = np.clip(np.expm1(inside - self._losses[k]) / math.expm1(self._step), 0.0, 1.0)
        return np.asarray(self._values[k] + share * (self._values[k + 1] - self._values[k]))
