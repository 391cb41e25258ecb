"""The grain of a task with topics is measured by the code of its draw, on at least as many rows as any draw reads."""

from __future__ import annotations

import asyncio
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import exemplar_store.topics
import service.records.topics
from exemplar_store import TopicList, made_up
from exemplar_store.encryption import KnowledgeBaseKeys
from service.answering import measured_grains
from service.answering.draw import draw_signed
from service.answering.measured_grains import largest_read_s
from service.records.records import Records
from service.records.topics import most_work
from tests.service.answering.topic_shop import BY_FIELD, BY_SIMILARITY, NAME, embed, opened

SLOTS, KEPT, SHOWN = 10, 24, 12
"""Numbers of the plan: slots, exemplars that each keeps, and exemplars that each shows by nearness."""


class Counted:
    """Work that a function makes: what it decrypts, and the exemplars whose topic it finds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        for name in ("decrypt", "decrypt_vector", "decrypt_topics"):
            self._watch(monkeypatch, KnowledgeBaseKeys, name, lambda *_: 1)
        self._watch(monkeypatch, TopicList, "of_rows", lambda _topics, _keys, _names, rows: len(rows))

    def _watch(self, monkeypatch: pytest.MonkeyPatch, of: Any, name: str, count: Callable[..., int]) -> None:
        honest = getattr(of, name)

        def counting(*arguments: Any) -> Any:
            self.counts[name] += count(*arguments)
            return honest(*arguments)

        monkeypatch.setattr(of, name, counting)

    def by(self, does: Callable[[], Any]) -> Counter[str]:
        self.counts.clear()
        does()
        return Counter(self.counts)


def measured(records: Records, counted: Counted) -> Counter[str]:
    """The work of one of the runs that a measurement makes."""
    signed, knowledge_base = records.ledger.budgets.task("shop.mood"), records.store.get(NAME)
    counts = counted.by(lambda: asyncio.run(largest_read_s(records.store, signed, knowledge_base)))
    assert all(count % made_up._READS == 0 for count in counts.values())
    return Counter({name: count // made_up._READS for name, count in counts.items()})


def drawn(records: Records, counted: Counted) -> Counter[str]:
    """The work of a draw in which units fill every slot, all of their exemplars on the topic."""
    signed = records.ledger.budgets.on_topic(records.ledger.budgets.task("shop.mood"), "kettle")
    question = embed(["a kettle"])[0]
    slots = []

    def draw() -> None:
        slots.extend(draw_signed(records.store, signed, arrived=None, embeddings=False, question=question))

    counts = counted.by(draw)
    assert all(slots)
    return counts


def full(folder: Path, topics: str, order: str) -> Records:
    """A knowledge base where every unit is drawn and each has more exemplars than a slot keeps."""
    some = [(f"u{unit}", f"kettle {unit} {n}", "kettle", "glad") for unit in range(80) for n in range(KEPT + 1)]
    return opened(folder, topics, some, ensemble=f"ensemble: {SLOTS}\n    order: {order}")


def check_measured(folder: Path, counted: Counted, topics: str, order: str) -> Counter[str]:
    records = full(folder, topics, order)
    largest, real = measured(records, counted), drawn(records, counted)
    # The exemplars that are shown are opened once more, measured with the engine's work.
    shown = SLOTS * (SHOWN if order == "nearest" else KEPT)
    real["decrypt"] -= shown
    assert all(largest[name] >= count for name, count in real.items()), (largest, real)
    assert largest["of_rows"] == SLOTS * KEPT
    return largest


@pytest.mark.parametrize("topics", [BY_FIELD, BY_SIMILARITY], ids=["field", "similarity"])
@pytest.mark.parametrize("order", ["random", "nearest"])
def test_what_is_measured_is_what_any_draw_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: str, order: str
) -> None:
    largest = check_measured(tmp_path, Counted(monkeypatch), topics, order)
    assert largest["decrypt" if topics == BY_FIELD else "decrypt_vector"] >= SLOTS * KEPT


@pytest.mark.parametrize("bug", ["topics are not measured", "shown exemplars alone are measured"])
def test_the_test_sees_work_that_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    if bug == "topics are not measured":
        monkeypatch.setattr(measured_grains, "most_work", lambda _signed: None)
    else:
        honest = measured_grains.LargestSample
        monkeypatch.setattr(measured_grains, "LargestSample", lambda **of: honest(**{**of, "kept": of["shown"]}))
    with pytest.raises(AssertionError):
        check_measured(tmp_path, Counted(monkeypatch), BY_SIMILARITY, "nearest")


def test_all_pages_of_the_public_size_are_measured_and_none_of_the_units_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, counted = opened(tmp_path), Counted(monkeypatch)
    assert measured(records, counted)["decrypt_topics"] == 1
    monkeypatch.setattr(measured_grains, "PAGE", 10)  # the public size is 80
    monkeypatch.setattr(made_up, "PAGE", 1000)
    assert measured(records, counted)["decrypt_topics"] == 9


def test_of_many_pages_and_rows_some_get_time_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves by one with every page that is read, and by a thousand with every exemplar."""
    monkeypatch.setattr(measured_grains, "PAGE", 1)  # 81 pages
    monkeypatch.setattr(made_up, "_MOST_PAGES", 3)
    monkeypatch.setattr(made_up, "_MOST_ROWS", 2 * KEPT)
    counted = Counted(monkeypatch)

    class Clock:
        @staticmethod
        def monotonic() -> int:
            return counted.counts["decrypt_topics"] + 1000 * counted.counts["of_rows"]

    monkeypatch.setattr(made_up, "time", Clock)
    records = opened(tmp_path)
    signed, knowledge_base = records.ledger.budgets.task("shop.mood"), records.store.get(NAME)
    took = asyncio.run(largest_read_s(records.store, signed, knowledge_base))
    assert took == 2 * 81 + 1000 * SLOTS * KEPT  # what SQLite reads takes twice as long


def test_the_longest_spelling_that_is_compared_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exemplar's field of any length costs no more than the one measured."""
    records = opened(tmp_path)
    signed = records.ledger.budgets.task("shop.mood")
    read: list[str] = []

    def normalize(form: str, text: str) -> str:
        read.append(text)
        return unicodedata.normalize(form, text)

    service.records.topics._signed_topics.cache_clear()
    by = most_work(signed).by
    monkeypatch.setattr("accounting.plans.labels.unicodedata", SimpleNamespace(normalize=normalize))
    assert by({"product": "x"}) == 0
    longest = max(map(len, read))
    for length in (longest, longest + 1, 1000, 16_000):
        by({"product": "y" * length})
    assert max(map(len, read)) == longest < 100
    service.records.topics._signed_topics.cache_clear()


def test_topics_among_many_are_those_found_alone() -> None:
    """An exemplar's topic does not depend on others that are compared with it at once."""
    random = np.random.default_rng(0)
    centres, vectors = (random.integers(-127, 128, (count, 1500)).astype(np.int8) for count in (40, 3000))
    alone = [exact_closest(centres, vector) for vector in vectors[::50]]
    assert exemplar_store.topics.closest(centres, vectors)[::50].tolist() == alone
    twins = np.repeat(centres, 2, axis=0)
    assert set((exemplar_store.topics.closest(twins, vectors) % 2).tolist()) == {0}  # of equals the first


def exact_closest(centres: np.ndarray, vector: np.ndarray) -> int:
    wide = [[int(x) for x in centre] for centre in centres]
    near: Sequence[float] = [
        sum(a * int(b) for a, b in zip(centre, vector, strict=True)) / sum(a * a for a in centre) ** 0.5
        for centre in wide
    ]
    return int(np.argmax(near))
