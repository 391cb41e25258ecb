"""Two histories of one ledger: where both cannot be kept, a knowledge base ends, and stays so."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from accounting.ledger import tables
from accounting.ledger.charges import AnswersExhaustedError, Ledger
from accounting.ledger.clock import utc_now
from accounting.ledger.errors import GroupError
from accounting.ledger.events import ExemplarsIngested, LedgerRestored
from accounting.ledger.restoring import acknowledge, find_loss
from accounting.ledger.trail import AuditTrail, append
from accounting.ledger.witness import LedgerRestoredError, Witness
from accounting.plan import CalibratedPlan
from accounting.replay.trail import verify
from service.records.database import open_database

ANSWERS = 4


class Copy:
    """A copy of the ledger; those with the same witness have nothing else in common."""

    def __init__(self, database: sa.Engine, witness_database: sa.Engine, document: str) -> None:
        tables.metadata.create_all(database)
        self.database, self.document = database, document
        self.trail = AuditTrail(database)
        self.witness = Witness(database, witness_database)
        self.witness.create()
        self.ledger = Ledger(database, witness=self.witness)

    def create(self, epsilon: int) -> None:
        with self.database.begin() as connection:
            self.ledger.budgets.open(connection, "kb", epsilon, 1e-4)

    def group(self, name: str, epsilon: int) -> None:
        self.ledger.groups.open(name, epsilon, 1e-3, by="root")

    def join(self, name: str) -> None:
        self.ledger.groups.join(name, "kb", by="root")

    def cohort(self, epsilon: int) -> None:
        with self.database.begin() as connection:
            number = len(self.ledger.budgets.status("kb").cohorts) + 1
            self.ledger.cohorts.open(connection, "kb", number, epsilon, 1e-4, public_size=9, by="root")

    def sign(self) -> None:
        self.ledger.budgets.sign(
            "kb",
            epsilon=1,
            delta=1e-5,
            accountant="pld",
            document=self.document,
            tasks=[("topic", ANSWERS)],
            signed_by="root",
        )

    def upload(self) -> None:
        with self.database.begin() as connection:
            append(connection, utc_now(), ExemplarsIngested(knowledge_base="kb", upload="one", by="root"))

    def play(self, story: str) -> None:
        """``create 2; sign``: a step each."""
        for step in story.split("; "):
            does, *arguments = step.split()
            getattr(self, does)(*(int(one) if one.isdigit() else one for one in arguments))

    def left(self) -> list[int]:
        """What each plan may answer, in their order."""
        return [task.left for task in self.ledger.budgets.status("kb").tasks]

    def acknowledge(self) -> None:
        loss = find_loss(self.trail, self.witness)
        assert loss is not None
        acknowledge(self.database, self.witness, loss, by="root")

    def check_ended(self, plans: int) -> None:
        assert self.ledger.budgets.status("kb").archived_at is not None
        assert self.left() == [0] * plans
        assert self.trail.head().particulars.ended == ("kb",)
        with pytest.raises(AnswersExhaustedError):
            self.ledger.charge(self.ledger.budgets.task("kb.topic"), b"new", key_id="ana")
        assert verify(self.trail.export(), recompute=False).problems == []


@pytest.fixture
def copies(engine: sa.Engine, tmp_path: Path, calibrated: CalibratedPlan) -> Iterator[tuple[Copy, Copy, Copy]]:
    """One that was witnessed and is lost, one on either database that goes its own way, and an empty one."""
    witness, lost, empty = (open_database(f"sqlite:///{tmp_path}/{name}") for name in ("witness", "lost", "empty"))
    yield tuple(Copy(database, witness, calibrated.model_dump_json()) for database in (lost, engine, empty))
    for database in (witness, lost, empty):
        database.dispose()


@pytest.mark.parametrize(
    ("lost", "own"),
    [
        ("create 2; group one 3; join one; sign", "create 2; group two 3; join two; sign"),
        ("create 2; group one 3; join one; cohort 2", "create 2; group two 3; join two; sign"),
        ("create 2; group one 3; join one; sign", "create 2; group one 9; sign"),
        ("create 1; sign", "create 10; sign"),
        ("create 2; cohort 1; sign", "create 2; cohort 9"),
        ("create 2; upload; sign", "create 2; cohort 2"),
    ],
    ids=[
        "two groups, then a plan",
        "two groups, then a cohort",
        "a group of two budgets",
        "two budgets",
        "a cohort of two budgets",
        "mixed cohorts",
    ],
)
def test_a_knowledge_base_that_ends_stays_ended(copies: tuple[Copy, Copy, Copy], lost: str, own: str) -> None:
    gone, here, empty = copies
    gone.play(lost)
    gone.witness.catch_up()
    here.play(own)
    here.acknowledge()
    plans = f"{lost}; {own}".count("sign")
    here.check_ended(plans)
    empty.acknowledge()  # a backup from before both histories
    empty.check_ended(plans)


@pytest.mark.parametrize(
    ("lost", "own", "closed"),
    [
        ("create 2; group one 3; join one; sign", "create 2; group two 3; join two", ("one", "two")),
        ("group one 3", "group one 9", ("one",)),
    ],
    ids=["two groups", "two budgets"],
)
def test_a_group_with_two_promises_is_closed(
    copies: tuple[Copy, Copy, Copy], lost: str, own: str, closed: tuple[str, ...]
) -> None:
    """Else somebody in a later member would pay for the promise that is not counted there, too."""
    gone, here, empty = copies
    gone.play(lost)
    gone.witness.catch_up()
    here.play(own)
    before = "before"  # a member that the histories agree on, or that only one has
    with here.database.begin() as connection:
        here.ledger.budgets.open(connection, before, 3, 1e-4)
    here.ledger.groups.join(closed[-1], before, by="root")
    here.acknowledge()
    assert here.trail.head().particulars.closed == closed
    assert here.ledger.budgets.status(before).archived_at is not None
    empty.acknowledge()
    for copy in (here, empty):
        with copy.database.begin() as connection:
            copy.ledger.budgets.open(connection, "after", 3, 1e-4)
        for group in closed:
            with pytest.raises(GroupError, match=r"joins group .* any more"):
                copy.ledger.groups.join(group, "after", by="root")
        assert verify(copy.trail.export(), recompute=False).problems == []


def test_what_both_histories_say_alike_goes_on(copies: tuple[Copy, Copy, Copy]) -> None:
    gone, here, _ = copies
    gone.play("create 2; group one 3; join one; cohort 2; sign")
    gone.witness.catch_up()
    here.play("create 2; group one 3; join one; cohort 2")
    here.acknowledge()
    assert here.left() == [ANSWERS]
    assert here.ledger.budgets.status("kb").open_cohorts == (1, 2)
    assert here.trail.head().particulars.ended == ()


def test_what_happened_since_the_loss_was_counted_is_not_overlooked(copies: tuple[Copy, Copy, Copy]) -> None:
    gone, here, _ = copies
    gone.play("create 2; upload; sign")
    gone.witness.catch_up()
    here.create(2)
    loss = find_loss(here.trail, here.witness)
    here.cohort(2)
    before = here.trail.head()
    with pytest.raises(LedgerRestoredError, match="run the command again"):
        acknowledge(here.database, here.witness, loss, by="root")
    assert (here.trail.head(), here.left()) == (before, [])
    here.acknowledge()
    here.check_ended(1)


def test_whoever_checked_that_it_is_not_archived_finishes_before_it_ends(copies: tuple[Copy, Copy, Copy]) -> None:
    gone, here, _ = copies
    gone.create(1)
    gone.witness.catch_up()
    here.create(2)
    with ThreadPoolExecutor(1) as pool:
        with here.database.begin() as connection:
            here.ledger.cohorts.check_open(connection, "kb")
            acknowledging = pool.submit(here.acknowledge)
            with pytest.raises(TimeoutError):
                acknowledging.result(0.5)
        acknowledging.result(60)
    assert here.ledger.budgets.status("kb").archived_at is not None


def test_later_charges_are_charged_to_their_own_plan_among_equal_ones(copies: tuple[Copy, Copy, Copy]) -> None:
    """The service on the lost copy still ran while its two equal plans were brought back."""
    gone, here, _ = copies
    gone.play("create 2; sign; sign")
    gone.witness.catch_up()
    loss = find_loss(here.trail, here.witness)
    gone.ledger.charge(gone.ledger.budgets.task("kb.topic@1"), b"late", key_id="ana")
    with pytest.raises(LedgerRestoredError, match="still runs on another copy"):
        acknowledge(here.database, here.witness, loss, by="root")
    here.acknowledge()
    assert here.left() == [ANSWERS - 1, ANSWERS]
    assert len(here.trail.events(kinds=[LedgerRestored.kind])) == 2
