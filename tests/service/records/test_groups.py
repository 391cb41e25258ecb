"""Whoever is in several knowledge bases of a group never pays more than its budget, whatever is done to them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from accounting.ledger import promised, restoring
from accounting.ledger.amounts import total
from accounting.ledger.errors import BudgetExceededError, GroupError, UnknownBudgetError, UnknownGroupError
from tests.accounting.books import wrong
from tests.privacy.planting import Edit, plant
from tests.service.records.test_cohorts import AFTER_A_BACKUP, STEPS, Deployment, History

SHARED = 3
"""ε of the group; each cohort has 2."""


class Sharing:
    """Two knowledge bases, and what may be done with each, with both and with their group."""

    def __init__(self, here: Deployment, names: tuple[str, str], group: str) -> None:
        self.here, self.group = here, group
        self.of = {name[0]: History(here, name) for name in names}

    def join(self, which: str, epsilon: int = SHARED) -> None:
        """Make the group, if it is not there."""
        with suppress(GroupError):
            self.here.ledger.groups.open(self.group, epsilon, 0, by="root")
        with suppress(GroupError):
            self.here.ledger.groups.join(self.group, self.of[which].name, by="root")

    def draw(self) -> None:
        for history in self.of.values():
            history.draw()
        joined = {name for one in self.here.ledger.groups.statuses() for name in one.knowledge_bases}
        together = [one for one in self.of.values() if one.name in joined]
        for unit in {unit for one in together for unit in one.paid}:
            paid = [one.epsilon[plan] for one in together for plan in one.paid[unit]]
            assert sum(paid) <= SHARED, f"{unit} pays {paid} in all"

    def play(self, story: str) -> None:
        """``join a; a upload ann; a sign 2 1; back_up``: a step each, drawing after each."""
        for step in story.split("; "):
            first, *rest = step.split()
            history = self.of.get(first)
            if history is not None:
                history.play(" ".join(rest))
            elif first == "join":
                self.join(rest[0], *map(int, rest[1:]))
            else:
                getattr(self.of["a"], first)()
            self.draw()


def any_history(fresh: Callable[[], Sharing], examples: int, **more: st.SearchStrategy) -> None:
    @settings(max_examples=examples, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        sharing = fresh()
        for _ in range(25):
            does = data.draw(st.sampled_from(["join", *sorted(STEPS | more)]))
            which = data.draw(st.sampled_from("ab"))
            if does == "join":
                sharing.join(which)
            else:
                getattr(sharing.of[which], does)(*data.draw((STEPS | more)[does]))
        sharing.draw()
        if not more:
            assert wrong(sharing.here.database) == []
        sharing.here.close()

    check()


@pytest.fixture
def fresh(database_url: str) -> Callable[[], Sharing]:
    numbers = itertools.count()

    def make() -> Sharing:
        number = next(numbers)
        return Sharing(Deployment(database_url, None), (f"a{number}", f"b{number}"), f"group{number}")

    return make


@pytest.fixture
def restorable(tmp_path: Path) -> Callable[[], Sharing]:
    numbers = itertools.count()

    def make() -> Sharing:
        folder = tmp_path / f"{next(numbers)}"
        folder.mkdir()
        return Sharing(Deployment(f"sqlite:///{folder}/service.sqlite", folder), ("a", "b"), "group")

    return make


@pytest.mark.slow
def test_nobody_pays_more_than_the_group_has(fresh: Callable[[], Sharing]) -> None:
    any_history(fresh, 12)


@pytest.mark.slow
def test_nor_after_any_restore(restorable: Callable[[], Sharing]) -> None:
    any_history(restorable, 15, **AFTER_A_BACKUP)


BOTH = "join a; join b; a upload ann; b upload ann; a sign 2; b sign 2; b sign 1"
LATE = "a upload ann; b upload ann; a sign 2; b sign 2; join a; join b"


@pytest.mark.parametrize("story", [BOTH, LATE], ids=["signing", "joining"])
def test_a_bug_would_be_found(fresh: Callable[[], Sharing], monkeypatch, story: str) -> None:
    fresh().play(story)
    monkeypatch.setattr(promised, "most_paid", lambda signed: total([]))
    monkeypatch.setattr("accounting.ledger.groups.most_paid", lambda signed: total([]))
    with pytest.raises(AssertionError, match="ann pays"):
        fresh().play(story)


UNEQUAL = "a upload ann; b upload ann; a open; a sign 2 1; a sign 1 2; join a; join b; b sign 2"
UNEQUAL_LATE = "a upload ann; b upload ann; a open; a sign 2 1; a sign 1 2; b sign 2; join b; join a"


@pytest.mark.parametrize("story", [UNEQUAL, UNEQUAL_LATE], ids=["signing", "joining"])
def test_the_cohort_that_pays_most_counts(fresh: Callable[[], Sharing], monkeypatch, story: str) -> None:
    fresh().play(story)
    plant(Edit("accounting.ledger.promised:most_paid", "max(epsilon", "min(epsilon"), monkeypatch)
    with pytest.raises(AssertionError, match="ann pays"):
        fresh().play(story)


def test_and_of_delta_by_itself(monkeypatch) -> None:
    signed = [SimpleNamespace(cohorts=[1], epsilon=2, delta=1), SimpleNamespace(cohorts=[2], epsilon=1, delta=3)]
    assert promised.most_paid(signed) == (2, 3)
    for which in ("epsilon", "delta"):
        plant(Edit("accounting.ledger.promised:most_paid", f"max({which}", f"min({which}"), monkeypatch)
        assert promised.most_paid(signed) != (2, 3)


def test_a_bug_would_be_found_after_a_restore(restorable: Callable[[], Sharing], monkeypatch) -> None:
    story = "join a; join b; a upload ann; b upload ann; back_up; a sign 2; restore; b sign 2; acknowledge"
    restorable().play(story)
    monkeypatch.setattr(restoring.Loss, "_with_groups", lambda _loss, names: names)
    with pytest.raises(AssertionError, match="ann pays"):
        restorable().play(story)


def test_whoever_signs_at_the_same_time_in_two_knowledge_bases_sees_what_the_other_took(
    fresh: Callable[[], Sharing],
) -> None:
    sharing = fresh()
    sharing.join("a")
    sharing.join("b")
    with ThreadPoolExecutor(8) as pool:
        for attempt in [pool.submit(sharing.of[which].sign, 1) for which in "abababab"]:
            attempt.result()
    status = sharing.here.ledger.groups.status(sharing.group)
    assert (status.promised_epsilon, status.free_epsilon) == (SHARED, 0)
    sharing.here.close()


def test_what_others_left_is_said_and_is_what_further_plans_may_ask_for(fresh: Callable[[], Sharing]) -> None:
    sharing = fresh()
    sharing.play("join a; join b; a sign 2; b open; b sign 1 2")
    budgets, name = sharing.here.ledger.budgets, sharing.of["b"].name
    assert [one.free_epsilon for one in budgets.status(name).cohorts] == [1, 0]  # nobody is in both cohorts
    only = rf"of group '{sharing.group}' only \(ε = 0, δ = 0\) is left for cohort 2 of '{name}'"
    with pytest.raises(BudgetExceededError, match=only):
        sharing.here.ledger.cohorts.check_free(name, [2], epsilon=1, delta=0)
    sharing.here.ledger.cohorts.check_free(name, [1], epsilon=1, delta=0)
    sharing.here.close()


def test_what_makes_no_group_is_named(fresh: Callable[[], Sharing]) -> None:
    sharing = fresh()
    sharing.play("a sign 2; b sign 2; join a")
    groups = sharing.here.ledger.groups
    name, other = sharing.of["a"].name, sharing.of["b"].name
    with pytest.raises(GroupError, match=r"promise \(ε = 2, δ = 0\), and group .* has only \(ε = 1, δ = 0\) left"):
        groups.join(sharing.group, other, by="root")
    with pytest.raises(GroupError, match="already; its budget cannot be changed"):
        groups.open(sharing.group, 9, 0, by="root")
    with pytest.raises(GroupError, match="for ever"):
        groups.join(sharing.group, name, by="root")
    with pytest.raises(UnknownGroupError, match=rf"'{sharing.group}x'; did you mean '{sharing.group}'"):
        groups.join(sharing.group + "x", other, by="root")
    with pytest.raises(UnknownBudgetError):
        groups.join(sharing.group, "nowhere", by="root")
    for bad in ({"name": ""}, {"epsilon": 0}, {"delta": 1}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            groups.open(**{"name": "new", "epsilon": 1, "delta": 0, "by": "root"} | bad)
    sharing.here.close()


@pytest.mark.parametrize(
    ("story", "ended"),
    [
        ("join a; a upload ann; b upload ann; a sign 2; back_up; join b; b sign 1; restore; a sign 2; acknowledge", ""),
        ("join a; join b; a upload ann; b upload ann; back_up; a sign 2; restore; b sign 2; acknowledge", "ab"),
        ("a sign 1; b sign 1; back_up; join b; restore; join a 9; join b 9; acknowledge", "ab"),
        ("join a; join b; back_up; a upload ann; a sign 2; a open; restore; acknowledge; b upload ann; b sign 1", "a"),
    ],
    ids=["what was lost is there again", "both tell of it", "two budgets", "whoever ends has paid all the same"],
)
def test_a_group_lost_in_a_restore_is_there_again(restorable: Callable[[], Sharing], story: str, ended: str) -> None:
    sharing = restorable()
    sharing.play(story)
    ledger = sharing.here.ledger
    assert ledger.groups.status("group").knowledge_bases == ("a", "b")
    for name in "ab":
        assert all(bool(task.left) is (name not in ended) for task in ledger.budgets.status(name).tasks)
    assert ledger.groups.status("group").promised_epsilon <= SHARED
