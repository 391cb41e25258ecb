"""Roles, and the one table of what each may. Routes and pages declare the right they need."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Self

from accounting.ledger.quotas import in_scope
from service.problem_kinds import ProblemKind, RefusalError
from service.records.api_keys import Role, StoredKey


class Right(Enum):
    """Something that takes a key; the value completes "may not"."""

    ASK = "ask questions"
    TRY = "try tasks"
    SEE = "see budgets, plans and cohorts"
    BROWSE = "sign in to the dashboard"
    AUDIT = "read the audit trail and the list of releases"
    DECIDE = "change knowledge bases, budgets or keys"


MAY: Mapping[Role, frozenset[Right]] = {
    "analyst": frozenset({Right.ASK, Right.TRY, Right.SEE}),
    "viewer": frozenset({Right.SEE, Right.BROWSE}),
    "auditor": frozenset({Right.SEE, Right.BROWSE, Right.AUDIT}),
    "admin": frozenset({Right.TRY, Right.SEE, Right.BROWSE, Right.AUDIT, Right.DECIDE}),
}
"""What each role may. All of it is public by the privacy guarantee, but for names of keys and who did what."""


def may(role: Role, right: Right) -> bool:
    """Whether a role has a right."""
    return right in MAY[role]


def a(role: Role) -> str:
    """A role with its article."""
    return f"{'a' if role == 'viewer' else 'an'} {role}"


def why_not(role: Role, right: Right) -> str:
    """Why a role is refused, in a sentence without its end."""
    able = [a(other) for other in MAY if may(other, right)]
    return f"{a(role)} may not {right.value}; {' or '.join(able)} may"


class NotAllowedError(RefusalError):
    """The actor's role may not do this; nothing was done."""

    kind = ProblemKind.WRONG_ROLE


class OutOfScopeError(RefusalError):
    """The actor may ask, and not this task."""

    kind = ProblemKind.OUT_OF_SCOPE


@dataclass(frozen=True)
class Actor:
    """Who wants something done.

    Attributes:
        id: what names them in the audit trail.
        name: what people call them.
        kind: how they came: with an API key, signed in at a provider, or with an account on the service's machine.
        role: what they may.
        scope: the knowledge bases and tasks that they may ask; empty: all.
    """

    id: str
    name: str
    kind: Literal["key", "person", "account"]
    role: Role
    scope: tuple[str, ...] = ()

    @classmethod
    def with_key(cls, key: StoredKey) -> Self:
        """The actor that calls with a key."""
        return cls(key.id, key.name, "key", key.role, key.scope)

    def require(self, right: Right) -> None:
        """Whether they have a right.

        Raises:
            NotAllowedError: they have not.
        """
        if not may(self.role, right):
            raise NotAllowedError(why_not(self.role, right))

    def require_task(self, task: str) -> None:
        """Whether a task, ``knowledge_base.task`` with or without ``@version``, is in their scope.

        Raises:
            OutOfScopeError: it is not.
        """
        if not in_scope(self.scope, task):
            raise OutOfScopeError(f"this key is for {', '.join(self.scope)}, not for {task}")
