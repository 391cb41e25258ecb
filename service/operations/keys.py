"""API keys: created, listed, limited, rotated and revoked."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from accounting.ledger.entries import parts
from accounting.ledger.errors import did_you_mean
from accounting.ledger.quotas import in_scope
from service.operations.command import Confirmation, check_confirmed, command
from service.operations.fields import FieldError, Printable, Scope, inputs
from service.operations.roles import Actor, Right, a, may
from service.records.api_keys import LONGEST_LIFE, LONGEST_OVERLAP, KeyRotatedError, Role, StoredKey
from service.records.records import Records

Quota = Annotated[int | None, Field(ge=0, lt=2**53, description="Answers that it may be charged in all.")]
RatePerMinute = Annotated[int | None, Field(ge=1, le=1_000_000, description="Requests that it may send per minute.")]


class NewKey(BaseModel):
    """A key to create."""

    model_config = inputs(name="ana", role="analyst", quota=500, rate_per_minute=60, scope=["support"])
    name: Printable = Field(
        max_length=100,
        description="Its owner, a person or a program, in printable characters.",
    )
    role: Role = Field(description="Analysts ask, viewers look, auditors also read the audit trail, admins decide.")
    quota: Quota = None
    rate_per_minute: RatePerMinute = None
    scope: list[Scope] = Field(
        default=[],
        max_length=100,
        description="Knowledge bases and tasks that an analyst's key may ask, such as support or support.queue, "
        "which must exist. Empty: all.",
    )
    expires_in_days: int | None = Field(
        default=None, ge=1, le=LONGEST_LIFE.days, description="Days after which the key is refused. null: never."
    )

    @field_validator("quota", "scope")
    @classmethod
    def _for_who_asks(cls, value: object, info: ValidationInfo) -> object:
        role = info.data.get("role")
        if value and role is not None and not may(role, Right.ASK):
            raise ValueError(f"{a(role)} cannot ask questions, so leave this empty")
        return value


class KeyLimits(BaseModel):
    """The limits of a key to change. null: unlimited; left out: as it is."""

    model_config = inputs(quota=1000, rate_per_minute=None)
    quota: Quota = None
    rate_per_minute: RatePerMinute = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("name a limit to change")
        return self


class Rotation(BaseModel):
    """Options of replacing a key's token."""

    model_config = inputs(overlap_hours=24)
    overlap_hours: int = Field(
        default=0,
        ge=0,
        le=LONGEST_OVERLAP // timedelta(hours=1),
        description="Hours for which the old token is accepted, too. 0: it is refused at once.",
    )


@dataclass(frozen=True)
class ApiKey(StoredKey):
    """A key without its secret; a revoked one stays listed.

    Attributes:
        id: identifier of the key in charges and in the audit trail.
        name: name for people.
        role: name of its role, which determines its rights.
        created_at: time of its creation.
        last_used_at: time of its last use, exact to a minute.
        revoked_at: time of its revocation, from which it is refused.
        rate_per_minute: number of requests that it may send per minute; None: any number.
        quota: number of answers that it may be charged in all; None: as many as the budgets allow.
        charged: number of answers that it has been charged.
        scope: the knowledge bases and tasks that it may ask, like ``support`` and ``billing.queue``; empty: all.
        expires_at: time from which it is refused; None: never.
        rotated_at: time of its token's last replacement; None: never.
    """

    __pydantic_config__ = ConfigDict(json_schema_serialization_defaults_required=True)  # the API always gives all

    @classmethod
    def of(cls, key: StoredKey) -> ApiKey:
        """A key as it may be shown."""
        return cls(**vars(key))


@dataclass(frozen=True, kw_only=True)
class CreatedKey(ApiKey):
    """A key with its secret, which is shown only now."""

    token: str


@dataclass(frozen=True)
class Standing:
    """Consequences of revoking a key.

    Attributes:
        key: the key.
        own: whether the admin who would revoke it is signed in with it.
        last_admin: whether it is the only valid admin key.
    """

    key: ApiKey
    own: bool
    last_admin: bool

    @property
    def locks_out(self) -> bool:
        """Whether its revocation shuts an admin out of the dashboard."""
        return self.own or self.last_admin


@command(Right.DECIDE)
def create(actor: Actor, records: Records, wanted: NewKey) -> CreatedKey:
    """Create a key. Its token is never shown again.

    Raises:
        FieldError: the key's scope names a knowledge base or a task that does not exist.
    """
    _check_scope(records, wanted.scope)
    days = wanted.expires_in_days
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    limits = wanted.model_dump(exclude={"expires_in_days"})
    key, token = records.keys.create(**limits, expires_at=expires_at, by=actor.id)
    return CreatedKey(**vars(key), token=token)


def _check_scope(records: Records, scope: Sequence[str]) -> None:
    """Check that a scope exists: a mistyped one would go unnoticed until it refuses its key's first question."""
    names = [described.name for described in records.store.list()]
    for one in scope:
        knowledge_base, _, task = one.partition(".")
        if knowledge_base not in names:
            meant = did_you_mean(knowledge_base, names)
            raise FieldError("scope", f"there is no knowledge base {knowledge_base!r}{meant}")
        known = {parts(name)[0] for plan in records.ledger.budgets.plans(knowledge_base) for name, _ in plan.tasks}
        if task and task not in known:
            has = f"it has {', '.join(sorted(known))}" if known else "no plan was signed for it"
            raise FieldError(
                "scope",
                f"there is no task {one!r}{did_you_mean(task, known)}; {has}. Sign the task's plan first, or name "
                f"all of {knowledge_base!r}",
            )


@command(Right.DECIDE)
def list_(_actor: Actor, records: Records) -> builtins.list[ApiKey]:
    """All keys, including revoked ones, oldest first."""
    return [ApiKey.of(key) for key in records.keys.list()]


@command(Right.DECIDE)
def limit(actor: Actor, records: Records, key_id: str, wanted: KeyLimits) -> ApiKey:
    """Change a key's limits: those that are named. What it was charged stays charged."""
    limits = wanted.model_dump(exclude_unset=True)
    return ApiKey.of(records.keys.limit(key_id, **limits, by=actor.id))


@command(Right.DECIDE)
def rotate(
    actor: Actor, records: Records, seen: StoredKey, wanted: Rotation, confirmed: Collection[str] = ()
) -> CreatedKey:
    """Give a key another token.

    Args:
        actor: the admin.
        records: opened records.
        seen: the key as the admin saw it, so that two people do not rotate it at once.
        wanted: options.
        confirmed: confirmations of the actor.

    Raises:
        UnconfirmedError: the actor did not confirm it.
    """
    hours = wanted.overlap_hours
    when = f"{hours} {'hour' if hours == 1 else 'hours'} from now on" if hours else "at once"
    doubt = (
        f"The present token of {seen.name} ({seen.id}) will be refused {when}, permanently; another takes its place."
    )
    check_confirmed(Confirmation.PERMANENT, [doubt], confirmed)
    key, token = records.keys.rotate(seen, overlap=timedelta(hours=wanted.overlap_hours), by=actor.id)
    return CreatedKey(**vars(key), token=token)


@command(Right.DECIDE)
def standing(actor: Actor, records: Records, key_id: str) -> Standing:
    """A key, and the consequences of revoking it."""
    key, now = records.keys.get(key_id), datetime.now(UTC)
    admins = [key.id for key in records.keys.list() if key.role == "admin" and key.status(now) == "valid"]
    return Standing(ApiKey.of(key), key.id == actor.id, admins == [key.id])


@command(Right.DECIDE)
def revoke(actor: Actor, records: Records, key_id: str, confirmed: Collection[str] = ()) -> None:
    """Revoke a key for good. What it spent stays spent.

    Raises:
        UnconfirmedError: the actor did not confirm it; or it is the last admin key, and only an account on the
            service's machine could make another.
    """
    if actor.kind != "account" and standing(actor, records, key_id).last_admin:
        doubt = "It is the only admin key: without it, only `dpicl keys create` on the service's machine makes another."
        check_confirmed(Confirmation.LOCK_OUT, [doubt], confirmed)
    key = records.keys.get(key_id)
    doubt = f"{key.name} ({key.id}) will be refused from now on, permanently. What it spent stays spent."
    check_confirmed(Confirmation.PERMANENT, [doubt], confirmed)
    records.keys.revoke(key_id, actor.id)


def check_shown(key: ApiKey, rotated_at: str) -> None:
    """Whether a key still has the token that it had when a page showed it.

    Args:
        key: the key.
        rotated_at: time of its last rotation, from the page.

    Raises:
        KeyRotatedError: the token was replaced since.
    """
    if rotated_at != str(key.rotated_at):
        raise KeyRotatedError(
            "the key got another token after this page was shown, so nothing was changed. Check, then rotate it"
        )


@command(Right.DECIDE)
def example(_actor: Actor, records: Records, key: ApiKey) -> str | None:
    """Address of a task that a new key may ask, from a newest plan; None: there is no such task."""
    tasks = [task for status in records.ledger.budgets.statuses() for task in status.tasks if task.left]
    tasks = [task for task in tasks if in_scope(key.scope, task.address)]
    return parts(tasks[-1].address.partition("@")[0])[0] if tasks else None


def called(actor: str, names: Mapping[str, str]) -> str:
    """Name of an actor for people: a key's name, which others may have, with its id; or else as in the trail.

    Args:
        actor: name in the trail.
        names: names of keys, by id.
    """
    return f"{names[actor]} ({actor})" if actor in names else actor


def distinct_names(names: Mapping[str, str]) -> dict[str, str]:
    """Distinct names of keys, by id: their own, with the id added to a name that several keys have."""
    times = Counter(names.values())
    return {key: name if times[name] == 1 else called(key, names) for key, name in names.items()}
