"""Poisson sampling with a CSPRNG: which units a query sees, which slot each goes to, and which exemplars stay.

This is the sampler that the privacy accounting assumes: every position of the knowledge base is drawn independently
with probability q, and every drawn unit goes to a slot chosen uniformly and independently of the other units.
(Cutting a shuffled sample into equal pieces is another mechanism: one more unit would shift every later piece.)
Blocks (:mod:`exemplar_store.blocks`) are drawn by the same means, each with its units as they are.

All randomness is ``os.urandom``, read as 64-bit words. Nothing here is floating point: probabilities are compared as
128-bit integers, numbers below n are drawn by rejection.
"""

import os
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np

_PRECISION = 128  # bits of the probabilities compared
_GUARD = 256  # bits they are computed with
_WORD = 1 << 64
_MAX_BITS = 62
_NONE = (np.empty(0, np.int64), np.empty(0, np.int64))
_CHUNK = 1 << 14  # stretches drawn at once: bounds memory, not the result


def words(count: int) -> np.ndarray:
    """``count`` independent uniform 64-bit words: uint64 array (count,)."""
    return np.frombuffer(os.urandom(8 * count), np.uint64)


def below(bound: int, count: int) -> np.ndarray:
    """``count`` independent integers, uniform on 0..bound-1 without modulo bias: int64 array (count,).

    A word beyond the largest multiple of ``bound`` is drawn again, so each remainder has equally many words.
    """
    if not 0 < bound <= 1 << _MAX_BITS:
        raise ValueError(f"bound must be between 1 and 2**{_MAX_BITS}, not {bound}")
    last = np.uint64(_WORD - _WORD % bound - 1)
    drawn = words(count)
    while (rejected := np.flatnonzero(drawn > last)).size:
        drawn = drawn.copy()
        drawn[rejected] = words(rejected.size)
    return (drawn % np.uint64(bound)).astype(np.int64)


def poisson_sample(positions: int, probability: float) -> np.ndarray:
    """Draw each of the positions 0..positions-1 independently with the given probability.

    The cost grows with the sample, not with the number of positions. Positions are cut into stretches of B = 2ᵇ, the
    largest power of two with B·q ≤ 1. In each stretch the number of positions drawn is Binomial(B, q); given the
    number, they are a uniform subset of the stretch. (Independent coin flips have exactly this law. The last stretch
    may reach beyond the end; what falls there is dropped, which leaves the other flips alone.) So about
    max(1, positions·q) to twice that many stretches are drawn, whatever the number of positions.

    Exactness: the number in a stretch is read off the binomial's cumulative distribution, rounded to 128 bits, by one
    uniform 128-bit integer. A stretch's law is thereby within 2⁻¹²⁰ of the true one in total variation; a billion
    queries of a billion stretches each stay below 2⁻⁶⁰, far under any δ. ``probability`` is taken as the exact
    binary fraction the float is. Gaps drawn by the logarithm of a 53-bit uniform would miss the law by 2⁻⁵³ a
    position, and by much more in the tail.

    Args:
        positions: number of positions, at least 0.
        probability: q, from 0 to 1.

    Returns:
        int64 array of distinct positions in ascending order.

    Raises:
        ValueError: an argument out of its range.
    """
    if not 0 <= probability <= 1:
        raise ValueError(f"probability must be between 0 and 1, not {probability}")
    if not 0 <= positions <= 1 << _MAX_BITS:
        raise ValueError(f"positions must be between 0 and 2**{_MAX_BITS}, not {positions}")
    if probability == 0 or positions == 0:
        return np.empty(0, np.int64)
    bits, high, low = _stretch_law(probability)
    stretches = -(-positions >> bits)
    drawn = [
        _draw_stretches(first, min(_CHUNK, stretches - first), bits, high, low) for first in range(0, stretches, _CHUNK)
    ]
    sample: np.ndarray = np.sort(np.concatenate(drawn))
    return sample[: np.searchsorted(sample, positions)]


def sample_spans(spans: Sequence[tuple[int, int]], probability: float) -> np.ndarray:
    """A :func:`poisson_sample` of the positions in some ranges.

    The ranges, one behind the other, are sampled as if they were one: each position is drawn independently.

    Args:
        spans: first position and end of each, in ascending order.
        probability: q, from 0 to 1.

    Returns:
        int64 array of distinct positions in ascending order.
    """
    firsts, ends = (np.array(list(column), np.int64) for column in zip(*spans, strict=True)) if spans else _NONE
    lengths = np.cumsum(ends - firsts)
    drawn = poisson_sample(int(lengths[-1]) if lengths.size else 0, probability)
    within = np.searchsorted(lengths, drawn, side="right")
    return drawn + (ends - lengths)[within]


def _draw_stretches(first: int, stretches: int, bits: int, high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Positions drawn in stretches first..first+stretches-1, in no particular order."""
    u, v = words(stretches)[:, None], words(stretches)[:, None]
    counts = np.sum((u > high) | ((u == high) & (v >= low)), axis=1)  # thresholds that the 128-bit number reaches
    start = np.repeat(np.arange(first, first + stretches) << bits, counts)
    chosen: np.ndarray = start + below(1 << bits, start.size)
    # A stretch with a repeated position is drawn again whole, which leaves a uniform subset of the size asked for.
    while (again := _in_stretches_with_repeats(chosen, start)).size:
        chosen[again] = start[again] + below(1 << bits, again.size)
    return chosen


def _in_stretches_with_repeats(chosen: np.ndarray, start: np.ndarray) -> np.ndarray:
    order = np.argsort(chosen, kind="stable")
    repeated = order[1:][chosen[order[1:]] == chosen[order[:-1]]]
    return np.flatnonzero(np.isin(start, start[repeated]))


@lru_cache(maxsize=1024)
def _stretch_law(probability: float) -> tuple[int, np.ndarray, np.ndarray]:
    """Stretch size and cumulative distribution of the number drawn in a stretch of 2ᵇ positions.

    Returns:
        b, and thresholds t₀ ≤ t₁ ≤ ... with tₖ = P(number ≤ k)·2¹²⁸, rounded, as high and low 64-bit words: uint64
        arrays (n,). The number drawn is how many thresholds a uniform 128-bit integer reaches.
    """
    q = Fraction(probability)
    bits = min((q.denominator // q.numerator).bit_length() - 1, _MAX_BITS)
    size = 1 << bits
    one = 1 << _GUARD
    mass = one * (q.denominator - q.numerator) // q.denominator
    for _ in range(bits):  # (1-q)**size by squaring: 2**-190 of relative error at most
        mass = mass * mass >> _GUARD
    odds = q / (1 - q) if q < 1 else None
    thresholds = []
    total = mass
    for k in range(size):
        threshold = total >> (_GUARD - _PRECISION)
        if threshold >= (1 << _PRECISION) - 1:
            break
        thresholds.append(threshold)
        if odds is not None:
            mass = mass * (size - k) * odds.numerator // ((k + 1) * odds.denominator)
        total += mass
    high = np.array([t >> 64 for t in thresholds], np.uint64)
    low = np.array([t % _WORD for t in thresholds], np.uint64)
    return bits, high, low


def deal(slots: np.ndarray, priorities: np.ndarray, ensemble: int, maximum: int) -> list[np.ndarray]:
    """Deal rows to slots: the rows that each slot keeps, in order.

    A slot keeps its first ``maximum`` rows by priority, in that order, whatever the other slots hold. With independent
    random priorities the rows kept are a uniform choice in uniform order; with fixed ones they are always the same.

    Args:
        slots: each row's slot, 0..ensemble-1: int array (rows,). A unit's rows all carry its unit's slot.
        priorities: each row's, the lowest first: array (rows,) of anything that can be sorted.
        ensemble: number of slots.
        maximum: rows a slot keeps at most.

    Returns:
        ``ensemble`` int arrays of row numbers.
    """
    order = np.lexsort((priorities, slots))
    ends = np.searchsorted(slots[order], np.arange(ensemble + 1))
    return [order[start : min(end, start + maximum)] for start, end in pairwise(ends)]
