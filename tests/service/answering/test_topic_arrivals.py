"""Units that arrive beside charges and signatures: none is drawn too early, and none stays without its topic."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from accounting.ledger.charges import Ledger
from exemplar_store import ExemplarStore
from service.answering.plans.signing import prepare, sign
from service.operations.services import Services
from service.records.records import Records, open_records
from service.records.topics import on_topic
from service.settings import Settings
from tests.service.answering.topic_shop import BY_FIELD, NAME, Review, ask, embed, opened, plan, serve, shown, upload
from tests.service.conftest import unwitnessed

WAIT_S = 60
LATE: Review = ("late", "a late kettle", "kettle", "glad")


def on_the_topic(services: Services, topic: str, version: int = 1) -> set[str]:
    """The texts of all exemplars that can be drawn on a topic."""
    signed = services.records.ledger.budgets.task(f"shop.mood#{topic}@{version}")
    every = {"probability": 1, "ensemble": 1, "max_exemplars": 1000, "topic": on_topic(signed)}
    slots = services.records.store.sample_slots(NAME, **every)
    return {exemplar.fields["text"] for slot in slots for exemplar in slot}


@pytest.mark.parametrize("order", ["random", "nearest"])
def test_a_unit_that_arrives_after_the_charge_is_not_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    services = serve(opened(tmp_path, ensemble=f"ensemble: 10\n    order: {order}"))
    charge = Ledger.charge

    def then_a_unit_arrives(ledger: Ledger, *args: Any, **options: Any) -> Any:
        charged = charge(ledger, *args, **options)
        upload(services.records, [LATE])
        return charged

    monkeypatch.setattr(Ledger, "charge", then_a_unit_arrives)
    ask(services, "my kettle leaks")
    monkeypatch.undo()
    assert "a kettle 1" in shown(services)[-1]
    assert "a late kettle" not in shown(services)[-1]
    ask(services, "my kettle still leaks")
    assert "a late kettle" in shown(services)[-1]


@pytest.mark.parametrize("order", ["random", "nearest"])
def test_a_plan_draws_the_units_of_its_cohorts_alone(tmp_path: Path, order: str) -> None:
    records = opened(tmp_path, None)
    records.open_cohort(NAME, epsilon=20, delta=2e-3, public_size=80, by="test")
    upload(records, [LATE])
    drawn = []
    for cohort in (1, 2):
        changes = {
            "budget": f"budget: {{epsilon: 8, delta: 1.0e-3}}\ncohorts: [{cohort}]",
            "ensemble": f"ensemble: 10\n    order: {order}",
        }
        sign(records, prepare(records, plan(BY_FIELD, **changes), embed), "test")
        services = serve(records)
        ask(services, f"kettle of cohort {cohort}")
        ask(services, f"lamp of cohort {cohort}", "lamp")
        drawn += shown(services)
    assert [("a late kettle" in texts, len(texts)) for texts in drawn] == [
        (False, 12),
        (False, 10),
        (True, 1),
        (False, 0),
    ]


class Held:
    """A call that goes on when it is let go: others work meanwhile, or wait for it."""

    def __init__(self) -> None:
        self.reached, self.let_go = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.let_go.wait(WAIT_S)


def waits_or_is_done(database: sa.Engine, other: Future[Any]) -> None:
    """Wait until the other is done, or until PostgreSQL reports that it waits for a lock."""
    locks = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    deadline = time.monotonic() + WAIT_S
    while not other.done() and time.monotonic() < deadline:
        with database.connect() as connection:
            if connection.scalar(locks):
                return
        time.sleep(0.02)


@pytest.fixture
def settings(new_postgres: Callable[[], str]) -> Settings:
    return unwitnessed(new_postgres())


def upload_held(monkeypatch: pytest.MonkeyPatch, held: Held, *, announced: bool = False) -> None:
    """Hold the next upload when its units have their topics, or already when it is announced: it has no lock then."""
    ingest = ExemplarStore.ingest

    def holding(store: ExemplarStore, *args: Any, announce: Callable[[], None], **options: Any) -> Any:
        *others, last = args

        def then_wait() -> None:
            announce()
            if announced:
                held()

        def wait_first(connection: sa.Connection) -> None:
            if not announced:
                held()
            last(connection)

        return ingest(store, *others, wait_first, announce=then_wait, **options)

    monkeypatch.setattr(ExemplarStore, "ingest", holding)


def signature_held(monkeypatch: pytest.MonkeyPatch, held: Held) -> None:
    """Hold the next signature after units' topics were kept, and before it is committed."""
    keep = ExemplarStore.keep_topics

    def holding(*arguments: Any) -> None:
        keep(*arguments)
        held()

    monkeypatch.setattr(ExemplarStore, "keep_topics", holding)


def sign_another(records: Records) -> None:
    another = plan(budget="budget: {epsilon: 4, delta: 1.0e-4}")
    sign(records, prepare(records, another, embed), "test")


def check_it_has_its_topic(records: Records) -> None:
    services = serve(records)
    for version in (1, 2):
        assert "a late kettle" in on_the_topic(services, "kettle", version)
        assert "a late kettle" not in on_the_topic(services, "lamp", version)


@pytest.mark.slow
def test_on_postgresql_a_signature_waits_for_an_upload_that_has_found_topics(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second process has connections of its own."""
    records = opened(tmp_path, settings=settings)
    beside, held = open_records(settings), Held()
    with ThreadPoolExecutor(2) as threads:
        upload_held(monkeypatch, held)
        uploading = threads.submit(upload, beside, [LATE])
        assert held.reached.wait(WAIT_S)
        signing = threads.submit(sign_another, records)
        waits_or_is_done(records.database, signing)
        held.let_go.set()
        uploading.result(WAIT_S)
        signing.result(WAIT_S)
    check_it_has_its_topic(records)
    beside.database.dispose()


@pytest.mark.slow
def test_on_postgresql_an_upload_waits_for_a_signature_that_has_kept_topics(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was announced before, and finds the topics of the plan that it waited for."""
    records = opened(tmp_path, settings=settings)
    beside, announced, kept = open_records(settings), Held(), Held()
    with ThreadPoolExecutor(2) as threads:
        upload_held(monkeypatch, announced, announced=True)
        signature_held(monkeypatch, kept)
        uploading = threads.submit(upload, beside, [LATE])
        assert announced.reached.wait(WAIT_S)
        signing = threads.submit(sign_another, records)
        assert kept.reached.wait(WAIT_S)
        announced.let_go.set()
        waits_or_is_done(records.database, uploading)
        kept.let_go.set()
        signing.result(WAIT_S)
        uploading.result(WAIT_S)
    check_it_has_its_topic(records)
    beside.database.dispose()


@pytest.mark.slow
def test_on_postgresql_two_uploads_at_once_lose_no_topic_of_a_page(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both write the same page; each waits for the other."""
    records = opened(tmp_path, settings=settings)
    beside, held = open_records(settings), Held()
    with ThreadPoolExecutor(2) as threads:
        upload_held(monkeypatch, held)
        held_one = threads.submit(upload, beside, [LATE])
        assert held.reached.wait(WAIT_S)
        monkeypatch.undo()
        other = threads.submit(upload, records, [("later", "a later lamp", "lamp", "sad")])
        waits_or_is_done(records.database, other)
        held.let_go.set()
        held_one.result(WAIT_S)
        other.result(WAIT_S)
    services = serve(records)
    assert "a late kettle" in on_the_topic(services, "kettle")
    assert "a later lamp" in on_the_topic(services, "lamp")
    beside.database.dispose()


@pytest.mark.slow
def test_on_postgresql_a_unit_that_is_forgotten_beside_a_signature_keeps_its_topic(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes back with a lamp, and is on the topic that was found when it was there."""
    records = opened(tmp_path, settings=settings)
    found = ExemplarStore.topics_of

    def then_it_is_forgotten(store: ExemplarStore, *args: Any) -> Any:
        topics = found(store, *args)
        records.forget(NAME, "kettle1", by="test")
        return topics

    monkeypatch.setattr(ExemplarStore, "topics_of", then_it_is_forgotten)
    sign_another(records)
    monkeypatch.undo()
    upload(records, [("kettle1", "back with a lamp", "lamp", "sad")])
    services = serve(records)
    for version in (1, 2):
        assert "back with a lamp" not in on_the_topic(services, "lamp", version)
        assert "a kettle 2" in on_the_topic(services, "kettle", version)
    assert records.ledger.budgets.task("shop.mood").plan.version == 2
