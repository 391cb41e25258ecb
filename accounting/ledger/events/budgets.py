"""Events of what is granted: budgets, cohorts, groups, plans."""

# ruff: noqa: D102 - Particulars documents these methods
from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key
from pydantic import BaseModel, ConfigDict, Field

from accounting.ledger.amounts import exact, figure, rest
from accounting.ledger.entries import parts
from accounting.ledger.events.particulars import Names, Particulars, plural
from accounting.ledger.events.replayed import Replayed


class BudgetOpened(Particulars, kind="budget.opened", words="Knowledge base created"):
    """A knowledge base was created with its lifetime budget; ε and δ are decimals."""

    knowledge_base: str
    epsilon: str
    delta: str
    by: str = ""

    lost = "knowledge base {knowledge_base} was created: create it again, with the same budget"

    def sentence(self, named: Names) -> str:
        return f"{named(self.by)} created {self.knowledge_base} with {_budget(self)} for its whole life."

    def replay(self, past: Replayed) -> Iterable[str]:
        name = self.knowledge_base
        if name in past.budgets:
            yield f"{name} had its lifetime budget already"
        past.budgets[name] = [(exact(self.epsilon), exact(self.delta))]
        past.granted[name] = []


class CohortOpened(Particulars, kind="cohort.opened", words="Cohort opened"):
    """A further cohort was opened, with its own lifetime budget: people who arrive from now on belong to it."""

    knowledge_base: str
    cohort: int
    epsilon: str
    delta: str
    public_size: int
    by: str

    lost = "cohort {cohort} of {knowledge_base} was opened: will be opened again"

    def sentence(self, named: Names) -> str:
        return f"{named(self.by)} opened cohort {self.cohort} of {self.knowledge_base} with {_budget(self)} for life."

    def replay(self, past: Replayed) -> Iterable[str]:
        standing = past.budgets.get(self.knowledge_base, [])
        yield from past.came_late(self.knowledge_base)
        if self.cohort != len(standing) + 1 or self.cohort == 1:
            yield f"cohort {self.cohort} of {self.knowledge_base} follows cohort {len(standing)}"
        standing.append((exact(self.epsilon), exact(self.delta)))


class CohortClosed(Particulars, kind="cohort.closed", words="Cohort closed"):
    """No further plan draws on a cohort; those that are signed do."""

    knowledge_base: str
    cohort: int
    by: str

    says = "{by} closed cohort {cohort} of {knowledge_base} to further plans."
    lost = "cohort {cohort} of {knowledge_base} was closed: will be closed again"

    def replay(self, past: Replayed) -> Iterable[str]:
        name, cohort = self.knowledge_base, self.cohort
        if not 1 <= cohort <= len(past.budgets.get(name, [])) or (name, cohort) in past.closed:
            yield f"cohort {cohort} of {name} is not one that could be closed"
        past.closed.add((name, cohort))


class GroupOpened(Particulars, kind="group.opened", words="Group made"):
    """A group of knowledge bases was made, with the budget that they are to share."""

    group: str
    epsilon: str
    delta: str
    by: str

    lost = "group {group} was made: will be made again"

    def sentence(self, named: Names) -> str:
        return f"{named(self.by)} made the group {self.group} with {_budget(self)} for its whole life."

    def replay(self, past: Replayed) -> Iterable[str]:
        if self.group in past.groups:
            yield f"there was a group {self.group} already"
        past.groups[self.group] = exact(self.epsilon), exact(self.delta)


class GroupJoined(Particulars, kind="group.joined", words="Knowledge base put into a group"):
    """A knowledge base shares the budget of a group, permanently."""

    group: str
    knowledge_base: str
    by: str

    says = "{by} put {knowledge_base} into the group {group}."
    lost = "knowledge base {knowledge_base} joined group {group}: will join it again"

    def replay(self, past: Replayed) -> Iterable[str]:
        name = self.knowledge_base
        if self.group not in past.groups or name not in past.budgets or name in past.group_of:
            yield f"{name} is not a knowledge base that could join {self.group}"
            return
        past.group_of[name] = self.group
        yield from past.shared(name)


class KnowledgeBaseArchived(Particulars, kind="knowledge_base.archived", words="Knowledge base archived"):
    """A knowledge base no longer takes plans, cohorts or exemplars; all its cohorts were closed just before."""

    knowledge_base: str
    by: str

    says = "{by} archived {knowledge_base}: it no longer takes plans, cohorts or exemplars."
    lost = "knowledge base {knowledge_base} was archived: will be archived again"

    def replay(self, past: Replayed) -> Iterable[str]:
        name = self.knowledge_base
        standing = range(1, len(past.budgets.get(name, [])) + 1)
        if not standing or any((name, cohort) not in past.closed for cohort in standing):
            yield f"{name} was archived with an open cohort, or does not exist"
        if name in past.archived:
            yield f"{name} was archived before"
        past.archived.add(name)


class KnowledgeBaseDeleted(Particulars, kind="knowledge_base.deleted", words="Knowledge base deleted"):
    """A knowledge base was deleted with its budget, of which nothing was ever promised; its name is free.

    Attributes:
        cohorts: number of its cohorts.
        closed: number of its closed cohorts.
    """

    knowledge_base: str
    cohorts: int
    closed: int
    by: str

    says = "{by} deleted {knowledge_base}, which had no plan and no exemplar."
    lost = "knowledge base {knowledge_base} was deleted while it was empty: will be deleted again"

    def replay(self, past: Replayed) -> Iterable[str]:
        name = self.knowledge_base
        yield from past.exists(name)
        if past.granted.get(name) or name in past.uploaded or name in past.group_of:
            yield f"{name} was deleted, and had plans, exemplars or a group"
        closed = {one for one in past.closed if one[0] == name}
        if (self.cohorts, self.closed) != (len(past.budgets.get(name, ())), len(closed)):
            yield f"{name} had other cohorts when it was deleted"
        past.budgets.pop(name, None)
        past.granted.pop(name, None)
        past.closed -= closed
        past.archived.discard(name)


class Approval(BaseModel):
    """A second person's signature over a plan's file.

    Attributes:
        by: name of the person.
        public_key: the person's Ed25519 key, SubjectPublicKeyInfo in base64: the line of a PEM file.
        signature: signature over the bytes of the text in UTF-8, in base64.
        text: the plan's file.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    by: str
    public_key: str
    signature: str
    text: str

    @property
    def is_genuine(self) -> bool:
        """Whether the signature is of this text, by this key."""
        try:
            key = load_der_public_key(base64.b64decode(self.public_key, validate=True))
            if not isinstance(key, Ed25519PublicKey):
                return False
            key.verify(base64.b64decode(self.signature, validate=True), self.text.encode())
        except (InvalidSignature, UnsupportedAlgorithm, ValueError):
            return False
        return True


class PlanSigned(Particulars, kind="plan.signed", words="Plan signed"):
    """Part of cohorts' lifetime budgets was granted.

    Attributes:
        document: the calibrated plan as signed.
        signed_by: actor that signed: a key's id, a person, or a name of the command line.
        answers: number of answers by task; of a task with topics, by each entry
            (:func:`accounting.ledger.entries.entry`).
        cohorts: cohorts that the plan is charged to, and draws on.
        approval: a second person's approval, where the service demanded one.
    """

    knowledge_base: str
    version: int
    accountant: str
    document: str
    signed_by: str
    epsilon: str
    delta: str
    answers: dict[str, int]
    cohorts: tuple[int, ...] = (1,)
    approval: Approval | None = Field(default=None, exclude_if=lambda approval: approval is None)

    lost = "plan {version} of {knowledge_base} was signed: will be signed again"

    def sentence(self, named: Names) -> str:
        each = {
            parts(name)[0]: f"{plural(count, 'answer')} of {parts(name)[0]}" for name, count in self.answers.items()
        }
        topics = Counter(parts(name)[0] for name in self.answers if parts(name)[1] is not None)
        answers = ", ".join(
            f"{words} on each of {topics[t]} topics" if t in topics else words for t, words in each.items()
        )
        drawn_on = "" if self.cohorts == (1,) else f" from cohorts {', '.join(map(str, self.cohorts))}"
        approved = "" if self.approval is None else f", approved by “{self.approval.by}”"
        return (
            f"{named(self.signed_by)} signed plan {self.version} of {self.knowledge_base}: {_budget(self)} for "
            f"{answers}{drawn_on}{approved}."
        )

    def replay(self, past: Replayed) -> Iterable[str]:
        """Check all but the document (:mod:`accounting.replay.trail` does)."""
        name, version = self.knowledge_base, self.version
        if name not in past.budgets:
            yield f"{name} has no lifetime budget"
            return
        granted = past.granted[name]
        if version != len(granted) + 1:
            yield f"version {version} of {name} follows version {len(granted)}"
        granted.append((self.cohorts, (exact(self.epsilon), exact(self.delta))))
        if not self.cohorts:
            yield "the plan is charged to no cohort"
        for cohort in self.cohorts:
            if not 1 <= cohort <= len(past.budgets[name]) or (name, cohort) in past.closed:
                yield f"{name} has no cohort {cohort} that the plan could draw on"
                continue
            charged = [pair for cohorts, pair in granted if cohort in cohorts]
            if min(rest(past.budgets[name][cohort - 1], charged)[1]) < 0:
                which = name if len(past.budgets[name]) == 1 else f"cohort {cohort} of {name}"
                yield f"the plans of {which} promise more than its lifetime budget"
        yield from past.shared(name)
        if self.approval is not None:
            if not self.approval.is_genuine:
                yield f"the approval by {self.approval.by} is not a signature of the plan's file"
            if (name, self.approval.text) in past.approved:
                yield f"the approval by {self.approval.by} was used for an earlier plan"
            past.approved.add((name, self.approval.text))


class PlanRetired(Particulars, kind="plan.retired", words="Plan retired"):
    """The tasks of a plan answer no more, permanently. What the plan promised stays promised."""

    knowledge_base: str
    version: int
    by: str

    says = "{by} retired plan {version} of {knowledge_base}: it answers no more, and its budget stays taken."
    lost = "plan {version} of {knowledge_base} was retired: will be retired again"

    def replay(self, past: Replayed) -> Iterable[str]:
        name, version = self.knowledge_base, self.version
        if not 1 <= version <= len(past.granted.get(name, [])) or (name, version) in past.retired:
            yield f"plan {version} of {name} is not one that could be retired"
        past.retired.add((name, version))


def _budget(granted: BudgetOpened | CohortOpened | GroupOpened | PlanSigned) -> str:
    return f"ε {figure(Decimal(granted.epsilon))} and δ {figure(Decimal(granted.delta))}"
