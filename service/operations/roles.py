"""Roles, and the one table of their rights. Routes and pages declare the right that they need."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Self

from accounting.ledger.quotas import in_scope
from service.problem_kinds import ProblemKind, RefusalError
from service.records.api_keys import Role, StoredKey


class Right(Enum):
    """A right, which a role may have; the value completes "may not"."""

    ASK = "ask questions"
    TRY = "try tasks"
    SEE = "see budgets, plans and cohorts"
    SIGN_IN = "sign in to the dashboard"
    BROWSE = "see the pages of knowledge bases"
    AUDIT = "read the audit trail and the list of releases"
    DECIDE = "change knowledge bases, budgets or keys"


MAY: Mapping[Role, frozenset[Right]] = {
    "analyst": frozenset({Right.ASK, Right.TRY, Right.SEE, Right.SIGN_IN}),
    "viewer": frozenset({Right.SEE, Right.SIGN_IN, Right.BROWSE}),
    "auditor": frozenset({Right.SEE, Right.SIGN_IN, Right.BROWSE, Right.AUDIT}),
    "admin": frozenset({Right.TRY, Right.SEE, Right.SIGN_IN, Right.BROWSE, Right.AUDIT, Right.DECIDE}),
}
"""Rights by role. All that they show is public by the privacy guarantee, except names of keys, and actors of events."""


def may(role: Role, right: Right) -> bool:
    """Whether a role has a right."""
    return right in MAY[role]


def a(role: Role) -> str:
    """A role with its article."""
    return f"{'a' if role == 'viewer' else 'an'} {role}"


def why_not(role: Role, right: Right) -> str:
    """Reason why a role is refused, a sentence without capital and full stop."""
    able = [a(other) for other in MAY if may(other, right)]
    return f"{a(role)} may not {right.value}; {' or '.join(able)} may"


class NotAllowedError(RefusalError):
    """The actor's role may not do this; nothing was done."""

    kind = ProblemKind.WRONG_ROLE


class OutOfScopeError(RefusalError):
    """The actor may ask questions, but not of this task, or only of tasks."""

    kind = ProblemKind.OUT_OF_SCOPE


@dataclass(frozen=True)
class Actor:
    """A person or program that uses the service.

    Attributes:
        id: identifier in the audit trail.
        name: name for people.
        kind: kind of identity: an API key, a person signed in at a provider, or an account on the service's machine.
        role: name of their role, which determines their rights.
        scope: the knowledge bases and tasks that they may ask; empty: all.
    """

    id: str
    name: str
    kind: Literal["key", "person", "account"]
    role: Role
    scope: tuple[str, ...] = ()

    @classmethod
    def with_key(cls, key: StoredKey) -> Self:
        """The actor who calls with a key."""
        return cls(key.id, key.name, "key", key.role, key.scope)

    def require(self, right: Right) -> None:
        """Check that the actor has a right.

        Raises:
            NotAllowedError: the actor's role does not have it.
        """
        if not may(self.role, right):
            raise NotAllowedError(why_not(self.role, right))

    def sees_task(self, task: str) -> bool:
        """Whether a task, ``knowledge_base.task`` with or without ``@version``, is in the actor's scope."""
        return in_scope(self.scope, task)

    def sees(self, knowledge_base: str) -> bool:
        """Whether a knowledge base, or one of its tasks, is in the actor's scope."""
        return not self.scope or any(one.partition(".")[0] == knowledge_base for one in self.scope)

    def require_task(self, task: str) -> None:
        """Check that a task, as :meth:`sees_task` takes it, is in the actor's scope.

        Raises:
            OutOfScopeError: the task is out of scope.
        """
        if not self.sees_task(task):
            raise OutOfScopeError(f"this key is for {', '.join(self.scope)}, not for {task}")

    def require_knowledge_base(self, name: str) -> None:
        """Check that a knowledge base, or one of its tasks, is in the actor's scope.

        Raises:
            OutOfScopeError: the knowledge base is out of scope.
        """
        if not self.sees(name):
            raise OutOfScopeError(f"this key is for {', '.join(self.scope)}, not for {name}")

    def require_no_scope(self, limit: str) -> None:
        """Check that the actor may do more than ask some tasks.

        Args:
            limit: predicate of a key for some tasks, such as ``reads no metrics``.

        Raises:
            OutOfScopeError: they have a scope.
        """
        if self.scope:
            raise OutOfScopeError(f"this key is for {', '.join(self.scope)}, and {limit}")
