"""Two histories of one ledger: a knowledge base with events in both is ended, and stays ended."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from accounting.ledger import tables
from accounting.ledger.charges import Ledger
from accounting.ledger.clock import utc_now
from accounting.ledger.errors import BudgetExistsError, GroupError
from accounting.ledger.events import ExemplarsIngested, UploadEnded
from accounting.ledger.restoring import acknowledge, find_loss
from accounting.ledger.trail import AuditTrail, append
from accounting.ledger.witness import LedgerRestoredError, Witness
from accounting.plans.plan import CalibratedPlan
from accounting.replay.trail import verify
from service.records.database import open_database
from tests.accounting.books import signed, wrong

ANSWERS = 4


class Copy:
    """A copy of the ledger. Copies may share a witness, and share nothing else."""

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
        signed(self.ledger, document=self.document)

    def upload(self) -> None:
        upload = {"knowledge_base": "kb", "upload": "one", "by": "root"}
        with self.database.begin() as connection:
            append(connection, utc_now(), ExemplarsIngested(**upload), UploadEnded(**upload))

    def play(self, story: str) -> None:
        """Run the steps of a story such as ``create 2; sign``."""
        for step in filter(None, story.split("; ")):
            does, *arguments = step.split()
            getattr(self, does)(*(int(one) if one.isdigit() else one for one in arguments))

    def left(self) -> list[int]:
        """Answers left to each plan, in the order of the plans."""
        return [task.left for task in self.ledger.budgets.status("kb").tasks]

    def acknowledge(self) -> None:
        loss = find_loss(self.trail, self.witness)
        assert loss is not None
        acknowledge(self.database, self.witness, loss, by="root")

    def check_ended(self) -> None:
        assert self.ledger.budgets.status("kb").archived_at is not None
        assert set(self.left()) <= {0}
        assert self.trail.head().particulars.ended == ("kb",)
        assert wrong(self.database) == []
        assert verify(self.trail.export(), recompute=False).problems == []


@pytest.fixture
def copies(engine: sa.Engine, tmp_path: Path, calibrated: CalibratedPlan) -> Iterator[tuple[Copy, Copy, Copy]]:
    """A copy that was witnessed and lost, a copy on either database with a history of its own, and an empty copy."""
    witness, lost, empty = (open_database(f"sqlite:///{tmp_path}/{name}") for name in ("witness", "lost", "empty"))
    yield tuple(Copy(database, witness, calibrated.model_dump_json()) for database in (lost, engine, empty))
    for database in (witness, lost, empty):
        database.dispose()


@pytest.mark.parametrize(
    ("lost", "own"),
    [
        ("create 1; sign", "create 10; sign"),
        ("create 2; sign", "create 2; upload"),
        ("create 2; group one 3; join one; sign", "group one 3"),
        ("create 2; upload; cohort 2; sign", ""),
    ],
    ids=["two budgets", "an upload", "a group", "mixed cohorts"],
)
def test_a_knowledge_base_that_ends_stays_ended(copies: tuple[Copy, Copy, Copy], lost: str, own: str) -> None:
    gone, here, empty = copies
    gone.play(lost)
    gone.witness.catch_up()
    here.play(own)
    here.acknowledge()
    here.check_ended()
    with pytest.raises(BudgetExistsError):
        here.create(3)
    empty.acknowledge()  # a backup from before both histories
    empty.check_ended()


def test_a_group_with_events_in_both_histories_is_closed(copies: tuple[Copy, Copy, Copy]) -> None:
    """Otherwise a unit of a later member would also pay for the promise that is not counted there."""
    gone, here, empty = copies
    gone.play("create 2; group one 3; join one; sign")
    gone.witness.catch_up()
    here.play("create 2; group two 3; join two")
    with here.database.begin() as connection:
        here.ledger.budgets.open(connection, "other", 3, 1e-4)
    here.ledger.groups.join("two", "other", by="root")
    here.acknowledge()
    empty.acknowledge()
    for copy in (here, empty):
        copy.group("one", 3)
        assert copy.ledger.budgets.status("other").archived_at is not None
        with copy.database.begin() as connection:
            copy.ledger.budgets.open(connection, "after", 3, 1e-4)
        for group in ("one", "two"):
            with pytest.raises(GroupError, match="histories"):
                copy.ledger.groups.join(group, "after", by="root")


def test_a_knowledge_base_with_events_in_one_history_goes_on(copies: tuple[Copy, Copy, Copy]) -> None:
    gone, here, _ = copies
    gone.play("create 2; group one 3; join one; cohort 2; sign")
    gone.witness.catch_up()
    here.group("two", 3)
    here.acknowledge()
    assert here.left() == [ANSWERS]
    assert here.ledger.budgets.status("kb").open_cohorts == (1, 2)
    assert here.trail.head().particulars.ended == ()


def test_events_since_the_loss_was_counted_are_not_overlooked(copies: tuple[Copy, Copy, Copy]) -> None:
    gone, here, _ = copies
    gone.play("create 2; upload; sign")
    gone.witness.catch_up()
    here.create(2)
    loss = find_loss(here.trail, here.witness)
    here.cohort(2)
    before = here.trail.head()
    with pytest.raises(LedgerRestoredError, match="counted"):
        acknowledge(here.database, here.witness, loss, by="root")
    assert (here.trail.head(), here.left()) == (before, [])
    here.acknowledge()
    here.check_ended()


def test_a_transaction_that_found_it_open_finishes_before_it_ends(copies: tuple[Copy, Copy, Copy]) -> None:
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
