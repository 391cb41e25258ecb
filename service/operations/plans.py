"""Plans: previewed for free, and signed."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Mapping
from datetime import datetime

from pydantic import BaseModel, Field

from accounting.ledger.amounts import in_words
from accounting.ledger.budgets import SignedPlan, address
from accounting.ledger.charges import Release
from accounting.ledger.entries import parts
from accounting.ledger.errors import PlansChangedError
from accounting.ledger.events import Approval
from accounting.plans.plan import CalibratedPlan, Plan, PlanError, load_plan
from service.answering.latency import Grains
from service.answering.plans import alternatives, exported, proposals, signing
from service.answering.plans.approving import check_approval
from service.answering.plans.expected_latency import LatencyEstimate, expected_latency
from service.answering.plans.preview import PlanPreview, TaskPreview
from service.answering.plans.preview import preview as describe
from service.answering.plans.proposals import Proposal
from service.answering.plans.topic_preview import with_topics
from service.answering.stages import Stages
from service.engines.embedding.embedder import Embed, embed_here
from service.operations.command import Confirmation, check_confirmed, command
from service.operations.fields import ABSENT
from service.operations.measured import MeasuredView, measured
from service.operations.measuring import MeasuredTask
from service.operations.roles import Actor, Right, may
from service.records.engine_record import EngineView, last_engine
from service.records.records import Records
from service.records.signed import read_signed

NOT_RETIRED: Mapping[int, datetime] = {}
_NAME = "Name of that key; null if it is not a key, or if your role may not audit."


class SignedPlanView(BaseModel):
    """A signed plan with its preview."""

    version: int
    digest: str
    signed_by: str = Field(description="A key's id, a person, or an account that used the command line.")
    signed_by_name: str | None = Field(description=_NAME)
    signed_at: datetime
    retired_at: datetime | None = Field(
        **ABSENT, description="Time since which its tasks answer no more; absent: they do."
    )
    tasks: list[str]
    preview: PlanPreview

    @classmethod
    def of(
        cls, signed: SignedPlan, names: Mapping[str, str], retired: Mapping[int, datetime] = NOT_RETIRED
    ) -> SignedPlanView:
        """A signed plan, with its signer's name if it is among these names of keys, by id.

        Args:
            signed: the plan.
            names: names of keys, by id.
            retired: times of retirement of plans of its knowledge base, by version.
        """
        of_tasks = dict.fromkeys(parts(name)[0] for name, _ in signed.tasks)
        tasks = [address(signed.knowledge_base, name, signed.version) for name in of_tasks]
        described = describe(read_signed(signed.document))
        name = names.get(signed.signed_by)
        retired_at = retired.get(signed.version)
        return cls(**vars(signed) | {"tasks": tasks}, signed_by_name=name, retired_at=retired_at, preview=described)

    def within(self, actor: Actor) -> SignedPlanView:
        """The same plan with the tasks in the actor's scope."""
        tasks = [task for task in self.tasks if actor.sees_task(task)]
        base = self.preview.knowledge_base
        previews = {name: one for name, one in self.preview.tasks.items() if actor.sees_task(f"{base}.{name}")}
        return self.model_copy(update={"tasks": tasks, "preview": self.preview.model_copy(update={"tasks": previews})})


class PlanResult(BaseModel):
    """The preview of a plan, the engine that would answer, and, unless it was a dry run, the plan's signature.

    Attributes:
        alternatives: previews by task, in a dry run: other uses of the task's share of the budget; the first is as
            planned.
        proposals: improvements for the same budget, in a dry run.
        held_out: shares of right answers on rows that were held out, as planned and with each proposal, if there were
            such rows.
        exceeds: reason why the lifetime budget cannot take the plan, in a dry run; absent if it can.
    """

    engine: EngineView | None
    preview: PlanPreview
    alternatives: dict[str, list[TaskPreview]] | None = Field(**ABSENT)
    proposals: builtins.list[Proposal] | None = Field(**ABSENT)
    held_out: builtins.list[MeasuredTask] | None = Field(**ABSENT)
    exceeds: str | None = Field(**ABSENT)
    latency: dict[str, LatencyEstimate] | None = Field(
        **ABSENT,
        description="Estimates by task, in a dry run, of how long answers would take, from a similar task that this "
        "service has measured. A task is absent if no other of its kind and sampling was asked of a language model "
        "here, or if the blocks of that other one are read ahead. The task itself is measured once the plan is signed.",
    )
    measured: dict[str, MeasuredView] | None = Field(
        **ABSENT,
        description="How often the signed plan's one-time releases are right, by their own count and by task; absent "
        "where none is measured.",
    )
    signed: SignedPlanView | None


def read(text: str, knowledge_base: str) -> Plan:
    """A plan for a knowledge base, as written.

    Raises:
        PlanError: the text is not a plan, or it is a plan for another knowledge base.
    """
    plan = load_plan(text)
    if plan.knowledge_base != knowledge_base:
        raise PlanError(("knowledge_base", f"the plan is for {plan.knowledge_base}, this is {knowledge_base}"))
    return plan


def approve(records: Records, text: str, signature: str | None) -> Approval | None:
    """A second person's approval of a plan as written; None where no plan needs one.

    Args:
        records: opened records.
        text: the plan as written.
        signature: the person's signature over its bytes, in base64; None: there is none.

    Raises:
        service.answering.plans.approving.NotApprovedError: there is no valid approval where one is demanded.
    """
    return check_approval(records.settings.plan_approvers, text, signature)


def prepare(records: Records, text: str, knowledge_base: str, embed: Embed) -> CalibratedPlan:
    """A plan for a knowledge base, as written, checked against it and calibrated. Takes seconds; spends nothing.

    Args:
        records: opened records.
        text: the plan as written.
        knowledge_base: name of the knowledge base.
        embed: embeds the public texts of topics that are found by similarity, as the exemplars were.

    Raises:
        PlanError: the text is not a plan for this knowledge base, or the plan does not fit it, or its promise cannot be
            kept.
        exemplar_store.UnknownKnowledgeBaseError: no such knowledge base.
        accounting.privacy.accountants.AccountantsDisagreeError: the accountants contradict each other.
    """
    return signing.prepare(records, read(text, knowledge_base), embed)


@command(Right.DECIDE)
def preview(
    _actor: Actor,
    records: Records | None,
    calibrated: CalibratedPlan,
    *,
    grains: Grains | None = None,
    better: bool = False,
    otherwise: bool = False,
    embed: Embed = embed_here,
) -> PlanResult:
    """Preview a plan. Spends nothing.

    Args:
        records: records of its knowledge base; None: there is none yet.
        calibrated: result of :func:`service.answering.plans.signing.prepare`.
        grains: latency grains measured here; None: latency is not estimated.
        better: whether to find improvements for the same budget and the cost of each topic, too, which takes seconds.
        otherwise: whether to compute other uses of its budget, too, which takes seconds.
        embed: function that embeds the plan's public texts, if it has topics that are found by similarity.
    """
    plan, described = calibrated.plan, describe(calibrated)
    if better:
        described = with_topics(described, calibrated, embed)
    latency = expected_latency(plan, described, grains, records.ledger.budgets) if records and grains else {}
    engine = last_engine(records.database) if records else None
    return PlanResult(
        engine=engine,
        preview=described,
        alternatives=alternatives.alternatives(plan, calibrated.public_size) if otherwise else None,
        proposals=_better(records, calibrated, engine) if better else None,
        exceeds=signing.not_free(records, plan) if records else None,
        latency=latency or None,
        signed=None,
    )


def _better(records: Records | None, calibrated: CalibratedPlan, engine: EngineView | None) -> builtins.list[Proposal]:
    embeds = records is None or records.store.get(calibrated.plan.knowledge_base).embedding_dimension != 0
    return proposals.proposals(calibrated, embeds=embeds, language_model=engine.is_llm if engine else None)


@command(Right.DECIDE, private=True)
def sign(
    actor: Actor,
    records: Records,
    calibrated: CalibratedPlan,
    confirmed: Collection[str] = (),
    *,
    after_version: int | None = None,
    again: int | None = None,
    approval: Approval | None = None,
    make: signing.Make | None = None,
) -> PlanResult:
    """Sign a plan. Repeating the call has no further effect.

    Args:
        actor: the admin.
        records: opened records.
        calibrated: result of :func:`service.answering.plans.signing.prepare`.
        confirmed: confirmations of the actor.
        after_version: version that the newest plan must have; None: any.
        again: version of the newest signed plan that is equal to this one, if its budget is to be taken once more.
        approval: result of :func:`approve`.
        make: function that makes one-time releases, as :func:`service.answering.plans.signing.sign` takes it.

    Raises:
        UnconfirmedError: the plan's answers are not expected to be worth their price.
        PlanError: the plan is not finished.
        service.answering.plans.approving.NotApprovedError: the plan has not the approval that it needs.
        accounting.ledger.errors.PlansChangedError: another plan was signed since.
        accounting.ledger.errors.SignedAlreadyError: this very plan is signed, and ``again`` does not name it.
        accounting.ledger.errors.BudgetExceededError: the lifetime budget has not enough left.
        service.answering.once.making.NotMadeError: a one-time release was not made; the message includes
            whether the plan is signed.
    """
    signing.check_finished(calibrated.plan)
    described = describe(calibrated)
    check_confirmed(Confirmation.WORSE_THAN_FREE, described.warnings, confirmed)
    result = PlanResult(engine=last_engine(records.database), preview=described, signed=None)
    try:
        signed = signing.sign(
            records, calibrated, actor.id, after_version=after_version, again=again, approval=approval, make=make
        )
    except PlansChangedError:
        listed = records.ledger.budgets.plans(calibrated.plan.knowledge_base)
        twins = [plan for plan in listed if plan.version - 1 == after_version and plan.digest == calibrated.digest]
        if not twins:
            raise
        (signed,) = twins
    view = SignedPlanView.of(signed, names(actor, records))
    return result.model_copy(update={"signed": view, "measured": measured(records.ledger, [signed]) or None})


@command(Right.SEE)
def list_(actor: Actor, records: Records, knowledge_base: str) -> builtins.list[SignedPlan]:
    """Every plan signed for a knowledge base with a task in the actor's scope, oldest first.

    Raises:
        service.operations.roles.OutOfScopeError: the knowledge base is not in the actor's scope.
    """
    actor.require_knowledge_base(knowledge_base)
    records.store.get(knowledge_base)
    return [
        plan
        for plan in records.ledger.budgets.plans(knowledge_base)
        if any(actor.sees_task(f"{knowledge_base}.{name}") for name, _ in plan.tasks)
    ]


@command(Right.SEE)
def retired(actor: Actor, records: Records, knowledge_base: str) -> Mapping[int, datetime]:
    """The time of retirement of each retired plan, by version.

    Raises:
        service.operations.roles.OutOfScopeError: the knowledge base is not in the actor's scope.
    """
    actor.require_knowledge_base(knowledge_base)
    return records.ledger.budgets.retired(knowledge_base)


@command(Right.DECIDE)
def retire(
    actor: Actor, records: Records, knowledge_base: str, version: int, confirmed: Collection[str] = ()
) -> SignedPlanView:
    """Let the tasks of a plan answer no more, permanently. Its budget stays taken, and what was released stays.

    Raises:
        UnconfirmedError: the actor did not confirm it.
        accounting.ledger.errors.UnknownPlanError: no signed plan has this version.
        accounting.ledger.errors.PlanRetiredError: it is retired already.
    """
    records.store.get(knowledge_base)
    budgets = records.ledger.budgets
    signed = budgets.plan(knowledge_base, version)
    if version not in budgets.retired(knowledge_base):
        tasks = ", ".join(dict.fromkeys(parts(name)[0] for name, _ in signed.tasks))
        doubt = (
            f"Plan {version} of {knowledge_base} answers no more, permanently: {tasks}. The "
            f"{in_words((signed.epsilon, signed.delta))} that it took do not come back."
        )
        check_confirmed(Confirmation.PERMANENT, [doubt], confirmed)
    budgets.retire(knowledge_base, version, by=actor.id)
    return SignedPlanView.of(signed, names(actor, records), budgets.retired(knowledge_base))


@command(Right.DECIDE, private=True)
def release(_actor: Actor, records: Records, task: str, *, stages: Stages | None = None) -> Release:
    """Make a task's one-time release, if signing could not, as :func:`service.answering.plans.signing.release` does."""
    return signing.release(records, task, stages=stages)


@command(Right.SEE)
def export(actor: Actor, records: Records, task: str) -> tuple[bytes, exported.Certificate]:
    """The public exemplars that a task has chosen, with a certificate.

    Raises:
        service.operations.roles.OutOfScopeError: the task is not in the actor's scope.
    """
    actor.require_task(task)
    return exported.export(records, task)


def names(actor: Actor, records: Records) -> Mapping[str, str]:
    """Names of keys by id, empty for actors who may not audit: a key's name is often a person's."""
    return records.keys.names() if may(actor.role, Right.AUDIT) else {}
