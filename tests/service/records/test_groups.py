"""A unit in several knowledge bases of a group never pays more than the group's budget, whatever is done to them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from accounting.ledger import groups, promised, restoring
from accounting.ledger.amounts import Pair, total
from accounting.ledger.errors import BudgetExceededError, GroupError
from tests.service.records.test_cohorts import (
    Deployment,
    History,
    Steps,
    StepsAndRestores,
    any_history,
    calibrated,
    in_a_folder_of,
    is_found,
)

SHARED = 3
"""ε of the group; each cohort has 2."""


class Sharing:
    """Two knowledge bases, and what may be done with each, with both and with their group."""

    def __init__(self, here: Deployment, number: str = "") -> None:
        self.here, self.group = here, f"group{number}"
        self.of = {name: History(here, f"{name}{number}") for name in "ab"}
        self.histories = [*self.of.values()]

    def join(self, which: str, epsilon: int = SHARED) -> None:
        """Let a knowledge base join the group, which is opened if it does not exist."""
        with suppress(GroupError):
            self.here.ledger.groups.open(self.group, epsilon, 0, by="root")
        with suppress(GroupError):
            self.here.ledger.groups.join(self.group, self.of[which].name, by="root")

    def draw(self) -> None:
        for history in self.histories:
            history.draw()
        joined = {name for one in self.here.ledger.groups.statuses() for name in one.knowledge_bases}
        together = [one for one in self.histories if one.name in joined]
        for unit in {unit for one in together for unit in one.paid}:
            paid = [one.epsilon[plan] for one in together for plan in one.paid[unit]]
            assert sum(paid) <= SHARED, f"{unit} pays {paid} in all"

    def play(self, story: str) -> None:
        """Take the steps of a story such as ``join a; a upload ann; a sign 2 1; back_up``, drawing after each."""
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


@pytest.fixture
def fresh(database_url: str) -> Callable[[], Sharing]:
    numbers = itertools.count()
    return lambda: Sharing(Deployment(database_url, None), f"{next(numbers)}")


@pytest.fixture
def restorable(tmp_path: Path) -> Callable[[], Sharing]:
    return lambda: Sharing(in_a_folder_of(tmp_path))


class Joining:
    @rule(which=st.sampled_from("ab"))
    def join(self, which: str) -> None:
        self.history.join(which)


class SharedSteps(Joining, Steps):
    pass


class SharedStepsAndRestores(Joining, StepsAndRestores):
    pass


@pytest.mark.slow
def test_no_unit_pays_more_than_the_group_has(fresh: Callable[[], Sharing]) -> None:
    any_history(fresh, 12, SharedSteps)


@pytest.mark.slow
def test_no_unit_pays_more_after_any_restore(restorable: Callable[[], Sharing]) -> None:
    any_history(restorable, 15, SharedStepsAndRestores)


NOBODY_PAYS = [(module, "most_paid", lambda _signed: total([])) for module in (promised, groups)]
UNEQUAL = "a upload ann; b upload ann; a open; a sign 2 1; a sign 1 2"


def least_paid(signed: Sequence[promised.Row]) -> Pair:
    numbers = {number for plan in signed for number in plan.cohorts}
    return min((total(promised.charged_to(number, signed)) for number in numbers), default=total([]))


WHO_PAYS_LEAST_COUNTS = [(module, "most_paid", least_paid) for module in (promised, groups)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "bugs"),
    [
        ("join a; join b; a upload ann; b upload ann; a sign 2; b sign 2; b sign 1", NOBODY_PAYS),
        ("a upload ann; b upload ann; a sign 2; b sign 2; join a; join b", NOBODY_PAYS),
        (f"{UNEQUAL}; join a; join b; b sign 2", WHO_PAYS_LEAST_COUNTS),
        (f"{UNEQUAL}; b sign 2; join b; join a", WHO_PAYS_LEAST_COUNTS),
    ],
    ids=["signing", "joining", "signing with unequal cohorts", "joining with unequal cohorts"],
)
def test_a_bug_would_be_found(fresh: Callable[[], Sharing], monkeypatch, story: str, bugs: list) -> None:
    is_found(fresh, story, bugs, monkeypatch)


@pytest.mark.slow
def test_a_bug_would_be_found_after_a_restore(restorable: Callable[[], Sharing], monkeypatch) -> None:
    story = "join a; join b; a upload ann; b upload ann; back_up; a sign 2; restore; b sign 2; acknowledge"
    is_found(restorable, story, [(restoring.Loss, "_with_groups", lambda _loss, names: names)], monkeypatch)


def test_what_makes_no_group_is_refused(fresh: Callable[[], Sharing]) -> None:
    sharing = fresh()
    for bad in ({"name": ""}, {"epsilon": 0}, {"delta": 1}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            sharing.here.ledger.groups.open(**{"name": "new", "epsilon": 1, "delta": 0, "by": "root"} | bad)
    sharing.here.close()


def test_the_most_is_that_of_epsilon_and_that_of_delta() -> None:
    signed = [SimpleNamespace(cohorts=[1], epsilon=2, delta=1), SimpleNamespace(cohorts=[2], epsilon=1, delta=3)]
    assert promised.most_paid(signed) == (2, 3)


def test_plans_signed_at_the_same_time_in_two_knowledge_bases_share_the_budget(fresh: Callable[[], Sharing]):
    sharing = fresh()
    sharing.join("a")
    sharing.join("b")
    calibrated()  # once, instead of once in each thread
    with ThreadPoolExecutor(8) as pool:
        for attempt in [pool.submit(sharing.of[which].sign, 1) for which in "abababab"]:
            attempt.result()
    status = sharing.here.ledger.groups.status(sharing.group)
    assert (status.promised_epsilon, status.free_epsilon) == (SHARED, 0)
    sharing.here.close()


def test_what_others_left_is_shown_and_is_what_further_plans_may_ask_for(fresh: Callable[[], Sharing]) -> None:
    sharing = fresh()
    sharing.play("join a; join b; a sign 2; b open; b sign 1 2")
    budgets, name = sharing.here.ledger.budgets, sharing.of["b"].name
    assert [one.free_epsilon for one in budgets.status(name).cohorts] == [1, 0]  # no unit is in both cohorts
    for epsilon in (1, 20):  # the second is more than the cohort would have alone, too
        only = rf"ε = {epsilon},.* group '{sharing.group}' .*\(ε = 0, δ = 0\).* cohort 2 of '{name}'"
        with pytest.raises(BudgetExceededError, match=only):
            sharing.here.ledger.cohorts.check_free(name, [2], epsilon=epsilon, delta=0)
    sharing.here.ledger.cohorts.check_free(name, [1], epsilon=1, delta=0)
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
