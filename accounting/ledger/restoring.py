"""After the ledger was restored from a backup: what was lost, and charging it again.

The witness (:mod:`accounting.ledger.witness`) holds the events that the backup lacks. Acknowledging the loss brings
back from them whatever the privacy guarantee rests on, in one transaction: lifetime budgets, signed plans, and every
charge that was not voided, as lost, since its answer may have left. All of it is appended to the trail once more, so a
replay finds the same budgets and charges as before. What cannot come back (exemplars, keys, stored answers) is told to
the admin.

Where the restored ledger went its own way before it was compared, both histories count. If together they promise more
than a lifetime budget, no task of that knowledge base answers ever again, and a replay of the trail says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from accounting.ledger import trail
from accounting.ledger.budgets import address, exact, rest, utc_now
from accounting.ledger.quotas import QuotaExhaustedError, count_charge
from accounting.ledger.tables import budgets, charges, plans, tasks
from accounting.ledger.trail import RESTORED, AuditTrail, Event
from accounting.ledger.witness import START, Mark, Witness

Happened = list[tuple[str, Mapping[str, Any]]]
Also = Callable[[sa.Connection, Event], Happened]
"""Brings back, in the same transaction, what one lost event did outside the ledger; returns the events that say so."""


@dataclass(frozen=True)
class Loss:
    """What the witness saw and the ledger lacks.

    Attributes:
        common: the newest event that both have.
        witnessed: the newest event witnessed; None for a witness that never saw this ledger.
        own: how many events the ledger has after ``common``: it went its own way.
        events: what was lost and is not brought back yet, oldest first.
        earlier: what was lost too, and brought back by an acknowledgement before this one.
        acknowledged: whether an admin did that already, and only the witness must still be told.
    """

    common: Mark
    witnessed: Mark | None
    own: int
    events: tuple[Event, ...]
    earlier: tuple[Event, ...]
    acknowledged: bool

    @cached_property
    def charges(self) -> tuple[Event, ...]:
        """The charges among them that were not voided."""
        voided = {event.particulars["charge"] for event in self.events if event.kind == "void"}
        return tuple(e for e in self.of("charge") if e.particulars["charge"] not in voided)

    def of(self, *kinds: str) -> tuple[Event, ...]:
        """The events of some kinds."""
        return tuple(event for event in self.events if event.kind in kinds)


def find_loss(trail: AuditTrail, witness: Witness) -> Loss | None:
    """Compare the two; None if the ledger has all that was witnessed.

    Raises:
        accounting.ledger.witness.WitnessUnavailableError: the witness does not answer.
    """
    seen = witness.head()
    newest = trail.head()
    length = newest.sequence if newest else 0
    common = _common(trail, witness, min(length, seen.sequence if seen else 0))
    if seen is not None and common.sequence == seen.sequence:
        return None
    own = _all(trail.events, common.sequence)
    restores = [event for event in own if event.kind == RESTORED]
    known = restores[-1].particulars["witness"]["sequence"] if restores else 0
    events = _all(witness.events, common.sequence)
    done = max(0, known - common.sequence)  # so many of them were brought back
    acknowledged = bool(restores) and restores[-1] == own[-1] and done == len(events)
    return Loss(common, seen, len(own), tuple(events[done:]), tuple(events[:done]), acknowledged)


def acknowledge(
    ledger: sa.Engine, witness: Witness, loss: Loss, *, by: str, also: Also = lambda _connection, _event: []
) -> None:
    """Charge what was lost and let the ledger go on from here. May be repeated after a crash at any point.

    Args:
        ledger: the ledger's database.
        witness: what :func:`find_loss` compared it with.
        loss: its result.
        by: who acknowledges, for the audit trail.
        also: see :data:`Also`.

    Raises:
        accounting.ledger.witness.LedgerRestoredError: the witness was told more since the loss was counted.
    """
    if not loss.acknowledged:
        with ledger.begin() as connection:
            now = utc_now()
            restoring = _Restoring(connection, now, loss)
            happened = [
                one for event in loss.events for one in (*restoring.bring_back(event), *also(connection, event))
            ]
            seen = loss.witnessed or START
            summary = {
                "by": by,
                "common": loss.common.sequence,
                "witness": {"sequence": seen.sequence, "hash": seen.hash},
                "charges": len(loss.charges),
            }
            trail.append_all(connection, now, [*happened, (RESTORED, summary)])
    witness.replace(loss.witnessed, loss.common)


class _Restoring:
    """Brings back budgets, plans and charges, within one transaction."""

    def __init__(self, connection: sa.Connection, now: datetime, loss: Loss) -> None:
        self._connection = connection
        self._now = now
        self._charges = {event.sequence for event in loss.charges}
        self._addresses: dict[str, str] = {}  # of tasks whose plan has another version now
        for event in loss.earlier:
            if event.kind == "plan.signed":
                self._renamed(event.particulars, self._newest_version(event.particulars))

    def bring_back(self, event: Event) -> Happened:
        match event.kind:
            case "budget.opened":
                return self._budget(event)
            case "plan.signed":
                return self._plan(event)
            case "charge" if event.sequence in self._charges:
                return self._charge(event)
            case "key.created":
                # Its secret is lost, so it is of no use. The trail says that it was there, for the charges it made.
                return [(event.kind, event.particulars), ("key.revoked", {"key": event.particulars["key"], "by": ""})]
        return []

    def _budget(self, event: Event) -> Happened:
        body = event.particulars
        known = sa.select(budgets.c.knowledge_base).where(budgets.c.knowledge_base == body["knowledge_base"])
        if self._connection.execute(known).first() is not None:
            return []
        row = {name: exact(body[name]) for name in ("epsilon", "delta")}
        self._connection.execute(
            sa.insert(budgets).values(knowledge_base=body["knowledge_base"], opened_at=event.at, **row)
        )
        return [(event.kind, body)]

    def _plan(self, event: Event) -> Happened:
        body = event.particulars
        name = body["knowledge_base"]
        signed = self._connection.execute(sa.select(plans).where(plans.c.knowledge_base == name)).all()
        version = max((plan.version for plan in signed), default=0) + 1
        granted = {"epsilon": exact(body["epsilon"]), "delta": exact(body["delta"])}
        row = {
            "knowledge_base": name,
            "version": version,
            **granted,
            "accountant": body["accountant"],
            "document": body["document"],
            "digest": hashlib.sha256(body["document"].encode()).hexdigest(),
            "signed_by": body["signed_by"],
            "signed_at": event.at,
        }
        plan_id = self._connection.execute(sa.insert(plans).values(row).returning(plans.c.id)).scalar_one()
        answers = body["answers"].items()
        self._connection.execute(
            sa.insert(tasks), [{"plan_id": plan_id, "name": task, "answers": number} for task, number in answers]
        )
        self._renamed(body, version)
        lifetime = self._connection.execute(sa.select(budgets).where(budgets.c.knowledge_base == name)).one()
        promises = [*((plan.epsilon, plan.delta) for plan in signed), (granted["epsilon"], granted["delta"])]
        if min(rest((lifetime.epsilon, lifetime.delta), promises)[1]) < 0:
            every = sa.select(plans.c.id).where(plans.c.knowledge_base == name)
            self._connection.execute(sa.update(tasks).where(tasks.c.plan_id.in_(every)).values(charged=tasks.c.answers))
        return [(event.kind, body | {"version": version})]

    def _charge(self, event: Event) -> Happened:
        body = event.particulars
        task = self._addresses.get(body["task"], body["task"])
        row = {
            "id": body["charge"],
            "task_id": self._task(task),
            "query_digest": body["charge"].encode(),  # no query's: the trail does not say what was asked
            "key_id": body["key"],
            "state": "lost",
            "created_at": event.at,
            "lease_until": event.at,
            "settled_at": self._now,
        }
        self._connection.execute(sa.insert(charges).values(row))
        spend = sa.update(tasks).where(tasks.c.id == row["task_id"], tasks.c.charged < tasks.c.answers)
        self._connection.execute(spend.values(charged=tasks.c.charged + 1))
        with suppress(QuotaExhaustedError):  # counted all the same
            count_charge(self._connection, body["key"])
        particulars = {"charge": body["charge"], "task": task}
        return [("charge", {**particulars, "key": body["key"]}), ("lost", particulars)]

    def _renamed(self, body: Mapping[str, Any], version: int) -> None:
        for task in body["answers"]:
            was = address(body["knowledge_base"], task, body["version"])
            self._addresses[was] = address(body["knowledge_base"], task, version)

    def _newest_version(self, body: Mapping[str, Any]) -> int:
        """The version under which an earlier acknowledgement signed a plan again."""
        digest = hashlib.sha256(body["document"].encode()).hexdigest()
        same = sa.select(sa.func.max(plans.c.version)).where(
            plans.c.knowledge_base == body["knowledge_base"], plans.c.digest == digest
        )
        return int(self._connection.execute(same).scalar_one())

    def _task(self, task_address: str) -> int:
        task, version = task_address.rsplit("@", 1)
        knowledge_base, name = task.rsplit(".", 1)
        chosen = (plans.c.knowledge_base == knowledge_base, plans.c.version == int(version), tasks.c.name == name)
        return int(self._connection.execute(sa.select(tasks.c.id).join(plans).where(*chosen)).scalar_one())


def _common(trail: AuditTrail, witness: Witness, longest: int) -> Mark:
    """The newest event both have, of the first ``longest``: hashes are equal up to it, and differ from there on."""
    low, mark = 0, START
    high = longest
    while low < high:
        middle = (low + high + 1) // 2
        ours, theirs = trail.events(after=middle - 1, limit=1)[0], witness.events(middle - 1, 1)[0]
        if ours.hash == theirs.hash:
            low, mark = middle, Mark(middle, ours.hash)
        else:
            high = middle - 1
    return mark


def _all(read: Callable[..., list[Event]], after: int) -> list[Event]:
    found: list[Event] = []
    while batch := read(after=found[-1].sequence if found else after, limit=1000):
        found += batch
    return found
