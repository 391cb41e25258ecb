"""From a plan as written to a plan that is signed."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from accounting.ledger.amounts import checked
from accounting.ledger.budgets import SignedPlan, address
from accounting.ledger.charges import Release
from accounting.ledger.errors import BudgetExceededError, CohortError, LedgerError, SignedAlreadyError
from accounting.ledger.events import Approval
from accounting.plans.mechanisms import TokenEnsembleMechanism
from accounting.plans.plan import CalibratedPlan, Plan, PlanError
from accounting.plans.tasks import ClassifyTask, GenerateTask, placeholders
from accounting.plans.topics import TopicsByField
from exemplar_store import ExemplarStoreError, KnowledgeBase, TopicList
from service.answering.mechanisms.adapter import NO_CANDIDATES, needs_written_texts
from service.answering.once.making import NAME_AN_ENGINE, NotMadeError, check_readable, grain_s
from service.answering.once.making import make as make_here
from service.answering.plans.approving import check_approved
from service.answering.plans.calibrating import calibrate
from service.answering.plans.centres import centres
from service.answering.queries import public_tokens
from service.answering.stages import Stages
from service.engines.embedding.embedder import Embed, embed_here
from service.engines.grammar_check import grammar_problem
from service.records.engine_record import EngineView, last_engine
from service.records.records import Records
from service.records.signed import read_signed, read_task
from service.records.topics import topic_list

PLACEHOLDERS = ("first label", "second label")
PLACEHOLDER_ANSWERS = ("first public answer", "second public answer")
"""The labels of a plan that was begun for an admin, who alone knows the right ones."""


Make = Callable[[str], object]
"""Makes a task's one release, by its address, as :func:`release` does; raises as that does."""


def drawn_on(records: Records, plan: Plan) -> tuple[int, ...]:
    """Numbers of the cohorts that a plan would draw on if it was signed now.

    Raises:
        accounting.ledger.errors.UnknownBudgetError: no such knowledge base.
    """
    if plan.cohorts is not None:
        return tuple(plan.cohorts)
    not_closed = records.ledger.cohorts.not_closed(plan.knowledge_base)
    return not_closed if plan.retain is None else not_closed[-plan.retain :]


def check_free(records: Records, plan: Plan) -> None:
    """Check that a plan's cohorts have enough of their lifetime budgets left, before seconds go into calibrating it.

    Raises:
        accounting.ledger.errors.BudgetExceededError: a cohort, which the message names, has too little left.
        accounting.ledger.errors.CohortError: a cohort does not exist, or is closed.
        accounting.ledger.errors.UnknownBudgetError: no such knowledge base.
    """
    asked = plan.budget
    records.ledger.cohorts.check_free(
        plan.knowledge_base, drawn_on(records, plan), epsilon=asked.epsilon, delta=asked.delta
    )


def not_free(records: Records, plan: Plan) -> str | None:
    """The message of :func:`check_free` on a plan, None if it passes."""
    try:
        check_free(records, plan)
    except (BudgetExceededError, CohortError) as error:
        return str(error)
    return None


def settled(records: Records, plan: Plan) -> tuple[Plan, int]:
    """A plan that names its cohorts, so that it means the same whatever is opened or closed; and their public size.

    Raises:
        PlanError: the plan does not fit the knowledge base, which may have no such cohort.
        exemplar_store.UnknownKnowledgeBaseError: no such knowledge base.
    """
    described = records.store.get(plan.knowledge_base)
    check_fits(plan, described)
    numbers = drawn_on(records, plan)
    if not numbers or numbers[-1] > len(described.public_sizes):
        has = len(described.public_sizes)
        raise PlanError(("cohorts", f"{plan.knowledge_base} has no such cohort; its newest is number {has}"))
    named = plan.model_copy(update={"cohorts": list(numbers), "retain": None})
    return named, described.public_size_of(numbers)


def check_finished(plan: Plan) -> None:
    """Whether nothing of a plan is left as it was begun.

    Raises:
        PlanError: labels are, in which no answer would ever fall, or public answers are.
    """
    begun = []
    for name, task in plan.tasks.items():
        if left := [repr(label) for label in getattr(task, "labels", ()) if label in PLACEHOLDERS]:
            why = f"write the labels that the exemplars have, not {' and '.join(left)}"
            begun.append((f"tasks.{name}.labels", why))
        if left := [repr(text) for text in getattr(task, "public_answers", ()) if text in PLACEHOLDER_ANSWERS]:
            why = f"list texts that are public anyway, not {' and '.join(left)}"
            begun.append((f"tasks.{name}.public_answers", why))
    if begun:
        raise PlanError(*begun)


def as_written(document: str) -> str:
    """The essence of a signed plan as its admin wrote it: two plans with the same take the same budget twice.

    The cohorts, which the plan names at signing, the noise and the accountant are left out, so that nothing that was
    opened, closed or computed in between makes a plan another. So are the order of lists and white space.
    """
    plan = read_signed(document).plan
    return json.dumps(
        _essence(plan.model_dump(mode="json", exclude={"cohorts", "retain", "accountant"})), sort_keys=True
    )


def _essence(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _essence(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted((_essence(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True))
    return " ".join(value.split()) if isinstance(value, str) else value


def newest_alike(records: Records, calibrated: CalibratedPlan) -> int | None:
    """Version of the newest signed plan that was written the same and draws on a cohort of this one; None: no plan."""
    name, document = calibrated.plan.knowledge_base, calibrated.model_dump_json()
    return records.ledger.budgets.newest_equal(name, document, calibrated.cohorts, as_written)


def check_new(records: Records, calibrated: CalibratedPlan, again: int | None) -> None:
    """Whether a plan is not signed yet, or is meant to be signed again.

    Raises:
        accounting.ledger.errors.SignedAlreadyError: it is signed, and ``again`` does not name its newest version.
    """
    name, budget = calibrated.plan.knowledge_base, calibrated.plan.budget
    twin = newest_alike(records, calibrated)
    if twin is not None and twin != again:
        raise SignedAlreadyError(name, twin, checked(budget.epsilon, budget.delta))


def check_engine(records: Records, plan: Plan) -> None:
    """Whether the engine that serves, or served last, can do what a plan asks of it, as far as this process knows.

    Raises:
        PlanError: it cannot; names the tasks.
    """
    engine = last_engine(records.database)
    cannot = [
        (f"tasks.{name}.{field}", problem)
        for name, task in plan.tasks.items()
        if engine and isinstance(task, GenerateTask) and isinstance(task.mechanism, TokenEnsembleMechanism)
        for field, problem in _writing_problems(engine, task, task.mechanism)
    ]
    cannot += [
        (f"tasks.{name}.public_answers", f"{engine.name} {NO_CANDIDATES}")
        for name, task in plan.tasks.items()
        if engine and not engine.is_llm and needs_written_texts(task)
    ]
    cannot += [
        (f"tasks.{name}.public_exemplars", problem)
        for name, task in plan.tasks.items()
        if engine and (problem := _too_long(engine, task))
    ]
    cannot += [
        (f"tasks.{name}.earlier_turns", f"{engine.name} is not a language model, and cannot rewrite a conversation")
        for name, task in plan.tasks.items()
        if engine and task.earlier_turns == "rewrite" and not engine.is_llm
    ]
    cannot += [
        (f"tasks.{name}.mechanism.{field}", problem)
        for name, task in plan.tasks.items()
        for field in ("regex", "json_schema")
        if (problem := grammar_problem(field, getattr(task.mechanism, field, None)))
    ]
    if cannot:
        raise PlanError(*cannot)


def _too_long(engine: EngineView, task: ClassifyTask | GenerateTask) -> str:
    """Why public exemplars leave no room for a question in the engine's prompts, by a rough count; empty if they do."""
    public, slot = public_tokens(task), 0 if task.slots == "quote" else task.slot_room
    if not public or not engine.model_tokens or public + slot < engine.model_tokens:
        return ""
    return (
        f"they have about {public} tokens, and a slot's exemplars up to {slot}: a prompt of {engine.name} has "
        f"{engine.model_tokens} at most, the question included. Leave out some, shorten them, or lower slot_tokens"
    )


def _writing_problems(
    engine: EngineView, task: GenerateTask, mechanism: TokenEnsembleMechanism
) -> Iterator[tuple[str, str]]:
    """Why all slots that the task may draw cannot write together: the field and the problem.

    The engine looks again with its own count of tokens before it answers.
    """
    if not engine.writes_together:
        yield "mechanism.type", f"{engine.name} cannot write answers by {mechanism.type}; `vllm` can"
        return
    slots = task.most_slots
    if slots > engine.writing_slots:
        yield (
            "ensemble",
            f"up to {slots} slots write together, and the engine has places for {engine.writing_slots}: use a smaller "
            f"ensemble, or raise the engine's max_writing_slots to {slots}",
        )
    needed = slots * min(public_tokens(task) + task.slot_room + mechanism.longest, engine.model_tokens)
    if needed > engine.cache_tokens:
        yield (
            "slot_tokens",
            f"{slots} slots that write together take up to {needed} tokens of the engine's cache, which has room for "
            f"{engine.cache_tokens}: use a smaller ensemble or smaller slot_tokens, or give the engine a larger cache",
        )


@dataclass(frozen=True)
class Fitted:
    """A plan that fits its knowledge base: all that calibration needs, so that it reads no database.

    Attributes:
        plan: the plan, with the cohorts that it draws on.
        public_size: public number of these cohorts' exemplars.
        knowledge_base: the knowledge base; None: one that does not exist yet.
    """

    plan: Plan
    public_size: int
    knowledge_base: KnowledgeBase | None = None

    @property
    def key(self) -> str:
        """Key under which a result of :meth:`calibrate` can be kept."""
        dimension = self.knowledge_base and self.knowledge_base.embedding_dimension
        return f"{self.public_size} {dimension} {self.plan.model_dump_json()}"

    def calibrate(self, embed: Embed = embed_here) -> CalibratedPlan:
        """Find the centres of topics and the noise. Takes seconds.

        Args:
            embed: embeds the public texts of topics that are found by similarity, as the exemplars were.

        Raises:
            PlanError: the public texts make no such topics, or the promise cannot be kept.
            accounting.privacy.accountants.AccountantsDisagreeError: the accountants contradict each other.
        """
        found = centres(self.plan.tasks, self.knowledge_base, embed)
        return calibrate(self.plan, self.public_size).model_copy(update={"centres": found})


def fit(records: Records, plan: Plan) -> Fitted:
    """Check a plan against its knowledge base and the engine.

    Raises:
        PlanError: the plan does not fit them.
        exemplar_store.UnknownKnowledgeBaseError: no such knowledge base.
    """
    check_engine(records, plan)
    return Fitted(*settled(records, plan), records.store.get(plan.knowledge_base))


def prepare(records: Records, plan: Plan, embed: Embed = embed_here) -> CalibratedPlan:
    """Check a plan against its knowledge base and calibrate it. Takes seconds; spends nothing.

    Args:
        records: records with the knowledge base.
        plan: the plan as it was written.
        embed: embeds the public texts of topics that are found by similarity, as the exemplars were.

    Raises:
        PlanError: the plan does not fit the knowledge base, or its promise cannot be kept.
        exemplar_store.UnknownKnowledgeBaseError: no such knowledge base.
        accounting.privacy.accountants.AccountantsDisagreeError: the accountants contradict each other.
    """
    return fit(records, plan).calibrate(embed)


def sign(
    records: Records,
    calibrated: CalibratedPlan,
    signed_by: str,
    *,
    after_version: int | None = None,
    again: int | None = None,
    approval: Approval | None = None,
    embed: Embed = embed_here,
    make: Make | None = None,
) -> SignedPlan:
    """Promise the plan's (ε, δ) permanently, and make its one-time releases. Blocks for seconds if there are some.

    If it ends in between, the plan is signed and some release not made: see :func:`release`.

    Args:
        records: records that the plan is written to.
        calibrated: plan from :func:`prepare`.
        signed_by: name of the signing person in the audit trail.
        after_version: see :meth:`accounting.ledger.budgets.Budgets.sign`.
        again: see :meth:`accounting.ledger.budgets.Budgets.sign`.
        approval: a second person's approval (:func:`service.answering.plans.approving.check_approval`).
        embed: embeds the plan's public texts, if a release is made with some.
        make: makes the releases, in another process or with an engine; they are made here unless given.

    Raises:
        PlanError: it is not finished.
        service.answering.plans.approving.NotApprovedError: it has not the approval that it needs.
        accounting.ledger.errors.PlansChangedError: it is not.
        accounting.ledger.errors.SignedAlreadyError: this very plan is signed, and ``again`` does not name it.
        accounting.ledger.errors.BudgetExceededError: the lifetime budget has not enough left.
        service.answering.once.making.NotMadeError: nothing was uploaded yet that a release could be made of, or no
            engine is there to write it, and nothing is signed; or the plan is signed and a release not made, as the
            message reports.
    """
    plan = calibrated.plan
    check_finished(plan)
    approval = check_approved(records, calibrated, approval)
    once = plan.once
    if once:  # what can be found to stand in their way now
        check_readable(records.store, plan.knowledge_base)
        if make is None and any(task.kind == "generate" for task in once.values()):
            raise NotMadeError(f"an engine writes the texts of this plan: {NAME_AN_ENGINE}; nothing is signed")
        if records.witness is not None:
            records.witness.catch_up()
    signed = promise(records, calibrated, signed_by, after_version=after_version, again=again, approval=approval)
    for task in (address(plan.knowledge_base, name, signed.version) for name in once):
        try:
            make(task) if make else release(records, task, embed)
        except (LedgerError, ExemplarStoreError, SQLAlchemyError) as error:
            raise NotMadeError(
                f"plan {signed.version} is signed, but the one release of {task} is not made ({error}): "
                f"`dpicl plan release {task}` makes it, unless it was lost"
            ) from error
    return signed


def promise(
    records: Records,
    calibrated: CalibratedPlan,
    signed_by: str,
    *,
    after_version: int | None = None,
    again: int | None = None,
    approval: Approval | None = None,
) -> SignedPlan:
    """Write the promise alone; arguments and errors as of :func:`sign`, which has checked more."""
    plan, topics = calibrated.plan, UnitTopics(records, calibrated)
    return records.ledger.budgets.sign(
        plan.knowledge_base,
        epsilon=plan.budget.epsilon,
        delta=plan.budget.delta,
        accountant=plan.accountant,
        document=calibrated.model_dump_json(),
        tasks=plan.counters(),
        signed_by=signed_by,
        cohorts=calibrated.cohorts,
        after_version=after_version,
        again=again,
        alike=as_written,
        approval=approval,
        first=topics.lock,
        last=topics.keep,
    )


def find_topics(records: Records, calibrated: CalibratedPlan) -> dict[str, np.ndarray]:
    """Find the topic of every unit in the tasks of a plan that have topics.

    The time depends on the number of exemplars. It ends after a whole number of grains, which depend on the public
    size alone.

    Args:
        records: records with the exemplars.
        calibrated: the plan that is to be signed.

    Returns:
        Topics by task, as of :meth:`exemplar_store.ExemplarStore.topics_of`.

    Raises:
        exemplar_store.UnknownKnowledgeBaseError: no such knowledge base.
    """
    begun, grain = time.monotonic(), grain_s(calibrated.public_size)
    name, tasks = calibrated.plan.knowledge_base, _with_topics(calibrated)
    found = {task: records.store.topics_of(name, _topics(calibrated, task, 0)) for task in tasks}
    if tasks and not records.settings.latency_unpadded:
        took = time.monotonic() - begun
        time.sleep(grain * math.ceil(took / grain) - took)
    return found


class UnitTopics:
    """The topic of each unit in the tasks of a plan: found before it is signed, and kept as it is.

    Args:
        records: records with the exemplars. Another process finds the topics, if they name one.
        calibrated: the plan that is to be signed.

    Raises:
        service.engines.errors.EngineUnavailableError: the other process does not find them; nothing is signed.
    """

    def __init__(self, records: Records, calibrated: CalibratedPlan) -> None:
        self._store, self._calibrated = records.store, calibrated
        self._name = calibrated.plan.knowledge_base
        self._found: Mapping[str, np.ndarray] = {}
        if _with_topics(calibrated):
            apart = records.apart
            self._found = apart.find_topics(calibrated) if apart else find_topics(records, calibrated)

    def lock(self, connection: sa.Connection) -> None:
        """Let no unit arrive until the plan is signed: who arrives later is given a topic on arrival."""
        if self._found:
            self._store.lock(connection, self._name)

    def keep(self, connection: sa.Connection, version: int) -> None:
        """Write them down, in the transaction that signs the plan."""
        for task, found in self._found.items():
            self._store.keep_topics(connection, self._name, _topics(self._calibrated, task, version), found)


def _with_topics(calibrated: CalibratedPlan) -> list[str]:
    return [name for name, task in calibrated.plan.tasks.items() if task.topics is not None]


def _topics(calibrated: CalibratedPlan, name: str, version: int) -> TopicList:
    return topic_list(calibrated.plan.tasks[name], calibrated.centres.get(name, ()), version, name)


def release(records: Records, task: str, embed: Embed = embed_here, stages: Stages | None = None) -> Release:
    """Make a signed task's one release, if signing could not; where it is made already, it is not made again.

    Args:
        records: records that charge and store the release.
        task: address of the task.
        embed: see :func:`sign`.
        stages: see :func:`service.answering.once.making.make`.

    Raises:
        accounting.ledger.errors.UnknownTaskError: there is none.
        service.answering.once.making.NotMadeError: it was charged and lost, or is being made.
        ValueError: the task's answers are released each by itself.
    """
    signed = records.ledger.budgets.task(task)
    written, _ = read_task(signed)
    if not written.once:
        raise ValueError(f"{task} releases each answer by itself: ask it")
    padded = not records.settings.latency_unpadded
    return make_here(records.ledger, records.store, signed, embed, stages, padded=padded)


def check_fits(plan: Plan, knowledge_base: KnowledgeBase) -> None:
    """Whether the knowledge base has the fields the plan's prompts show.

    Raises:
        PlanError: each problem names its key.
    """
    problems = []
    for name, task in plan.tasks.items():
        shown = placeholders(task.prompt.exemplar)
        if missing := [field for field in shown if field not in knowledge_base.fields]:
            problems.append((f"tasks.{name}.prompt.exemplar", _no_field(", ".join(missing), knowledge_base)))
        if missing_topic := [field for field in task.with_topic(()) if field not in knowledge_base.fields]:
            problems.append((f"tasks.{name}.topics.field", _no_field(missing_topic[0], knowledge_base)))
        by_field = isinstance(task.topics, TopicsByField)
        if task.topics is not None and not by_field and knowledge_base.embedding_dimension == 0:
            without = f"{knowledge_base.name} stores no embeddings, by which topics are found; write `by: field`"
            problems.append((f"tasks.{name}.topics.by", without))
        if task.order == "nearest" and knowledge_base.embedding_dimension == 0:
            without = f"{knowledge_base.name} stores no embeddings, by which exemplars are compared with the question"
            problems.append((f"tasks.{name}.order", without))
        if knowledge_base.embedded_field not in task.query_fields and task.releases.compares_exemplars:
            must = f"must ask for {knowledge_base.embedded_field}, the field exemplars are compared by"
            if knowledge_base.embedded_field == task.answer_field:  # which no question may show
                must = (
                    f"{knowledge_base.name} compares exemplars by {task.answer_field}, which is the answer here. That "
                    "cannot be changed: create another knowledge base whose embedded_field (--embedded-field) is one "
                    f"that questions have, such as {task.query_fields[0]}"
                )
            problems.append((f"tasks.{name}.prompt.query", must))
    if problems:
        raise PlanError(*problems)


def _no_field(missing: str, knowledge_base: KnowledgeBase) -> str:
    return (
        f"the knowledge base has no field {missing}; it has {', '.join(knowledge_base.fields)}. Fields cannot be "
        "added: create another knowledge base with all of them, and put both into a group"
    )
