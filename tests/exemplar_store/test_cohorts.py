"""Cohorts: a unit stays in the cohort in which it arrives, and only the cohorts that are named are drawn."""

from unittest.mock import Mock

import numpy as np
import pytest

from exemplar_store import InvalidKnowledgeBaseError, Row, UnrecognisedUnitsError
from exemplar_store.cohorts import note_lost_arrivals
from exemplar_store.sampling import sample_spans
from tests.exemplar_store.test_reencryption import reencrypted

NAME = "tickets"


nothing = Mock()


def row(unit: str, text: str = "") -> Row:
    return Row(1, unit, {"text": text or f"text of {unit}", "label": "l"})


def drawn(store, *cohorts: int) -> list[list[str]]:
    """The exemplars that are drawn if every unit is drawn, by each of the three ways."""
    every = {"probability": 1.0, "max_exemplars": 10_000, "cohorts": cohorts}
    ways = (
        store.sample_slots(NAME, ensemble=3, **every),
        store.sample_blocks(NAME, blocks=3, **every),
        store.every_unit(NAME, cohorts),
    )
    return [sorted(one.fields["text"].split()[-1] for slot in slots for one in slot) for slots in ways]


@pytest.fixture
def three(store, tickets):
    """Cohorts a, b and c of two, three and four units."""
    store.ingest(NAME, [row(f"a{i}") for i in range(2)])
    for number, (letter, count) in enumerate({"b": 3, "c": 4}.items(), 2):
        assert store.open_cohort(NAME, 100 * number, nothing) == number
        store.ingest(NAME, [row(f"{letter}{i}") for i in range(count)])
    return store


def test_units_of_the_cohorts_named_are_drawn_and_no_others(three) -> None:
    members = {1: ["a0", "a1"], 2: ["b0", "b1", "b2"], 3: ["c0", "c1", "c2", "c3"]}
    for cohorts in ([], [1], [2], [3], [1, 2], [1, 3], [2, 3], [3, 1], [1, 2, 3], [4], [3, 3]):
        expected = sorted(name for number in set(cohorts) for name in members.get(number, []))
        assert drawn(three, *cohorts) == [expected] * 3, cohorts
    assert three.get(NAME).public_sizes == (1000, 200, 300)
    assert three.get(NAME).public_size_of([1, 3]) == 1300


def test_a_unit_stays_in_its_cohort_when_it_is_forgotten_comes_back_or_grows(three) -> None:
    three.forget(NAME, "a0")
    three.ingest(NAME, [row("a0"), row("a1", "more of a1"), row("c4")])
    assert drawn(three, 1) == [["a0", "a1", "a1"]] * 3
    assert drawn(three, 3)[0] == ["c0", "c1", "c2", "c3", "c4"]


def test_a_unit_stays_in_its_cohort_through_every_change_of_keys(three, engine) -> None:
    for unit in ("a0", "b1"):
        three.forget(NAME, unit)
        three = reencrypted(three, engine)
    assert three.open_cohort(NAME, 400, nothing) == 4
    three = reencrypted(three, engine)
    three.ingest(NAME, [row("a0"), row("b1"), row("d0")])
    expected = [["a0", "a1"], ["b0", "b1", "b2"], ["c0", "c1", "c2", "c3"], ["d0"]]
    assert [drawn(three, number)[0] for number in (1, 2, 3, 4)] == expected
    assert three.get(NAME).public_sizes == (1000, 200, 300, 400)


def test_no_cohort_is_opened_where_a_unit_would_not_be_recognised(three, engine) -> None:
    before = three.get(NAME).public_sizes
    with engine.begin() as connection:
        note_lost_arrivals(connection, NAME)
        note_lost_arrivals(connection, "nobody")
    with pytest.raises(UnrecognisedUnitsError):
        three.open_cohort(NAME, 100, nothing)
    three.ingest(NAME, [row("late")])  # into the newest cohort
    assert drawn(three, 3)[0][-1] == "late"
    assert three.get(NAME).public_sizes == before


def test_no_cohort_is_opened_if_a_restore_comes_between_the_count_and_the_lock(three, monkeypatch) -> None:
    find = three.keyring.open

    def losing(connection, name, *, lock=False):
        if lock:
            monkeypatch.setattr(three.keyring, "open", find)
            note_lost_arrivals(connection, name)
        return find(connection, name, lock=lock)

    monkeypatch.setattr(three.keyring, "open", losing)
    with pytest.raises(UnrecognisedUnitsError):
        three.open_cohort(NAME, 100, nothing)


def test_a_cohort_that_gets_no_budget_is_not_opened(store, tickets) -> None:
    refuse = Mock(side_effect=ValueError("no budget"))
    with pytest.raises(ValueError, match="no budget"):
        store.open_cohort(NAME, 100, refuse)
    assert refuse.call_args.args[1] == 2
    with pytest.raises(InvalidKnowledgeBaseError) as caught:
        store.open_cohort(NAME, 0, nothing)
    assert caught.value.field == "public_size"
    assert store.get(NAME).public_sizes == (1000,)


@pytest.mark.slow
def test_each_position_of_the_ranges_is_drawn_independently() -> None:
    spans = [(3, 5), (5, 5), (10, 14)]
    positions = np.array([3, 4, 10, 11, 12, 13])
    number, q = 100_000, 0.3
    draws = np.array([np.isin(positions, sample_spans(spans, q)) for _ in range(number)])
    assert set(np.concatenate([sample_spans(spans, 1.0), sample_spans(spans, q)])) <= set(positions)
    assert sample_spans([], 0.5).size == 0
    # Seven standard deviations: 6 means and 15 pairs fail together less than once in 1e10 runs.
    assert np.all(np.abs(draws.mean(axis=0) - q) < 7 * np.sqrt(q * (1 - q) / number))
    pairs = (draws[:, :, None] & draws[:, None, :]).mean(axis=0)[np.triu_indices(6, 1)]
    assert np.all(np.abs(pairs - q * q) < 7 * np.sqrt(q * q * (1 - q * q) / number))
