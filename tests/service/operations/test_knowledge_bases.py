"""Knowledge bases: a mistake is reported with the name of its field, and a permanent choice must be confirmed."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from accounting.ledger.errors import BudgetExistsError, NotEmptyError, UnknownBudgetError
from accounting.plans.plan import load_plan
from exemplar_store import ExemplarStoreError, KnowledgeBaseNotEmptyError, Row, UnknownKnowledgeBaseError, tables
from service.answering.plans import signing
from service.operations import budgets, exemplars, knowledge_bases
from service.operations.budgets import NewGroup, weaknesses
from service.operations.command import Confirmation, UnconfirmedError
from service.operations.exemplars import Upload
from service.operations.knowledge_bases import KnowledgeBaseChange, NewKnowledgeBase
from service.operations.roles import Actor
from service.records.records import Records
from service.records.replaying import replay
from tests.accounting.books import wrong
from tests.service.conftest import PLAN, embed, make_records, unwitnessed

ROOT = Actor("root", "root", "account", "admin")
VERA = Actor("vera", "vera", "key", "viewer")
NOTES: dict[str, Any] = {"name": "notes", "epsilon": 6.0, "delta": 1e-5, "public_size": 20_000}
SURE = set(Confirmation)


@pytest.mark.parametrize(
    "wrong", [{"name": "toys"}, {"fields": ["text", "1st"]}, {"embedded_field": "title"}, {"response_field": "title"}]
)
def test_a_field_that_the_store_refuses_is_named(records: Records, wrong: dict[str, Any]) -> None:
    with pytest.raises(ExemplarStoreError) as refused:
        knowledge_bases.create(ROOT, records, NewKnowledgeBase(**NOTES | wrong), SURE)
    assert [getattr(refused.value, "field", "name")] == list(wrong)
    assert [view.name for view in knowledge_bases.list_(VERA, records)] == ["toys"]


@pytest.mark.parametrize(
    ("given", "embedded", "response"),
    [
        ({}, "text", None),
        ({"fields": ["text", "reply", "response"]}, "text", "response"),
        ({"fields": ["text", "reply", "response"], "response_field": "reply"}, "text", "reply"),
        ({"fields": ["text", "response"], "response_field": None}, "text", None),
        ({"fields": ["text", "response"], "response_field": ""}, "text", None),
        ({"fields": ["text", "response"], "embedded_field": "response"}, "response", None),
        ({"fields": ["title", "text"]}, "title", None),
    ],
)
def test_fields_that_are_not_named_are_chosen(given: dict[str, Any], embedded: str, response: str | None) -> None:
    wanted = NewKnowledgeBase(**NOTES | given)
    assert (wanted.embedded_field, wanted.response_field) == (embedded, response)


def test_a_knowledge_base_lost_in_a_restore_is_created_with_the_budget_it_had(records: Records) -> None:
    budget = records.ledger.budgets.status("toys").tightest
    with records.database.begin() as connection:
        for table in (tables.exemplars, tables.units, tables.knowledge_bases):
            connection.execute(sa.delete(table))
    with pytest.raises(BudgetExistsError):
        knowledge_bases.create(ROOT, records, NewKnowledgeBase(**NOTES | {"name": "toys"}), SURE)
    same = {"name": "toys", "epsilon": float(budget.epsilon), "delta": float(budget.delta)}
    assert knowledge_bases.create(ROOT, records, NewKnowledgeBase(**NOTES | same), SURE).name == "toys"


def test_a_knowledge_base_is_made_as_it_was_wanted(records: Records) -> None:
    made = knowledge_bases.create(ROOT, records, NewKnowledgeBase(**NOTES, remote_engine=True), SURE)
    assert (made.public_size, made.fields, made.remote_engine) == (20_000, ["text", "label"], True)
    assert knowledge_bases.describe(VERA, records, "notes") == made
    assert [view.name for view in knowledge_bases.list_(VERA, records)] == ["notes", "toys"]
    (cohort,) = budgets.list_cohorts(VERA, records, "notes")
    assert (cohort.lifetime.epsilon, cohort.lifetime.delta) == (6, 1e-5)
    assert not knowledge_bases.change(ROOT, records, "notes", KnowledgeBaseChange(remote_engine=False)).remote_engine
    events = [event.particulars for event in records.audit.events(knowledge_base="notes")]
    assert [(event.kind, event.by) for event in events] == [
        ("budget.opened", "root"),
        ("remote_engine.changed", "root"),
        ("remote_engine.changed", "root"),
    ]


@pytest.mark.parametrize(
    ("promise", "weak"), [((10, 1e-2, 100), 0), ((10.1, 1e-2, 100), 1), ((8, 0.02, 100), 1), ((1000, 0.5, 3), 3)]
)
def test_a_weak_promise_is_confirmed_as_such(records: Records, promise: tuple[float, float, int], weak: int) -> None:
    assert len(weaknesses(*promise)) == weak
    wanted = NewKnowledgeBase(name="notes", **dict(zip(("epsilon", "delta", "public_size"), promise, strict=True)))
    with pytest.raises(UnconfirmedError) if weak else nullcontext():
        knowledge_bases.create(ROOT, records, wanted, {Confirmation.PERMANENT})
    if weak:
        knowledge_bases.create(ROOT, records, wanted, SURE)


def test_an_unknown_knowledge_base_cannot_be_changed(records: Records) -> None:
    change = KnowledgeBaseChange(remote_engine=True)
    for call in (
        lambda: knowledge_bases.change(ROOT, records, "nowhere", change),
        lambda: knowledge_bases.archive(ROOT, records, "nowhere", {Confirmation.PERMANENT}),
        lambda: budgets.close_cohort(ROOT, records, "nowhere", 1),
        lambda: exemplars.ingest(ROOT, records, "nowhere", lambda _: (), Upload(), embed),
        lambda: exemplars.forget(ROOT, records, "nowhere", "u1"),
        lambda: exemplars.forget_many(ROOT, records, "nowhere", ["u1"]),
    ):
        with pytest.raises(UnknownKnowledgeBaseError):
            call()


@pytest.mark.slow
def test_postgresql_is_not_asked_for_a_name_that_it_cannot_hold(tmp_path, new_postgres: Callable[[], str]) -> None:
    records = make_records(tmp_path, settings=unwitnessed(new_postgres()))
    budgets.make_group(ROOT, records, NewGroup(name="care", epsilon=5.0, delta=1.5e-4), SURE)
    for name in ("to\0ys", "toy", ""):
        with pytest.raises(UnknownBudgetError):
            budgets.join_group(ROOT, records, "care", name)
    records.database.dispose()


def test_an_empty_knowledge_base_is_deleted_and_its_name_is_free(records: Records) -> None:
    for epsilon, archived in ((6.0, False), (3.0, True)):
        knowledge_bases.create(ROOT, records, NewKnowledgeBase(**NOTES | {"epsilon": epsilon}), SURE)
        budgets.open_cohort(ROOT, records, "notes", budgets.NewCohort(epsilon=1, delta=1e-5, public_size=900), SURE)
        if archived:
            knowledge_bases.archive(ROOT, records, "notes", {Confirmation.PERMANENT})
        knowledge_bases.delete(ROOT, records, "notes")
        for gone in (records.store.get, records.ledger.budgets.status):
            with pytest.raises((UnknownKnowledgeBaseError, UnknownBudgetError)):
                gone("notes")
        assert wrong(records.database) == replay(records, recompute=False).problems == []
    with pytest.raises(UnknownKnowledgeBaseError):
        knowledge_bases.delete(ROOT, records, "notes")
    assert knowledge_bases.create(ROOT, records, NewKnowledgeBase(**NOTES), SURE).archived_at is None


@pytest.mark.parametrize("has", ["a plan", "exemplars", "forgotten exemplars", "a failed upload", "a group"])
def test_a_knowledge_base_that_is_not_empty_is_not_deleted(records: Records, has: str) -> None:
    """Otherwise a spent budget would come back, or known people would be taken for new ones."""
    knowledge_bases.create(ROOT, records, NewKnowledgeBase(**NOTES), SURE)
    rows = [Row(1, "u1", {"text": "a", "label": "b"})]
    match has:
        case "a plan":
            plan = load_plan(PLAN.replace("toys", "notes").replace("1.0e-4", "1.0e-5"))
            signing.sign(records, signing.prepare(records, plan), "root")
        case "a failed upload":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("exemplar_store.ingest._Writer.write", Mock(side_effect=RuntimeError))
                with pytest.raises(RuntimeError):
                    records.ingest("notes", rows, embed, by="root")
        case "a group":
            budgets.make_group(ROOT, records, NewGroup(name="care", epsilon=9, delta=1e-4), SURE)
            budgets.join_group(ROOT, records, "care", "notes", SURE)
        case _:
            records.ingest("notes", rows, embed, by="root")
            if has == "forgotten exemplars":
                records.forget("notes", "u1", by="root")
    before = records.audit.end()
    with pytest.raises((NotEmptyError, KnowledgeBaseNotEmptyError)):
        knowledge_bases.delete(ROOT, records, "notes")
    assert records.audit.end() == before
    assert knowledge_bases.describe(ROOT, records, "notes").name == "notes"


def test_an_upload_that_was_checked_for_a_deleted_knowledge_base_is_not_stored(records: Records) -> None:
    knowledge_bases.create(ROOT, records, NewKnowledgeBase(**NOTES), SURE)

    def meanwhile(texts: Any) -> Any:
        knowledge_bases.delete(ROOT, records, "notes")
        knowledge_bases.create(ROOT, records, NewKnowledgeBase(**NOTES), SURE)
        return embed(texts)

    with pytest.raises(UnknownKnowledgeBaseError):
        records.ingest("notes", [Row(1, "u1", {"text": "a", "label": "b"})], meanwhile, by="root")
    assert records.store.get("notes").arrived == 0
    assert replay(records, recompute=False).problems == []
