"""Whatever is opened, closed, signed, uploaded, forgotten and restored, nobody pays more than one cohort's budget."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import exemplar_store.tables
import service.records.tables
from accounting.ledger import cohorts, restoring, tables
from accounting.ledger.amounts import Pair
from accounting.ledger.charges import Ledger
from accounting.ledger.errors import BudgetExceededError, CohortError, KnowledgeBaseArchivedError
from accounting.ledger.events import CohortClosed, ExemplarsIngested, KnowledgeBaseArchived
from accounting.ledger.restoring import acknowledge, find_loss
from accounting.ledger.trail import AuditTrail
from accounting.ledger.witness import LedgerRestoredError, Witness
from accounting.replay.books import violations
from exemplar_store import ExemplarStore, Row, UnknownUnitError, UnrecognisedUnitsError, store
from exemplar_store.cohorts import spans
from exemplar_store.store import _delete_exemplars
from exemplar_store.tables import units
from service.records import witness
from service.records.database import open_database
from service.records.records import audited

KEY = bytes(range(32))
EACH = 2
"""ε of every cohort."""
UNITS = ["ann", "bo"]


class Deployment:
    """Exemplars and ledger in one database; on SQLite with a witness and backups."""

    def __init__(self, url: str, folder: Path | None) -> None:
        self.url, self.folder = url, folder
        self._open()

    def _open(self) -> None:
        self.database = open_database(self.url)
        for metadata in (exemplar_store.tables.metadata, tables.metadata, service.records.tables.metadata):
            metadata.create_all(self.database)
        self.store, self.ledger = ExemplarStore(self.database, KEY), Ledger(self.database)
        self.trail = AuditTrail(self.database)
        self.witness = None
        if self.folder:
            self.witness = Witness(self.database, open_database(f"sqlite:///{self.folder}/witness.sqlite"))
            self.witness.create()

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


class History:
    """All that admins can do with one knowledge base, and who has paid: whoever a plan with answers left could draw."""

    def __init__(self, here: Deployment, name: str) -> None:
        self.here, self.name = here, name
        self.paid: defaultdict[str, set[str]] = defaultdict(set)  # documents of plans, by unit
        self.epsilon: dict[str, int] = {}
        with here.database.begin() as connection:
            here.store.create(connection, name, public_size=9, fields=["text"], embedded_field="text")
            here.ledger.budgets.open(connection, name, EACH, 0)

    def open(self) -> None:
        def grant(connection: sa.Connection, number: int) -> None:
            granted = self.here.ledger.cohorts.open
            granted(connection, self.name, number, EACH, 0, public_size=9, by="root")

        with suppress(UnrecognisedUnitsError, KnowledgeBaseArchivedError):
            self.here.store.open_cohort(self.name, 9, grant)

    def shut(self, number: int) -> None:
        with suppress(CohortError):  # there is none, or it is the newest, or closed
            self.here.ledger.cohorts.close(self.name, number, by="root")

    def archive(self) -> None:
        self.here.ledger.cohorts.archive(self.name, by="root")

    def sign(self, epsilon: int, *cohorts: int) -> None:
        """Draw on some cohorts, or on the newest."""
        document = f"plan {len(self.epsilon)} of {self.name}"
        self.epsilon[document] = epsilon
        with suppress(BudgetExceededError, CohortError):
            self.here.ledger.budgets.sign(
                self.name,
                epsilon=epsilon,
                delta=0,
                accountant="pld",
                document=document,
                tasks=[("topic", 1)],
                signed_by="root",
                cohorts=cohorts or self.here.ledger.cohorts.not_closed(self.name)[-1:],
            )

    def upload(self, unit: str) -> None:
        def announce() -> None:
            with self.here.database.begin() as connection:
                audited(ExemplarsIngested(knowledge_base=self.name, by="root"))(connection)

        self.here.store.ingest(self.name, [Row(1, unit, {"text": unit})], announce=announce)

    def forget(self, unit: str) -> None:
        with suppress(UnknownUnitError):
            self.here.store.forget(self.name, unit)

    def draw(self) -> None:
        """By every plan that may; its charges are witnessed before."""
        try:
            if self.here.witness:
                self.here.witness.catch_up()
        except LedgerRestoredError:
            return
        left = {task.version for task in self.here.ledger.budgets.status(self.name).tasks if task.left}
        for plan in self.here.ledger.budgets.plans(self.name):
            if plan.version in left:
                for slot in self.here.store.every_unit(self.name, plan.cohorts):
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
        """``upload ann; sign 2 1``: what is done, a step each, drawing after each."""
        for step in story.split("; "):
            does, *arguments = step.split()
            getattr(self, does)(*(int(one) if one.isdigit() else one for one in arguments))
            self.draw()


STEPS = {
    "open": st.just(()),
    "shut": st.tuples(st.integers(1, 3)),
    "sign": st.one_of(
        st.tuples(st.integers(1, EACH)), st.tuples(st.integers(1, EACH), st.integers(1, 3), st.integers(1, 3))
    ),
    "upload": st.tuples(st.sampled_from(UNITS)),
    "forget": st.tuples(st.sampled_from(UNITS)),
    "draw": st.just(()),
}
AFTER_A_BACKUP = {"back_up": st.just(()), "restore": st.just(()), "acknowledge": st.just(())}


def any_history(fresh: Callable[[], History], examples: int, **more: st.SearchStrategy) -> None:
    """Steps at random, drawing now and then."""
    steps = st.sampled_from(sorted(STEPS | more))

    @settings(max_examples=examples, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        history = fresh()
        for _ in range(20):
            does = data.draw(steps)
            getattr(history, does)(*data.draw((STEPS | more)[does]))
        history.draw()
        if not more:
            with history.here.database.connect() as connection:
                assert violations(connection) == []
        history.here.close()

    check()


@pytest.fixture
def fresh(database_url: str) -> Callable[[], History]:
    numbers = itertools.count()
    return lambda: History(Deployment(database_url, None), f"kb{next(numbers)}")


@pytest.fixture
def restorable(tmp_path: Path) -> Callable[[], History]:
    numbers = itertools.count()

    def make() -> History:
        folder = tmp_path / f"{next(numbers)}"
        folder.mkdir()
        return History(Deployment(f"sqlite:///{folder}/service.sqlite", folder), "kb")

    return make


@pytest.mark.slow
def test_nobody_pays_more_than_one_cohorts_budget(fresh: Callable[[], History]) -> None:
    any_history(fresh, 12)


@pytest.mark.slow
def test_nor_after_any_restore(restorable: Callable[[], History]) -> None:
    any_history(restorable, 20, **AFTER_A_BACKUP)


@pytest.mark.parametrize(
    "story",
    [
        "upload ann; sign 1; archive; draw; back_up; restore; acknowledge",
        "back_up; open; upload ann; sign 1; archive; restore; acknowledge",
        "back_up; open; archive; restore; open; open; acknowledge",
        "back_up; open; sign 1 2; restore; archive; acknowledge",
        "back_up; archive; restore; archive; acknowledge",
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
    with here.database.connect() as connection:
        assert violations(connection) == []
    history.here.close()


def of_the_newest_alone(number: int, signed) -> list[Pair]:
    return [(plan.epsilon, plan.delta) for plan in signed if number == max(plan.cohorts)]


def with_the_tag(connection: sa.Connection, kb_id: int, position: int | None) -> int:
    deleted = _delete_exemplars(connection, kb_id, position)
    connection.execute(sa.delete(units).where(units.c.kb_id == kb_id, units.c.position == position))
    return deleted


@pytest.mark.parametrize(
    ("where", "what", "bug", "story"),
    [
        (cohorts, "charged_to", of_the_newest_alone, "upload ann; open; sign 2 1 2; sign 2 1"),
        (store, "_delete_exemplars", with_the_tag, "upload ann; sign 2; open; forget ann; upload ann; sign 2"),
        (store, "spans", lambda row, _cohorts: spans(row, range(9)), "upload ann; sign 2; open; sign 2 2"),
    ],
    ids=["a plan is charged to its newest cohort alone", "a unit comes back as a new one", "every cohort is drawn on"],
)
def test_a_bug_would_be_found(fresh: Callable[[], History], monkeypatch, where, what: str, bug, story: str) -> None:
    fresh().play(story)
    monkeypatch.setattr(where, what, bug)
    with pytest.raises(AssertionError, match="ann pays for"):
        fresh().play(story)


@pytest.mark.parametrize(
    ("where", "what", "bug", "story"),
    [
        (
            witness,
            "note_lost_arrivals",
            lambda _connection, _name: None,
            "back_up; upload ann; sign 2; restore; acknowledge; open; upload ann; sign 2",
        ),
        (
            restoring,
            "mixed",
            lambda _loss: set(),
            "back_up; upload ann; sign 2; open; upload bo; sign 2; restore; acknowledge; upload ann",
        ),
    ],
    ids=["lost uploads are not noted", "cohorts that may be mixed go on"],
)
def test_a_bug_would_be_found_after_a_restore(
    restorable: Callable[[], History], monkeypatch, where, what: str, bug, story: str
) -> None:
    restorable().play(story)
    monkeypatch.setattr(where, what, bug)
    with pytest.raises(AssertionError, match="ann pays for"):
        restorable().play(story)


def test_a_cohort_lost_in_a_restore_is_there_again(restorable: Callable[[], History]) -> None:
    history = restorable()
    history.play("upload ann; sign 2; back_up; open; upload bo; sign 1; restore; acknowledge; upload bo; draw")
    status = history.here.ledger.budgets.status("kb")
    assert [(one.epsilon, one.free_epsilon) for one in status.cohorts] == [(2, 0), (2, 1)]
    assert [slot[0].fields["text"] for slot in history.here.store.every_unit("kb", [2])] == ["bo"]
    assert all(task.left for task in status.tasks)
    history.open()  # whoever else was uploaded and lost would be taken for new
    assert len(history.here.store.get("kb").public_sizes) == 2
