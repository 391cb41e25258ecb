"""After the ledger was restored from a backup: what was lost, and charging it again.

The witness (:mod:`accounting.ledger.witness`) holds the events that the backup lacks. Acknowledging the loss brings
back from them whatever the privacy guarantee rests on, in one transaction: lifetime budgets, signed plans, and every
charge that was not voided, as lost, since its answer may have left. All of it is appended to the trail once more, so a
replay finds the same budgets and charges as before. What cannot come back (exemplars, keys, stored answers) is told to
the admin.

Where the restored ledger went its own way before it was compared, both histories count. If together they promise more
than a lifetime budget, no task of that knowledge base answers ever again, and a replay of the trail says so. That holds
for every knowledge base of a group that promises too much. Where the histories give a knowledge base different budgets
or groups (:func:`contradicted`), only one promise could be kept, so it ends: nothing answers from it, and it is
archived. So does every knowledge base of a group with two promises (:func:`torn`), and no other joins that. The trail
names them, so that holds whatever is restored later.

A lost upload may have brought people whom nobody will recognise. Where they can only belong to the newest cohort, they
come back to it, and no further cohort is opened (:func:`exemplar_store.cohorts.note_lost_arrivals`). Where they may
belong to an earlier one (:func:`mixed`), they would pay twice, so the knowledge base ends, too.

An upload is announced, and that is witnessed; its end (:class:`UploadEnded`) is written in the transaction that stores
its exemplars, or after it has failed. A backup that has the end has the exemplars. A backup that has the announcement
alone may lack them, whatever the ledger says that went on from it, so that upload counts as lost. Of one that crashed
only the announcement is left. That hinders nothing until a restore loses something, and counts as lost then.

Such a loss is always noticed. An answer is drawn from the units that had arrived before its charge was made, and the
charge is witnessed with all that was committed before. So where somebody was drawn, the end of the upload that brought
them stands in the witness, and a backup from before it lacks what was witnessed. It also stands on its side of every
opening of a cohort, as do the units themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial

import sqlalchemy as sa

from accounting.ledger import trail
from accounting.ledger.amounts import Pair, exact, rest
from accounting.ledger.budgets import add_plan, address, digest
from accounting.ledger.clock import utc_now
from accounting.ledger.cohorts import archived, budget_of, close
from accounting.ledger.events import (
    AnswerCharged,
    BudgetOpened,
    ChargeLost,
    ChargeVoided,
    CohortClosed,
    CohortOpened,
    ExemplarsIngested,
    GroupJoined,
    GroupOpened,
    KeyCreated,
    KeyRevoked,
    KnowledgeBaseArchived,
    LedgerRestored,
    Mark,
    Particulars,
    PlanSigned,
    UploadEnded,
)
from accounting.ledger.promised import charged_to, group_of, left_by, members_of
from accounting.ledger.quotas import QuotaExhaustedError, count_charge
from accounting.ledger.tables import audit_events, budgets, charges, cohorts, group_members, groups, plans, tasks
from accounting.ledger.trail import AuditEvent, AuditTrail
from accounting.ledger.witness import START, LedgerRestoredError, Witness

BringBack = Callable[[sa.Connection, AuditEvent], list[Particulars]]
"""Does again, in the caller's transaction, what one lost event did; returns what to append to the trail."""


@dataclass(frozen=True)
class Loss:
    """What the witness saw and the ledger lacks.

    Attributes:
        common: the newest event that both have.
        witnessed: the newest event witnessed; None for a witness that never saw this ledger.
        own: the events that the ledger has after ``common``: it went its own way.
        events: what was lost and is not brought back yet, oldest first.
        earlier: what was lost too, and brought back by an acknowledgement before this one.
        begun: announcements of uploads up to ``common`` that had not ended by then.
        acknowledged: whether an admin did that already, and only the witness must still be told.
    """

    common: Mark
    witnessed: Mark | None
    own: tuple[AuditEvent, ...]
    events: tuple[AuditEvent, ...]
    earlier: tuple[AuditEvent, ...]
    begun: tuple[AuditEvent, ...]
    acknowledged: bool

    @cached_property
    def charges(self) -> tuple[AnswerCharged, ...]:
        """The charges among them that were not voided."""
        lost = [event.particulars for event in self.events]
        voided = {one.charge for one in lost if isinstance(one, ChargeVoided)}
        return tuple(one for one in lost if isinstance(one, AnswerCharged) and one.charge not in voided)


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
    restores = [event.particulars for event in own if isinstance(event.particulars, LedgerRestored)]
    known = restores[-1].witness.sequence if restores else 0
    events = _all(witness.events, common.sequence)
    done = max(0, known - common.sequence)  # so many of them were brought back
    acknowledged = bool(restores) and own[-1].kind == LedgerRestored.kind and done == len(events)
    begun = _begun(trail, common)
    return Loss(common, seen, tuple(own), tuple(events[done:]), tuple(events[:done]), begun, acknowledged)


def mixed(loss: Loss) -> set[str]:
    """Knowledge bases of which people were lost who may belong to another cohort than the newest.

    That is none where no cohort was opened, or where all lost uploads came after the last opening; unless the ledger
    that went its own way took uploads or opened cohorts, too. An upload's exemplars came where it ended, or last.
    """
    lost = [event.particulars for event in (*loss.earlier, *loss.events, *loss.begun)]
    lost.sort(key=lambda one: isinstance(one, ExemplarsIngested))
    own = [event.particulars for event in loss.own]
    found = set()
    for name in {one.knowledge_base for one in lost if isinstance(one, ExemplarsIngested | UploadEnded)}:
        here, there = (
            [
                isinstance(one, CohortOpened)
                for one in some
                if isinstance(one, ExemplarsIngested | UploadEnded | CohortOpened) and one.knowledge_base == name
            ]
            for some in (own, lost)
        )
        after_an_upload = there[there.index(False) :]
        if any(here) or (any(there) and here) or any(after_an_upload):
            found.add(name)
    return found


def contradicted(loss: Loss) -> set[str]:
    """Knowledge bases that the lost history gave another budget or group than the ledger's own."""
    return {name for name, what, _ in _contradictions(loss) if what != "group"}


def torn(loss: Loss) -> set[str]:
    """Groups with two promises: of two budgets, or of a knowledge base that joined another in the other history."""
    found = _contradictions(loss)
    joined = {str(group) for _, what, groups_ in found if what == "joined" for group in groups_}
    return joined | {name for name, what, _ in found if what == "group"}


def acknowledge(
    ledger: sa.Engine, witness: Witness, loss: Loss, *, by: str, outside: BringBack = lambda _connection, _event: []
) -> None:
    """Charge what was lost and let the ledger go on from here. May be repeated after a crash at any point.

    Args:
        ledger: the ledger's database.
        witness: what :func:`find_loss` compared it with.
        loss: its result.
        by: who acknowledges, for the audit trail.
        outside: brings back what lost events did outside the ledger.

    Raises:
        accounting.ledger.witness.LedgerRestoredError: the ledger was changed, or the witness told more, since the
            loss was counted.
    """
    if not loss.acknowledged:
        with ledger.begin() as connection:
            now = utc_now()
            restoring = _Restoring(connection, now, loss)
            for event in loss.begun:
                outside(connection, event)
            happened = [
                one for event in loss.events for one in (*restoring.bring_back(event), *outside(connection, event))
            ]
            happened += restoring.archive_again(by)
            before = _restores(loss)
            closed = torn(loss).union(*(one.closed for one in before))
            # Whoever joins a group holds this lock: they have finished, or find it closed.
            connection.execute(sa.select(groups).where(groups.c.name.in_(closed)).with_for_update(key_share=True))
            members = {name for group in closed for name in members_of(connection, group)}
            ended = (mixed(loss) | contradicted(loss) | members).union(*(one.ended for one in before))
            happened += [one for name in sorted(ended) for one in restoring.end(name, by)]
            restored = LedgerRestored(
                by=by,
                common=loss.common.sequence,
                witness=loss.witnessed or START,
                charges=len(loss.charges),
                ended=tuple(sorted(ended)),
                closed=tuple(sorted(closed)),
            )
            trail.lock_end(connection)
            if (connection.scalar(_NEWEST) or START.hash) != (loss.own or (loss.common,))[-1].hash:
                raise LedgerRestoredError(
                    "the ledger was changed since the loss was counted: run the command again to see what was lost"
                )
            trail.append(connection, now, *happened, restored)
    witness.replace(loss.witnessed, loss.common)


class _Restoring:
    """Brings back budgets, plans and charges, within one transaction."""

    def __init__(self, connection: sa.Connection, now: datetime, loss: Loss) -> None:
        self._connection = connection
        self._now = now
        self._charges = {one.charge for one in loss.charges}
        self._addresses: dict[str, str] = {}  # of tasks whose plan has another version now
        own = [event.particulars for event in loss.own]
        self._archived = {one.knowledge_base for one in own if isinstance(one, KnowledgeBaseArchived)}
        for event in loss.earlier:
            if isinstance(signed := event.particulars, PlanSigned):
                self._renamed(signed, self._version(signed, event.at))

    def bring_back(self, event: AuditEvent) -> list[Particulars]:
        match event.particulars:
            case BudgetOpened() as opened:
                return self._budget(opened, event.at)
            case ExemplarsIngested() | UploadEnded() as uploaded:
                return [uploaded]  # another restore must know of it, too
            case CohortOpened() as opened:
                return self._cohort(opened, event.at)
            case GroupOpened() as made:
                return self._group(made, event.at)
            case GroupJoined() as joined:
                return self._join(joined, event.at)
            case CohortClosed() as closed:
                return self._close(closed, event.at)
            case KnowledgeBaseArchived() as lost:
                return self._archive(lost, event.at)
            case PlanSigned() as signed:
                return self._plan(signed, event.at)
            case AnswerCharged() as charged if charged.charge in self._charges:
                return self._charge(charged, event.at)
            case KeyCreated() as created:
                # Its secret is lost, so it is of no use. The trail says that it was there, for the charges it made.
                return [created, KeyRevoked(key=created.key, by="")]
        return []

    def _budget(self, opened: BudgetOpened, at: datetime) -> list[Particulars]:
        known = sa.select(budgets.c.knowledge_base).where(budgets.c.knowledge_base == opened.knowledge_base)
        if self._connection.execute(known).first() is not None:
            return []
        row = {
            "knowledge_base": opened.knowledge_base,
            "epsilon": exact(opened.epsilon),
            "delta": exact(opened.delta),
            "opened_at": at,
        }
        self._connection.execute(sa.insert(budgets).values(row))
        self._connection.execute(sa.insert(cohorts).values({**row, "number": 1}))
        return [opened]

    def _cohort(self, opened: CohortOpened, at: datetime) -> list[Particulars]:
        if opened.cohort in self._open_cohorts(opened.knowledge_base, closed=True):
            return []
        row = {
            "knowledge_base": opened.knowledge_base,
            "number": opened.cohort,
            "epsilon": exact(opened.epsilon),
            "delta": exact(opened.delta),
            "opened_at": at,
        }
        self._connection.execute(sa.insert(cohorts).values(row))
        return [opened]

    def _group(self, made: GroupOpened, at: datetime) -> list[Particulars]:
        if self._connection.execute(sa.select(groups).where(groups.c.name == made.group)).first() is not None:
            return []
        row = {"name": made.group, "epsilon": exact(made.epsilon), "delta": exact(made.delta), "opened_at": at}
        self._connection.execute(sa.insert(groups).values(row))
        return [made]

    def _join(self, joined: GroupJoined, at: datetime) -> list[Particulars]:
        if group_of(self._connection, joined.knowledge_base) is not None:
            return []
        row = {"knowledge_base": joined.knowledge_base, "group": joined.group, "joined_at": at}
        self._connection.execute(sa.insert(group_members).values(row))
        self._spend_if_shared_too_much(joined.knowledge_base)
        return [joined]

    def _close(self, closed: CohortClosed, at: datetime) -> list[Particulars]:
        if closed.cohort not in self._open_cohorts(closed.knowledge_base):
            return []
        close(self._connection, closed.knowledge_base, closed.cohort, at)
        return [closed]

    def _archive(self, lost: KnowledgeBaseArchived, at: datetime) -> list[Particulars]:
        if lost.knowledge_base in self._archived:
            return []
        return archived(self._connection, lost.knowledge_base, at, lost.by) or [lost]  # its cohorts came back closed

    def archive_again(self, by: str) -> list[Particulars]:
        """Close the cohorts that came back to knowledge bases which the ledger's own way has archived."""
        return [one for name in sorted(self._archived) for one in archived(self._connection, name, self._now, by)[:-1]]

    def end(self, name: str, by: str) -> list[Particulars]:
        """No task of a knowledge base answers any more, and it is archived.

        Call it when all else is brought back, since that adds tasks and cohorts.
        """
        # Whoever signs a plan or opens a cohort holds this lock: they have finished, or find it archived.
        self._connection.execute(budget_of(name).with_for_update(key_share=True))
        self._spend(name)
        return archived(self._connection, name, self._now, by)

    def _open_cohorts(self, name: str, *, closed: bool = False) -> list[int]:
        of = sa.select(cohorts.c.number).where(cohorts.c.knowledge_base == name).order_by(cohorts.c.number)
        return list(self._connection.scalars(of if closed else of.where(cohorts.c.closed_at.is_(None))))

    def _spend(self, name: str) -> None:
        """Leave none of its tasks an answer."""
        every = sa.select(plans.c.id).where(plans.c.knowledge_base == name)
        self._connection.execute(sa.update(tasks).where(tasks.c.plan_id.in_(every)).values(charged=tasks.c.answers))

    def _spend_if_shared_too_much(self, name: str) -> None:
        """Leave no task of a knowledge base's group an answer if their plans promise more than its budget."""
        group = group_of(self._connection, name)
        if group is not None and min(left_by(self._connection, group)) < 0:
            for member in members_of(self._connection, group.name):
                self._spend(member)

    def _plan(self, signed: PlanSigned, at: datetime) -> list[Particulars]:
        name = signed.knowledge_base
        standing = self._connection.execute(sa.select(plans).where(plans.c.knowledge_base == name)).all()
        version = max((plan.version for plan in standing), default=0) + 1
        granted, renumbered = (
            (exact(signed.epsilon), exact(signed.delta)),
            signed.model_copy(update={"version": version}),
        )
        add_plan(self._connection, renumbered, at)
        self._renamed(signed, version)
        for cohort in self._connection.execute(sa.select(cohorts).where(cohorts.c.knowledge_base == name)).all():
            promises = [*charged_to(cohort.number, standing), *([granted] if cohort.number in signed.cohorts else [])]
            if min(rest((cohort.epsilon, cohort.delta), promises)[1]) < 0:
                self._spend(name)
        self._spend_if_shared_too_much(name)
        return [renumbered]

    def _charge(self, charged: AnswerCharged, at: datetime) -> list[Particulars]:
        task = self._addresses.get(charged.task, charged.task)
        row = {
            "id": charged.charge,
            "task_id": self._task(task),
            "query_digest": charged.charge.encode(),  # no query's: the trail does not say what was asked
            "key_id": charged.key,
            "state": "lost",
            "created_at": at,
            "lease_until": at,
            "settled_at": self._now,
        }
        self._connection.execute(sa.insert(charges).values(row))
        spend = sa.update(tasks).where(tasks.c.id == row["task_id"], tasks.c.charged < tasks.c.answers)
        self._connection.execute(spend.values(charged=tasks.c.charged + 1))
        with suppress(QuotaExhaustedError):  # counted all the same
            count_charge(self._connection, charged.key)
        return [charged.model_copy(update={"task": task}), ChargeLost(charge=charged.charge, task=task)]

    def _renamed(self, signed: PlanSigned, version: int) -> None:
        for task in signed.answers:
            was = address(signed.knowledge_base, task, signed.version)
            self._addresses[was] = address(signed.knowledge_base, task, version)

    def _version(self, signed: PlanSigned, at: datetime) -> int:
        """Which version a plan has that was brought back before; its time tells it from others with the same text."""
        same = sa.select(sa.func.max(plans.c.version)).where(
            plans.c.knowledge_base == signed.knowledge_base,
            plans.c.digest == digest(signed.document),
            plans.c.signed_at == at,
        )
        return int(self._connection.execute(same).scalar_one())

    def _task(self, task_address: str) -> int:
        task, version = task_address.rsplit("@", 1)
        knowledge_base, name = task.rsplit(".", 1)
        chosen = (plans.c.knowledge_base == knowledge_base, plans.c.version == int(version), tasks.c.name == name)
        return int(self._connection.execute(sa.select(tasks.c.id).join(plans).where(*chosen)).scalar_one())


_NEWEST = sa.select(audit_events.c.hash).order_by(audit_events.c.sequence.desc()).limit(1)


def _contradictions(loss: Loss) -> list[tuple[str, int | str, tuple[Pair | str, Pair | str]]]:
    """What both histories granted, and not alike: name and kind as of :func:`_granted`, and what each granted."""
    own, lost = _granted(loss.own), _granted((*loss.earlier, *loss.events))
    return [(*of, (own[of], lost[of])) for of in own.keys() & lost.keys() if own[of] != lost[of]]


def _granted(events: Iterable[AuditEvent]) -> dict[tuple[str, int | str], Pair | str]:
    """Budgets by knowledge base and cohort, and by group; groups by knowledge base that joined."""
    found: dict[tuple[str, int | str], Pair | str] = {}
    for event in events:
        match event.particulars:
            case BudgetOpened() as opened:
                found[opened.knowledge_base, 1] = exact(opened.epsilon), exact(opened.delta)
            case CohortOpened() as opened:
                found[opened.knowledge_base, opened.cohort] = exact(opened.epsilon), exact(opened.delta)
            case GroupOpened() as made:
                found[made.group, "group"] = exact(made.epsilon), exact(made.delta)
            case GroupJoined() as joined:
                found[joined.knowledge_base, "joined"] = joined.group
    return found


def _restores(loss: Loss) -> list[LedgerRestored]:
    """Those acknowledged before."""
    told = [event.particulars for event in (*loss.own, *loss.earlier, *loss.events)]
    return [one for one in told if isinstance(one, LedgerRestored)]


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


def _begun(trail: AuditTrail, common: Mark) -> tuple[AuditEvent, ...]:
    kinds = [ExemplarsIngested.kind, UploadEnded.kind]
    some = _all(partial(trail.events, kinds=kinds, before=common.sequence + 1), 0)
    ended = {one.upload for one in (event.particulars for event in some) if isinstance(one, UploadEnded)}
    return tuple(e for e in some if isinstance(e.particulars, ExemplarsIngested) and e.particulars.upload not in ended)


def _all(read: Callable[..., list[AuditEvent]], after: int) -> list[AuditEvent]:
    found: list[AuditEvent] = []
    while batch := read(after=found[-1].sequence if found else after, limit=1000):
        found += batch
    return found
