"""The state that the events of a trail add up to, one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from accounting.ledger.amounts import Pair, rest, total

if TYPE_CHECKING:
    from accounting.ledger.events.answers import AnswerReleased, ChargeLost, ChargeVoided
    from accounting.ledger.events.keys import KeyCreated


@dataclass
class Replayed:
    """The state after the events replayed so far.

    Attributes:
        events: number of events.
        budgets: budgets of its cohorts, by knowledge base.
        closed: closed cohorts.
        archived: archived knowledge bases.
        granted: cohorts and (ε, δ) of each plan, by knowledge base.
        approved: knowledge base and file of each plan that a second person approved.
        retired: retired plans, by knowledge base and version.
        groups: budgets of groups.
        group_of: group that a knowledge base has joined.
        tasks: number of answers, and whether they are a one-time release, by task address.
        asked: addresses of tasks, without their topics.
        used_up: addresses of topics that a restore left without an answer.
        charges: task, key and state of each charge, by id.
        charged: number of charges that were not voided, by task address.
        charged_by: number of charges that were not voided, by key.
        releases: ids of releases.
        released: number of answers released, by task address.
        keys: keys by id.
        revoked: revoked keys.
        tokens: hashes of tokens that replaced others.
        people: people who signed in with a provider.
        uploads: names of uploads.
        uploaded: knowledge bases that had an upload.
    """

    events: int = 0
    budgets: dict[str, list[Pair]] = field(default_factory=dict)
    closed: set[tuple[str, int]] = field(default_factory=set)
    archived: set[str] = field(default_factory=set)
    granted: dict[str, list[tuple[tuple[int, ...], Pair]]] = field(default_factory=dict)
    approved: set[tuple[str, str]] = field(default_factory=set)
    retired: set[tuple[str, int]] = field(default_factory=set)
    groups: dict[str, Pair] = field(default_factory=dict)
    group_of: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, tuple[int, bool]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    used_up: set[str] = field(default_factory=set)
    charges: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    charged: Counter[str] = field(default_factory=Counter)
    charged_by: Counter[str] = field(default_factory=Counter)
    releases: set[str] = field(default_factory=set)
    released: Counter[str] = field(default_factory=Counter)
    keys: dict[str, KeyCreated] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    people: set[str] = field(default_factory=set)
    uploads: set[str] = field(default_factory=set)
    uploaded: set[str] = field(default_factory=set)

    def exists(self, knowledge_base: str) -> Iterable[str]:
        """Check that a knowledge base exists."""
        if knowledge_base not in self.budgets:
            yield f"there is no knowledge base {knowledge_base}"

    def came_late(self, knowledge_base: str) -> Iterable[str]:
        """Check that a knowledge base is not archived."""
        if knowledge_base in self.archived:
            yield f"{knowledge_base} was archived"

    def shared(self, knowledge_base: str) -> Iterable[str]:
        """Check the budget of its group for a unit in every knowledge base of it, each time in the dearest cohort."""
        group = self.group_of.get(knowledge_base)
        if group is None:
            return
        dearest = []
        for other in (other for other, its in self.group_of.items() if its == group):
            granted, cohorts = self.granted[other], range(1, len(self.budgets[other]) + 1)
            paid = [total(pair for named, pair in granted if cohort in named) for cohort in cohorts]
            dearest.append((max(epsilon for epsilon, _ in paid), max(delta for _, delta in paid)))
        if min(rest(self.groups[group], dearest)[1]) < 0:
            yield f"the plans of the group {group} promise more than its budget"

    def settle(
        self, event: AnswerReleased | ChargeVoided | ChargeLost, state: str, allowed: Collection[str]
    ) -> Iterable[str]:
        """Bring a charge to another state, if it is in one of those allowed."""
        task, key, before = self.charges.get(event.charge, ("", "", "never made"))
        if before not in allowed:
            yield f"charge {event.charge} was {before} and cannot be {state}"
            return
        if task != event.task:
            yield f"charge {event.charge} is of {task}, not of {event.task}"
        self.charges[event.charge] = task, key, state
