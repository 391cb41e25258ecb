"""Every unit is on its own topic, whatever other units there are, and is drawn as if there were no topics.

There are more units than a page of topics holds, or are read at once, so each place where they are counted is passed.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import sqlalchemy as sa

from exemplar_store import ExemplarStore, KnowledgeBase, Nearest, OnTopic, Row, Slot, TopicList
from exemplar_store.tables import unit_topics
from exemplar_store.topics import PAGE

NAME = "tickets"
TOPICS = ("kettle", "lamp", "radio")
ENSEMBLE = 2


def product(unit: int) -> str:
    """One of the topics, or none: without a period, so that no unit has the product of one at a fixed distance."""
    return (*TOPICS, "tent")[zlib.crc32(b"unit %d" % unit) % 4]


def by_label(fields: Mapping[str, str]) -> int | None:
    return TOPICS.index(fields["label"]) if fields["label"] in TOPICS else None


FIRST, SECOND = (TopicList(version, "mood", len(TOPICS), by_label) for version in (1, 2))


def rows(units: Sequence[int], label: Callable[[int], str] = product, each: int = 1) -> list[Row]:
    return [
        Row(1, f"u{unit}", {"text": f"{unit} {number}", "label": label(unit)})
        for unit in units
        for number in range(each)
    ]


def sign(store: ExemplarStore, engine: sa.Engine, topics: TopicList) -> None:
    """Find every unit's topic, and keep it, as signing a plan does."""
    found = store.topics_of(NAME, topics)
    with engine.begin() as connection:
        store.lock(connection, NAME)
        store.keep_topics(connection, NAME, topics, found)


def upload(store: ExemplarStore, some: list[Row], *signed: TopicList, embed=None, replace: bool = False) -> None:
    store.ingest(NAME, some, embed, topics=lambda _connection: signed, replace=replace)


def units_of(slots: Sequence[Slot]) -> list[int]:
    return sorted(int(exemplar.fields["text"].split()[0]) for slot in slots for exemplar in slot)


def drawn(store: ExemplarStore, topics: TopicList, name: str, **options) -> list[int]:
    """The units of a topic, each as often as it has exemplars."""
    topic = OnTopic(topics, TOPICS.index(name))
    every = {"probability": 1.0, "ensemble": ENSEMBLE, "max_exemplars": 10_000, "topic": topic}
    return units_of(store.sample_slots(NAME, **every, **options))


def test_every_unit_is_on_its_own_topic_on_every_page(
    store: ExemplarStore, engine: sa.Engine, tickets: KnowledgeBase
) -> None:
    """Of one plan the units arrive later, in several uploads, and of the other they are there."""
    count, early = PAGE + 250, 130
    upload(store, rows(range(early)))
    sign(store, engine, FIRST)
    for first, end in ((early, PAGE - 1), (PAGE - 1, PAGE + 1), (PAGE + 1, count - 40)):
        upload(store, rows(range(first, end)), FIRST)
    sign(store, engine, SECOND)
    upload(store, rows(range(count - 40, count)), FIRST, SECOND)
    some = range(0, count, 37)  # whose exemplars change, on every page, too late to matter
    upload(store, rows(some, lambda unit: TOPICS[(unit + 1) % 3], each=2), FIRST, SECOND)
    for topics in (FIRST, SECOND):
        for name in TOPICS:
            on_it = {unit for unit in range(count) if product(unit) == name}
            assert {unit for unit in drawn(store, topics, name) if unit % 37} == {unit for unit in on_it if unit % 37}
            known = [unit for unit in some if product(unit) in TOPICS]
            may = {unit for unit in known if product(unit) == name}
            assert {unit for unit in drawn(store, topics, name) if unit in known} == may


def test_a_page_that_does_not_open_moves_no_other(
    store: ExemplarStore, engine: sa.Engine, tickets: KnowledgeBase
) -> None:
    """Its units are drawn for no topic; the units of the next page have their own, also under another data key."""
    count = PAGE + 30
    upload(store, rows(range(count)))
    sign(store, engine, FIRST)
    store.reencrypt(lambda *_: None)
    engine.dispose()
    store = ExemplarStore(engine, bytes(range(32)))
    for name in TOPICS:
        assert drawn(store, FIRST, name) == [unit for unit in range(count) if product(unit) == name]
    with engine.begin() as connection:
        connection.execute(sa.update(unit_topics).where(unit_topics.c.page == 0).values(sealed=b"changed"))
    for name in TOPICS:
        assert drawn(store, FIRST, name) == [unit for unit in range(PAGE, count) if product(unit) == name]


def test_a_topic_of_a_cohort_has_its_units_and_none_that_came_later(
    store: ExemplarStore, engine: sa.Engine, tickets: KnowledgeBase
) -> None:
    upload(store, rows(range(20)))
    assert store.open_cohort(NAME, 100, lambda *_: None) == 2
    sign(store, engine, FIRST)
    upload(store, rows(range(20, 50)), FIRST)
    arrived = store.get(NAME).arrived
    upload(store, rows(range(50, 90)), FIRST)
    spans = {(1,): range(20), (2,): range(20, 90), (1, 2): range(90), (3,): range(0), (): range(0)}
    for cohorts, units in spans.items():
        for name in TOPICS:
            on_it = [unit for unit in units if product(unit) == name]
            assert drawn(store, FIRST, name, cohorts=cohorts) == on_it
            before = [unit for unit in on_it if unit < 50]
            assert drawn(store, FIRST, name, cohorts=cohorts, arrived=arrived) == before


def embed(texts: Sequence[str]) -> np.ndarray:
    """A direction for each unit, the same for all of its exemplars."""
    angles = np.array([int(text.split()[0]) for text in texts], np.float64)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


WAYS = {
    "without topics": {},
    "on a topic": {"topic": OnTopic(FIRST, 0)},
    "the nearest": {"nearest": Nearest(np.array([1.0, 0.0]), 9)},
    "the nearest on a topic": {"topic": OnTopic(FIRST, 0), "nearest": Nearest(np.array([1.0, 0.0]), 9)},
}


@pytest.mark.parametrize("way", WAYS)
def test_units_go_to_slots_without_regard_to_each_other(
    store: ExemplarStore, engine: sa.Engine, tickets: KnowledgeBase, way: str
) -> None:
    """Two units: each is left out half the time, or is in one of two slots.

    One of the nine outcomes fails to occur in 400 draws less than once in 1e10 runs, and one of 100 expected occurs
    190 times less than once in 1e15. Each unit's two exemplars are in the same slot.
    """
    upload(store, rows(range(2), lambda _unit: "kettle", each=2), embed=embed)
    sign(store, engine, FIRST)
    outcomes: Counter[tuple[int | None, ...]] = Counter()
    for _ in range(400):
        slots = store.sample_slots(NAME, probability=0.5, ensemble=ENSEMBLE, max_exemplars=9, **WAYS[way])
        places = {unit: [number for number, slot in enumerate(slots) if unit in units_of([slot])] for unit in range(2)}
        assert all(len(place) <= 1 for place in places.values())
        assert set(Counter(units_of(slots)).values()) <= {2}
        outcomes[tuple(place[0] if place else None for place in places.values())] += 1
    assert len(outcomes) == 9
    assert max(outcomes.values()) < 190


def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make randomness the same for each draw, and for the first units however many there are."""

    def words(count: int) -> np.ndarray:
        return np.array([zlib.crc32(b"word %d" % number) << 32 for number in range(count)], np.uint64)

    monkeypatch.setattr("exemplar_store.sampling.words", words)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("newcomer", ["kettle", "lamp", "tent"])
def test_a_unit_moves_no_other_whatever_its_topic(
    store: ExemplarStore, engine: sa.Engine, tickets: KnowledgeBase, monkeypatch, way: str, newcomer: str
) -> None:
    steady(monkeypatch)
    upload(store, rows(range(12), each=3), embed=embed)
    sign(store, engine, FIRST)

    def slots() -> list[set[str]]:
        found = store.sample_slots(NAME, probability=1.0, ensemble=5, max_exemplars=99, **WAYS[way])
        return [{exemplar.fields["text"] for exemplar in slot} for slot in found]

    before = slots()
    assert sum(map(bool, before)) > 1
    upload(store, rows([90], lambda _unit: newcomer, each=3), FIRST, embed=embed)
    changed = [after - old for old, after in zip(before, slots(), strict=True) if after != old]
    own = {"90 0", "90 1", "90 2"}
    assert changed == ([] if "topic" in WAYS[way] and newcomer != "kettle" else [own])


def test_a_slot_shows_the_nearest_of_its_exemplars_on_the_topic(
    store: ExemplarStore, engine: sa.Engine, tickets: KnowledgeBase
) -> None:
    """Nearer exemplars on another topic take no places."""
    angles = {"kettle": (0.3, 0.1, 0.2, 0.4), "lamp": (0.05, 0.15, 0.25)}
    upload(
        store, [Row(1, "u", {"text": f"{at}", "label": name}) for name in angles for at in angles[name]], embed=by_angle
    )
    sign(store, engine, FIRST)
    near = Nearest(np.array([1.0, 0.0]), 3)
    (slot,) = store.sample_slots(
        NAME, probability=1, ensemble=1, max_exemplars=99, topic=OnTopic(FIRST, 0), nearest=near, embeddings=False
    )
    assert [exemplar.fields["text"] for exemplar in slot] == ["0.3", "0.2", "0.1"]


def by_angle(texts: Sequence[str]) -> np.ndarray:
    angles = np.array([float(text) for text in texts])
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_whole_numbers_are_kept_for_each_exemplar_of_a_large_upload(
    store: ExemplarStore, engine: sa.Engine, tickets: KnowledgeBase
) -> None:
    """They are made in batches: each is of its own embedding, as if it was uploaded alone."""
    count = 2100
    angles = {unit: (zlib.crc32(b"angle %d" % unit) % 6000) / 1000 for unit in range(count)}
    some = [Row(1, f"u{unit}", {"text": f"{angle}", "label": "kettle"}) for unit, angle in angles.items()]
    upload(store, some, embed=by_angle)
    for target in (0.5, 2.0, 4.0, 5.5):
        near = Nearest(by_angle([str(target)])[0], 5)
        (slot,) = store.sample_slots(NAME, probability=1, ensemble=1, max_exemplars=count, nearest=near)
        assert len(slot) == 5
        assert max(abs(float(exemplar.fields["text"]) - target) for exemplar in slot) < 0.03


@pytest.mark.parametrize(
    ("found", "topic"),
    [([2, 1], 1), ([3, 3, 2, 2, 1], 2), ([0, 0, 0, 3], 3), ([4, 4, 1, 4, 1, 1], 1), ([0, 0], 0), ([], 0)],
)
def test_of_equally_frequent_topics_a_unit_is_on_the_first(found: list[int], topic: int) -> None:
    """In whatever order its exemplars are read."""
    topics = TopicList(1, "mood", 4, lambda _fields: None)
    assert topics.of_unit(np.array(found, np.int64)) == topic
    assert topics.of_unit(np.array(found[::-1], np.int64)) == topic
