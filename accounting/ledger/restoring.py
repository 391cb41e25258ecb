"""Finding what the ledger lost by a restore from a backup, and charging it again.

The witness (:mod:`accounting.ledger.witness`) holds the events that the backup lacks. Acknowledging the loss brings
back from them whatever the privacy guarantee rests on, in one transaction: lifetime budgets, signed plans, and every
charge that was not voided, as lost, since its answer may have left. All of it is appended to the trail once more, so a
replay finds the same budgets and charges as before. The admin gets a list of what cannot come back: exemplars, keys,
stored answers.

A restored ledger that went on before it was compared has a history of its own. A knowledge base has one history or it
ends: where both histories have events of it (:attr:`Loss.forked`), it and the others of its group no longer answer,
they are archived, and no other joins that group. Its lost history stays lost. The trail records all this, so it holds
whatever is restored later.

A lost upload may have brought people who will not be recognised. Where they can only belong to the newest cohort, they
come back to it, and no further cohort is opened (:func:`exemplar_store.cohorts.note_lost_arrivals`). Where they may
belong to an earlier one (:func:`mixed`), they would pay twice, so the knowledge base ends, too.

An upload is announced, and that is witnessed; its end (:class:`UploadEnded`) is written in the transaction that stores
its exemplars, or after it has failed. A backup that has the end has the exemplars. A backup that has the announcement
alone may lack them, whatever the ledger that went on from it contains, so that upload counts as lost. An upload that
crashed leaves only its announcement. That hinders nothing until a restore loses something, and counts as lost then.

A lost upload may also have brought people to topics. When they come back, or are uploaded with other exemplars, they
would be on other topics, and pay on both. So would those of a plan with topics that is signed again, since their topics
are lost. Such tasks give no more answers (:attr:`Loss.regrouped`): another plan assigns all people to topics anew.

Such a loss is always noticed. An answer is drawn from the units that had arrived before its charge was made, and the
charge is witnessed with all that was committed before. So where a unit was drawn, the witness has the end of the upload
that brought it, and a backup from before that end lacks a witnessed event. The end also precedes, or follows, the same
openings of cohorts as the units themselves.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any

import sqlalchemy as sa

from accounting.ledger import events, trail
from accounting.ledger.amounts import exact
from accounting.ledger.budgets import add_plan, address_of, delete_rows, parsed, retire
from accounting.ledger.charges import give_back, lose
from accounting.ledger.clock import utc_now
from accounting.ledger.cohorts import archived, budget_of, close
from accounting.ledger.entries import SEPARATOR, parts
from accounting.ledger.events import Mark, Particulars
from accounting.ledger.quotas import QuotaExhaustedError, count_charge
from accounting.ledger.tables import budgets, charges, cohorts, group_members, groups, plans, tasks
from accounting.ledger.trail import START, AuditEvent, AuditTrail, every
from accounting.ledger.witness import LedgerRestoredError, Witness

BringBack = Callable[[sa.Connection, AuditEvent], list[Particulars]]
"""A function that repeats one lost event, in the caller's transaction; returns the events to append to the trail."""

Name = tuple[str, str]
"""``("knowledge_base", "support")`` or ``("group", "care")``."""


@dataclass(frozen=True)
class Loss:
    """The events that the witness has and the ledger lacks.

    Attributes:
        common: the newest event that both have.
        witnessed: the newest event witnessed; None for a witness that never saw this ledger.
        own: the events that the ledger has after ``common``, where it went its own way; from the acknowledgement on if
            there was one that the witness has not received.
        lost: the lost events that are not brought back yet, oldest first.
        earlier: the lost events that this acknowledgement brought back.
        begun: announcements of uploads up to ``common`` that had not ended by then.
        joined: pairs of a knowledge base and the group that it joined, in either history.
        acknowledged: whether nothing is left to bring back, and only the witness must still be brought up to date.
    """

    common: Mark
    witnessed: Mark | None
    own: tuple[AuditEvent, ...]
    lost: tuple[AuditEvent, ...]
    earlier: tuple[AuditEvent, ...]
    begun: tuple[AuditEvent, ...]
    joined: tuple[set[Name], ...]
    acknowledged: bool

    @cached_property
    def charges(self) -> tuple[events.AnswerCharged, ...]:
        """The lost charges that were not voided, of knowledge bases that have one history."""
        back = _standing(event for event in self.lost if self.comes_back(event))
        return tuple(one for one in back if isinstance(one, events.AnswerCharged))

    @cached_property
    def forked(self) -> set[Name]:
        """Knowledge bases and groups that both histories have events of, and all that share a group with them."""
        return self._in_both(_standing(self.own), _standing(self.lost))

    @cached_property
    def ended(self) -> tuple[str, ...]:
        """Knowledge bases that no longer answer."""
        ended = mixed(self) | _named("knowledge_base", self.forked)
        return tuple(sorted(ended.union(*(one.ended for one in self.restores))))

    @cached_property
    def regrouped(self) -> set[str]:
        """Knowledge bases where it is no longer known which units were on which topic."""
        happened = (event.particulars for event in (*self.earlier, *self.lost, *self.begun))
        arrivals = (events.ExemplarsIngested, events.UploadEnded, events.BudgetOpened)
        again = {address.partition(".")[0] for one in self.restores for address in one.spent}
        return again | {
            one.knowledge_base
            for one in happened
            if isinstance(one, arrivals)
            or (isinstance(one, events.PlanSigned) and any(SEPARATOR in name for name in one.answers))
        }

    @cached_property
    def closed(self) -> tuple[str, ...]:
        """Groups that no further knowledge base joins."""
        return tuple(sorted(_named("group", self.forked).union(*(one.closed for one in self.restores))))

    @cached_property
    def charged_twice(self) -> tuple[str, ...]:
        """Knowledge bases where each history has charges that the other lacks, and all that share a group with them."""
        here, there = (
            {one for one in _standing(some) if isinstance(one, events.AnswerCharged | events.LedgerRestored)}
            for some in (self.own, self.lost)
        )
        twice = _named("knowledge_base", self._in_both(here - there, there - here))
        return tuple(sorted(twice.union(*(one.charged_twice for one in self.restores))))

    def comes_back(self, event: AuditEvent) -> bool:
        """Whether a lost event is to be brought back: it names nothing that is forked."""
        return event.particulars is None or not self.forked & _names(event.particulars)

    @property
    def restores(self) -> list[events.LedgerRestored]:
        """Acknowledgements of earlier restores that this one lost."""
        return [event.particulars for event in self.lost if isinstance(event.particulars, events.LedgerRestored)]

    def _in_both(self, here: Iterable[Particulars], there: Iterable[Particulars]) -> set[Name]:
        return set.intersection(*(self._with_groups(set().union(*map(_names, some))) for some in (here, there)))

    def _with_groups(self, names: set[Name]) -> set[Name]:
        """These names, and all that share a group with them."""
        while (more := names.union(*(pair for pair in self.joined if pair & names))) != names:
            names = more
        return names


def find_loss(trail: AuditTrail, witness: Witness) -> Loss | None:
    """The loss that a comparison of ledger and witness shows; None if the ledger has all that was witnessed.

    Raises:
        accounting.ledger.witness.WitnessUnavailableError: the witness does not answer.
    """
    seen = witness.head()
    common = _common(trail, witness, min(trail.end().sequence, seen.sequence if seen else 0))
    if seen is not None and common.sequence == seen.sequence:
        return None
    own, lost = list(every(trail.events, common.sequence)), list(every(witness.events, common.sequence))
    joined = (*every(partial(trail.events, kinds=[events.GroupJoined.kind])), *lost)
    pairs = tuple(_names(one) for one in (event.particulars for event in joined) if isinstance(one, events.GroupJoined))
    # An acknowledgement brought back what stands up to its mark. Elsewhere that may have been lost since.
    places = {event.mark: place for place, event in enumerate(lost, 1)} if seen else {START: 0}
    restores = [
        (number, places[one.witness])
        for number, one in enumerate(event.particulars for event in own)
        if isinstance(one, events.LedgerRestored) and one.witness in places
    ]
    first, done = restores[-1] if restores else (0, 0)
    own, earlier, lost = own[first:], lost[:done], lost[done:]
    acknowledged = bool(restores) and len(own) == 1 and not lost
    begun = _begun(trail, common)
    return Loss(common, seen, tuple(own), tuple(lost), tuple(earlier), begun, pairs, acknowledged)


def mixed(loss: Loss) -> set[str]:
    """Knowledge bases that lost people who may belong to another cohort than the newest.

    In these a cohort was opened after a lost upload. An upload's exemplars came when it ended, or last if it did not.
    """
    uploaded: set[str] = set()
    found = set()
    for one in (event.particulars for event in (*loss.earlier, *loss.lost)):
        if isinstance(one, events.UploadEnded):
            uploaded.add(one.knowledge_base)
        elif isinstance(one, events.CohortOpened) and one.knowledge_base in uploaded:
            found.add(one.knowledge_base)
    begun, own = ([event.particulars for event in some] for some in (loss.begun, loss.own))
    opened = {one.knowledge_base for one in own if isinstance(one, events.CohortOpened)}
    return found | {one.knowledge_base for one in begun if isinstance(one, events.ExemplarsIngested)} & opened


def acknowledge(
    ledger: sa.Engine, witness: Witness, loss: Loss, *, by: str, outside: BringBack = lambda _connection, _event: []
) -> None:
    """Bring back the lost events and let the ledger go on from here. May be repeated after a crash at any point.

    Args:
        ledger: the ledger's database.
        witness: the witness that :func:`find_loss` compared it with.
        loss: result of :func:`find_loss`.
        by: the admin who acknowledges, for the audit trail.
        outside: a function that brings back what lost events did outside the ledger.

    Raises:
        accounting.ledger.witness.LedgerRestoredError: the ledger was changed, or more events were witnessed, since the
            loss was counted.
    """
    if not loss.acknowledged:
        with ledger.begin() as connection:
            now = utc_now()
            restoring = _Restoring(connection, now, loss)
            for event in loss.begun:
                outside(connection, event)
            happened = [
                one for event in loss.lost for one in (*restoring.bring_back(event), *outside(connection, event))
            ]
            happened += [one for name in loss.ended for one in restoring.end(name, by)]
            spent, lost = restoring.spend_topics(loss.regrouped)
            happened += lost
            # A request that joins a group holds this lock: it has finished, or finds the group closed.
            connection.execute(sa.select(groups).where(groups.c.name.in_(loss.closed)).with_for_update(key_share=True))
            restored = events.LedgerRestored(
                by=by,
                common=loss.common.sequence,
                witness=loss.witnessed or START,
                charges=len(loss.charges),
                ended=loss.ended,
                closed=loss.closed,
                charged_twice=loss.charged_twice,
                spent=spent,
            )
            trail.lock_end(connection)
            if trail.newest(connection) != (loss.own[-1].mark if loss.own else loss.common):
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
        self._loss = loss
        self._charges = {one.charge for one in loss.charges}

    def bring_back(self, event: AuditEvent) -> list[Particulars]:
        """Repeat one lost event; of a forked knowledge base only its creation, so that its name stays taken."""
        if not (self._loss.comes_back(event) or event.kind == events.BudgetOpened.kind):
            return []
        match happened := event.particulars:
            case events.BudgetOpened(knowledge_base=name):
                if self._connection.execute(budget_of(name)).first() is not None:
                    return []
                self._add(budgets, knowledge_base=name, **_granted(happened, event.at))
                self._add(cohorts, knowledge_base=name, number=1, **_granted(happened, event.at))
            case events.CohortOpened(knowledge_base=name, cohort=number):
                self._add(cohorts, knowledge_base=name, number=number, **_granted(happened, event.at))
            case events.CohortClosed(knowledge_base=name, cohort=number):
                close(self._connection, name, number, event.at)
            case events.GroupOpened(group=name):
                self._add(groups, name=name, **_granted(happened, event.at))
            case events.GroupJoined(knowledge_base=name, group=group):
                self._add(group_members, knowledge_base=name, group=group, joined_at=event.at)
            case events.KnowledgeBaseDeleted(knowledge_base=name):
                delete_rows(self._connection, name)
            case events.PlanSigned():
                add_plan(self._connection, happened, event.at)
            case events.PlanRetired(knowledge_base=name, version=version):
                retire(self._connection, name, version, event.at)
            case events.ExemplarsIngested() | events.UploadEnded() | events.KnowledgeBaseArchived():
                pass  # another restore must know of it, too
            case events.AnswerCharged(charge=charge) if charge in self._charges:
                return self._charge(happened, event.at)
            case events.ChargeVoided(charge=charge) if give_back(self._connection, charge, self._now):
                pass  # made before the backup
            case events.KeyCreated(key=key):
                # Its secret is lost, so it is of no use. The trail still shows it, for the charges that it made.
                return [happened, events.KeyRevoked(key=key, by="")]
            case _:
                return []
        return [happened]

    def end(self, name: str, by: str) -> list[Particulars]:
        """End a knowledge base: its tasks no longer answer, whatever becomes of their open charges, and it is archived.

        Call it when all else is brought back, since that adds tasks and cohorts.
        """
        # A request that signs a plan or opens a cohort holds this lock: it has finished, or finds it archived.
        self._connection.execute(budget_of(name).with_for_update(key_share=True))
        every = tasks.c.plan_id.in_(sa.select(plans.c.id).where(plans.c.knowledge_base == name))
        self._connection.execute(sa.update(tasks).where(every).values(charged=tasks.c.answers))
        lost = lose(self._connection, charges.c.task_id.in_(sa.select(tasks.c.id).where(every)), self._now)
        return [*lost, *archived(self._connection, name, self._now, by)]

    def spend_topics(self, names: set[str]) -> tuple[tuple[str, ...], list[Particulars]]:
        """End the tasks with topics of some knowledge bases: they no longer answer, whatever becomes of open charges.

        Call it when all else is brought back, as :meth:`end`.

        Returns:
            Addresses of their topics, and the events to append to the trail.
        """
        listed = sa.select(tasks.c.id, tasks.c.name, plans.c.knowledge_base, plans.c.version).join(plans)
        of_topics = listed.where(plans.c.knowledge_base.in_(names), tasks.c.name.contains(SEPARATOR))
        rows = self._connection.execute(of_topics.order_by(tasks.c.id).with_for_update(of=tasks, key_share=True)).all()
        ids = [row.id for row in rows]
        self._connection.execute(sa.update(tasks).where(tasks.c.id.in_(ids)).values(charged=tasks.c.answers))
        lost = lose(self._connection, charges.c.task_id.in_(ids), self._now)
        earlier = {address for one in self._loss.restores for address in one.spent}
        return tuple(sorted({address_of(row) for row in rows} | earlier)), [*lost]

    def _add(self, to: sa.Table, **row: object) -> None:
        self._connection.execute(sa.insert(to).values(row))

    def _charge(self, charged: events.AnswerCharged, at: datetime) -> list[Particulars]:
        row = {
            "id": charged.charge,
            "task_id": self._task(charged.task),
            "query_digest": charged.charge.encode(),  # no query's digest: the trail does not record what was asked
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
        return [charged, events.ChargeLost(charge=charged.charge, task=charged.task)]

    def _task(self, task_address: str) -> int:
        knowledge_base, name, version = parsed(task_address)
        chosen = (plans.c.knowledge_base == knowledge_base, plans.c.version == version, tasks.c.name == name)
        return int(self._connection.execute(sa.select(tasks.c.id).join(plans).where(*chosen)).scalar_one())


def _granted(opened: events.BudgetOpened | events.CohortOpened | events.GroupOpened, at: datetime) -> dict[str, Any]:
    return {"epsilon": exact(opened.epsilon), "delta": exact(opened.delta), "opened_at": at}


def _standing(some: Iterable[AuditEvent]) -> list[Particulars]:
    """The events that promised or spent something, or brought units; without charges that were voided."""
    happened = [event.particulars for event in some if event.particulars is not None]
    voided = {one.charge for one in happened if isinstance(one, events.ChargeVoided)}
    return [
        one for one in happened if one.binds and not (isinstance(one, events.AnswerCharged) and one.charge in voided)
    ]


def _names(happened: Particulars) -> set[Name]:
    """The knowledge bases and groups that an event names."""
    if isinstance(happened, events.LedgerRestored):
        return {("knowledge_base", name) for name in happened.ended} | {("group", name) for name in happened.closed}
    names = {(kind, getattr(happened, kind)) for kind in ("knowledge_base", "group") if hasattr(happened, kind)}
    return names | (
        {("knowledge_base", parts(happened.task)[0].rpartition(".")[0])} if hasattr(happened, "task") else set()
    )


def _named(kind: str, names: Iterable[Name]) -> set[str]:
    return {name for named, name in names if named == kind}


def _common(trail: AuditTrail, witness: Witness, longest: int) -> Mark:
    """The newest event both have, of the first ``longest``: hashes are equal up to it, and differ from there on."""

    def differ(sequence: int) -> bool:
        ours, theirs = trail.events(after=sequence - 1, limit=1), witness.events(sequence - 1, 1)
        return ours[0].hash != theirs[0].hash

    alike = bisect_left(range(1, longest + 1), True, key=differ)
    return trail.events(after=alike - 1, limit=1)[0].mark if alike else START


def _begun(trail: AuditTrail, common: Mark) -> tuple[AuditEvent, ...]:
    kinds = [events.ExemplarsIngested.kind, events.UploadEnded.kind]
    told = [(e, e.particulars) for e in every(partial(trail.events, kinds=kinds, before=common.sequence + 1))]
    ended = {what.upload for _, what in told if isinstance(what, events.UploadEnded)}
    return tuple(e for e, what in told if isinstance(what, events.ExemplarsIngested) and what.upload not in ended)
