"""Sentences, token by token: the public model's distribution, moved by the clipped mean of the slots' log-ratios.

Source: the form is InvisibleInk's (Vinod, Pillutla and Thakurta 2025, arXiv 2507.02974); neighbours, sampling and
accounting are this product's.

The law of a token. V holds the tokens that are likeliest in the public model, with log-probabilities l₀. Slot i hands
in its own lᵢ, and contributes dᵢ = lᵢ - l₀ on V, less its median over V, clipped to [-C, C] and rounded to whole
multiples of C/1024; nothing if it is empty, has failed, or hands in anything but numbers. S is the sum of all dᵢ, whole
numbers of at most 1024 each. v is drawn with probability proportional to e^(l₀(v)/τ + p·S(v)/1024), with p the *pull*
of a slot, in nats. (Divided by the number of all slots, so p = λC/(Nτ); the number of those that answer is private.)

Privacy. V and l₀ follow from public things and from the tokens released before. Neighbours differ in one slot, so in
one term of S, from any value in [-1024, 1024] to any other, at each v: exponents move by at most 2p, in either
direction, and log-likelihood ratios span at most 4p. The token is 4p-bounded-range, and both ends can be reached. What
the rounding of weights does to that (less than 2⁻¹¹⁸) is bounded in :mod:`aggregation.exponential_weights`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from aggregation.exponential_weights import CONTEXT, draw

GRID = 1024
"""Steps from no opinion to the largest one."""
_LEAST = -1e4  # nats; a log-probability below is taken as this

LogProbs = npt.NDArray[np.float64]
Opinion = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TokenEnsemble:
    """The mechanism with its parameters fixed.

    Attributes:
        pull: p, largest amount by which one slot moves a token's log-weight, in nats.
        clip: C, largest absolute log-ratio that counts, in nats.
        temperature: τ, temperature of sampling.

    Raises:
        ValueError: one of them is not a positive, finite number.
    """

    pull: float
    clip: float
    temperature: float

    def __post_init__(self) -> None:
        for name in ("pull", "clip", "temperature"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a positive, finite number, not {getattr(self, name)}")

    def opinion(self, slot: LogProbs, public: LogProbs) -> Opinion | None:
        """A slot's contribution, whole numbers from -1024 to 1024; None if its log-probabilities are not usable.

        Args:
            slot: log-probabilities of the tokens in the slot's model, shape (tokens,).
            public: the same without exemplars, shape (tokens,).
        """
        try:
            moved = np.maximum(np.asarray(slot, np.float64), _LEAST) - np.maximum(public, _LEAST)
            if moved.shape != public.shape or not np.isfinite(moved).all():
                return None
            ordered = np.sort(moved)  # a tenth of what numpy.median takes for so few
            median = ordered[(moved.size - 1) // 2] / 2 + ordered[moved.size // 2] / 2  # no sum overflows
            clipped = np.clip(moved - median, -self.clip, self.clip)
            return np.asarray(np.rint(clipped * (GRID / self.clip)), np.int64)
        except (TypeError, ValueError):  # whatever a slot hands in
            return None

    def draw(self, public: LogProbs, opinions: Iterable[Opinion | None]) -> int:
        """Draw a token.

        Args:
            public: log-probabilities of the tokens without exemplars, shape (tokens,).
            opinions: from :meth:`opinion`, one of each slot, or None for an abstention. None at all: a public token.

        Returns:
            Its place.
        """
        total = np.zeros(public.shape, np.int64)
        for opinion in opinions:
            if opinion is not None:
                total += opinion
        step = CONTEXT.divide(Decimal(self.pull), Decimal(GRID))
        own = np.maximum(public - public.max(), _LEAST) / self.temperature
        exponents = [
            CONTEXT.add(Decimal(float(alone)), CONTEXT.multiply(step, Decimal(int(moved))))
            for alone, moved in zip(own, total, strict=True)
        ]
        return draw([CONTEXT.exp(exponent) for exponent in exponents])
