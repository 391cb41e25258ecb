"""The story of a charge: paid before the private sample is drawn, and never given back once it could have been.

::

    charge() ── charged ── release() ──► released      the answer is stored in the same transaction
                   │ ├──── void() ─────► voided        the query failed before any private exemplar was read
                   │ └──── no holder ──► lost          it died, or its lease ended: the charge stays spent ...
                   └───────────────────────┴► released ... unless the holder was only slow, and comes back

A task's counter rises in the transaction that writes the charge, and only a void lowers it. Since a plan's mechanisms
and counts are fixed when it is signed, this counter is the whole enforcement: no accounting happens here.

Many processes may charge at once: a charge holds the lock of its task's row (SQLite: of the database)
until the charge is durable, so the look-ups for a stored release or an open charge cannot be overtaken. Two guards of
the database stand behind it: a CHECK on the counter, and a unique index over open charges.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from accounting.ledger import trail
from accounting.ledger.budgets import Budgets, SignedTask, address_of
from accounting.ledger.clock import Clock, utc_now
from accounting.ledger.cohorts import Cohorts
from accounting.ledger.dialects import insert, reading
from accounting.ledger.entries import SEPARATOR, parts
from accounting.ledger.errors import LedgerError, PlanRetiredError
from accounting.ledger.events import AnswerCharged, AnswerReleased, ChargeLost, ChargeVoided
from accounting.ledger.groups import Groups
from accounting.ledger.holders import Holder
from accounting.ledger.quotas import count_charge
from accounting.ledger.refusals import Refusal, count_refusal, refusals_of
from accounting.ledger.tables import OPEN, charges, holders, idempotency_keys, plans, releases, retirements, tasks
from accounting.ledger.witness import Witness


class AnswersExhaustedError(LedgerError):
    """The task has given, or lost, every answer its plan allows."""

    def __init__(self, task: SignedTask) -> None:
        on, others = "", "repeated queries are still answered, new ones need another plan"
        if task.topic is not None:
            on = f" on the topic {task.topic!r}"
            others = "repeated queries and other topics are still answered, new ones on this topic need another plan"
        super().__init__(
            f"task {task.name!r} of plan {task.version} of knowledge base {task.knowledge_base!r} has used "
            f"all its {task.answers} answers{on}; {others}"
        )


class IdempotencyConflictError(LedgerError):
    """The caller used this Idempotency-Key for another query or task version before."""


class ChargeStateError(LedgerError):
    """The charge is settled already, or lost: the requested step would lose or double it."""


class UnknownChargeError(LedgerError):
    """No such charge."""


class UnknownReleaseError(LedgerError):
    """No such release."""


@dataclass(frozen=True)
class Charged:
    """A new, durable charge: its holder may now draw the sample. ``answers_left`` counts the answers after it."""

    id: str
    lease_until: datetime
    answers_left: int


@dataclass(frozen=True)
class InFlight:
    """Another caller holds an open charge for the same query: wait and ask again. It is given up at ``until``.

    ``beats`` counts its holder's beats (:mod:`accounting.ledger.holders`); None: its holder has none.
    """

    charge_id: str
    since: datetime
    until: datetime
    beats: int | None = None


@dataclass(frozen=True)
class Release:
    """An answer that left, stored; ``task`` is the address that it was charged to, with its version."""

    id: str
    charge_id: str
    task: str
    answer: Mapping[str, Any]
    created_at: datetime


class Ledger:
    """Charges and releases in one database, correct under any number of processes.

    Args:
        database: see :class:`accounting.ledger.budgets.Budgets`.
        lease_s: seconds a holder has to settle its charge before another caller of the same query may take it for
            dead. Longer than the longest query: ending too early spends a second answer, never lets one go unpaid.
            With several hosts their clocks must agree to well within it.
        clock: a function that returns the present as an aware datetime.
        witness: the witness, which gets every charge before it is spent; None leaves a restored ledger unnoticed.
        holder: this process, which shows others that it is at work on what it charged; None does not.

    Attributes:
        budgets: lifetime budgets, signed plans and their tasks, which are charged.
        cohorts: the cohorts that the lifetime budgets belong to.
        groups: budgets that knowledge bases share.
    """

    def __init__(
        self,
        database: sa.Engine,
        *,
        lease_s: float = 120,
        clock: Clock = utc_now,
        witness: Witness | None = None,
        holder: Holder | None = None,
    ) -> None:
        self.budgets = Budgets(database, clock=clock)
        self.cohorts = Cohorts(database, clock=clock)
        self.groups = Groups(database, clock=clock)
        self._database = database
        self._clock = clock
        self._lease = timedelta(seconds=lease_s)
        self._witness = witness
        self._holder = holder

    def charge(
        self,
        task: SignedTask,
        query_digest: bytes,
        *,
        key_id: str,
        idempotency_key: str | None = None,
        lease_s: float = 0.0,
        gone: str | None = None,
    ) -> Charged | Release | InFlight:
        """Spend one of the task's answers on a query, unless it is answered already or being answered.

        When this returns :class:`Charged` the charge is durable and witnessed: neither a crash at any later point nor a
        backup restored then gives it back.

        Args:
            task: the task to charge.
            query_digest: digest of the normalised query; equal digests under one task are one query.
            key_id: id of the API key that asks.
            idempotency_key: the caller's own name for this request, bound to this query and task at first use.
            lease_s: seconds of this charge's lease, if longer than the ledger's: its holder is known to take long.
            gone: id of an open charge whose holder is gone (:class:`accounting.ledger.holders.Watch`): it is lost.

        Returns:
            Charged: the caller now owes a :meth:`release` (or, had the query failed publicly, a :meth:`void`).
            Release: the stored answer; costs nothing.
            InFlight: a twin is being answered; ask again shortly.

        Raises:
            AnswersExhaustedError: no answer is left.
            accounting.ledger.errors.PlanRetiredError: the task's plan is retired.
            QuotaExhaustedError: the key's own share is used up.
            IdempotencyConflictError: the Idempotency-Key stands for another query.
            accounting.ledger.witness.LedgerRestoredError: the ledger lacks what was witnessed; nothing is charged.
            accounting.ledger.witness.WitnessUnavailableError: the witness does not answer; nothing is charged.
            ValueError: the Idempotency-Key is longer than 300 characters.
            TypeError: the task has topics, and one of them is charged, not the whole.
        """
        if task.id is None:
            raise TypeError(f"{task.address} has topics: charge one of them")
        if idempotency_key is not None and len(idempotency_key) > 300:
            raise ValueError("Idempotency-Key: longer than 300 characters; send a shorter one, such as a UUID")
        with reading(self._database) as connection:  # most repeats end here, without a lock
            bound = idempotency_key is None or _is_bound(connection, task, query_digest, key_id, idempotency_key)
            present = _present(connection, task, query_digest)
        if bound and (found := self._settles(*present, gone)):
            return found

        if self._witness is not None and self._witness.trouble is not None:
            self._witness.catch_up()
        lease = max(self._lease, timedelta(seconds=lease_s))
        outcome = self._charge(task, query_digest, key_id, idempotency_key, lease, gone)
        if self._holder is not None and isinstance(outcome, Charged):
            self._holder.hold(outcome.id, lease.total_seconds())
        if self._witness is not None and isinstance(outcome, Charged):
            try:
                self._witness.catch_up()
            except LedgerError:
                self.void(outcome.id, "not-witnessed")  # no private exemplar was read yet
                raise
        return outcome

    def _charge(
        self,
        task: SignedTask,
        query_digest: bytes,
        key_id: str,
        idempotency_key: str | None,
        lease: timedelta,
        gone: str | None,
    ) -> Charged | Release | InFlight:
        with self._database.begin() as connection:
            _lock(connection, task.id)
            if idempotency_key is not None:
                self._bind(connection, task, query_digest, key_id, idempotency_key)
            now, lost = self._clock(), list[ChargeLost]()
            spend = {"task": task.id, "digest": query_digest}
            left = connection.execute(_SPEND, spend).scalar_one_or_none()
            if left is None:  # seldom: the reasons are looked for only then
                stored, twin = _present(connection, task, query_digest, lock=True)
                if found := self._settles(stored, twin, gone):
                    return found
                if connection.execute(_IS_RETIRED, {"plan": task.plan.id}).first() is not None:
                    raise PlanRetiredError(task.knowledge_base, task.version)
                lost = [] if twin is None else lose(connection, charges.c.id == twin.charge_id, now)
                left = connection.execute(_SPEND, spend).scalar_one_or_none()
                if left is None:
                    raise AnswersExhaustedError(task)
            count_charge(connection, key_id)
            charged = Charged(str(uuid.uuid4()), now + lease, left)
            row = {
                "id": charged.id,
                "task_id": task.id,
                "query_digest": query_digest,
                "key_id": key_id,
                "state": "charged",
                "created_at": now,
                "lease_until": charged.lease_until,
                "holder": None if self._holder is None else self._holder.id,
            }
            connection.execute(_ADD_CHARGE, row)
            trail.append(connection, now, *lost, AnswerCharged(charge=charged.id, task=task.address, key=key_id))
            return charged

    def _settles(self, stored: Release | None, twin: InFlight | None, gone: str | None) -> Release | InFlight | None:
        """The result for a caller without a new charge, if any. A release stands even while a later charge is open."""
        if stored is not None:
            return stored
        return twin if twin is not None and twin.charge_id != gone and self._is_held(twin) else None

    def _is_held(self, charge: InFlight) -> bool:
        """Whether its holder may still be at work. What was charged in the future, a clock that was wrong charged."""
        return charge.since - self._lease <= self._clock() < charge.until

    def _bind(
        self, connection: sa.Connection, task: SignedTask, query_digest: bytes, key_id: str, idempotency_key: str
    ) -> None:
        """Bind the Idempotency-Key to this query; two callers that bind it at once both see the first one's query."""
        row = {"task_id": task.id, "query_digest": query_digest, "created_at": self._clock()}
        new = insert(connection.dialect.name, idempotency_keys).values(
            key_id=key_id, idempotency_key=idempotency_key, **row
        )
        connection.execute(new.on_conflict_do_nothing())
        _is_bound(connection, task, query_digest, key_id, idempotency_key)

    def release(self, charge_id: str, answer: Mapping[str, Any]) -> Release:
        """Settle a charge by storing its answer, both in one transaction.

        A charge whose lease ran out, even one marked lost, is still paid for, so its holder may still release. But a
        query has only one answer: if another holder was quicker, that answer is returned, and this one is lost.

        Args:
            charge_id: id of the charge, from :meth:`charge`.
            answer: the answer for the caller, as JSON; the stored and the returned one are equal.

        Returns:
            The query's one release.

        Raises:
            ChargeStateError: it is released or voided already.
            UnknownChargeError: no such charge.
            ValueError: the answer is not JSON (NaN and infinities are not).
        """
        plain = json.loads(json.dumps(answer, allow_nan=False))
        with self._settling(charge_id), self._database.begin() as connection:
            now = self._clock()
            charge = _locked(connection, charge_id)  # two holders of one query take turns
            settle = {"charge": charge_id, "now": now, "task": charge.task_id, "digest": charge.query_digest}
            if connection.execute(_SETTLE, settle).rowcount != 1:
                first = _released(connection, charge.task_id, charge.query_digest)
                if first is None or charge.state not in ("charged", "lost"):
                    raise _refusal(connection, charge_id, "released")
                trail.append(connection, now, *lose(connection, charges.c.id == charge_id, now))
                return first
            release = Release(str(uuid.uuid4()), charge_id, address_of(charge), plain, now)
            row = {
                "id": release.id,
                "charge_id": charge_id,
                "task_id": charge.task_id,
                "query_digest": charge.query_digest,
                "answer": plain,
                "created_at": now,
            }
            connection.execute(_ADD_RELEASE, row)
            sha256 = hashlib.sha256(trail.canonical(plain).encode()).hexdigest()
            left = AnswerReleased(release=release.id, charge=charge_id, task=release.task, answer_sha256=sha256)
            trail.append(connection, now, left)
            return release

    def void(self, charge_id: str, reason: str = "") -> None:
        """Give an answer back, after a failure that no private exemplar can have caused, before the sample is drawn.

        Such failures are: the witness did not receive the charge, or the query's own zero-shot probe failed.

        Args:
            charge_id: id of the charge, from :meth:`charge`.
            reason: the reason, for the audit trail; public.

        Raises:
            ChargeStateError: it is released, voided or lost already: nothing is given back.
            UnknownChargeError: no such charge.
        """
        with self._settling(charge_id), self._database.begin() as connection:
            charge = _locked(connection, charge_id)
            now = self._clock()
            if not give_back(connection, charge_id, now):
                raise _refusal(connection, charge_id, "voided")
            trail.append(connection, now, ChargeVoided(charge=charge_id, task=address_of(charge), reason=reason))

    @contextmanager
    def _settling(self, charge_id: str) -> Iterator[None]:
        """Let a charge go once it is settled, or cannot be. One that the database did not take may be tried again."""
        try:
            yield
        except sa.exc.SQLAlchemyError:
            raise
        except BaseException:
            self._let_go(charge_id)
            raise
        self._let_go(charge_id)

    def _let_go(self, charge_id: str) -> None:
        if self._holder is not None:
            self._holder.settled(charge_id)

    def answers_left(self, task: SignedTask) -> int:
        """The number of answers that a task may still give, now; for a task with topics, on all of them together."""
        if task.id is None:
            return sum(self.topics_left(task).values())
        with reading(self._database) as connection:
            query = sa.select(tasks.c.answers - tasks.c.charged).where(tasks.c.id == task.id)
            return int(connection.execute(query).scalar_one())

    def topics_left(self, task: SignedTask) -> dict[str, int]:
        """The number of answers that a task may still give on each of its topics, now; empty if it has none."""
        with reading(self._database) as connection:
            of_plan = sa.select(tasks.c.name, (tasks.c.answers - tasks.c.charged).label("left"))
            rows = connection.execute(of_plan.where(tasks.c.plan_id == task.plan.id).order_by(tasks.c.id)).all()
        named = [(*parts(row.name), row.left) for row in rows]
        return {topic: left for name, topic, left in named if name == task.name and topic is not None}

    def expire_leases(self) -> int:
        """Mark every charge without a holder as lost; returns their number. They stay spent: this is for display."""
        now = self._clock()
        dead = sa.and_(OPEN, sa.or_(charges.c.lease_until <= now, charges.c.created_at > now + self._lease))
        with reading(self._database) as connection:  # most often there is none, and nothing to lock
            if connection.execute(sa.select(charges.c.id).where(dead).limit(1)).first() is None:
                return 0
        with self._database.begin() as connection:
            gone = lose(connection, dead, now)
            trail.append(connection, now, *gone)
            return len(gone)

    def refuse(self, task_address: str, key_id: str, reason: str) -> None:
        """Count a query refused without a charge, for a reason that is public (:mod:`accounting.ledger.refusals`).

        Args:
            task_address: address of the task, with its version.
            key_id: id of the API key that asked.
            reason: a word or two with hyphens, such as ``answers-exhausted``.
        """
        with self._database.begin() as connection:
            count_refusal(connection, self._clock(), task_address, key_id, reason)

    def refusals(self, knowledge_base: str | None = None) -> list[Refusal]:
        """Refusals by task, key and reason, of one knowledge base or of all."""
        with reading(self._database) as connection:
            return refusals_of(connection, knowledge_base)

    def topic_of_stored(self, task: SignedTask, query_digest: bytes) -> str | None:
        """The topic under which a query to a task with topics was answered; None: it was not answered."""
        within = f"{task.name}{SEPARATOR}"
        here = sa.func.substr(tasks.c.name, 1, len(within)) == within, tasks.c.plan_id == task.plan.id
        chosen = sa.select(tasks.c.name).join(releases).where(*here, releases.c.query_digest == query_digest).limit(1)
        with reading(self._database) as connection:
            named = connection.scalar(chosen)
        return None if named is None else parts(named)[1]

    def stored_release(self, task: SignedTask, query_digest: bytes) -> Release | None:
        """The query's stored release under a task, or None; nothing is charged."""
        with reading(self._database) as connection:
            return _present(connection, task, query_digest)[0]

    def get_release(self, release_id: str) -> Release:
        """A stored release.

        Raises:
            UnknownReleaseError: there is none of this id.
        """
        with reading(self._database) as connection:
            row = connection.execute(RELEASES.where(releases.c.id == release_id)).first()
        if row is None:
            raise UnknownReleaseError(f"no release {release_id!r}")
        return release_of(row)


def _with_task(table: sa.Table) -> sa.Select[Any]:
    names = tasks.c.name, plans.c.knowledge_base, plans.c.version
    return sa.select(table, *names).select_from(table.join(tasks).join(plans))


_CHARGES = _with_task(charges)
RELEASES = _with_task(releases)
"""Releases with the names of their tasks and knowledge bases, and their plans' versions."""
# What every query executes is built once: see accounting.ledger.budgets.
_CHARGE = _CHARGES.where(charges.c.id == sa.bindparam("charge"))
_RELEASED = RELEASES.where(
    releases.c.task_id == sa.bindparam("task"), releases.c.query_digest == sa.bindparam("digest")
)
_OPEN_HERE = (
    charges.c.task_id == sa.bindparam("task"),
    charges.c.query_digest == sa.bindparam("digest"),
    OPEN,
)
_OPEN_CHARGE = (
    sa.select(charges.c.id, charges.c.created_at, charges.c.lease_until, charges.c.holder, holders.c.beats)
    .select_from(charges.outerjoin(holders, holders.c.id == charges.c.holder))
    .where(*_OPEN_HERE)
)
_OPEN_CHARGE_LOCKED = _OPEN_CHARGE.with_for_update(key_share=True, of=charges)
_LOCK = sa.select(tasks.c.id).where(tasks.c.id == sa.bindparam("task")).with_for_update(key_share=True)
_IS_RETIRED = sa.select(retirements.c.plan_id).where(retirements.c.plan_id == sa.bindparam("plan"))
_IS_RELEASED = sa.exists().where(
    releases.c.task_id == sa.bindparam("task"), releases.c.query_digest == sa.bindparam("digest")
)
_SPEND = (
    sa.update(tasks)
    .where(
        tasks.c.id == sa.bindparam("task"),
        tasks.c.charged < tasks.c.answers,
        ~sa.exists().where(*_OPEN_HERE),
        ~_IS_RELEASED,
        ~sa.exists().where(retirements.c.plan_id == tasks.c.plan_id),
    )
    .values(charged=tasks.c.charged + 1)
    .returning(tasks.c.answers - tasks.c.charged)
)
_SETTLE = (
    sa.update(charges)
    .where(charges.c.id == sa.bindparam("charge"), charges.c.state.in_(["charged", "lost"]), ~_IS_RELEASED)
    .values(state="released", settled_at=sa.bindparam("now"))
)
_ADD_CHARGE = sa.insert(charges)
_ADD_RELEASE = sa.insert(releases)


def release_of(row: sa.Row[Any]) -> Release:
    """The release in a row of :data:`RELEASES`."""
    return Release(row.id, row.charge_id, address_of(row), row.answer, row.created_at)


def _present(
    connection: sa.Connection, task: SignedTask, query_digest: bytes, *, lock: bool = False
) -> tuple[Release | None, InFlight | None]:
    """The query's release and its open charge, whether alive or dead.

    The open charge is read first (and, with ``lock``, waits for a release under way): each statement sees what was
    committed before it, so a charge settled in between is found as a release, never missed as both.
    """
    query = {"task": task.id, "digest": query_digest}
    twin = connection.execute(_OPEN_CHARGE_LOCKED if lock else _OPEN_CHARGE, query).first()
    stored = _released(connection, task.id, query_digest)
    if twin is None:
        return stored, None
    beats = None if twin.holder is None else twin.beats or 0
    return stored, InFlight(twin.id, twin.created_at, twin.lease_until, beats)


def _released(connection: sa.Connection, task_id: int | None, query_digest: bytes) -> Release | None:
    """The query's one release."""
    row = connection.execute(_RELEASED, {"task": task_id, "digest": query_digest}).first()
    return release_of(row) if row else None


def _lock(connection: sa.Connection, task_id: int | None) -> None:
    """Keep other callers from charging or releasing a task until the transaction ends."""
    if connection.dialect.name == "postgresql":  # SQLite's transaction has locked the database
        connection.execute(_LOCK, {"task": task_id})


def _locked(connection: sa.Connection, charge_id: str) -> sa.Row[Any]:
    """A charge, its task being locked before anything else, as by `charge`, so that no two can deadlock."""
    charge = connection.execute(_CHARGE, {"charge": charge_id}).first()
    if charge is None:
        raise UnknownChargeError(f"no charge {charge_id!r}")
    _lock(connection, charge.task_id)
    return charge


def lose(connection: sa.Connection, which: sa.ColumnElement[bool], now: datetime) -> list[ChargeLost]:
    """Mark open charges as lost, within the caller's transaction; returns the events to append to the trail."""
    lost = sa.update(charges).where(which, OPEN).values(state="lost", settled_at=now)
    ids = connection.execute(lost.returning(charges.c.id)).scalars().all()
    found = connection.execute(_CHARGES.where(charges.c.id.in_(ids)).order_by(charges.c.id))
    return [ChargeLost(charge=row.id, task=address_of(row)) for row in found]


def give_back(connection: sa.Connection, charge_id: str, now: datetime) -> bool:
    """Void a charge if it is open, within the caller's transaction; returns whether it was."""
    void = sa.update(charges).where(charges.c.id == charge_id, OPEN).values(state="voided", settled_at=now)
    charge = connection.execute(void.returning(charges.c.task_id, charges.c.key_id)).first()
    if charge is not None:
        connection.execute(sa.update(tasks).where(tasks.c.id == charge.task_id).values(charged=tasks.c.charged - 1))
        count_charge(connection, charge.key_id, -1)
    return charge is not None


def _is_bound(
    connection: sa.Connection, task: SignedTask, query_digest: bytes, key_id: str, idempotency_key: str
) -> bool:
    """Whether the Idempotency-Key is bound to this query already; raises where it is bound to another."""
    chosen = sa.and_(idempotency_keys.c.key_id == key_id, idempotency_keys.c.idempotency_key == idempotency_key)
    row = connection.execute(sa.select(idempotency_keys).where(chosen)).first()
    if row is not None and (row.task_id, row.query_digest) != (task.id, query_digest):
        raise IdempotencyConflictError(
            f"Idempotency-Key {idempotency_key!r} was used for another query or task version; use a new one for this"
        )
    return row is not None


def _refusal(connection: sa.Connection, charge_id: str, wanted: str) -> ChargeStateError:
    state = connection.scalar(sa.select(charges.c.state).where(charges.c.id == charge_id))
    return ChargeStateError(f"charge {charge_id} is {state}: it can no longer be {wanted}")
