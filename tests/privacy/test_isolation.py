"""The isolation script, run as a user would: on the CPU with a tiny model, and with fewer than its hundred slots."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.isolation import ALONE

pytestmark = [pytest.mark.lengthy, pytest.mark.vllm]

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "isolation.py"


@pytest.fixture(scope="module")
def table() -> list[tuple[str, list[int]]]:
    """Each line with its numbers: slots, compared, tokens that differ, log-probabilities that differ."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--slots", "4", "33"], capture_output=True, text=True, timeout=1500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    rows = [(line, line.split()) for line in done.stdout.splitlines() if line[:4].strip().isdigit()]
    return [(line, [int(row[0]), *map(int, row[-3:])]) for line, row in rows]


@pytest.mark.timeout(1600)  # it takes a quarter of an hour on processors without AVX512
def test_no_slot_changes_another(table) -> None:
    rows = [row for line, row in table if "unseeded" not in line]
    assert [row[0] for row in rows] == [4] * 41 + [33] * 41
    for slots, compared, tokens, logprobs in rows:
        assert compared >= min(slots, ALONE) - 1
        assert tokens == logprobs == 0


def test_an_engine_that_samples_without_seeds_is_caught(table) -> None:
    """A text has sixteen tokens, of which nearly every one differs from run to run."""
    rows = [row for line, row in table if "unseeded" in line]
    assert len(rows) == 10
    for _, compared, tokens, _ in rows:
        assert tokens >= compared / 2
