"""The client's ledger: one draw for a question, on the disk before it leaves, and never more than the budget."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from sanitization.restore.ledger import BudgetExhaustedError, ChangedBundleError, RestoreLedger, digest, nano


@pytest.fixture
def ledger(tmp_path: Path) -> RestoreLedger:
    return RestoreLedger(tmp_path / "restore.db")


def test_a_thousand_repeats_give_one_draw(ledger: RestoreLedger) -> None:
    """Each draw would be another number; twins in threads wait for the first."""
    numbers = count()
    draw: Callable[[], int] = lambda: next(numbers)  # noqa: E731
    with ThreadPoolExecutor(8) as pool:
        drawn = set(pool.map(lambda _: ledger.draw("q", "b", 1.0, 2.0, draw), range(1000)))
    assert drawn == {0}
    assert next(numbers) == 1
    assert ledger.spent() == 1.0


def test_the_budget_is_a_limit(ledger: RestoreLedger) -> None:
    for question in range(10):
        ledger.draw(f"q{question}", "b", 0.1, 1.0, lambda: 5)  # ten times 0.1, which floats do not add up to 1
    with pytest.raises(BudgetExhaustedError, match=r"0\.1.* 0 of 1"):
        ledger.draw("q10", "b", 0.1, 1.0, lambda: 5)
    assert ledger.draw("q3", "b", 0.1, 1.0, lambda: 6) == 5
    assert ledger.spent() == 1.0
    assert ledger.stored("q10") is None


def test_a_failed_draw_costs_nothing(ledger: RestoreLedger) -> None:
    with pytest.raises(ZeroDivisionError):
        ledger.draw("q", "b", 1.0, 1.0, lambda: 1 // 0)
    assert ledger.spent() == 0
    assert ledger.draw("q", "b", 1.0, 1.0, lambda: 2) == 2


def test_costs_are_rounded_up() -> None:
    assert nano(0.1) == 100_000_000
    assert nano(1e-12) == 1


@pytest.mark.parametrize(("drawing", "spent", "again"), [("7", 1.0, 7), ("kill()", 0.0, 8)], ids=["after", "before"])
def test_killed_when_a_draw_is_made(tmp_path: Path, drawing: str, spent: float, again: int) -> None:
    """Once a draw is stored, the next process finds it and makes none. Before, nothing has left or is charged."""
    script = (
        "import os, signal, sys; from pathlib import Path; from sanitization.restore.ledger import RestoreLedger;"
        "kill = lambda: os.kill(os.getpid(), signal.SIGKILL);"
        f"RestoreLedger(Path(sys.argv[1])).draw('q', 'b', 1.0, 1.0, lambda: {drawing}); kill()"
    )
    file = tmp_path / "restore.db"
    assert subprocess.run([sys.executable, "-c", script, str(file)], check=False).returncode == -signal.SIGKILL
    assert RestoreLedger(file).spent() == spent
    assert RestoreLedger(file).draw("q", "b", 1.0, 1.0, lambda: 8) == again


def test_a_question_is_its_text_and_spans_in_any_order() -> None:
    one = digest("b", 4.0, "has ___", ["fever", "rash"])
    assert one == digest("b", 4, "has ___", ["rash", "fever"])
    others = [
        digest("c", 4.0, "has ___", ["fever", "rash"]),
        digest("b", 5.0, "has ___", ["fever", "rash"]),
        digest("b", 4.0, "had ___", ["fever", "rash"]),
        digest("b", 4.0, "has ___", ["fever", "rash", "rash"]),
        digest("b", 4.0, "has ___", ['fever", "rash']),
    ]
    assert len({one, *others}) == 6


def test_a_bundle_keeps_its_meaning(ledger: RestoreLedger) -> None:
    ledger.pin("clinic@1", "a" * 64, "p")
    ledger.pin("clinic@1", "a" * 64, "p")
    with pytest.raises(ChangedBundleError, match=r"clinic@1 .* aaaa"):
        ledger.pin("clinic@1", "b" * 64, "p")
    with pytest.raises(ChangedBundleError):
        ledger.pin("clinic@1", "a" * 64, "q")


def test_the_file_is_the_owners_alone_and_holds_no_text(ledger: RestoreLedger, tmp_path: Path) -> None:
    file = tmp_path / "restore.db"
    ledger.draw(digest("b", 1.0, "has ___", ["a secret illness"]), "b", 1.0, 1.0, lambda: 3)
    assert os.stat(file).st_mode & 0o077 == 0
    assert b"illness" not in file.read_bytes()
    with sqlite3.connect(file) as database:
        assert database.execute("SELECT count(*) FROM draws").fetchone() == (1,)
