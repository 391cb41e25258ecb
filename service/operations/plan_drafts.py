"""A plan as it is being written: read, worked out, tried and signed.

:func:`open_` reads what is written, :meth:`Draft.work_out` computes what it would give, which takes seconds and depends
on :attr:`Draft.key` alone, and :func:`price` sets that against the budget.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property

from pydantic import ValidationError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from accounting.ledger.amounts import exact
from accounting.ledger.budgets import BudgetStatus
from accounting.ledger.cohorts import CohortStatus
from accounting.ledger.errors import KnowledgeBaseArchivedError
from accounting.plans import plain_yaml
from accounting.plans.plan import CalibratedPlan, PlanError, PlanProblem
from accounting.privacy.accountants import AccountantsDisagreeError
from exemplar_store import KnowledgeBase, Layout
from service.answering.latency import Grains
from service.answering.once.making import NotMadeError
from service.answering.plans.proposals import Proposal
from service.answering.plans.signing import Fitted, Make, check_finished, fit, newest_alike
from service.answering.trials.trials import Trial, Trials
from service.engines.embedding.embedder import Embed, embed_here
from service.operations import measuring, plans, trials, uploads
from service.operations.command import command
from service.operations.fields import FieldError, problems
from service.operations.measuring import MeasuredTask
from service.operations.plan_curves import Agreement, Otherwise, agreement, otherwise
from service.operations.plans import PlanResult, SignedPlanView
from service.operations.roles import Actor, Right
from service.operations.trials import Trying
from service.operations.uploads import FormFile
from service.records.engine_record import EngineView, last_engine
from service.records.records import Records
from service.sources.reading import SentRows
from service.sources.typed import read_rows


@dataclass(frozen=True)
class Computed:
    """A plan with its noise, and each task's chance of a good release: all that takes seconds to compute."""

    calibrated: CalibratedPlan
    agreement: Mapping[str, Agreement]


WorkedOut = Computed | Sequence[PlanProblem]
"""A result, or the problems of the plan."""


@dataclass(frozen=True)
class Outcome:
    """A plan's preview, and its price for the lifetime budget of each cohort that it draws on.

    Attributes:
        calibrated: the plan with its noise.
        agreement: chances of a good release, by task.
        offer: preview of the plan, and the reason if it cannot be signed.
        cohorts: the cohorts that the plan draws on.
        twin: version of the newest signed plan that is equal to this one; None: no plan is.
    """

    calibrated: CalibratedPlan
    agreement: Mapping[str, Agreement]
    offer: PlanResult
    cohorts: list[CohortStatus]
    twin: int | None

    @property
    def epsilon(self) -> Decimal:
        """The plan's ε."""
        return exact(self.calibrated.plan.budget.epsilon)

    @property
    def delta(self) -> Decimal:
        """The plan's δ."""
        return exact(self.calibrated.plan.budget.delta)

    @property
    def cohort(self) -> CohortStatus:
        """The cohort that prevents signing, or else the one with the least ε free."""
        return min(
            self.cohorts,
            key=lambda cohort: (cohort.closed_at is None, self.delta <= cohort.free_delta, cohort.free_epsilon),
        )


@dataclass
class Draft:
    """A plan, and the knowledge base that it is written for.

    Attributes:
        described: the knowledge base.
        status: budget of the knowledge base.
        versions: versions of its signed plans, the newest first.
        engine: engine that serves, or served last; None: no engine served yet.
        text: the plan as written, YAML.
        problems: problems of the plan.
        fitted: the plan as read; None: it cannot be read, or does not fit.
        outcome: preview and price; None: not computed yet, or the plan has problems.
    """

    described: KnowledgeBase
    status: BudgetStatus
    versions: list[int]
    engine: EngineView | None
    text: str = ""
    problems: list[PlanProblem] = field(default_factory=list)
    fitted: Fitted | None = None
    outcome: Outcome | None = None

    @property
    def newest(self) -> int:
        """Version of the newest plan; 0: no plan is signed yet."""
        return max(self.versions, default=0)

    @property
    def computing(self) -> bool:
        """Whether it is still to be computed."""
        return self.fitted is not None and self.outcome is None and not self.problems

    @cached_property
    def lines(self) -> dict[str, int]:
        """Lines of the budget and of each task, by key, as :func:`places` finds them."""
        return places(self.text)

    @property
    def tasks(self) -> list[str]:
        """Names of the plan's tasks as far as they can be read."""
        return [key.removeprefix("tasks.") for key in self.lines if key.startswith("tasks.")]

    @property
    def key(self) -> str:
        """Key under which a result of :meth:`work_out` can be kept.

        Raises:
            ValueError: the plan cannot be read.
        """
        return self._readable.key

    def work_out(self, embed: Embed = embed_here) -> WorkedOut:
        """Calibrate the plan. Takes seconds; reads nothing from the database.

        Args:
            embed: embeds the public texts of topics that are found by similarity, as the exemplars were.

        Raises:
            ValueError: the plan cannot be read.
        """
        fitted = self._readable
        try:
            calibrated = fitted.calibrate(embed)
            drawn = {
                name: agreement(task, calibrated.noise[name], fitted.public_size)
                for name, task in calibrated.plan.tasks.items()
            }
        except (PlanError, AccountantsDisagreeError) as error:
            return _problems(error)
        return Computed(calibrated, drawn)

    def vary(self) -> Otherwise:
        """Other uses of the budget, and other budgets. Takes seconds; reads nothing from the database.

        Raises:
            ValueError: the plan is not computed.
        """
        if self.outcome is None:
            raise ValueError("the plan is not computed")
        engine, embeds = self.outcome.offer.engine, self.described.embedding_dimension != 0
        return otherwise(self.outcome.calibrated, embeds=embeds, language_model=engine.is_llm if engine else None)

    @cached_property
    def unfinished(self) -> list[PlanProblem]:
        """Placeholders that are still in the plan: with them it has a preview, and cannot be signed."""
        try:
            check_finished(self._readable.plan)
        except PlanError as error:
            return located(error.problems, self.text)
        return []

    def is_finished(self, task: str) -> bool:
        """Whether a task has no placeholder."""
        return not any(problem.key.startswith(f"tasks.{task}.") for problem in self.unfinished)

    @property
    def _readable(self) -> Fitted:
        if self.fitted is None:
            raise ValueError("the plan cannot be read")
        return self.fitted


@command(Right.DECIDE)
def open_(_actor: Actor, records: Records, name: str, text: str | None = None) -> Draft:
    """A draft of a plan for a knowledge base; without ``text`` an empty one.

    Raises:
        exemplar_store.UnknownKnowledgeBaseError: no knowledge base has this name.
    """
    described, budgets = records.store.get(name), records.ledger.budgets
    versions = [plan.version for plan in reversed(budgets.plans(name))]
    draft = Draft(described, budgets.status(name), versions, last_engine(records.database), text or "")
    if text is not None:
        try:
            draft.fitted = fit(records, plans.read(text, name))
        except (PlanError, KnowledgeBaseArchivedError) as error:
            draft.problems = located(_problems(error), draft.text)
    return draft


@command(Right.DECIDE)
def price(actor: Actor, records: Records, draft: Draft, computed: WorkedOut, grains: Grains) -> None:
    """Preview a draft and compare its price with the budget: sets the draft's outcome or its problems.

    Args:
        actor: the admin.
        records: opened records.
        draft: the draft.
        computed: result of :meth:`Draft.work_out`.
        grains: latency grains measured here.
    """
    if not isinstance(computed, Computed):
        draft.problems = located(computed, draft.text)
        return
    calibrated = computed.calibrated
    offer = plans.preview(actor, records, calibrated, grains=grains)
    twin = newest_alike(records, calibrated)
    cohorts = draft.status.of(calibrated.cohorts)
    draft.outcome = Outcome(calibrated, computed.agreement, offer, cohorts, twin)


@command(Right.TRY)
async def try_(actor: Actor, here: Trials, draft: Draft, *, task: str, query: str, rows: str) -> Trial:
    """Try a task of a draft on public exemplars; errors also as of :func:`service.operations.trials.try_`.

    Args:
        actor: the admin.
        here: trials of this service.
        draft: the draft.
        task: name of the task; empty: the plan's first task.
        query: question as typed: a text, or a JSON object.
        rows: exemplars as pasted: JSON Lines, or CSV with a header.

    Raises:
        FieldError: the draft has no outcome or no such task, or the exemplars cannot be read.
    """
    if draft.outcome is None:
        raise FieldError("plan", "it must be computed, without a problem, before it can be tried")
    calibrated, described = draft.outcome.calibrated, draft.described
    trying = _trying(query, rows)
    task = task or next(iter(calibrated.plan.tasks))
    if task not in calibrated.plan.tasks:
        raise FieldError("task", f"the plan has no task {task!r}")
    fields = described.embedded_field, described.response_field
    return await trials.try_(actor, here, calibrated, task, trying, *fields)


def _trying(query: str, rows: str) -> Trying:
    if not rows:
        raise FieldError("examples", "paste one at least")
    try:
        return Trying(query=query, exemplars=read_rows(rows))
    except ValidationError as error:
        raise FieldError(*next(iter(problems(error, Trying).items()))) from None
    except ValueError as error:
        raise FieldError("examples", str(error)) from error


@command(Right.DECIDE)
async def measure(
    actor: Actor,
    here: Trials,
    draft: Draft,
    proposals: Sequence[Proposal],
    *,
    file: FormFile,
    unit_id: str,
    columns: Mapping[str, str],
    reading: SentRows,
) -> list[MeasuredTask]:
    """Measure a draft and proposals for it on a file of labelled rows, which is not kept.

    Errors also as of :func:`service.operations.measuring.measure`.

    Args:
        actor: the admin.
        here: trials of this service.
        draft: the draft.
        proposals: changes of the plan.
        file: the file.
        unit_id: name of the column with the unit's id.
        columns: names of columns, by field, where the two differ.
        reading: options of reading the file.

    Raises:
        FieldError: the draft has no outcome, or the file cannot be read.
    """
    if draft.outcome is None:
        raise FieldError("plan", "it must be computed, without a problem, before it can be measured")
    calibrated, described = draft.outcome.calibrated, draft.described
    layout = Layout(measuring.fields(calibrated.plan), unit_id, columns)
    rows = await asyncio.to_thread(uploads.read_file, file, layout, reading)
    held_out = here.held_out(rows, described.embedded_field, asker=actor.id)
    return await measuring.measure(actor, held_out, calibrated, proposals)


@command(Right.DECIDE, private=True)
def sign(
    actor: Actor,
    records: Records,
    outcome: Outcome,
    confirmed: Collection[str],
    *,
    digest: str,
    name: str,
    after_version: int | None,
    again: int | None,
    approved: tuple[str, str | None],
    make: Make,
) -> SignedPlanView:
    """Sign the plan that a page showed; further arguments and errors as of :func:`service.operations.plans.sign`.

    Args:
        actor: the admin.
        records: opened records.
        outcome: outcome of the draft.
        confirmed: confirmations of the admin.
        digest: digest of the plan that was shown.
        name: name of the knowledge base, as the admin wrote it.
        after_version: version of the newest plan when this one was shown; None: not known.
        again: version of an equal plan whose budget is to be taken once more.
        approved: the plan as written, and a second person's signature over its bytes, in base64; None: there is none.
        make: function that makes one-time releases.

    Raises:
        FieldError: ``digest``: another plan was shown. ``name``: this is another name. ``made``: a one-time release is
            missing; the message includes whether the plan is signed.
        service.answering.plans.approving.NotApprovedError: the plan has not the approval that it needs.
    """
    wanted = outcome.calibrated.plan.knowledge_base
    if digest != outcome.calibrated.digest or after_version is None:
        raise FieldError("digest", "the plan is not the one that was shown. This is it now")
    if name != wanted:
        raise FieldError("name", f"to sign, write the knowledge base’s name, {wanted}, exactly")
    calibrated, approval = outcome.calibrated, plans.approve(records, *approved)
    try:
        signed = plans.sign(
            actor,
            records,
            calibrated,
            confirmed,
            after_version=after_version,
            again=again,
            approval=approval,
            make=make,
        ).signed
    except NotMadeError as error:
        raise FieldError("made", str(error)) from error
    assert signed is not None  # noqa: S101  (not a dry run)
    return signed


def _problems(error: Exception) -> Sequence[PlanProblem]:
    return error.problems if isinstance(error, PlanError) else [PlanProblem("", str(error))]


def located(found: Sequence[PlanProblem], text: str) -> list[PlanProblem]:
    """The problems of a plan as written, each with its line, or that of the nearest key that is there."""
    root = plain_yaml.compose(text)
    return [problem._replace(line=problem.line or _line(problem.key.split("."), root)) for problem in found]


def places(text: str) -> dict[str, int]:
    """The lines, counted from 1, of a plan's budget and of each of its tasks, by key: ``budget``, ``tasks.NAME``."""
    root = plain_yaml.compose(text)
    tasks = next((value for key, value in _pairs(root) if key.value == "tasks"), None)
    keys = [["budget"], *(["tasks", key.value] for key, _ in _pairs(tasks) if isinstance(key.value, str))]
    return {".".join(key): line for key in keys if (line := _line(key, root)) is not None}


def _pairs(node: Node | None) -> list[tuple[Node, Node]]:
    return node.value if isinstance(node, MappingNode) else []


def _line(path: Sequence[str], node: Node | None) -> int | None:
    """The line of a key, or of the nearest one above it."""
    line = None
    for part in path:
        if isinstance(node, MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == part), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line + 1
        else:
            break
    return line
