"""How long it takes to calibrate a plan of four tasks, against a plain search on dp_accounting's own PLD accountant.

The baseline is ``dp_accounting.calibrate_dp_mechanism`` over ``PLDAccountant`` with its default grid of 1e-4 and a
noise tolerance of 1e-3. It knows only Gaussians sampled by unit, so the comparison has a plan of four of those. Only
our own calibration is timed for the plan of four mechanisms.

    python benchmarks/calibration.py
    python benchmarks/calibration.py --quick    # one Gaussian instead of four
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import dp_accounting
from dp_accounting.pld import pld_privacy_accountant

from accounting.privacy.accountants import get_accountant
from accounting.privacy.calibration import (
    BOUNDED_RANGE,
    GAUSSIAN,
    VOTES,
    Grant,
    calibrate,
    propose_test_release,
)
from accounting.privacy.events import Sampling

T = TypeVar("T")

EPSILON, DELTA = 3.0, 1e-5
GAUSSIANS = [
    Grant(GAUSSIAN, Sampling("units", q), answers)
    for q, answers in ((0.03, 1000), (0.01, 10_000), (0.005, 10_000), (0.1, 100))
]
MECHANISMS = [
    Grant(GAUSSIAN, Sampling("units", 0.03), 1000),
    Grant(VOTES, Sampling("blocks", 0.01), 10_000),
    Grant(BOUNDED_RANGE, Sampling("units", 0.03), 200),
    Grant(propose_test_release(delta0=1e-9), Sampling("units", 0.02), 500),
]


def seconds(work: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def library(events: list) -> float:
    """Scale all four noise multipliers together until the library's PLD accountant meets the target."""

    def plan(scale: float) -> dp_accounting.DpEvent:
        return dp_accounting.ComposedDpEvent(
            [
                dp_accounting.SelfComposedDpEvent(
                    dp_accounting.PoissonSampledDpEvent(
                        e.sampling.probability, dp_accounting.GaussianDpEvent(scale * e.mechanism.noise_multiplier)
                    ),
                    e.count,
                )
                for e in events
            ]
        )

    return dp_accounting.calibrate_dp_mechanism(
        pld_privacy_accountant.PLDAccountant,
        plan,
        EPSILON,
        DELTA,
        dp_accounting.ExplicitBracketInterval(0.5, 2.0),
        tol=1e-3,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one Gaussian instead of four")
    quick = parser.parse_args().quick
    gaussians = GAUSSIANS[:1] if quick else GAUSSIANS
    for name in ("pld", "rdp"):
        taken, events = seconds(lambda name=name: calibrate(MECHANISMS, EPSILON, DELTA, name))
        upper = get_accountant(name).bounds(events, DELTA).upper
        print(f"four mechanisms by {name}: {taken:6.2f} s, epsilon {upper:.4f} of {EPSILON:g} used")
    ours, events = seconds(lambda: calibrate(gaussians, EPSILON, DELTA))
    upper = get_accountant("pld").bounds(events, DELTA).upper
    print(f"{len(gaussians)} Gaussian(s) by pld:   {ours:6.2f} s, epsilon {upper:.4f}")
    theirs, scale = seconds(lambda: library(events))
    print(f"  dp_accounting's own:  {theirs:6.2f} s, with {scale:.4f} times our noise")
    print(f"  ratio of times:       {theirs / ours:6.1f}")


if __name__ == "__main__":
    main()
