"""Topics: a unit is on one for life, a question is on one, and its answer is drawn from that one and charged to it."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import exemplar_store.topics
from accounting.ledger.charges import AnswersExhaustedError, Charged, Ledger
from accounting.plans.plan import PlanError
from exemplar_store import ExemplarStore, TopicList, sampling
from exemplar_store.knowledge_base import as_published
from service.answering.plans.signing import prepare, sign
from service.answering.queries import InvalidQueryError
from service.records.records import open_records
from service.records.topics import on_topic
from tests.accounting.books import wrong
from tests.service.answering.topic_shop import (
    BY_FIELD,
    BY_SIMILARITY,
    NAME,
    ask,
    embed,
    opened,
    plan,
    reviews,
    serve,
    shown,
    upload,
)
from tests.service.conftest import development, unwitnessed

KETTLES = {f"a kettle {number}" for number in range(10)} | {"my kettle", "my other kettle"}
LAMPS = {f"a lamp {number}" for number in range(10)}


@pytest.mark.parametrize(("topics", "by_field"), [(BY_FIELD, True), (BY_SIMILARITY, False)])
@pytest.mark.parametrize("order", ["random", "nearest"])
def test_an_answer_draws_the_units_and_shows_the_exemplars_of_its_topic(
    tmp_path: Path, topics: str, by_field: bool, order: str
) -> None:
    """Every unit on a topic is drawn here: q is 1."""
    services = serve(opened(tmp_path, topics, ensemble=f"ensemble: 10\n    order: {order}"))
    kettle = ask(services, "my kettle leaks", " KETTLE " if by_field else None)
    lamp = ask(services, "my lamp flickers", "lamp" if by_field else None)
    assert [(one.topic, one.task, one.answers_left) for one in (kettle, lamp)] == [
        ("kettle", "shop.mood@1", 2),
        ("lamp", "shop.mood@1", 2),
    ]
    assert [texts - {"a radio"} for texts in shown(services)] == [KETTLES, LAMPS]  # the radio is similar to something
    assert not by_field or all("a radio" not in texts for texts in shown(services))
    assert kettle.release.task == "shop.mood#kettle@1"
    assert ask(services, "my kettle leaks", "kettle" if by_field else None).charged is False


def test_each_topic_has_answers_of_its_own(tmp_path: Path) -> None:
    services = serve(opened(tmp_path))
    for number in range(3):
        ask(services, f"kettle {number}")
    with pytest.raises(AnswersExhaustedError, match="kettle"):
        ask(services, "one more")
    assert ask(services, "kettle 1").charged is False
    assert ask(services, "lamp 0", "lamp").answers_left == 2
    ledger = services.records.ledger
    whole = ledger.budgets.task("shop.mood")
    assert (ledger.topics_left(whole), ledger.answers_left(whole)) == ({"kettle": 0, "lamp": 2}, 2)
    assert [(one.task, one.reason) for one in ledger.refusals()] == [("shop.mood#kettle@1", "answers-exhausted")]
    with pytest.raises(TypeError):
        ledger.charge(whole, b"the whole", key_id="k")
    assert wrong(services.records.database) == []


def test_topics_hold_on_every_database(database_url: str, tmp_path: Path) -> None:
    services = serve(opened(tmp_path, BY_SIMILARITY, settings=unwitnessed(database_url)))
    moved, new = ("kettle0", "now a lamp", "lamp", "sad"), ("new", "a new lamp", "lamp", "sad")
    upload(services.records, [moved, new], replace=True)
    for number in range(3):
        assert ask(services, f"kettle {number}", None).topic == "kettle"
    with pytest.raises(AnswersExhaustedError, match="kettle"):
        ask(services, "one more kettle", None)
    assert ask(services, "kettle 1", None).charged is False
    assert ask(services, "a lamp", None).answers_left == 2
    assert "a new lamp" in shown(services)[-1]
    assert "now a lamp" not in set().union(*shown(services))
    assert wrong(services.records.database) == []


def test_a_question_on_no_topic_is_refused_with_the_list_and_before_any_charge(tmp_path: Path) -> None:
    services = serve(opened(tmp_path))
    with pytest.raises(InvalidQueryError, match="kettle, lamp"):
        ask(services, "a radio", "radio")
    with pytest.raises(InvalidQueryError, match="product"):
        ask(services, "a kettle", None)
    with pytest.raises(InvalidQueryError, match=r"ask shop\.mood@1"):  # a caller does not choose what is charged
        ask(services, "a lamp", "lamp", task="shop.mood#kettle")
    assert services.records.ledger.topics_left(services.records.ledger.budgets.task("shop.mood")) == {
        "kettle": 3,
        "lamp": 3,
    }


def arrivals(services: Any) -> dict[str, set[str]]:
    """Texts that answers on each topic draw from, whatever is asked."""
    store: ExemplarStore = services.records.store
    drawn = {}
    for topic in ("kettle", "lamp"):
        signed = services.records.ledger.budgets.task(f"shop.mood#{topic}")
        slots = store.sample_slots(NAME, probability=1, ensemble=1, max_exemplars=1000, topic=on_topic(signed))
        drawn[topic] = {exemplar.fields["text"] for slot in slots for exemplar in slot}
    return drawn


def check_for_life(folder: Path) -> None:
    """A unit keeps its topic whatever becomes of its exemplars, so it never pays on two."""
    services = serve(opened(folder))
    records = services.records
    upload(records, [("kettle0", "now a lamp", "lamp", "sad")], replace=True)
    records.forget(NAME, "kettle1", by="test")
    upload(records, [("kettle1", "back with a lamp", "lamp", "sad")])
    upload(records, [("both", f"my lamp {number}", "lamp", "sad") for number in range(5)])
    upload(records, [("new", "a new lamp", "lamp", "sad"), ("none", "at last a kettle", "kettle", "glad")])
    drawn = arrivals(services)
    assert drawn["lamp"] == LAMPS | {"a new lamp"}
    assert drawn["kettle"] == KETTLES - {"a kettle 0", "a kettle 1"}  # and none for whom had no topic


def test_a_unit_keeps_its_topic(tmp_path: Path) -> None:
    check_for_life(tmp_path)


def test_the_test_sees_topics_that_are_found_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_all_units(writer: Any, topics: Any) -> None:
        every = range(writer._next_position)
        with writer._staging.batch() as connection:
            row = as_published(connection, writer._row, uploads=writer._own.upload)
            exemplar_store.topics.assign(connection, row, writer._keys, [topics], every)

    monkeypatch.setattr("exemplar_store.ingest._Writer._find_topics", of_all_units)
    with pytest.raises(AssertionError):
        check_for_life(tmp_path)


def check_one_topic(folder: Path) -> None:
    """No unit is drawn on two topics, whatever its exemplars are on."""
    mixed = [("both", f"mixed {name} {n}", name, "glad") for n in range(3) for name in ("lamp", "kettle")]
    drawn = arrivals(serve(opened(folder, some=[*reviews()[:20], *mixed])))
    assert drawn["kettle"] >= {f"mixed kettle {n}" for n in range(3)}  # of equals, the topic named first
    assert drawn["lamp"] == LAMPS


def test_a_unit_is_on_one_topic(tmp_path: Path) -> None:
    check_one_topic(tmp_path)


def test_the_test_sees_units_that_are_drawn_by_each_exemplar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def every_unit(_connection: Any, _kb: int, _keys: Any, _topic: Any, spans: list[tuple[int, int]]) -> np.ndarray:
        return np.concatenate([np.arange(first, end) for first, end in spans])

    monkeypatch.setattr("exemplar_store.store.on_topic", every_unit)
    with pytest.raises(AssertionError):
        check_one_topic(tmp_path)


def check_own_exemplars_decide(folder: Path) -> None:
    """A unit's topic depends on no other unit."""
    alone = opened(folder / "alone", some=[("both", "x", "lamp", "sad"), ("both", "y", "kettle", "sad")])
    beside = opened(
        folder / "beside", some=[("both", "x", "lamp", "sad"), ("both", "y", "kettle", "sad"), *reviews()[:9]]
    )
    for records in (alone, beside):
        drawn = arrivals(serve(records))
        assert ("y" in drawn["kettle"], "x" in drawn["lamp"]) == (True, False)


def test_only_a_units_own_exemplars_decide(tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "beside").mkdir()
    check_own_exemplars_decide(tmp_path)


def test_the_test_sees_topics_that_are_balanced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "beside").mkdir()
    honest, given = TopicList.of_unit, [0]

    def balanced(topics: TopicList, found: Any) -> int:
        given[0] += honest(topics, found) > 0
        return 1 + given[0] % topics.count if honest(topics, found) else 0

    monkeypatch.setattr(TopicList, "of_unit", balanced)
    with pytest.raises(AssertionError):
        check_own_exemplars_decide(tmp_path)


def test_units_that_come_while_a_plan_is_signed_are_given_a_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, found = opened(tmp_path, None), ExemplarStore.topics_of

    def then_others_arrive(store: ExemplarStore, *args: Any) -> np.ndarray:
        topics = found(store, *args)
        upload(records, [("late", "a late lamp", "lamp", "sad")])
        return topics

    monkeypatch.setattr(ExemplarStore, "topics_of", then_others_arrive)
    sign(records, prepare(records, plan(), embed), "test")
    assert arrivals(serve(records))["lamp"] == LAMPS | {"a late lamp"}


def test_topics_are_stored_encrypted_and_open_under_another_data_key(tmp_path: Path) -> None:
    records = opened(tmp_path)
    before = arrivals(serve(records))
    with records.database.connect() as connection:
        pages = connection.exec_driver_sql("SELECT sealed FROM unit_topics").scalars().all()
    assert [len(page) for page in pages] == [2 * exemplar_store.topics.PAGE + 29]  # as for any other knowledge base
    assert bytes([1, 0, 1, 0]) not in pages[0]
    records.store.reencrypt(lambda *_: None)
    records.database.dispose()
    assert arrivals(serve(open_records(development(tmp_path)))) == before


def test_a_topic_without_units_answers_as_one_whose_units_were_not_drawn(tmp_path: Path) -> None:
    services = serve(opened(tmp_path, some=reviews()[:10]))
    assert ask(services, "a lamp", "lamp").answers_left == 2
    nobody = services.engine.engine.shown[-1][2]
    assert [len(slot) for slot in nobody] == [0] * 10


def charged_before_drawn(folder: Path) -> None:
    """The counter of the question's topic has risen, durably, when its sample is drawn."""
    services = serve(opened(folder))
    store, ledger, seen = services.records.store, services.records.ledger, []
    draw = store.sample_slots

    def watched(*args: Any, **options: Any) -> Any:
        seen.append(ledger.topics_left(ledger.budgets.task("shop.mood")))
        return draw(*args, **options)

    store.sample_slots = watched  # type: ignore[method-assign]
    ask(services, "a kettle")
    ask(services, "a lamp", "lamp")
    assert seen == [{"kettle": 2, "lamp": 3}, {"kettle": 2, "lamp": 2}]


def test_a_topics_counter_rises_before_the_sample_is_drawn(tmp_path: Path) -> None:
    charged_before_drawn(tmp_path)


@pytest.mark.parametrize("bug", ["one counter", "another topic"])
def test_the_test_sees_a_charge_of_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    honest = Ledger.charge

    def elsewhere(ledger: Ledger, task: Any, *args: Any, **options: Any) -> Any:
        topic = "kettle" if bug == "one counter" else {"kettle": "lamp", "lamp": "kettle"}[task.topic]
        return honest(ledger, ledger.budgets.on_topic(task, topic), *args, **options)

    monkeypatch.setattr(Ledger, "charge", elsewhere)
    with pytest.raises(AssertionError):
        charged_before_drawn(tmp_path)


def test_the_test_sees_a_charge_after_the_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    charge, release, owed = Ledger.charge, Ledger.release, []

    def promised(_ledger: Ledger, *args: Any, **options: Any) -> Charged:
        owed.append((args, options))
        return Charged("later", datetime.now(UTC), 0)

    def paid(ledger: Ledger, _charge: str, answer: Any) -> Any:
        args, options = owed.pop()
        return release(ledger, charge(ledger, *args, **options).id, answer)

    monkeypatch.setattr(Ledger, "charge", promised)
    monkeypatch.setattr(Ledger, "release", paid)
    with pytest.raises(AssertionError):
        charged_before_drawn(tmp_path)


def check_public_sizes_decide(folder: Path) -> None:
    """The chance that a unit is drawn depends on the declared size, not on the number of units on its topic."""
    drawn = []
    for name, some in (("few", reviews()[:3]), ("many", reviews())):
        (folder / name).mkdir()
        services = serve(opened(folder / name, BY_FIELD.replace("40, lamp: 40", "400, lamp: 300"), some))
        store, draw = services.records.store, sampling.poisson_sample
        with mock.patch.object(sampling, "poisson_sample", side_effect=draw) as watched:
            ask(services, "a kettle")
            ask(services, "a lamp", "lamp")
        assert store.get(NAME).public_size == 80
        drawn.append([call.args[1] for call in watched.call_args_list])
    assert drawn == [[120 / 400, 120 / 300]] * 2


def test_the_chance_to_be_drawn_is_public(tmp_path: Path) -> None:
    check_public_sizes_decide(tmp_path)


def test_the_test_sees_a_chance_by_the_units_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ExemplarStore.sample_slots

    def by_size(store: ExemplarStore, name: str, **drawing: Any) -> Any:
        everybody = honest(store, name, **{**drawing, "probability": 1.0, "ensemble": 1, "nearest": None})
        return honest(store, name, **{**drawing, "probability": 1 / (1 + len(everybody[0]))})

    monkeypatch.setattr(ExemplarStore, "sample_slots", by_size)
    with pytest.raises(AssertionError):
        check_public_sizes_decide(tmp_path)


def test_centres_are_made_of_public_texts_and_the_same_each_time(tmp_path: Path) -> None:
    texts = [f"a {name} {number}" for name in ("kettle", "lamp") for number in range(20)]
    topics = f"{{by: public_texts, number: 2, texts: {texts}}}"
    records = opened(tmp_path, topics)
    looked: list[str] = []

    def noting(texts: Any) -> np.ndarray:
        looked.extend(texts)
        return embed(texts)

    first, second = (prepare(records, plan(topics), noting) for _ in range(2))
    assert first.centres == second.centres
    assert set(looked) == set(texts)  # and no exemplar
    services = serve(records)
    assert {ask(services, f"{words} kettle", None).topic for words in ("a", "my")} in ({"1"}, {"2"})
    assert ask(services, "a lamp", None).topic != ask(services, "a kettle", None).topic
    assert [texts - {"a radio"} for texts in shown(services)] == [KETTLES, KETTLES, LAMPS]


@pytest.mark.parametrize(
    ("topics", "key"),
    [
        ("{by: field, field: brand, names: [a, b]}", "tasks.mood.topics.field"),
        ("{by: similarity, names: {a: a kettle, b: a kettle}}", "tasks.mood.topics.names"),
    ],
)
def test_topics_that_do_not_fit_are_refused(tmp_path: Path, topics: str, key: str) -> None:
    records = opened(tmp_path, None)
    with pytest.raises(PlanError) as refused:
        prepare(records, plan(topics), embed)
    assert [problem.key for problem in refused.value.problems] == [key]


def test_questions_race_for_the_last_answer_of_a_topic(tmp_path: Path) -> None:
    services = serve(opened(tmp_path))

    async def race() -> list[object]:
        asked: list[Callable[[], Any]] = [
            lambda n=n, p=p: services.answering.answer("shop.mood", {"text": f"t {n}", "product": p}, key_id="k")
            for n in range(5)
            for p in ("kettle", "lamp")
        ]
        return await asyncio.gather(*(one() for one in asked), return_exceptions=True)

    outcomes = asyncio.run(race())
    assert sum(isinstance(one, AnswersExhaustedError) for one in outcomes) == 4
    assert wrong(services.records.database) == []


def test_a_question_has_a_topic_of_its_own_in_each_plan(tmp_path: Path) -> None:
    """The topics of the second plan have each other's names: a stored answer of the first is on another topic."""
    records = opened(tmp_path, BY_SIMILARITY)
    turned = "{by: similarity, names: {kettle: about a lamp, lamp: about a kettle}, sizes: {kettle: 40, lamp: 40}}"
    sign(records, prepare(records, plan(turned), embed), "test")
    services = serve(records)
    for _ in range(2):
        answers = [ask(services, "my kettle leaks", None, task=f"shop.mood@{version}") for version in (1, 2)]
        assert [answer.topic for answer in answers] == ["kettle", "lamp"]
    assert [texts - {"a radio"} for texts in shown(services)] == [KETTLES, KETTLES]
