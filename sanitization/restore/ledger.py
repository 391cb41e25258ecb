"""The cost of a person's own questions, and what was sent for each: one SQLite file on their machine.

A draw is stored before it is sent, and the same question gets the same draw every time. So neither a crash nor a repeat
draws again: independent draws of one profile would average its noise away.
"""

import hashlib
import json
import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

_WAIT_S = 30.0
_NANO = 10**9
_SCHEMA = """
CREATE TABLE IF NOT EXISTS draws (
    question TEXT PRIMARY KEY, bundle TEXT NOT NULL, nano_epsilon INTEGER NOT NULL, profile INTEGER NOT NULL,
    drawn_at TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS bundles (name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, publisher TEXT NOT NULL) STRICT;
"""


class BudgetExhaustedError(ValueError):
    """A new question would cost more than is left. Questions asked before still get their answers."""


class ChangedBundleError(ValueError):
    """A name that stood for another bundle, or for another publisher's, when it was first used."""


class RestoreLedger:
    """The file. Keep it as private as the texts: it lists digests of them.

    Args:
        path: made if it is not there, readable by its owner only.
    """

    def __init__(self, path: Path):
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        with self._open() as database:
            database.executescript(_SCHEMA)

    def spent(self) -> float:
        """The ε of all draws together."""
        with self._open() as database:
            return _spent(database) / _NANO

    def stored(self, question: str) -> int | None:
        """The number drawn for a question; None if there is none."""
        with self._open() as database:
            return _stored(database, question)

    def draw(self, question: str, bundle: str, epsilon: float, budget: float, draw: Callable[[], int]) -> int:
        """The number for a question: the stored one, or a new one, which is on the disk when this returns.

        Args:
            question: from :func:`digest`.
            bundle: SHA-256 of the bundle, for people who read the file.
            epsilon: ε that a new draw costs.
            budget: ε that all draws in this file may cost together.
            draw: draws a profile's number at random.

        Raises:
            BudgetExhaustedError: a new draw would exceed the budget.
        """
        cost = nano(epsilon)
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")  # twins in other processes wait here
            stored = _stored(database, question)
            if stored is not None:
                return stored
            spent = _spent(database)
            if spent + cost > nano(budget):
                raise BudgetExhaustedError(
                    f"a new question costs ε = {epsilon:g}, and {budget - spent / _NANO:g} of {budget:g} are left"
                )
            profile = draw()
            now = datetime.now(UTC).isoformat(timespec="seconds")
            database.execute("INSERT INTO draws VALUES (?, ?, ?, ?, ?)", (question, bundle, cost, profile, now))
            return profile

    def pin(self, name: str, sha256: str, publisher: str) -> None:
        """Remember what a bundle's name stands for.

        Raises:
            ChangedBundleError: it stood for something else before.
        """
        with self._open() as database:
            database.execute("INSERT OR IGNORE INTO bundles VALUES (?, ?, ?)", (name, sha256, publisher))
            known = database.execute("SELECT sha256, publisher FROM bundles WHERE name = ?", (name,)).fetchone()
        if known != (sha256, publisher):
            raise ChangedBundleError(f"{name} was bundle {known[0][:12]} when first used, and is {sha256[:12]} now")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection whose transaction is committed, to the disk, if nothing was raised."""
        database = sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None)
        try:
            database.execute("PRAGMA synchronous = FULL")
            yield database
            if database.in_transaction:
                database.execute("COMMIT")
        finally:
            database.close()  # rolls back what was not committed


def digest(bundle: str, epsilon: float, redacted: str, spans: Sequence[str]) -> str:
    """A question's name in the ledger: the same for the same bundle, ε, redacted text and spans, in any order."""
    said = json.dumps([bundle, repr(float(epsilon)), redacted, sorted(spans)], ensure_ascii=True)
    return hashlib.sha256(said.encode()).hexdigest()


def nano(epsilon: float) -> int:
    """ε in whole billionths, rounded up, so that costs add up exactly."""
    return math.ceil(Decimal(repr(float(epsilon))) * _NANO)


def _spent(database: sqlite3.Connection) -> int:
    return int(database.execute("SELECT coalesce(sum(nano_epsilon), 0) FROM draws").fetchone()[0])


def _stored(database: sqlite3.Connection, question: str) -> int | None:
    row = database.execute("SELECT profile FROM draws WHERE question = ?", (question,)).fetchone()
    return None if row is None else int(row[0])
