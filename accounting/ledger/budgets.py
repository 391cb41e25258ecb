"""Lifetime budgets and the plans signed against them.

A knowledge base is a sequence of cohorts (:mod:`accounting.ledger.cohorts`), and each has one budget (ε, δ) for its
whole life. A signed plan names the cohorts that it draws on, and takes its (ε, δ) from each of them permanently.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from accounting.ledger import errors, trail
from accounting.ledger.amounts import Number, checked, exact, in_words
from accounting.ledger.clock import Clock, utc_now
from accounting.ledger.cohorts import (
    CohortStatus,
    budget_of,
    check_free,
    check_not_archived,
    cohorts_of,
    lock,
    statuses_of,
    unknown_budget,
)
from accounting.ledger.dialects import reading
from accounting.ledger.entries import SEPARATOR, entry, parts
from accounting.ledger.events import Approval, BudgetOpened, KnowledgeBaseDeleted, PlanRetired, PlanSigned
from accounting.ledger.promised import group_of, plans_of
from accounting.ledger.tables import LOST, OPEN, budgets, charges, cohorts, plans, retirements, tasks

_ADDRESS = re.compile(
    r"(?P<knowledge_base>[^@#]+)\.(?P<task>[^.@#]+)(?P<topic>#[^@#]+)?(?:@(?P<version>[1-9][0-9]{0,8}))?"
)

Alike = Callable[[str], object]


@dataclass(frozen=True)
class SignedPlan:
    """An immutable grant of budget.

    Attributes:
        id: number of the plan in the ledger.
        knowledge_base: the knowledge base whose budget it takes from.
        version: 1, 2, ... within the knowledge base.
        epsilon: the ε it promises.
        delta: the δ it promises.
        accountant: name of the accountant that calibrated it.
        document: the calibrated plan, byte for byte as it was signed.
        digest: SHA-256 of ``document``, in hexadecimal.
        signed_by: the actor that signed: a key's id, a person, or a name of the command line.
        signed_at: the time it was signed, in UTC.
        cohorts: numbers of the cohorts that it is charged to, and draws on.
        tasks: (name, answers) of each task; of one with topics, each topic has them by its
            :func:`accounting.ledger.entries.entry`.
    """

    id: int
    knowledge_base: str
    version: int
    epsilon: Decimal
    delta: Decimal
    accountant: str
    document: str
    digest: str
    signed_by: str
    signed_at: datetime
    cohorts: tuple[int, ...]
    tasks: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class SignedTask:
    """One task of a signed plan, or one topic of it, to which a query is charged.

    Attributes:
        id: number of the task or topic in the ledger; None for a task with topics as a whole, which is never charged.
        name: name of the task.
        answers: number of answers that it may give in all, or on each topic.
        plan: the plan that it is part of.
        topic: name of the topic; None: the task has no topics, or the whole task is meant.
    """

    id: int | None
    name: str
    answers: int
    plan: SignedPlan
    topic: str | None = None

    @property
    def knowledge_base(self) -> str:
        """The knowledge base whose exemplars it draws on."""
        return self.plan.knowledge_base

    @property
    def version(self) -> int:
        """The version of the plan."""
        return self.plan.version

    @property
    def document(self) -> str:
        """The calibrated document of the plan."""
        return self.plan.document

    @property
    def address(self) -> str:
        """The task with its plan's version, ``knowledge_base.task@version``; it always names the same task.

        A topic has the address ``knowledge_base.task#topic@version``.
        """
        return address(self.knowledge_base, entry(self.name, self.topic), self.version)

    @property
    def whole(self) -> str:
        """The address of the task, without the topic."""
        return address(self.knowledge_base, self.name, self.version)


@dataclass(frozen=True)
class TaskStatus:
    """The use of a task, or of one of its topics.

    ``charged`` answers are spent, ``left`` are not; ``states`` counts charges by state, and ``fell_back`` the releases
    that show a fallback. Of a ``retired`` plan, none are left.
    """

    address: str
    name: str
    topic: str | None
    version: int
    answers: int
    charged: int
    left: int
    states: Mapping[str, int]
    fell_back: int = 0
    retired: bool = False


@dataclass(frozen=True)
class BudgetStatus:
    """A knowledge base's lifetime budgets, one for each cohort in order; the tasks of its plans; its group, if any."""

    knowledge_base: str
    cohorts: tuple[CohortStatus, ...]
    tasks: tuple[TaskStatus, ...]
    group: str | None

    @property
    def archived_at(self) -> datetime | None:
        """The time since which nothing new is signed, opened or stored; None: not archived."""
        return self.cohorts[-1].closed_at

    @property
    def open_cohorts(self) -> tuple[int, ...]:
        """Numbers of the cohorts that further plans may draw on; a plan that names no cohorts draws on all of them."""
        return tuple(one.number for one in self.cohorts if one.closed_at is None)

    def of(self, numbers: Sequence[int]) -> list[CohortStatus]:
        """The budgets of the cohorts with these numbers."""
        return [one for one in self.cohorts if one.number in numbers]

    @property
    def tightest(self) -> CohortStatus:
        """The cohort with the least ε free, of those that further plans may draw on; without any, the newest."""
        return min(self.of(self.open_cohorts) or self.cohorts[-1:], key=lambda one: (one.free_epsilon, one.free_delta))


def address(knowledge_base: str, task: str, version: int) -> str:
    """``knowledge_base.task@version``; the task may be a topic's :func:`accounting.ledger.entries.entry`."""
    return f"{knowledge_base}.{task}@{version}"


def parsed(task_address: str) -> tuple[str, str, int | None]:
    """The inverse of :func:`address`; the version is None where the address has none.

    Raises:
        UnknownTaskError: the text is not an address.
    """
    found = _ADDRESS.fullmatch(task_address)
    if found is None:
        raise errors.UnknownTaskError(
            f"{task_address!r} is not a task address; write knowledge_base.task or ...task@version"
        )
    knowledge_base, name, topic, version = found.group("knowledge_base", "task", "topic", "version")
    return knowledge_base, name + (topic or ""), None if version is None else int(version)


def address_of(row: Any) -> str:
    """The address of a row with ``knowledge_base``, the task's ``name`` and ``version``."""
    return address(row.knowledge_base, row.name, row.version)


class Budgets:
    """Lifetime budgets, and the plans and tasks they are granted to (:attr:`accounting.ledger.charges.Ledger.budgets`).

    Args:
        database: a database from ``service.records.database.open_database``: on SQLite transactions must begin with
            BEGIN IMMEDIATE, on PostgreSQL they must be READ COMMITTED.
        clock: a function that returns the present as an aware datetime.
    """

    def __init__(self, database: sa.Engine, *, clock: Clock = utc_now) -> None:
        self._database = database
        self._clock = clock
        self._plans_read: dict[tuple[int, str], SignedPlan] = {}

    def open(
        self, connection: sa.Connection, knowledge_base: str, epsilon: Number, delta: Number, by: str = ""
    ) -> None:
        """Give a knowledge base's first cohort its lifetime budget, within the transaction that creates it.

        Args:
            connection: a connection in a transaction.
            knowledge_base: name of the knowledge base.
            epsilon: ε for its whole life, above 0.
            delta: δ for its whole life, in [0, 1).
            by: the actor that creates it, for the audit trail.

        Raises:
            BudgetExistsError: it has one; a lifetime budget is permanent.
            ValueError: ε is not above 0, or δ not in [0, 1).
        """
        asked = checked(epsilon, delta)
        if connection.execute(budget_of(knowledge_base)).first() is not None:
            raise errors.BudgetExistsError(f"knowledge base {knowledge_base!r} has its lifetime budget already")
        now = self._clock()
        row = {"knowledge_base": knowledge_base, "epsilon": asked[0], "delta": asked[1], "opened_at": now}
        connection.execute(sa.insert(budgets).values(row))
        connection.execute(sa.insert(cohorts).values({**row, "number": 1}))
        granted = BudgetOpened(knowledge_base=knowledge_base, epsilon=str(asked[0]), delta=str(asked[1]), by=by)
        trail.append(connection, now, granted)

    def has(self, connection: sa.Connection, knowledge_base: str, epsilon: Number, delta: Number) -> bool:
        """Whether a knowledge base has this very lifetime budget.

        Args:
            connection: a connection in a transaction.
            knowledge_base: name of the knowledge base.
            epsilon: ε for its whole life.
            delta: δ for its whole life.

        Raises:
            BudgetExistsError: it has another, or several cohorts.
            KnowledgeBaseArchivedError: it is archived.
        """
        row, standing = connection.execute(budget_of(knowledge_base)).first(), cohorts_of(connection, knowledge_base)
        check_not_archived(knowledge_base, standing)
        if row is not None and len(standing) > 1:
            raise errors.BudgetExistsError(
                f"knowledge base {knowledge_base!r} had several cohorts before its exemplars were lost in a restore, "
                "and it is no longer known who belongs to which: choose another name"
            )
        if row is not None and (row.epsilon, row.delta) != checked(epsilon, delta):
            raise errors.BudgetExistsError(
                f"knowledge base {knowledge_base!r} had a lifetime budget of {in_words((row.epsilon, row.delta))} "
                "before its exemplars were lost in a restore, and keeps it: create it with the same"
            )
        return row is not None

    def delete(self, connection: sa.Connection, knowledge_base: str, by: str) -> None:
        """Delete the budget of an empty knowledge base, within the transaction that deletes the knowledge base.

        No part of it was ever promised, and there was never anything private to read: no plan was signed, and no upload
        was begun. So no budget that was spent comes back. The trail, which is public, shows both.

        Args:
            connection: a connection in a transaction.
            knowledge_base: name of the knowledge base.
            by: the actor that deletes it, for the audit trail.

        Raises:
            UnknownBudgetError: no such knowledge base.
            NotEmptyError: it is not empty, or is in a group, which no knowledge base leaves.
        """
        lock(connection, knowledge_base)
        if signed := connection.execute(plans_of(knowledge_base)).all():
            raise errors.NotEmptyError(knowledge_base, f"its budget is promised to signed plans ({len(signed)})")
        if trail.uploads(connection, knowledge_base):
            raise errors.NotEmptyError(knowledge_base, "exemplars were uploaded to it")
        if group := group_of(connection, knowledge_base):
            raise errors.NotEmptyError(knowledge_base, f"it is in group {group.name!r}")
        had = cohorts_of(connection, knowledge_base).values()
        closed = sum(one.closed_at is not None for one in had)
        delete_rows(connection, knowledge_base)
        deleted = KnowledgeBaseDeleted(knowledge_base=knowledge_base, cohorts=len(had), closed=closed, by=by)
        trail.append(connection, self._clock(), deleted)

    def sign(
        self,
        knowledge_base: str,
        *,
        epsilon: Number,
        delta: Number,
        accountant: str,
        document: str,
        tasks: Sequence[tuple[str, int]],
        signed_by: str,
        cohorts: Sequence[int] = (1,),
        after_version: int | None = None,
        again: int | None = None,
        alike: Alike | None = None,
        approval: Approval | None = None,
        first: Callable[[sa.Connection], None] = lambda _connection: None,
        last: Callable[[sa.Connection, int], None] = lambda _connection, _version: None,
    ) -> SignedPlan:
        """Promise part of cohorts' lifetime budgets to a plan: durable, irrevocable, and the whole of it or nothing.

        Args:
            knowledge_base: the knowledge base whose budget is promised.
            epsilon: the ε the plan's calibrated mechanisms compose to; a float counts as its shortest decimal.
            delta: the δ they compose to.
            accountant: name of the accountant that calibrated it.
            document: the calibrated plan as text; stored byte for byte.
            tasks: (name, answers) of each task; answers is what the noise was calibrated for.
            signed_by: the actor that signs: a key's id, a person, or a name of the command line.
            cohorts: numbers of the cohorts that the plan draws on; it is charged to each of them.
            after_version: sign only if this is the newest plan's version (0: none is signed yet), so that a request
                sent twice signs once.
            again: version of the newest plan that is alike, if its budget is to be taken once more. So the confirmation
                is for one signature, and not for those that follow it.
            alike: function of a document; two plans are alike if it gives the same for both and some cohort pays for
                both. By default, only the same document is alike.
            approval: a second person's approval, for the audit trail.
            first: a function to call in the same transaction, before anything is locked here.
            last: a function to call in the same transaction, with the plan's version, once the plan is written.

        Raises:
            PlansChangedError: ``after_version`` is not the newest plan's version.
            SignedAlreadyError: a plan that is alike is signed, and ``again`` does not name the newest.
            BudgetExceededError: the sum over a cohort's signed plans would exceed its lifetime budget.
            CohortError: there is no such cohort, or it is closed.
            KnowledgeBaseArchivedError: the knowledge base is archived, so nothing is signed for it.
            UnknownBudgetError: no such knowledge base.
            ValueError: a number is out of range, there is no task, a task's name is bad or repeated, or its answers
                are below 1.
        """
        asked = checked(epsilon, delta)
        drawn_on = tuple(sorted(set(cohorts)))
        _check_tasks(tasks)
        with self._database.begin() as connection:
            first(connection)
            lock(connection, knowledge_base)
            signed = connection.execute(plans_of(knowledge_base)).all()
            version = max((plan.version for plan in signed), default=0) + 1
            if after_version is not None and after_version != version - 1:
                raise errors.PlansChangedError(
                    f"plan {version - 1} of {knowledge_base!r} was signed in the meantime; look at what is left and "
                    "sign again"
                )
            if (twin := _newest_equal(signed, document, drawn_on, alike)) not in (None, again):
                raise errors.SignedAlreadyError(knowledge_base, twin, asked)
            check_free(connection, knowledge_base, drawn_on, asked)
            now = self._clock()
            granted = PlanSigned(
                knowledge_base=knowledge_base,
                version=version,
                accountant=accountant,
                document=document,
                signed_by=signed_by,
                epsilon=str(asked[0]),
                delta=str(asked[1]),
                answers=dict(tasks),
                cohorts=drawn_on,
                approval=approval,
            )
            plan_id = add_plan(connection, granted, now)
            last(connection, version)
            trail.append(connection, now, granted)
            return _read_plan(connection, plans.c.id == plan_id)

    def retire(self, knowledge_base: str, version: int, *, by: str) -> None:
        """Let the tasks of a plan answer no more, permanently. What it promised stays promised.

        Args:
            knowledge_base: name of the knowledge base.
            version: version of the plan.
            by: the actor that retires it, for the audit trail.

        Raises:
            UnknownPlanError: the knowledge base has no plan of this version.
            PlanRetiredError: it is retired already.
        """
        self.plan(knowledge_base, version)
        with self._database.begin() as connection:
            lock(connection, knowledge_base)
            if version in _retired(connection, knowledge_base):
                raise errors.PlanRetiredError(knowledge_base, version)
            now = self._clock()
            retire(connection, knowledge_base, version, now)
            trail.append(connection, now, PlanRetired(knowledge_base=knowledge_base, version=version, by=by))

    def retired(self, knowledge_base: str) -> dict[int, datetime]:
        """The time of retirement of each retired plan of a knowledge base, by version."""
        with reading(self._database) as connection:
            return _retired(connection, knowledge_base)

    def plan(self, knowledge_base: str, version: int) -> SignedPlan:
        """A signed plan.

        Raises:
            UnknownPlanError: the knowledge base has no plan of this version.
        """
        with reading(self._database) as connection:
            chosen = sa.and_(plans.c.knowledge_base == knowledge_base, plans.c.version == version)
            if connection.execute(sa.select(plans.c.id).where(chosen)).first() is None:
                raise errors.UnknownPlanError(
                    f"knowledge base {knowledge_base!r} has no signed plan of version {version}"
                )
            return _read_plan(connection, chosen)

    def newest_equal(
        self, knowledge_base: str, document: str, cohorts: Sequence[int] = (1,), alike: Alike | None = None
    ) -> int | None:
        """Version of the newest signed plan that is alike, if there is one; arguments as of :meth:`sign`."""
        with reading(self._database) as connection:
            return _newest_equal(connection.execute(plans_of(knowledge_base)).all(), document, cohorts, alike)

    def plans(self, knowledge_base: str) -> list[SignedPlan]:
        """Every signed plan of a knowledge base, oldest first."""
        with reading(self._database) as connection:
            signed = connection.execute(plans_of(knowledge_base).with_only_columns(plans.c.id, plans.c.digest))
            return [self._read(connection, *which) for which in signed.all()]

    def task(self, task_address: str, *, even_retired: bool = False) -> SignedTask:
        """The task at an address: ``knowledge_base.task`` in the newest plan that has it, or ``...@version``.

        Without a version, a plan that is retired gives way to any that is not.

        For a task with topics this is the whole task, which is charged by :meth:`on_topic`; ``...task#topic`` is one of
        its topics.

        Raises:
            UnknownBudgetError: there is no such knowledge base; the message names the nearest.
            UnknownTaskError: there is no such task; the message lists the knowledge base's tasks.
            PlanRetiredError: the plan of the task is retired, unless ``even_retired``.
        """
        knowledge_base, name, version = parsed(task_address)
        row_of = _NEWEST_TASK if version is None else _TASK_OF_VERSION
        named = {"of": knowledge_base, "named": name, "within": f"{name}{SEPARATOR}", "length": len(name) + 1}
        with reading(self._database) as connection:
            row = connection.execute(row_of, named if version is None else {**named, "of_version": version}).first()
            if row is None:
                raise _unknown(connection, task_address, knowledge_base)
            if row.retired and not even_retired:
                raise errors.PlanRetiredError(knowledge_base, row.version)
            plan, (task, topic) = self._read(connection, row.plan_id, row.digest), parts(name)
            return SignedTask(row.id if row.name == name else None, task, row.answers, plan, topic)

    def _read(self, connection: sa.Connection, plan_id: int, digest: str) -> SignedPlan:
        """A plan, read once: it never changes, and its digest identifies it, even after a restore changed numbers."""
        which = (plan_id, digest)
        if which not in self._plans_read:
            self._plans_read[which] = _read_plan(connection, plans.c.id == plan_id)
        return self._plans_read[which]

    def on_topic(self, task: SignedTask, topic: str) -> SignedTask:
        """One topic of a task, to which a question on it is charged.

        Raises:
            UnknownTaskError: the task has no topic of this name.
        """
        return self.task(address(task.knowledge_base, entry(task.name, topic), task.version))

    def status(self, knowledge_base: str) -> BudgetStatus:
        """One knowledge base's budgets, with its tasks.

        Raises:
            UnknownBudgetError: no such knowledge base.
        """
        with reading(self._database) as connection:
            lifetime = connection.execute(budget_of(knowledge_base)).first()
            if lifetime is None:
                raise unknown_budget(knowledge_base)
            return _status(connection, lifetime)

    def statuses(self) -> list[BudgetStatus]:
        """Every knowledge base's budget with its tasks, by name and version."""
        with reading(self._database) as connection:
            lifetimes = connection.execute(sa.select(budgets).order_by(budgets.c.knowledge_base)).all()
            return [_status(connection, lifetime) for lifetime in lifetimes]


def _unknown(connection: sa.Connection, task_address: str, knowledge_base: str) -> errors.LedgerError:
    """The error for the address of a task that does not exist."""
    existing = connection.execute(sa.select(budgets.c.knowledge_base)).scalars().all()
    if knowledge_base not in existing:
        meant = errors.did_you_mean(knowledge_base, existing)
        return errors.UnknownBudgetError(f"there is no knowledge base {knowledge_base!r}{meant}")
    every = connection.execute(_tasks_of(knowledge_base))
    known = [address(knowledge_base, other.name, other.version) for other in every]
    has = f"it has {', '.join(sorted(known))}" if known else "no plan was signed for it"
    return errors.UnknownTaskError(f"no task {task_address!r} in knowledge base {knowledge_base!r}: {has}")


def _status(connection: sa.Connection, row: sa.Row[tuple[object, ...]]) -> BudgetStatus:
    statuses = tuple(
        TaskStatus(
            address=address(row.knowledge_base, task.name, task.version),
            name=parts(task.name)[0],
            topic=parts(task.name)[1],
            version=task.version,
            answers=task.answers,
            charged=task.charged,
            left=0 if task.retired else task.answers - task.charged,
            fell_back=task.fell_back,
            retired=bool(task.retired),
            states={
                "charged": task.open,
                "released": task.made - task.voided - task.open - task.lost,
                "voided": task.voided,
                "lost": task.lost,
            },
        )
        for task in connection.execute(_TASKS_NOW, {"of": row.knowledge_base})
    )
    group = group_of(connection, row.knowledge_base)
    of_cohorts = statuses_of(connection, row.knowledge_base, group)
    return BudgetStatus(row.knowledge_base, of_cohorts, statuses, group.name if group else None)


def _tasks_of(knowledge_base: str) -> sa.Select[tuple[object, ...]]:
    return _TASKS.where(plans.c.knowledge_base == knowledge_base)


# What every query executes is built once: SQLAlchemy takes longer to build such a statement than SQLite to execute it.
_RETIRED = sa.exists().where(retirements.c.plan_id == tasks.c.plan_id)
_TASKS = sa.select(tasks, plans.c.version, plans.c.digest, _RETIRED.label("retired")).join(plans)
# Both are grouped before they are joined, or SQLite may count them among all charges of a task.
_OPEN, _LOST = (
    sa.select(charges.c.task_id, sa.func.count().label("number")).where(state).group_by(charges.c.task_id).subquery()
    for state in (OPEN, LOST)
)
_TASKS_NOW = (
    _TASKS.outerjoin(_OPEN, _OPEN.c.task_id == tasks.c.id)
    .outerjoin(_LOST, _LOST.c.task_id == tasks.c.id)
    .add_columns(*(sa.func.coalesce(one.c.number, 0).label(name) for one, name in ((_OPEN, "open"), (_LOST, "lost"))))
    .where(plans.c.knowledge_base == sa.bindparam("of"))
    .order_by(plans.c.version, tasks.c.id)
)
_WITHIN = sa.func.substr(tasks.c.name, 1, sa.bindparam("length", type_=sa.Integer)) == sa.bindparam("within")
_TASKS_NAMED = _TASKS.where(
    plans.c.knowledge_base == sa.bindparam("of"), sa.or_(tasks.c.name == sa.bindparam("named"), _WITHIN)
)
_NEWEST_TASK = _TASKS_NAMED.order_by(_RETIRED, plans.c.version.desc(), tasks.c.id).limit(1)
_TASK_OF_VERSION = _TASKS_NAMED.where(plans.c.version == sa.bindparam("of_version")).order_by(tasks.c.id).limit(1)


def _read_plan(connection: sa.Connection, chosen: sa.ColumnElement[bool]) -> SignedPlan:
    row = connection.execute(sa.select(plans).where(chosen)).one()
    named = sa.select(tasks.c.name, tasks.c.answers).where(tasks.c.plan_id == row.id).order_by(tasks.c.id)
    return SignedPlan(**row._mapping, tasks=tuple((name, answers) for name, answers in connection.execute(named)))


def _newest_equal(signed: Sequence[Any], document: str, cohorts: Sequence[int], alike: Alike | None) -> int | None:
    alike = alike or digest
    wanted = alike(document)
    twins = (plan.version for plan in signed if set(plan.cohorts) & set(cohorts) and alike(plan.document) == wanted)
    return max(twins, default=None)


def _check_tasks(named: Sequence[tuple[str, int]]) -> None:
    if not named:
        raise ValueError("tasks: a plan needs at least one")
    for name, answers in named:
        task, topic = parts(name)
        if (
            not 0 < len(name) <= 200
            or not task
            or "." in task
            or "@" in name
            or topic == ""
            or SEPARATOR in (topic or "")
        ):
            raise ValueError(f"tasks: {name!r} is not a task name: 1 to 200 characters, neither '.' nor '@'")
        if answers < 1:
            raise ValueError(f"tasks.{name}.answers: {answers} is below 1")
    if len({name for name, _ in named}) < len(named):
        raise ValueError("tasks: two tasks have the same name")


def delete_rows(connection: sa.Connection, knowledge_base: str) -> None:
    """Delete a knowledge base's budget and cohorts; the database refuses that if it has plans."""
    for table in (cohorts, budgets):
        connection.execute(sa.delete(table).where(table.c.knowledge_base == knowledge_base))


def retire(connection: sa.Connection, knowledge_base: str, version: int, at: datetime) -> None:
    """Write that a plan is retired. A charge of its tasks in progress ends first, and later ones see it."""
    plan = sa.select(plans.c.id).where(plans.c.knowledge_base == knowledge_base, plans.c.version == version)
    plan_id = connection.execute(plan).scalar_one()
    connection.execute(sa.select(tasks.c.id).where(tasks.c.plan_id == plan_id).order_by(tasks.c.id).with_for_update())
    connection.execute(sa.insert(retirements).values(plan_id=plan_id, retired_at=at))


def _retired(connection: sa.Connection, knowledge_base: str) -> dict[int, datetime]:
    listed = sa.select(plans.c.version, retirements.c.retired_at).join_from(retirements, plans)
    of = connection.execute(listed.where(plans.c.knowledge_base == knowledge_base).order_by(plans.c.version))
    return {row.version: row.retired_at for row in of}


def add_plan(connection: sa.Connection, signed: PlanSigned, at: datetime) -> int:
    """Write a signed plan and its tasks; returns its number in the table.

    Args:
        connection: the connection of the transaction that also appends it to the trail.
        signed: the signature, with the plan and its version.
        at: the time it was signed.
    """
    row = {
        **signed.model_dump(include={"knowledge_base", "version", "accountant", "document", "signed_by"}),
        "epsilon": exact(signed.epsilon),
        "delta": exact(signed.delta),
        "digest": digest(signed.document),
        "signed_at": at,
        "cohorts": signed.cohorts,
    }
    plan_id: int = connection.execute(sa.insert(plans).values(row).returning(plans.c.id)).scalar_one()
    granted = [{"plan_id": plan_id, "name": name, "answers": answers} for name, answers in signed.answers.items()]
    connection.execute(sa.insert(tasks), granted)
    return plan_id


def digest(document: str) -> str:
    """SHA-256 of a plan's document, in hexadecimal."""
    return hashlib.sha256(document.encode()).hexdigest()
