"""Knowledge bases, whoever makes them: what is wrong is said by field, and what lasts for ever is confirmed."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from accounting.ledger.errors import UnknownBudgetError
from exemplar_store import ExemplarStoreError, UnknownKnowledgeBaseError
from service.commands import budgets, exemplars, knowledge_bases
from service.commands.budgets import NewGroup, weaknesses
from service.commands.command import Confirmation, UnconfirmedError
from service.commands.exemplars import Upload
from service.commands.knowledge_bases import KnowledgeBaseChange, NewKnowledgeBase
from service.records.records import Records
from service.records.roles import Actor
from tests.service.conftest import embed, make_records, unwitnessed

ROOT = Actor("root", "root", "account", "admin")
VERA = Actor("vera", "vera", "key", "viewer")
NOTES: dict[str, Any] = {"name": "notes", "epsilon": 6.0, "delta": 1e-5, "public_size": 20_000}
WEAK = {Confirmation.WEAK_PROMISE}


@pytest.mark.parametrize(
    "wrong", [{"name": "toys"}, {"fields": ["text", "1st"]}, {"embedded_field": "title"}, {"response_field": "title"}]
)
def test_what_the_store_refuses_is_said_by_field(records: Records, wrong: dict[str, Any]) -> None:
    with pytest.raises(ExemplarStoreError) as refused:
        knowledge_bases.create(ROOT, records, NewKnowledgeBase(**NOTES | wrong), WEAK)
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


def test_a_knowledge_base_is_made_as_it_was_wanted(records: Records) -> None:
    made = knowledge_bases.create(ROOT, records, NewKnowledgeBase(**NOTES, remote_engine=True))
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
        knowledge_bases.create(ROOT, records, wanted, {Confirmation.FOR_EVER})
    if weak:
        knowledge_bases.create(ROOT, records, wanted, WEAK)


def test_only_what_there_is_is_changed(records: Records) -> None:
    change = KnowledgeBaseChange(remote_engine=True)
    for call in (
        lambda: knowledge_bases.change(ROOT, records, "nowhere", change),
        lambda: knowledge_bases.archive(ROOT, records, "nowhere", {Confirmation.FOR_EVER}),
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
    budgets.make_group(ROOT, records, NewGroup(name="care", epsilon=5.0, delta=1.5e-4))
    for name in ("to\0ys", "toy", ""):
        with pytest.raises(UnknownBudgetError):
            budgets.join_group(ROOT, records, "care", name)
    records.database.dispose()
