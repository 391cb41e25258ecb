"""The gain from value iteration for `keyword_joint_em`: wider ranges, or more answers, within the same (ε, δ).

Settings are those of ``budget_comparison.py``. The columns are the range ε that one answer may have by the profile's
PLD, by RDP, and by value iteration; how many answers value iteration allows with RDP's range; and how long one
calibration takes.

    python benchmarks/adaptive_gain.py [--quick]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

from accounting.privacy import adaptive
from accounting.privacy.accountants import get_accountant
from accounting.privacy.calibration import BOUNDED_RANGE, Grant, calibrate
from accounting.privacy.events import Event, Sampling
from accounting.privacy.profiles import BoundedRange

SAMPLING, DELTA = Sampling("units", 400 / 14732), 5e-5


@contextmanager
def without_value_iteration() -> Iterator[None]:
    applies = adaptive.applies
    adaptive.applies = lambda _event: False
    try:
        yield
    finally:
        adaptive.applies = applies


def widest(answers: int, epsilon: float, accountant: str) -> float:
    (event,) = calibrate([Grant(BOUNDED_RANGE, SAMPLING, answers)], epsilon, DELTA, accountant)
    assert isinstance(event.mechanism, BoundedRange)
    return event.mechanism.epsilon


def most(width: float, epsilon: float) -> int:
    """The number of answers with this range that fit the budget, to within one in 500."""
    fits, too_many = 1, 2
    while _upper(width, too_many) <= epsilon:
        fits, too_many = too_many, 2 * too_many
    while too_many - fits > max(1, fits // 500):
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if _upper(width, middle) <= epsilon else (fits, middle)
    return fits


def _upper(width: float, answers: int) -> float:
    return get_accountant("pld").upper([Event(BoundedRange(width), SAMPLING, answers)], DELTA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two small settings")
    quick = parser.parse_args().quick
    print("answers   ε   profile's PLD     RDP   value iteration         answers with RDP's range   seconds")
    for answers in (10, 50) if quick else (100, 1_000, 10_000):
        for epsilon in (1.0,) if quick else (1.0, 3.0, 8.0):
            with without_value_iteration():
                profile = widest(answers, epsilon, "pld")
            rdp = widest(answers, epsilon, "rdp")
            started = time.process_time()
            found = widest(answers, epsilon, "pld")
            seconds = time.process_time() - started
            more = most(rdp, epsilon)
            wider = found / max(profile, rdp) - 1
            print(
                f"{answers:7,} {epsilon:3g} {profile:15.3f} {rdp:7.3f} {found:9.3f} ({wider:+.1%})"
                f" {more:20,} ({more / answers - 1:+.0%}) {seconds:9.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
