"""Whatever is opened, closed, signed, uploaded, forgotten and restored, no unit pays more than one cohort's budget.

At any point inside an operation backups are taken, processes die and others work, too (:meth:`History.inside`).
"""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache, wraps
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule, run_state_machine_as_test

from accounting.ledger import cohorts, restoring
from accounting.ledger.amounts import Pair
from accounting.ledger.charges import AnswersExhaustedError
from accounting.ledger.errors import BudgetExceededError, CohortError, KnowledgeBaseArchivedError
from accounting.ledger.events import CohortClosed, ExemplarsIngested, KnowledgeBaseArchived, UploadEnded
from accounting.ledger.quotas import NO_KEY
from accounting.ledger.restoring import BringBack, acknowledge, find_loss
from accounting.ledger.trail import AuditEvent
from accounting.ledger.witness import LedgerRestoredError
from accounting.plans.plan import CalibratedPlan, calibrate_plan, load_plan
from exemplar_store import ExemplarStore, Row, UnknownUnitError, UnrecognisedUnitsError, ingest, staging, store
from exemplar_store.cohorts import spans
from exemplar_store.errors import UploadLostError
from exemplar_store.ingest import IngestOptions
from exemplar_store.tables import exemplars, units
from service.records import witness
from service.records.records import open_records
from service.settings import Settings
from tests.accounting.books import wrong
from tests.service.conftest import development

EACH = 2
"""ε of every cohort."""
ANSWERS = 1000
UNITS = ["ann", "bo"]


@pytest.fixture(autouse=True)
def none_waits_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload takes any other one for dead: both are in one thread here."""
    monkeypatch.setattr(staging, "LEASE_S", 0)


PLAN = """
knowledge_base: kb
budget: {epsilon: 1, delta: 1.0e-5}
tasks:
  topic:
    kind: classify
    labels: [red, blue]
    prompt: {exemplar: "{text} {label}", query: "{text}"}
    shots: 1
    ensemble: 2
    answers: 1000
    mechanism: {type: rnm_gaussian}
"""


@cache
def calibrated() -> CalibratedPlan:
    return calibrate_plan(load_plan(PLAN), 1000)


def document_of(name: str, number: int) -> str:
    """The document of a plan unlike all others of the knowledge base; its budget is not the one that is signed."""
    (task,) = calibrated().plan.tasks.values()
    tasks = {"topic": task.model_copy(update={"share": 1.0 + number})}
    plan = calibrated().plan.model_copy(update={"knowledge_base": name, "tasks": tasks})
    return calibrated().model_copy(update={"plan": plan}).model_dump_json()


class Deployment:
    """Exemplars and ledger in one database; on SQLite with a witness and backups."""

    def __init__(self, url: str, folder: Path | None) -> None:
        self.url, self.folder = url, folder
        self.at_point: Callable[[bool], None] | None = None
        self._open()

    def _open(self) -> None:
        self.records = records = open_records(self._settings(), restored=True)
        self.database, self.store, self.ledger = records.database, records.store, records.ledger
        self.trail, self.witness = records.audit, records.witness
        # Before SQLite locks the database for a transaction that writes, and before that is committed.
        sa.event.listen(self.database, "begin", self._begins)
        sa.event.listen(self.database, "before_cursor_execute", self._executes)
        sa.event.listen(self.database, "commit", self._commits)

    def _settings(self) -> Settings:
        return development(Path(), database_url=self.url, witness_url=None if self.folder else "none")

    def _begins(self, connection: sa.Connection) -> None:
        if connection.dialect.name == "postgresql":
            self._commits(connection, locked=False)

    def _executes(self, connection: sa.Connection, _cursor: object, statement: str, *_: object) -> None:
        if statement == "BEGIN IMMEDIATE":
            self._commits(connection, locked=False)

    def _commits(self, connection: sa.Connection, *, locked: bool = True) -> None:
        if self.at_point and not connection.get_execution_options().get("read_only", False):
            self.at_point(locked)

    def back_up(self) -> None:
        with closing(sqlite3.connect(self.folder / "service.sqlite")) as source:
            (self.folder / "backup.sqlite").unlink(missing_ok=True)
            with closing(sqlite3.connect(self.folder / "backup.sqlite")) as target:
                source.backup(target)

    def restore(self) -> None:
        self.close()
        for file in self.folder.glob("service.sqlite*"):
            file.unlink()
        shutil.copy(self.folder / "backup.sqlite", self.folder / "service.sqlite")
        self._open()

    def close(self) -> None:
        self.database.dispose()
        if self.witness:
            self.witness._database.dispose()


def in_a_folder_of(folder: Path) -> Deployment:
    """A deployment with a witness and backups."""
    folder = Path(tempfile.mkdtemp(dir=folder))
    return Deployment(f"sqlite:///{folder}/service.sqlite", folder)


def words(step: str) -> list[Any]:
    return [int(word) if word.isdigit() else word for word in step.split()]


class Killed(BaseException):
    """The process dies."""


def an_operation(does: Callable[..., None]) -> Callable[..., None]:
    """Give a method points at which something else happens if :meth:`History.inside` planned it."""

    @wraps(does)
    def doing(self: History, *arguments: object) -> None:
        if self.here.at_point:  # inside of another, whose points go on being counted
            does(self, *arguments)
            return
        self.here.at_point, self.reached = self.point, 0
        try:
            does(self, *arguments)
        except Killed:
            self.here.database.dispose()
        finally:
            self.here.at_point, self.planned = None, []

    return doing


class History:
    """What admins do with a knowledge base, and who has paid: the units that a plan with answers left could draw."""

    def __init__(self, here: Deployment, name: str) -> None:
        self.here, self.name = here, name
        self.paid: defaultdict[str, set[str]] = defaultdict(set)  # documents of plans, by unit
        self.epsilon: dict[str, int] = {}
        self.numbers = itertools.count()  # plans may be signed at the same time
        self.planned: list[tuple[int, tuple[object, ...]]] = []
        self.reached = 0
        with here.database.begin() as connection:
            here.store.create(connection, name, public_size=9, fields=["text"], embedded_field="text")
            here.ledger.budgets.open(connection, name, EACH, 0)

    @property
    def histories(self) -> list[History]:
        return [self]

    def inside(self, point: int, does: str, *arguments: object) -> None:
        """At the nth point of the next operation, do something else, too.

        A transaction has a point where it begins and one where it commits; a draw has another after its charge.
        """
        self.planned.append((point, (does, *arguments)))

    def point(self, locked: bool) -> None:
        self.reached += 1
        for _, (does, *arguments) in [one for one in self.planned if one[0] == self.reached]:
            if does == "crash":
                self.planned = [(point, ("crash",)) for point in range(self.reached, 99)]  # it does not come back
                raise Killed
            if does == "back_up" or not locked:
                getattr(self, does)(*arguments)

    @an_operation
    def open(self) -> None:
        with suppress(UnrecognisedUnitsError, KnowledgeBaseArchivedError):
            self.here.records.open_cohort(self.name, epsilon=EACH, delta=0, public_size=9, by="root")

    @an_operation
    def shut(self, number: int) -> None:
        with suppress(CohortError):  # there is none, or it is the newest, or closed
            self.here.ledger.cohorts.close(self.name, number, by="root")

    @an_operation
    def archive(self) -> None:
        with suppress(KnowledgeBaseArchivedError):
            self.here.ledger.cohorts.archive(self.name, by="root")

    @an_operation
    def sign(self, epsilon: int, *cohorts: int) -> None:
        """Sign a plan that draws on some cohorts, or on the newest."""
        document = document_of(self.name, next(self.numbers))
        self.epsilon[document] = epsilon
        with suppress(BudgetExceededError, CohortError):
            self.here.ledger.budgets.sign(
                self.name,
                epsilon=epsilon,
                delta=0,
                accountant="pld",
                document=document,
                tasks=[("topic", ANSWERS)],
                signed_by="root",
                cohorts=cohorts or self.here.ledger.cohorts.not_closed(self.name)[-1:],
            )

    @an_operation
    def upload(self, unit: str) -> None:
        records = self.here.records
        with suppress(KnowledgeBaseArchivedError, UploadLostError):
            try:
                records.ingest(self.name, [Row(1, unit, {"text": unit})], None, by="root")
            except LedgerRestoredError:  # by a service without the witness
                replace(records, witness=None).ingest(self.name, [Row(1, unit, {"text": unit})], None, by="root")

    @an_operation
    def forget(self, unit: str) -> None:
        with suppress(UnknownUnitError):
            self.here.records.forget(self.name, unit, by="root")

    @an_operation
    def draw(self) -> None:
        """Draw once for every plan that has answers left."""
        ledger, store = self.here.ledger, self.here.store
        if self.here.witness:
            with suppress(LedgerRestoredError):
                self.here.witness.catch_up()  # as services do all the time
        for plan in ledger.budgets.plans(self.name):
            arrived = store.get(self.name).arrived
            try:
                ledger.charge(ledger.budgets.task(f"{self.name}.topic@{plan.version}"), os.urandom(32), key_id=NO_KEY)
            except (AnswersExhaustedError, LedgerRestoredError):
                continue
            if self.here.at_point:
                self.point(locked=False)
            for slot in store.every_unit(self.name, plan.cohorts, arrived=arrived):
                self.paid[slot[0].fields["text"]].add(plan.document)
        for unit, plans in self.paid.items():
            assert sum(self.epsilon[plan] for plan in plans) <= EACH, f"{unit} pays for {plans}"

    def back_up(self) -> None:
        self.here.back_up()

    def restore(self) -> None:
        if (self.here.folder / "backup.sqlite").exists():
            self.here.restore()

    def acknowledge(self) -> None:
        if (loss := find_loss(self.here.trail, self.here.witness)) is not None:
            acknowledge(self.here.database, self.here.witness, loss, by="root", outside=witness.bring_back)

    def play(self, story: str) -> None:
        """Take the steps of a story such as ``upload ann; sign 2 1``, drawing after most."""
        for does, *arguments in map(words, story.split("; ")):
            getattr(self, does)(*arguments)
            if does not in ("inside", "draw", "back_up"):
                self.draw()


INNER = ["draw", "open", "archive", "sign 2", "sign 1", "upload ann", "upload bo", "forget ann", "shut 1"]
WITH_BACKUPS = [*["back_up"] * len(INNER), "crash", *INNER]
POINT, COHORT, UNIT = st.integers(1, 12), st.integers(1, 3), st.sampled_from(UNITS)


class Steps(RuleBasedStateMachine):
    """Steps at random, each in one knowledge base of a :class:`History` or of several."""

    knowledge_bases = Bundle("knowledge_bases")

    def __init__(self, history: Any) -> None:
        super().__init__()
        self.history = history

    @initialize(target=knowledge_bases)
    def begin(self) -> Any:
        return multiple(*self.history.histories)

    @rule(at=knowledge_bases)
    def open(self, at: History) -> None:
        at.open()

    @rule(at=knowledge_bases, number=COHORT)
    def shut(self, at: History, number: int) -> None:
        at.shut(number)

    @rule(at=knowledge_bases, epsilon=st.integers(1, EACH), cohorts=st.just(()) | st.tuples(COHORT, COHORT))
    def sign(self, at: History, epsilon: int, cohorts: Sequence[int]) -> None:
        at.sign(epsilon, *cohorts)

    @rule(at=knowledge_bases, unit=UNIT)
    def upload(self, at: History, unit: str) -> None:
        at.upload(unit)

    @rule(at=knowledge_bases, unit=UNIT)
    def forget(self, at: History, unit: str) -> None:
        at.forget(unit)

    @rule(at=knowledge_bases, point=POINT, step=st.sampled_from(INNER))
    def inside(self, at: History, point: int, step: str) -> None:
        at.inside(point, *words(step))

    @rule()
    def draw(self) -> None:
        self.history.draw()

    def teardown(self) -> None:
        self.draw()
        assert wrong(self.history.here.database) == []
        self.history.here.close()


class StepsAndRestores(Steps):
    """Steps with backups and restores among them, and backups inside them."""

    @rule()
    def back_up(self) -> None:
        self.history.histories[0].back_up()

    @rule()
    def restore(self) -> None:
        self.history.histories[0].restore()

    @rule()
    def acknowledge(self) -> None:
        self.history.histories[0].acknowledge()

    @rule(at=Steps.knowledge_bases, point=POINT, step=st.sampled_from(WITH_BACKUPS))
    def inside(self, at: History, point: int, step: str) -> None:
        super().inside(at, point, step)

    def teardown(self) -> None:  # after a loss that was not acknowledged the books are wrong
        self.draw()
        self.history.here.close()


def any_history(fresh: Callable[[], Any], examples: int, steps: type[Steps] = Steps) -> None:
    some = settings(
        max_examples=examples,
        stateful_step_count=20,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: steps(fresh()), settings=some)


def is_found(fresh: Callable[[], Any], story: str, bugs: Sequence[tuple], monkeypatch) -> None:
    """Check that ann pays too much in a story with the bugs, and that no unit does without them."""
    fresh().play(story)
    for bug in bugs:
        monkeypatch.setattr(*bug)
    with pytest.raises(AssertionError, match="ann pays"):
        fresh().play(story)


@pytest.fixture
def fresh(database_url: str) -> Callable[[], History]:
    numbers = itertools.count()
    return lambda: History(Deployment(database_url, None), f"kb{next(numbers)}")


@pytest.fixture
def restorable(tmp_path: Path) -> Callable[[], History]:
    return lambda: History(in_a_folder_of(tmp_path), "kb")


@pytest.mark.slow
def test_no_unit_pays_more_than_one_cohorts_budget(fresh: Callable[[], History]) -> None:
    any_history(fresh, 12)


@pytest.mark.slow
def test_no_unit_pays_more_after_any_restore(restorable: Callable[[], History]) -> None:
    any_history(restorable, 20, StepsAndRestores)


@pytest.mark.parametrize(
    "story",
    [
        "upload ann; sign 1; archive; draw; back_up; restore; acknowledge",
        "back_up; open; upload ann; sign 1; archive; restore; acknowledge",
        "back_up; archive; restore; acknowledge; restore; acknowledge",
        "back_up; open; restore; archive; acknowledge; restore; acknowledge",
    ],
)
def test_what_was_archived_stays_so_through_every_restore(restorable: Callable[[], History], story: str) -> None:
    history = restorable()
    history.play(story)
    here = history.here
    assert here.ledger.budgets.status("kb").archived_at is not None
    cohorts, signed = len(here.ledger.budgets.status("kb").cohorts), len(here.ledger.budgets.plans("kb"))
    assert len(here.trail.events(kinds=[KnowledgeBaseArchived.kind])) == 1
    assert len(here.trail.events(kinds=[CohortClosed.kind])) == cohorts
    history.play("open; sign 1; sign 1 1")
    assert len(here.ledger.budgets.status("kb").cohorts) == cohorts
    assert len(here.ledger.budgets.plans("kb")) == signed
    assert wrong(here.database) == []
    history.here.close()


def of_the_newest_alone(number: int, signed) -> list[Pair]:
    return [(plan.epsilon, plan.delta) for plan in signed if number == max(plan.cohorts)]


def with_the_tag(opened: ExemplarStore, *arguments: Any, forget: Callable[..., int] = ExemplarStore.forget) -> int:
    deleted = forget(opened, *arguments)
    with opened._database.begin() as connection:
        theirs = sa.and_(exemplars.c.kb_id == units.c.kb_id, exemplars.c.position == units.c.position)
        connection.execute(sa.delete(units).where(~sa.exists().where(theirs)))
    return deleted


@pytest.mark.parametrize(
    ("story", "bug"),
    [
        ("upload ann; open; sign 2 1 2; sign 2 1", (cohorts, "charged_to", of_the_newest_alone)),
        ("upload ann; sign 2; open; forget ann; upload ann; sign 2", (ExemplarStore, "forget", with_the_tag)),
        ("upload ann; sign 2; open; sign 2 2", (store, "spans", lambda row, _cohorts, at: spans(row, range(9), at))),
    ],
    ids=["a plan is charged to its newest cohort alone", "a unit comes back as a new one", "every cohort is drawn on"],
)
def test_a_bug_would_be_found(fresh: Callable[[], History], monkeypatch, story: str, bug: tuple) -> None:
    is_found(fresh, story, [bug], monkeypatch)


AFTER_A_RESTORE = {
    "lost uploads are not noted": (
        "back_up; upload ann; sign 2; restore; acknowledge; open; upload ann; sign 2",
        (witness, "note_lost_arrivals", lambda _connection, _name: None),
    ),
    "cohorts that may be mixed go on": (
        "back_up; upload ann; sign 2; open; upload bo; sign 2; restore; acknowledge; upload ann",
        (restoring, "mixed", lambda _loss: set()),
    ),
    "what has two histories goes on": (
        "upload ann; back_up; sign 2; restore; sign 2; acknowledge",
        (restoring.Loss, "ended", ()),
    ),
    "somebody came after the charge": (
        "sign 2; inside 3 upload ann; inside 6 back_up; draw; restore; acknowledge; open; upload ann; sign 2",
        (store, "spans", lambda row, cohorts, _arrived: spans(row, cohorts)),
    ),
    "a cohort was opened after it": (
        "inside 3 back_up; upload ann; sign 2; open; upload bo; sign 2; restore; acknowledge; upload ann",
        (restoring, "mixed", lambda loss, right=restoring.mixed: right(replace(loss, earlier=(), lost=()))),
    ),
}


@pytest.mark.parametrize("name", AFTER_A_RESTORE)
def test_a_bug_would_be_found_after_a_restore(restorable: Callable[[], History], monkeypatch, name: str) -> None:
    story, bug = AFTER_A_RESTORE[name]
    is_found(restorable, story, [bug], monkeypatch)


OPERATIONS = {
    "sign 2": ("upload ann", "draw", "sign 2"),
    "upload ann; sign 1; open": ("open", "shut 1", "archive", "forget ann", "upload bo"),
}


def every_point(restorable: Callable[[], History]) -> None:
    """Take a backup at each point of each operation."""
    for before, operation in [(before, one) for before, some in OPERATIONS.items() for one in some]:
        for point in itertools.count(1):
            history = restorable()
            history.play(f"{before}; inside {point} back_up; {operation}")
            if not (history.here.folder / "backup.sqlite").exists():
                history.here.close()
                break
            history.play("sign 2; restore; acknowledge; open; upload ann; sign 2; sign 2 2; draw")
            history.here.close()
        assert point > 1


def back_but_ends(connection: sa.Connection, event: AuditEvent, right: BringBack = witness.bring_back) -> list:
    return [] if event.kind == UploadEnded.kind else right(connection, event)


NO_END_COUNTS = ((restoring, "_begun", lambda _trail, _common: ()), (witness, "bring_back", back_but_ends))


@pytest.mark.slow
def test_a_backup_at_any_point_inside_an_operation_lets_no_unit_pay_twice(
    restorable: Callable[[], History], monkeypatch
) -> None:
    every_point(restorable)
    for bug in NO_END_COUNTS:
        monkeypatch.setattr(*bug)
    with pytest.raises(AssertionError, match="ann pays for"):
        every_point(restorable)


def test_an_upload_is_witnessed_before_anything_is_stored(restorable: Callable[[], History], monkeypatch) -> None:
    def known_before() -> set[bool]:
        here, known = (history := restorable()).here, set()

        def executes(_connection: sa.Connection, _cursor: object, statement: str, *_: object) -> None:
            if statement.startswith(("INSERT INTO units", "INSERT INTO exemplars")):
                known.add(ExemplarsIngested.kind in {event.kind for event in here.witness.events(0)})

        sa.event.listen(here.database, "before_cursor_execute", executes)
        history.upload("ann")
        here.close()
        return known

    assert known_before() == {True}

    def late(upload: IngestOptions, *arguments: Any, right: Callable[..., Any] = ingest._write) -> Any:
        done = right(replace(upload, announce=lambda: None), *arguments)
        upload.announce()
        return done

    monkeypatch.setattr(ingest, "_write", late)
    assert known_before() == {False}


def test_an_upload_ends_also_if_it_fails_and_one_that_crashed_hinders_nothing(restorable: Callable[[], History]):
    history = restorable()
    here = history.here
    history.play("upload ann; inside 3 crash; upload bo; open; upload bo; sign 2; back_up; restore; acknowledge; open")
    assert len(here.store.get("kb").public_sizes) == 3
    history.play("inside 3 archive; upload cy")
    begun, ended = ExemplarsIngested.kind, UploadEnded.kind
    events = here.trail.events(kinds=[begun, ended])
    assert [event.kind for event in events] == [begun, ended, begun, begun, ended, begun, ended]
    assert events[0].at == events[1].at  # the time of storing reveals how much is stored
    here.close()


def test_an_upload_that_was_begun_counts_as_lost_once_a_restore_loses_something(restorable: Callable[[], History]):
    """Only its announcement is there if it crashed, or if the backup was taken inside it."""
    for upload in ("inside 3 crash; upload bo", "inside 3 back_up; upload bo"):
        for own, ended in (("", False), ("open", True)):
            history = restorable()
            here = history.here
            history.play(f"upload ann; {upload}")
            if "crash" in upload:
                history.back_up()
            here.records.keys.create("lost with the restore", "analyst")
            here.witness.catch_up()
            history.play("; ".join(filter(None, ["restore", own, "acknowledge"])))
            status = here.ledger.budgets.status("kb")
            assert (status.archived_at is not None) is ended  # a cohort was opened: which units are in which is unknown
            before = len(status.cohorts)
            history.play("open")
            assert len(here.ledger.budgets.status("kb").cohorts) == before == 1 + ended
            here.close()


def test_a_cohort_lost_in_a_restore_is_there_again(restorable: Callable[[], History]) -> None:
    history = restorable()
    history.play("upload ann; sign 2; back_up; open; upload bo; sign 1; restore; acknowledge; upload bo; draw")
    status = history.here.ledger.budgets.status("kb")
    assert [(one.epsilon, one.free_epsilon) for one in status.cohorts] == [(2, 0), (2, 1)]
    assert [slot[0].fields["text"] for slot in history.here.store.every_unit("kb", [2])] == ["bo"]
    assert all(task.left for task in status.tasks)
    history.open()  # another unit that was uploaded and lost would be taken for new
    assert len(history.here.store.get("kb").public_sizes) == 2
