"""A second opinion on Gaussian releases: prv-accountant (Gopi, Lee and Wutschitz, arXiv 2106.02848).

Only its Poisson-subsampled Gaussian is used: its PureDPMechanism and ApproximateDPMechanism choose too small a domain
and come out too low. That class has the remove direction alone, which for Gaussians is the worse one.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import numpy as np
from prv_accountant import PRVAccountant
from prv_accountant.accountant import compute_safe_domain_size
from prv_accountant.privacy_random_variables import PoissonSubsampledGaussianMechanism
from typing_extensions import override

from accounting.privacy.bounds import Accountant, EpsilonBounds, UnsupportedEventsError
from accounting.privacy.events import Event, merge
from accounting.privacy.lattice import LATTICE, LATTICE_LOSS
from accounting.privacy.profiles import Gaussian, require_delta

_SMALLEST_DELTA = 1e-9
_RELATIVE_EPSILON_ERROR = 0.004
_RELATIVE_DELTA_ERROR = 1e-3
_MOST_POINTS = 1 << 20  # of a grid
MOST_DIFFERENT = 8
"""Releases that differ in noise or sampling: each has grids of its own, and 25 took two minutes and 1.9 GiB."""


class PrvAccountant(Accountant):
    """Bounds plans of Gaussian releases under ``units`` sampling, from both sides."""

    @override
    def unsupported(self, events: Sequence[Event]) -> str | None:
        for event in events:
            if not isinstance(event.mechanism, Gaussian):
                return f"prv accounts for Gaussian releases only, not {type(event.mechanism).__name__}; use pld"
            if event.sampling.kind != "units":
                return "prv accounts for sampling by units only, not by blocks; use pld"
        if (different := len(merge(events))) > MOST_DIFFERENT:
            return f"prv accounts for at most {MOST_DIFFERENT} different releases, not {different}; use pld"
        return None

    def bounds(self, events: Sequence[Event], delta: float) -> EpsilonBounds:
        """Bounds of ε (:meth:`accounting.privacy.bounds.Accountant.bounds`).

        Lower and upper lie about 0.8 % apart, or wider where that would take a grid too large for memory (many
        answers at a small ε). A delta under 1e-9 is refused: the library's Fourier transform loses such tails.
        """
        require_delta(delta)
        if delta < _SMALLEST_DELTA:
            raise UnsupportedEventsError(f"prv needs a delta of at least {_SMALLEST_DELTA:g}, not {delta:g}; use pld")
        mechanisms, counts = self._mechanisms(events)
        if not counts:
            return EpsilonBounds(0.0, 0.0)
        delta_error = _RELATIVE_DELTA_ERROR * delta
        with _library_messages():
            finest = _finest_error(mechanisms, counts, delta_error)
            rough = PRVAccountant(mechanisms, max(0.1, 8 * finest), delta_error, counts)
            error = max(_RELATIVE_EPSILON_ERROR * rough.compute_epsilon(delta, counts)[1], finest, 1e-4)
            accountant = PRVAccountant(mechanisms, error, delta_error, counts)
            lower, _, upper = accountant.compute_epsilon(LATTICE * delta, counts)
        return EpsilonBounds(max(0.0, lower), max(0.0, upper) + LATTICE_LOSS)

    @override
    def upper(self, events: Sequence[Event], delta: float) -> float:
        return self.bounds(events, delta).upper

    def _mechanisms(self, events: Sequence[Event]) -> tuple[list[PoissonSubsampledGaussianMechanism], list[int]]:
        reason = self.unsupported(events)
        if reason is not None:
            raise UnsupportedEventsError(reason)
        merged = merge(events)
        return [
            _Sampled(e.sampling.probability, LATTICE * e.mechanism.noise_multiplier)
            for e in merged
            if isinstance(e.mechanism, Gaussian)
        ], [e.count for e in merged]


class _Sampled(PoissonSubsampledGaussianMechanism):  # type: ignore[misc]
    """The library does most of its work twice: Rényi divergences for each grid, and the edge that two cells share.

    And it takes divergences of 151 orders to find how wide a grid is safe: by fewer it is a little wider.
    """

    def __init__(self, sampling_probability: float, noise_multiplier: float):
        super().__init__(sampling_probability, noise_multiplier)
        at = cache(super().rdp)
        self.rdp = lambda order: at(order) if order < 2 or float(2 * order).is_integer() else math.inf

    def probability(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The mass of each cell from ``a`` to ``b``, both of shape (n,): the grid's, each beginning where one ends."""
        if not np.allclose(a[1:], b[:-1], rtol=0, atol=1e-9):
            raise ValueError("cells that do not adjoin: another version of the library than the one this is for")
        return np.diff(self.cdf(np.append(a, b[-1])))


def _finest_error(
    mechanisms: Sequence[PoissonSubsampledGaussianMechanism], counts: Sequence[int], delta_error: float
) -> float:
    """The smallest error of ε whose grid fits in memory; the grid's step is what the library's theorem 5.5 asks for."""
    half_width = compute_safe_domain_size(mechanisms, counts, eps_error=0.1, delta_error=delta_error)
    steps_per_error = math.sqrt(sum(counts) / 2 * math.log(12 / delta_error))
    return float(2 * half_width * steps_per_error / _MOST_POINTS)


@contextmanager
def _library_messages() -> Iterator[None]:
    """Silence the library's logarithms of 0 at q = 1, and turn its refusals into ours."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (RuntimeError, ValueError, AssertionError) as error:
        raise UnsupportedEventsError(f"prv cannot compute these events ({error}); use pld") from error
