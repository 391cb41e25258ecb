"""A restore gives no topic its answers back and no unit another topic: topics that lose something to it are ended."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from accounting.ledger.charges import AnswersExhaustedError
from accounting.ledger.restoring import Loss, acknowledge, find_loss
from service.answering.plans.signing import prepare, sign
from service.records.records import Records, open_records
from service.records.replaying import replay
from service.records.witness import bring_back
from tests.accounting.books import wrong
from tests.service.answering.topic_shop import ask, embed, opened, plan, serve, upload
from tests.service.conftest import development

KETTLE, LAMP = "shop.mood#kettle@1", "shop.mood#lamp@1"


def restored(records: Records, folder: Path, before: Callable[[], None], after: Callable[[], None]) -> Records:
    """The records after a restore and its acknowledgement, with what happens before the backup and after it."""
    file = folder / "service.sqlite"
    before()
    records.witness.catch_up()
    records.database.dispose()  # empties the write-ahead log
    shutil.copy(file, folder / "backup")
    after()
    records.witness.catch_up()
    records.database.dispose()
    for old in folder.glob("service.sqlite*"):
        old.unlink()
    shutil.copy(folder / "backup", file)
    back = open_records(development(folder), restored=True)
    loss = find_loss(back.audit, back.witness)
    acknowledge(back.database, back.witness, loss, by="root", outside=bring_back)
    back.database.dispose()
    return open_records(development(folder))


def charged(records: Records) -> dict[str, int]:
    assert wrong(records.database) == []
    assert replay(records, recompute=False).problems == []
    return {task.address: task.charged for status in records.ledger.budgets.statuses() for task in status.tasks}


def analyst(records: Records) -> str:
    return records.keys.create("ana", "analyst")[0].id


def answer(records: Records, number: int, product: str) -> None:
    (key,) = records.keys.list()
    query = {"text": f"question {number}", "product": product}
    asyncio.run(serve(records).answering.answer("shop.mood", query, key_id=key.id))


def test_charges_come_back_to_their_topic(tmp_path: Path) -> None:
    records = opened(tmp_path)
    analyst(records)

    def after() -> None:
        answer(records, 2, "kettle")
        answer(records, 3, "kettle")
        answer(records, 4, "lamp")

    back = restored(records, tmp_path, lambda: answer(records, 1, "kettle"), after)
    assert charged(back) == {KETTLE: 3, LAMP: 1}
    with pytest.raises(AnswersExhaustedError, match="kettle"):
        ask(serve(back), "one more")
    answer(back, 5, "lamp")


def lose_an_upload(folder: Path) -> Records:
    """A unit that was on kettles is lost, and comes back with a lamp."""
    records = opened(folder)
    analyst(records)

    def after() -> None:
        upload(records, [("new", "my kettle", "kettle", "glad")])
        answer(records, 1, "kettle")

    back = restored(records, folder, lambda: None, after)
    upload(back, [("new", "now a lamp", "lamp", "glad")])
    return back


def test_a_lost_unit_pays_on_no_second_topic(tmp_path: Path) -> None:
    back = lose_an_upload(tmp_path)
    assert charged(back) == {KETTLE: 3, LAMP: 3}
    with pytest.raises(AnswersExhaustedError):
        ask(serve(back), "a lamp", "lamp")
    sign(back, prepare(back, plan(budget="budget: {epsilon: 4, delta: 1.0e-4}"), embed), "test")
    answer(back, 2, "lamp")  # of a plan that finds all topics anew
    assert charged(back) == {KETTLE: 3, LAMP: 3, "shop.mood#kettle@2": 0, "shop.mood#lamp@2": 1}


def test_the_test_sees_answers_that_a_restore_gives_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loss, "regrouped", frozenset())
    assert charged(lose_an_upload(tmp_path)) != {KETTLE: 3, LAMP: 3}


def test_a_plan_that_comes_back_without_its_units_topics_answers_nothing(tmp_path: Path) -> None:
    records = opened(tmp_path, None)
    analyst(records)

    def after() -> None:
        sign(records, prepare(records, plan(), embed), "test")
        answer(records, 1, "kettle")

    back = restored(records, tmp_path, lambda: None, after)
    assert charged(back) == {KETTLE: 3, LAMP: 3}
    with pytest.raises(AnswersExhaustedError):
        ask(serve(back), "a lamp", "lamp")


def test_what_a_second_restore_finds_is_still_ended(tmp_path: Path) -> None:
    """The acknowledgement itself is lost with a backup from before it."""
    lose_an_upload(tmp_path)
    for old in tmp_path.glob("service.sqlite*"):
        old.unlink()
    shutil.copy(tmp_path / "backup", tmp_path / "service.sqlite")
    again = open_records(development(tmp_path), restored=True)
    acknowledge(again.database, again.witness, find_loss(again.audit, again.witness), by="root", outside=bring_back)
    assert charged(again) == {KETTLE: 3, LAMP: 3}
    assert find_loss(again.audit, again.witness) is None
