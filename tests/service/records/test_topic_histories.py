"""Whatever is uploaded, forgotten, signed, drawn and restored, no unit pays on two topics of a task.

The histories of :mod:`tests.service.records.test_cohorts`, of tasks with topics: each topic has one answer, for which
every unit on it is drawn. Backups have two ages, and a second copy of the database may run under the same witness.
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
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import rule

import exemplar_store.topics
from accounting.ledger import restoring
from accounting.ledger.charges import AnswersExhaustedError
from accounting.ledger.errors import BudgetExceededError, CohortError, KnowledgeBaseArchivedError, LedgerError
from accounting.ledger.events import UploadEnded
from accounting.ledger.quotas import NO_KEY
from accounting.ledger.witness import LedgerRestoredError
from accounting.plans.plan import CalibratedPlan, calibrate_plan, load_plan
from exemplar_store import Row, staging, store
from exemplar_store.cohorts import spans
from exemplar_store.errors import UploadLostError
from exemplar_store.ingest import _Writer
from exemplar_store.knowledge_base import as_published
from service.answering.draw import draw_signed
from service.answering.plans.signing import promise
from service.settings import Settings
from tests.service.conftest import development
from tests.service.records.test_cohorts import (
    COHORT,
    POINT,
    UNITS,
    Deployment,
    History,
    Steps,
    an_operation,
    any_history,
    is_found,
    words,
)

ANSWERS = 1
PLAN = """
knowledge_base: kb
budget: {epsilon: 1, delta: 1.0e-5}
tasks:
  topic:
    kind: classify
    labels: [red, blue]
    prompt: {exemplar: "{text} {label}", query: "{text}"}
    shots: 4
    max_exemplars: 100
    ensemble: 2
    answers: 1
    topics: {by: field, field: product, names: [x, y], sizes: {x: 8, y: 8}}
    mechanism: {type: rnm_gaussian}
"""
AFTER_CHARGE = 3
"""The point of a draw between its first charge and its first sample."""
NONE = "none"
"""A product that names none of the topics."""


@cache
def calibrated() -> CalibratedPlan:
    return calibrate_plan(load_plan(PLAN), 1000)


class Copies(Deployment):
    """A deployment with backups of two ages, and two copies of the database that share a witness."""

    def __init__(self, folder: Path) -> None:
        self.running = "service"
        super().__init__("", Path(tempfile.mkdtemp(dir=folder)))

    def _open(self) -> None:
        self.url = f"sqlite:///{self.folder}/{self.running}.sqlite"
        super()._open()

    def _settings(self) -> Settings:
        return development(Path(), database_url=self.url, witness_url=f"sqlite:///{self.folder}/witness.sqlite")

    def back_up(self, name: str = "backup0") -> None:
        with closing(sqlite3.connect(self.folder / f"{self.running}.sqlite")) as source:
            (self.folder / f"{name}.sqlite").unlink(missing_ok=True)
            with closing(sqlite3.connect(self.folder / f"{name}.sqlite")) as target:
                source.backup(target)

    def restore(self, name: str = "backup0") -> None:
        self.close()
        for file in self.folder.glob(f"{self.running}.sqlite*"):
            file.unlink()
        shutil.copy(self.folder / f"{name}.sqlite", self.folder / f"{self.running}.sqlite")
        self._open()

    def run(self, name: str) -> None:
        self.close()
        self.running = name
        self._open()


class TopicHistory(History):
    """A history of a knowledge base whose plans have topics; who paid are the units that answers drew."""

    def __init__(self, here: Deployment, name: str) -> None:
        self.here, self.name = here, name
        self.drawn: defaultdict[tuple[str, str], list[str]] = defaultdict(list)  # topics, by unit and plan
        self.numbers = itertools.count()
        self.planned, self.reached = [], 0
        with here.database.begin() as connection:
            fields = ["text", "product", "label"]
            here.store.create(connection, name, public_size=1000, fields=fields, embedded_field="text")
            here.ledger.budgets.open(connection, name, 1000, 0.1)

    @an_operation
    def open(self) -> None:
        with suppress(KnowledgeBaseArchivedError):
            self.here.records.open_cohort(self.name, epsilon=1000, delta=0.1, public_size=9, by="root")

    @an_operation
    def sign(self) -> None:
        tasks = {"topic": calibrated().plan.tasks["topic"].model_copy(update={"share": 1.0 + next(self.numbers)})}
        plan = calibrated().plan.model_copy(update={"knowledge_base": self.name, "tasks": tasks})
        with suppress(BudgetExceededError, CohortError, KnowledgeBaseArchivedError):
            promise(self.here.records, calibrated().model_copy(update={"plan": plan}), "root")

    @an_operation
    def upload(self, unit: str, product: str, how: str = "add") -> None:
        """Add an exemplar to a unit's, or replace all of them, or begin with one on no topic."""
        rows = [Row(1, unit, {"text": unit, "product": product, "label": "red"})]
        if how == "both":
            rows.append(Row(2, unit, {"text": unit, "product": NONE, "label": "blue"}))
        records, replaces = self.here.records, how == "replace"
        with suppress(KnowledgeBaseArchivedError, UploadLostError):
            try:
                records.ingest(self.name, rows, None, by="root", replace=replaces)
            except LedgerRestoredError:  # by a service without the witness
                replace(records, witness=None).ingest(self.name, rows, None, by="root", replace=replaces)

    @an_operation
    def draw(self, topics: str = "xy") -> None:
        """Ask once on each of some topics of every plan; a plan's second answer is never released."""
        ledger, exemplars = self.here.ledger, self.here.store
        for plan in ledger.budgets.plans(self.name):
            for topic in topics:
                arrived = exemplars.get(self.name).arrived
                try:
                    task = ledger.budgets.on_topic(ledger.budgets.task(f"{self.name}.topic@{plan.version}"), topic)
                    charge = ledger.charge(task, os.urandom(32), key_id=NO_KEY)
                except (AnswersExhaustedError, LedgerRestoredError):
                    continue
                if self.here.at_point:
                    self.point(locked=False)
                slots = draw_signed(exemplars, task, arrived=arrived, embeddings=False)
                for unit in {exemplar.fields["text"] for slot in slots for exemplar in slot}:
                    self.drawn[unit, plan.document].append(topic)
                if topic == "x":
                    with suppress(LedgerError):
                        ledger.release(charge.id, {"label": "red"})
        for (unit, _plan), paid in self.drawn.items():
            assert len(paid) <= ANSWERS, f"{unit} pays on {paid}"

    def witnessed(self) -> None:
        """The witness is brought up to date, as services do all the time."""
        with suppress(LedgerError):
            self.here.witness.catch_up()

    def back_up(self, age: int = 0) -> None:
        self.here.back_up(f"backup{age}")

    def restore(self, age: int = 0) -> None:
        if (self.here.folder / f"backup{age}.sqlite").exists():
            self.here.restore(f"backup{age}")

    def switch(self) -> None:
        """Go on with the other copy of the database, which is made of this one at first."""
        other = "second" if self.here.running == "service" else "service"
        if not (self.here.folder / f"{other}.sqlite").exists():
            self.here.back_up(other)
        self.here.run(other)

    def play(self, story: str) -> None:
        """Take the steps of a story such as ``upload ann x; sign; draw``, and no others."""
        for does, *arguments in map(words, story.split("; ")):
            getattr(self, does)(*arguments)


PRODUCT = st.sampled_from(["x", "y", NONE])
WORDS = st.sampled_from(["add", "add", "replace", "both"])
INNER = [
    "draw",
    "draw x",
    "open",
    "sign",
    "upload ann x",
    "upload ann y",
    "upload bo x",
    "upload ann none",
    "forget ann",
]
WITH_BACKUPS = [*["back_up"] * 6, "back_up 1", "crash", *INNER]
TOPICS = st.sampled_from(["x", "y", "xy"])
UNIT = st.sampled_from(UNITS)


class TopicSteps(Steps):
    """Steps at random of one :class:`TopicHistory`."""

    @rule(at=Steps.knowledge_bases, number=COHORT)
    def shut(self, at: TopicHistory, number: int) -> None:
        at.shut(number)

    @rule(at=Steps.knowledge_bases)
    def sign(self, at: TopicHistory) -> None:
        at.sign()

    @rule(at=Steps.knowledge_bases, unit=UNIT, product=PRODUCT, how=WORDS)
    def upload(self, at: TopicHistory, unit: str, product: str, how: str) -> None:
        at.upload(unit, product, how)

    @rule(at=Steps.knowledge_bases, point=POINT, step=st.sampled_from(INNER))
    def inside(self, at: TopicHistory, point: int, step: str) -> None:
        at.inside(point, *words(step))

    @rule(at=Steps.knowledge_bases, topics=TOPICS)
    def draw(self, at: TopicHistory, topics: str) -> None:
        at.draw(topics)

    def teardown(self) -> None:
        self.history.draw()
        self.history.here.close()


class TopicStepsAndRestores(TopicSteps):
    """Steps with backups, restores and second copies among them."""

    @rule(age=st.sampled_from([0, 0, 1]))
    def back_up(self, age: int) -> None:
        self.history.back_up(age)

    @rule(age=st.sampled_from([0, 0, 1]))
    def restore(self, age: int) -> None:
        self.history.restore(age)

    @rule()
    def acknowledge(self) -> None:
        self.history.acknowledge()

    @rule()
    def witnessed(self) -> None:
        self.history.witnessed()

    @rule()
    def switch(self) -> None:
        self.history.switch()

    @rule(at=Steps.knowledge_bases, point=POINT, step=st.sampled_from(WITH_BACKUPS))
    def inside(self, at: TopicHistory, point: int, step: str) -> None:
        super().inside(at, point, step)


@pytest.fixture(autouse=True)
def none_waits_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload takes any other one for dead: both are in one thread here."""
    monkeypatch.setattr(staging, "LEASE_S", 0)


@pytest.fixture
def fresh(database_url: str) -> Callable[[], TopicHistory]:
    numbers = itertools.count()
    return lambda: TopicHistory(Deployment(database_url, None), f"kb{next(numbers)}")


@pytest.fixture
def restorable(tmp_path: Path) -> Callable[[], TopicHistory]:
    return lambda: TopicHistory(Copies(tmp_path), "kb")


@pytest.mark.slow
def test_no_unit_pays_on_two_topics(fresh: Callable[[], TopicHistory]) -> None:
    any_history(fresh, 12, TopicSteps)


@pytest.mark.slow
def test_no_unit_pays_on_two_topics_after_any_restore(restorable: Callable[[], TopicHistory]) -> None:
    any_history(restorable, 25, TopicStepsAndRestores)


def of(some: Callable[[sa.Connection, Any, Any, Any], Sequence[int]]) -> Callable[..., None]:
    """A way to publish an upload that finds the topics of other units, too."""

    def publish(writer: Any, right: Callable[..., None] = _Writer.publish) -> None:
        with writer._staging.batch() as connection:
            row = as_published(connection, writer._row, uploads=writer._own.upload)
            for topics in writer._upload.topics(connection):
                for at in some(connection, row, writer._keys, topics):
                    exemplar_store.topics.assign(connection, row, writer._keys, [topics], range(at, at + 1))
        right(writer)

    return publish


def all_units(_connection: sa.Connection, row: Any, _keys: Any, _topics: Any) -> range:
    return range(row.next_position)


def units_without_topic(connection: sa.Connection, row: Any, keys: Any, topics: Any) -> list[int]:
    known, _ = exemplar_store.topics._page(connection, row.id, keys, topics, 0)
    return np.flatnonzero(known[: row.next_position] == 0).tolist()


def without_uploads_begun(loss: restoring.Loss, right: Any = restoring.Loss.regrouped) -> set[str]:
    """Knowledge bases whose topics are ended if only uploads count whose announcement was lost."""
    lost = tuple(event for event in loss.lost if event.kind != UploadEnded.kind)
    earlier = tuple(event for event in loss.earlier if event.kind != UploadEnded.kind)
    return right.func(replace(loss, begun=(), lost=lost, earlier=earlier))


BUGS = {
    "topics are found anew": (
        [
            "upload ann x; sign; draw x; upload ann y replace; draw y",
            "upload ann x; sign; draw x; forget ann; upload ann y; draw",
        ],
        [(_Writer, "publish", of(all_units))],
    ),
    "a unit without a topic is given one later": (
        [
            "upload ann none; sign; inside 3 upload ann x; inside 6 back_up; draw x; restore; upload ann y; draw",
            "upload ann x; forget ann; sign; inside 3 upload ann x; inside 6 back_up; draw x; restore; upload ann y; "
            "draw",
        ],
        [(_Writer, "publish", of(units_without_topic))],
    ),
    "who came after the charge is drawn": (
        ["sign; inside 3 upload ann x; inside 6 back_up; draw x; restore; upload ann y; draw"],
        [(store, "spans", lambda row, cohorts, _arrived: spans(row, cohorts))],
    ),
    "tasks that lost an upload go on": (
        ["sign; back_up; upload ann x; draw x; restore; acknowledge; upload ann y; draw"],
        [(restoring.Loss, "regrouped", frozenset())],
    ),
    "an upload that was begun does not count as lost": (
        ["sign; inside 3 back_up; upload ann x; draw x; restore; acknowledge; upload ann y; draw"],
        [(restoring.Loss, "regrouped", property(without_uploads_begun))],
    ),
}


@pytest.mark.parametrize(("story", "bugs"), [(story, bugs) for some, bugs in BUGS.values() for story in some])
def test_a_bug_would_be_found(restorable: Callable[[], TopicHistory], monkeypatch, story: str, bugs: list) -> None:
    is_found(restorable, story, bugs, monkeypatch)


def backups_inside_uploads_inside_draws(restorable: Callable[[], TopicHistory]) -> None:
    """A draw, after whose charge a unit is uploaded, inside of which a backup is taken and restored later."""
    for inner in itertools.count(AFTER_CHARGE):
        history = restorable()
        history.play(f"upload ann none; sign; inside {AFTER_CHARGE} upload ann x; inside {inner} back_up; draw x")
        if not (history.here.folder / "backup0.sqlite").exists():
            history.here.close()
            break
        history.play("restore; upload ann y; draw; acknowledge; draw")
        history.here.close()


@pytest.mark.slow
@pytest.mark.lengthy
def test_a_backup_at_any_point_inside_an_upload_inside_a_draw_lets_no_unit_pay_twice(
    restorable: Callable[[], TopicHistory], monkeypatch
) -> None:
    backups_inside_uploads_inside_draws(restorable)
    monkeypatch.setattr(_Writer, "publish", of(units_without_topic))
    with pytest.raises(AssertionError, match="ann pays on"):
        backups_inside_uploads_inside_draws(restorable)
