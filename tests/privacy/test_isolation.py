"""The isolation script, run as anybody runs it: on the CPU with a tiny model, and on an engine that breaks the rule."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "isolation.py"


def run(*options: str) -> tuple[int, list[list[str]]]:
    """Exit status, and the table's rows as N, compared, tokens that differ, log-probabilities that differ."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options], capture_output=True, text=True, timeout=400, check=False
    )
    rows = [line.split() for line in done.stdout.splitlines() if line[:4].strip().isdigit()]
    assert rows, done.stderr[-2000:]
    return done.returncode, [[int(row[0]), *map(int, row[-3:])] for row in rows]


@pytest.mark.slow
def test_no_slot_changes_another() -> None:
    status, rows = run()
    assert status == 0
    assert [row[0] for row in rows] == [10] * 24 + [44] * 24 + [100] * 24
    for slots, compared, tokens, logprobs in rows:
        assert compared >= slots - 1
        assert tokens == logprobs == 0


@pytest.mark.slow
def test_an_engine_that_samples_without_seeds_is_caught() -> None:
    status, rows = run("--broken", "--slots", "10")
    assert status == 0  # it was expected to be caught
    assert sum(tokens for _, _, tokens, _ in rows) > 20
    assert all(tokens == 0 for _, _, tokens, _ in rows[:16])  # labels and greedy texts draw nothing
