"""A ledger restored from a backup is refused, and going on from it gives no answer back."""

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from accounting.ledger import restoring, tables
from accounting.ledger.budgets import SignedTask
from accounting.ledger.charges import AnswersExhaustedError, Charged, ChargeStateError, Ledger, Release
from accounting.ledger.clock import utc_now
from accounting.ledger.errors import BudgetExistsError
from accounting.ledger.events import KeyCreated, LedgerRestored, Mark
from accounting.ledger.restoring import acknowledge, find_loss
from accounting.ledger.trail import AuditTrail, append
from accounting.ledger.witness import LedgerRestoredError, Witness, WitnessUnavailableError, witnessed
from accounting.plans.plan import CalibratedPlan
from accounting.replay.trail import verify
from service.records.database import open_database
from tests.accounting.books import opened, signed, wrong

ANSWERS = 4


class Deployment:
    """A ledger with its witness, and backups of the ledger: on SQLite files, as an operator would copy them."""

    def __init__(self, folder: Path, document: str) -> None:
        self.folder = folder
        self.document = document
        self.witness_database = open_database(f"sqlite:///{folder}/witness.sqlite")
        self.open()

    def open(self) -> None:
        self.database = open_database(f"sqlite:///{self.folder}/ledger.sqlite")
        tables.metadata.create_all(self.database)
        self.trail = AuditTrail(self.database)
        self.witness = Witness(self.database, self.witness_database)
        self.witness.create()
        self.ledger = Ledger(self.database, witness=self.witness)

    def create(self, name: str = "kb") -> None:
        with self.database.begin() as connection:
            self.ledger.budgets.open(connection, name, 2, 1e-4)

    def sign(self, name: str = "kb") -> None:
        document = self.document.replace(':"kb"', f':"{name}"')
        signed(self.ledger, name, document=document, again=self.ledger.budgets.newest_equal(name, document))

    def key(self, key: str) -> None:
        with self.database.begin() as connection:
            append(connection, utc_now(), KeyCreated(key=key, name=key, role="analyst", quota=None, by="root"))

    def task(self, name: str = "kb") -> SignedTask:
        return self.ledger.budgets.task(f"{name}.topic")

    def left(self, name: str = "kb") -> int:
        return self.ledger.answers_left(self.task(name))

    def charge(self, query: bytes, name: str = "kb", key: str = "ana") -> Charged:
        charge = self.ledger.charge(self.task(name), query, key_id=key)
        assert isinstance(charge, Charged)
        return charge

    def answer(self, query: bytes, name: str = "kb") -> str:
        charge = self.charge(query, name)
        self.ledger.release(charge.id, {"label": "a"})
        return charge.id

    def back_up(self, name: str = "backup") -> None:
        self.database.dispose()
        shutil.copy(self.folder / "ledger.sqlite", self.folder / f"{name}.sqlite")

    def restore(self, name: str = "backup") -> None:
        self.database.dispose()
        for file in self.folder.glob("ledger.sqlite*"):
            file.unlink()
        shutil.copy(self.folder / f"{name}.sqlite", self.folder / "ledger.sqlite")
        self.open()

    def go_on(self, name: str = "backup") -> None:
        """Restore a backup, and acknowledge the loss."""
        self.restore(name)
        self.acknowledge()

    def acknowledge(self, outside: restoring.BringBack = lambda _connection, _event: []) -> None:
        loss = find_loss(self.trail, self.witness)
        assert loss is not None
        acknowledge(self.database, self.witness, loss, by="root", outside=outside)

    def problems(self) -> list[str]:
        """List problems in the tables, the trail and the witness."""
        self.witness.catch_up()
        found = wrong(self.database)
        head = self.trail.head()
        if self.witness.head() != Mark(head.sequence, head.hash):
            found.append("the witness is behind")
        return [*found, *verify(self.trail.export(), recompute=False).problems]


@pytest.fixture
def deployment(tmp_path: Path, calibrated: CalibratedPlan) -> Iterator[Deployment]:
    deployed = Deployment(tmp_path, calibrated.model_dump_json())
    yield deployed
    deployed.database.dispose()
    deployed.witness_database.dispose()


@pytest.fixture
def running(deployment: Deployment) -> Deployment:
    """A deployment with a plan, one answer given, and a backup made after the answer."""
    deployment.create()
    deployment.sign()
    deployment.key("ana")
    deployment.answer(b"1")
    deployment.back_up()
    return deployment


def test_a_restored_ledger_is_refused_and_charges_nothing(running: Deployment) -> None:
    running.answer(b"2")
    running.restore()
    with pytest.raises(LedgerRestoredError, match=r"backup.*dpicl ledger status"):
        running.witness.catch_up()
    events = running.trail.head()
    for query in (b"2", b"3"):
        with pytest.raises(LedgerRestoredError):
            running.charge(query)
    assert running.trail.head() == events
    assert running.left() == ANSWERS - 1
    assert isinstance(running.ledger.charge(running.task(), b"1", key_id="ana"), Release)  # answered before: stays free


def test_a_restore_under_a_running_service_charges_nothing(running: Deployment) -> None:
    """The very first query finds it, and its charge is taken back before anything private is read."""
    running.answer(b"2")
    running.database.dispose()
    running.restore()
    with pytest.raises(LedgerRestoredError):
        running.charge(b"3")
    assert [event.kind for event in running.trail.events(newest_first=True, limit=2)] == ["void", "charge"]
    assert running.left() == ANSWERS - 1


def test_going_on_gives_no_answer_back(running: Deployment) -> None:
    lost = {running.answer(b"2"), running.answer(b"3")}
    running.go_on()
    assert running.left() == 1
    [status] = running.ledger.budgets.statuses()[0].tasks
    assert (status.charged, status.states) == (3, {"charged": 0, "released": 1, "voided": 0, "lost": 2})
    assert running.problems() == []
    [restored] = running.trail.events(kinds=[LedgerRestored.kind])
    assert restored.particulars.charges == 2
    assert {e.particulars.charge for e in running.trail.events(kinds=["lost"])} == lost
    running.answer(b"4")
    with pytest.raises(AnswersExhaustedError):
        running.charge(b"5")
    assert running.problems() == []
    assert find_loss(running.trail, running.witness) is None


def test_restoring_again_and_again_gives_nothing_back(running: Deployment) -> None:
    """The attack: answer, restore, acknowledge, for as long as anything is answered."""
    given = 1
    for round_ in range(10):
        try:
            running.answer(f"new {round_}".encode())
        except AnswersExhaustedError:
            break
        given += 1
        running.restore()
        running.acknowledge()
        assert running.problems() == []
    assert given == ANSWERS


def test_without_a_witness_the_same_attack_succeeds(running: Deployment) -> None:
    """The test above passes because of the witness, and for no other reason."""
    given = 1
    for round_ in range(10):
        running.ledger = Ledger(running.database)
        running.answer(f"new {round_}".encode())
        given += 1
        running.restore()
    assert given > ANSWERS


@pytest.mark.parametrize("backup", ["before", "between"])
def test_what_failed_publicly_stays_given_back(running: Deployment, backup: str) -> None:
    charge = running.charge(b"2")
    if backup == "between":
        running.back_up()
    running.ledger.void(charge.id, "engine-unavailable")
    for query in (b"3", b"4", b"5"):
        running.answer(query)
    running.go_on()
    assert running.left() == 0
    assert running.problems() == []


def test_holders_from_before_the_restore_keep_their_own_answers(running: Deployment) -> None:
    held = [running.charge(query).id for query in (b"2", b"3")]
    running.go_on()
    assert [running.ledger.release(charge, {"label": charge}).answer["label"] for charge in held] == held
    assert running.problems() == []


def test_plans_and_knowledge_bases_lost_take_their_budget_again(running: Deployment) -> None:
    running.sign()
    running.answer(b"2")
    running.create("other")
    running.sign("other")
    running.key("bo")
    running.answer(b"3", "other")
    running.go_on()
    assert running.task().version == 2
    assert (running.left(), running.left("other")) == (ANSWERS - 1, ANSWERS - 1)
    assert [status.tightest.free_epsilon for status in running.ledger.budgets.statuses()] == [0, 1]
    assert running.problems() == []
    with running.database.begin() as connection:
        assert running.ledger.budgets.has(connection, "other", 2, 1e-4)
        with pytest.raises(BudgetExistsError):
            running.ledger.budgets.has(connection, "other", 3, 1e-4)


def test_keys_lost_are_in_the_trail_as_revoked(running: Deployment) -> None:
    running.key("bo")
    running.charge(b"2", key="bo")
    running.restore()
    seen = []
    running.acknowledge(outside=lambda _connection, event: seen.append(event.kind) or [])
    assert seen == ["key.created", "charge"]
    assert [e.particulars.key for e in running.trail.events(kinds=["key.revoked"])] == ["bo"]
    assert running.problems() == []


def test_of_two_copies_only_one_goes_on(running: Deployment, tmp_path: Path) -> None:
    """A second service runs on a copy of the database with the same witness, as if the budget existed twice."""
    copy = open_database(f"sqlite:///{tmp_path}/backup.sqlite")
    other = Ledger(copy, witness=Witness(copy, running.witness_database))
    running.answer(b"2")
    with pytest.raises(LedgerRestoredError):
        other.charge(other.budgets.task("kb.topic"), b"3", key_id="ana")
    running.answer(b"4")
    copy.dispose()
    assert running.problems() == []


@pytest.mark.parametrize("lost", ["answer", "sign"])
def test_a_knowledge_base_with_two_histories_ends_and_a_replay_reports_what_both_charged(
    running: Deployment, lost: str
) -> None:
    """A restored ledger answered without its witness.

    The acknowledgement cannot undo that mistake, but it ends the knowledge base.
    """
    running.create("other")
    running.sign("other")
    held = running.charge(b"held")
    running.back_up()
    running.answer(b"2") if lost == "answer" else running.sign()
    running.answer(b"2", "other")
    running.restore()
    running.ledger = Ledger(running.database)
    running.answer(b"4")
    running.ledger = Ledger(running.database, witness=running.witness)
    with pytest.raises(LedgerRestoredError):
        running.witness.catch_up()
    running.acknowledge()
    with pytest.raises(ChargeStateError):
        running.ledger.void(held.id)
    assert (running.left(), running.left("other")) == (0, ANSWERS - 1)
    assert running.ledger.budgets.status("kb").archived_at is not None
    assert [problem for problem in running.problems() if "its group was charged" not in problem] == []
    assert len(running.problems()) == (lost == "answer")


def test_a_newer_backup_restored_after_an_acknowledgement_is_another_history(running: Deployment) -> None:
    running.answer(b"2")
    running.back_up("newer")
    running.go_on()
    running.go_on("newer")
    assert running.left() == 0
    assert running.problems() == []  # both were charged the same


def test_a_new_witness_must_be_acknowledged(running: Deployment, tmp_path: Path) -> None:
    running.witness_database.dispose()
    (tmp_path / "witness.sqlite").unlink()
    running.witness_database = open_database(f"sqlite:///{tmp_path}/witness.sqlite")
    running.restore()
    with pytest.raises(LedgerRestoredError, match="witness is new"):
        running.witness.catch_up()
    running.acknowledge()
    assert running.problems() == []
    running.answer(b"2")


def test_an_empty_ledger_does_not_stand_in_for_a_lost_one(running: Deployment, tmp_path: Path) -> None:
    running.database.dispose()
    for file in tmp_path.glob("ledger.sqlite*"):
        file.unlink()
    running.open()
    with pytest.raises(LedgerRestoredError):
        running.witness.catch_up()


def test_an_older_witness_is_brought_up_to_date(running: Deployment, tmp_path: Path) -> None:
    running.witness_database.dispose()
    shutil.copy(tmp_path / "witness.sqlite", tmp_path / "old.sqlite")
    running.answer(b"2")
    running.witness_database.dispose()
    shutil.copy(tmp_path / "old.sqlite", tmp_path / "witness.sqlite")
    assert running.problems() == []


def test_a_changed_trail_is_refused(running: Deployment) -> None:
    charge = running.charge(b"2")
    with running.database.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER audit_events_no_update")
        connection.exec_driver_sql("UPDATE audit_events SET body = '{}' WHERE kind = 'plan.signed'")
    running.answer(b"3")  # witnessed before: found by a replay
    assert running.problems() != []
    running.ledger.release(charge.id, {"label": "a"})
    with running.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE audit_events SET body = '{}' WHERE sequence = (SELECT max(sequence) FROM audit_events)"
        )
    with pytest.raises(LedgerRestoredError, match="dpicl audit verify"):
        running.witness.catch_up()


def crash(running: Deployment) -> None:
    """Crash while a loss is acknowledged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.witness, "replace", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            running.acknowledge()


def test_an_acknowledgement_that_crashed_is_finished(running: Deployment) -> None:
    running.answer(b"2")
    running.restore()
    crash(running)
    with pytest.raises(LedgerRestoredError):
        running.witness.catch_up()
    loss = find_loss(running.trail, running.witness)
    assert (loss.acknowledged, loss.lost) == (True, ())
    running.acknowledge()
    assert running.left() == ANSWERS - 2
    assert running.problems() == []
    assert len(running.trail.events(kinds=[LedgerRestored.kind])) == 1


def test_answers_given_elsewhere_meanwhile_are_charged_too(running: Deployment, tmp_path: Path) -> None:
    """The service on the newer copy still ran while the loss was acknowledged."""
    running.sign()
    running.answer(b"2")
    running.back_up("newer")
    running.restore()
    elsewhere = open_database(f"sqlite:///{tmp_path}/newer.sqlite")
    other = Ledger(elsewhere, witness=Witness(elsewhere, running.witness_database))
    loss = find_loss(running.trail, running.witness)
    charge = other.charge(other.budgets.task("kb.topic"), b"3", key_id="ana")
    assert isinstance(charge, Charged)
    elsewhere.dispose()
    with pytest.raises(LedgerRestoredError, match="another copy"):
        acknowledge(running.database, running.witness, loss, by="root")
    running.acknowledge()
    assert running.task().version == 2
    assert running.left() == ANSWERS - 2
    assert running.problems() == []


def test_an_acknowledgement_that_crashed_hides_no_answers_given_on_another_copy(running: Deployment) -> None:
    running.create("other")
    running.sign("other")
    running.back_up()
    running.answer(b"2")
    running.answer(b"3")
    running.restore()
    crash(running)
    running.back_up("crashed")
    running.restore()
    Ledger(running.database).charge(running.task("other"), b"4", key_id="ana")
    running.acknowledge()
    running.answer(b"5", "other")
    running.go_on("crashed")
    assert running.left("other") == ANSWERS - 2
    assert running.trail.head().particulars.ended == ("kb",)


def test_the_witness_keeps_what_was_lost_and_is_never_rewritten(running: Deployment) -> None:
    running.answer(b"2")
    running.go_on()
    with running.witness_database.connect() as connection:
        lost = connection.execute(sa.select(witnessed.c.kind).where(witnessed.c.lost_in == 1)).scalars().all()
    assert lost == ["charge"]
    for statement in ("DELETE FROM witnessed_events", "UPDATE witnessed_events SET body = '{}'"):
        with pytest.raises(sa.exc.IntegrityError, match="cannot be"), running.witness_database.begin() as connection:
            connection.exec_driver_sql(statement)


def test_a_witness_that_does_not_answer_costs_nothing(running: Deployment, tmp_path: Path) -> None:
    with running.witness_database.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE witnessed_events RENAME TO elsewhere")
    for query in (b"2", b"3"):
        with pytest.raises(WitnessUnavailableError, match="DPICL_WITNESS_URL"):
            running.charge(query)
    assert running.left() == ANSWERS - 1
    assert len(running.trail.events(kinds=["void"])) == 1  # the second query asked the witness first
    with running.witness_database.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO witnessed_events")
    running.answer(b"4")
    assert running.problems() == []


def test_many_threads_share_a_copy(engine: sa.Engine, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """On both databases: every charge that returned was witnessed, in fewer transactions than charges."""
    tables.metadata.create_all(engine)
    on_postgres = engine.dialect.name == "postgresql"
    elsewhere = request.getfixturevalue("new_postgres")() if on_postgres else f"sqlite:///{tmp_path}/witness.sqlite"
    witness = Witness(engine, open_database(elsewhere))
    witness.create()
    ledger = opened(engine, 2, 1e-4, witness=witness)
    signed(ledger, tasks=[("topic", 100)])
    task = ledger.budgets.task("kb.topic")
    together = threading.Barrier(8)

    def charge(number: int) -> bool:
        together.wait(60)
        mine = ledger.charge(task, b"%d" % number, key_id="ana")
        return any(mine.id in event.body for event in witness.events(0))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(charge, range(8)))
    assert witness.events(0) == AuditTrail(engine).events()


@pytest.mark.parametrize("created", ["before", "after"])
def test_a_knowledge_base_whose_deletion_was_lost_is_deleted_again(running: Deployment, created: str) -> None:
    """A knowledge base of the same name, created since, keeps its own budget and what its plan took of it."""
    if created == "before":
        running.create("typo")
    running.back_up()
    if created == "after":
        running.create("typo")
    with running.database.begin() as connection:
        running.ledger.budgets.delete(connection, "typo", "root")
        running.ledger.budgets.open(connection, "typo", 1, 1e-4, "root")
    running.sign("typo")
    running.witness.catch_up()
    running.restore()
    running.acknowledge()
    (cohort,) = running.ledger.budgets.status("typo").cohorts
    assert (cohort.epsilon, cohort.free_epsilon) == (1, 0)
    assert running.problems() == []
