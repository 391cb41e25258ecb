"""``dpicl plan``: preview a plan, then sign it."""

import math
from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Annotated

import typer
from rich.console import Console

from accounting.ledger.amounts import checked, in_words
from accounting.plans.plan import Plan, load_plan
from accounting.plans.tasks import ClassifyTask
from accounting.plans.tasks import Task as PlanTask
from exemplar_store import Layout, Row
from service.answering import queries
from service.answering.mechanisms.adapter import MEASURED
from service.answering.plans.exported import certificate_of
from service.answering.plans.preview import TaskPreview, TopicPreview, plot
from service.answering.plans.signing import Fitted, Make, check_free, check_new, prepare
from service.answering.plans.signing import release as make_release
from service.answering.stages import Stages
from service.answering.trials.held_out import HeldOut
from service.cli import output
from service.cli.gathering import Commands, Options
from service.cli.knowledge_bases import SqlQuery, open_source
from service.cli.output import Json, Name, PlanFile, SignedBy, Task, Yes
from service.cli.reading import show_left_out
from service.cli.trying import EngineConfigFile, beside_engine, candidates, engine_of, try_, with_engine
from service.operations import measuring, plans
from service.operations.exemplars import columns_named
from service.operations.keys import called
from service.operations.plans import PlanResult, SignedPlanView
from service.operations.wording import right_in
from service.records.records import Records
from service.sources.counts import LabelCounts
from service.sources.encodings import read_text
from service.sources.reading import Reading

app = Commands()
app.command("try")(try_)
app.command()(candidates)

WriterConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--engine-config",
        help="The engine that writes the texts of a one-time release: a config as for `dpicl serve`, or its `engine` "
        "block. Nothing else needs it.",
        exists=True,
        dir_okay=False,
    ),
]
PlotFile = Annotated[Path | None, typer.Option("--plot", help="PNG file to plot the preview to.", dir_okay=False)]


class _Compared(Options):
    """Labelled rows to measure the plan on, and to compare its labels with."""

    rows: str | None = None
    """File or address of labelled rows that you may look at, as for `kb ingest`: a fifth of the people is held out and
    asked. The figures are not private. Nothing is stored."""
    unit_id: str = "unit_id"
    """Column of these rows with the id of the person, customer or document."""
    columns: Annotated[list[str] | None, typer.Option("--map", metavar="FIELD=COLUMN")] = None
    """Field of these rows and the column of another name to take it from. Repeat it."""

    def read(self, plan: Plan, reading: Reading) -> list[Row]:
        """The rows, with the fields of the plan's labels and topics, and of its questions about labels."""
        fields = sorted({field for field, _ in _all_listed(plan).values()} | set(measuring.fields(plan)))
        if self.rows is None or not fields:
            return []
        columns = columns_named(self.columns or [])
        layout = Layout(fields, columns.pop("unit_id", self.unit_id), columns)
        with open_source(self.rows, SqlQuery(), reading) as source:
            rows = list(source.rows(layout))
        show_left_out(layout.left_out)
        return rows


def _all_listed(plan: Plan) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {name: listed for name, task in plan.tasks.items() if (listed := _listed(task))}


def _labels(plan: Plan, rows: Sequence[Row]) -> dict[str, LabelCounts]:
    """The comparison of each task's labels or topics with some rows, by task; none without rows."""
    listed = _all_listed(plan) if rows else {}
    return {
        name: LabelCounts.of(labels, [row.fields[field] for row in rows]) for name, (field, labels) in listed.items()
    }


def _listed(task: PlanTask) -> tuple[str, tuple[str, ...]] | None:
    """The exemplars' field in which a task looks for its labels or topics, and these labels or topics."""
    if isinstance(task, ClassifyTask):
        return task.label_field, task.labels
    topics = getattr(task.mechanism, "topics", None)
    return (task.topic_field, topics) if topics else None


@app.command("preview")
def preview_(
    file: PlanFile,
    public_size: Annotated[int | None, typer.Option(min=1)] = None,
    *,
    compared: _Compared,
    reading: Reading,
    engine_config: EngineConfigFile = None,
    plot_file: PlotFile = None,
    details: bool = False,
    json: Json = False,
) -> None:
    """Show the answers that a plan would give, before anything is spent, and better plans for the same budget.

    With `--rows` also how many of them would be right, of the plan and of each better one. That takes a minute or two.

    Args:
        public_size: Public number of exemplars, for a knowledge base that does not exist yet.
        details: Also show the noise, the plan's ε by every accountant, and alternatives for the same budget.
    """
    me, plan = output.actor(), load_plan(read_text(file))
    opened = output.records() if public_size is None else None  # else it needs no database and no key
    rows = compared.read(plan, reading)
    found = _labels(plan, rows)
    with output.waiting("Calibrating the noise, and comparing accountants and better plans"):
        calibrated = prepare(opened, plan) if opened else Fitted(plan, public_size or 0).calibrate()
        result = plans.preview(me, opened, calibrated, better=True, otherwise=details or json)
        if plot_file:
            plot(calibrated).savefig(plot_file, dpi=150)
    if rows and measuring.fields(plan):
        config = engine_of(engine_config)
        served_by = None if engine_config else result.engine
        with output.waiting(f"Asking {config.name} the rows that are held out"):
            field, better = _embedded_field(opened, plan), result.proposals or []
            result.held_out = with_engine(
                config,
                lambda stages: measuring.measure(
                    me, HeldOut(stages, rows, field), calibrated, better, served_by=served_by
                ),
            )
    if json:
        beside = {"labels": {name: vars(counts) for name, counts in found.items()}} if found else {}
        output.print_json(result.model_dump(mode="json") | beside)
        return
    _print(result)
    for name, counts in found.items():
        _print_labels(name, counts)
    _print_measured(result)
    _print_proposals(result)
    if details:
        _print_details(result)
    else:
        output.print_text("Noise, every accountant and alternatives: --details")
    if opened:
        output.print_engine(result.engine.model_dump() if result.engine else None)
    if plot_file:
        typer.echo(f"Plot: {plot_file}")


@app.command()
def sign(
    file: PlanFile,
    yes: Yes = False,
    signed_by: SignedBy = None,
    engine_config: WriterConfigFile = None,
    again: Annotated[int | None, typer.Option(metavar="VERSION", min=1, max=2**31 - 1)] = None,
    approval: Annotated[Path | None, typer.Option(exists=True, dir_okay=False)] = None,
    json: Json = False,
) -> None:
    """Sign a plan. Irrevocable: its (ε, δ) is taken from the knowledge base's lifetime budget for good.

    A plan that is signed already is refused, and takes nothing.

    Args:
        again: Version of the newest signed plan that is the same, to sign it once more and take its (ε, δ) once more.
        approval: File with a second person's signature over FILE, where the service demands one.
    """
    me, opened, text = output.actor(signed_by), output.records(), read_text(file)
    plan = load_plan(text)
    approved = plans.approve(opened, text, b64encode(approval.read_bytes()).decode() if approval else None)
    check_free(opened, plan)
    with output.waiting("Calibrating the noise, and comparing accountants"):
        calibrated = prepare(opened, plan)
    check_new(opened, calibrated, again)
    if not json:
        _print(plans.preview(me, opened, calibrated))
    budget = in_words(checked(plan.budget.epsilon, plan.budget.delta))
    output.agreed(f"Take {budget} from {plan.knowledge_base} for good?", yes=yes)

    def signed(stages: Stages | None) -> PlanResult:
        make = _make(opened, stages)
        return output.confirmed(
            lambda given: plans.sign(me, opened, calibrated, given, again=again, approval=approved, make=make), yes=yes
        )

    result = beside_engine(engine_config, signed)
    if json:
        output.print_json(result)
    elif result.signed:
        typer.echo(f"Signed as version {result.signed.version}: {', '.join(result.signed.tasks)}")
        for task, measured in (result.measured or {}).items():
            typer.echo(f"{task}: {measured}")


def _make(opened: Records, stages: Stages | None) -> Make | None:
    return partial(make_release, opened, stages=stages) if stages else None


@app.command("list")
def list_(knowledge_base: Name, json: Json = False) -> None:
    """List the signed plans, oldest first."""
    names = plans.names(output.actor(), output.records())
    signed, retired = output.do(plans.list_, knowledge_base), output.do(plans.retired, knowledge_base)
    listed = [SignedPlanView.of(plan, names, retired) for plan in signed]
    columns = {
        "version": lambda view: view.version,
        "ε": lambda view: f"{view.preview.epsilon:g}",
        "δ": lambda view: f"{view.preview.delta:g}",
        "signed by": lambda view: called(view.signed_by, names),
        "at": lambda view: view.signed_at,
        "retired": lambda view: view.retired_at or "",
    }
    output.print_list(f"Plans of {knowledge_base}", listed, columns, json=json)


@app.command()
def retire(
    knowledge_base: Name, version: Annotated[int, typer.Argument(min=1, max=2**31 - 1)], yes: Yes = False
) -> None:
    """Let the tasks of a signed plan answer no more, permanently. Its budget stays taken.

    Retire a plan whose tasks the engine can no longer answer in time: then they are no longer measured.

    Args:
        version: Version of the plan, from `dpicl plan list`.
    """
    output.confirmed(lambda given: output.do(plans.retire, knowledge_base, version, given), yes=yes)
    typer.echo(f"Retired plan {version} of {knowledge_base}. What it promised stays promised.")


@app.command()
def release(task: Task, engine_config: WriterConfigFile = None) -> None:
    """Make a task's one-time release, if signing could not, or show why it cannot be made.

    The release is charged before anything is read. A charge that was lost stays spent.
    """
    me, opened = output.actor(), output.records()  # before the engine starts
    with output.waiting("Making the release"):
        made = beside_engine(engine_config, lambda stages: plans.release(me, opened, task, stages=stages))
    typer.echo(f"{made.task} answers from a release made on {made.created_at:%Y-%m-%d %H:%M} UTC")
    if measured := made.answer.get(MEASURED):
        typer.echo(f"It is {right_in(**measured)}")


@app.command()
def export(task: Task, file: Annotated[Path, typer.Argument(dir_okay=False)]) -> None:
    """Write the exemplars of a release, chosen or written, and beside them a certificate.

    They are public, and come from the release that was paid for. `dpicl audit verify --exemplars` checks them.

    Args:
        file: File for the exemplars, as lines of JSON.
    """
    lines, certificate = output.do(plans.export, task)
    beside = certificate_of(file)
    output.write([lines.decode()], file)
    output.write([certificate.model_dump_json(indent=2), "\n"], beside)
    typer.echo(f"{file}: the exemplars of {certificate.task}; their certificate: {beside}")


def _print(result: PlanResult) -> None:
    described = result.preview
    takes = f"ε = {described.epsilon:g} and δ = {described.delta:g} in all, with {described.public_size:,} exemplars"
    output.print_text(f"{described.knowledge_base}: {takes}", "bold")
    output.print_text("ε limits how much all answers together reveal of one person; δ is the chance that it fails to.")
    if described.looser:
        output.print_text(f"Note: {described.looser}.")
    for name, task in described.tasks.items():
        output.print_text(f"{name}: {task.gives}")
        if task.warning:
            output.print_text(f"Warning: {task.warning}", "bold red")
        if task.remedies:
            output.print_text(f"What helps: {task.remedies}.")
        if task.advice:
            output.print_text(f"Note: {task.advice}")
    if result.exceeds:
        output.print_text(f"It cannot be signed: {result.exceeds}.", "bold red")
    rows = [(name, *_short_row(task)) for name, task in described.tasks.items()]
    output.print_table("", ["task", "answers", "needed", "engine calls", "prompt tokens"], rows)


def _embedded_field(opened: Records | None, plan: Plan) -> str:
    """The field that rows and questions are compared by."""
    if opened is not None:
        return opened.store.get(plan.knowledge_base).embedded_field
    labelled = next(name for name, task in plan.tasks.items() if isinstance(task, ClassifyTask))
    return queries.embedded_field(plan, labelled)


def _print_measured(result: PlanResult) -> None:
    for name, task in result.preview.tasks.items():
        measured = [one for one in result.held_out or [] if one.task == name and one.change is None]
        for sentence in [one.sentence for one in measured] or ([task.unknown] if task.unknown else []):
            output.print_text(f"{name}: {sentence}")


def _print_proposals(result: PlanResult) -> None:
    proposals = result.proposals or []
    if proposals:
        output.print_text("Better for the same budget", "bold")
    for number, proposal in enumerate(proposals):
        output.print_text(f"{proposal.task}: {proposal.why}")
        for measured in result.held_out or []:
            if measured.change == number:
                output.print_text(measured.sentence)
        for where, text in proposal.pasted:
            output.print_text(where)
            typer.echo(indent(text, "    "))


def _print_details(result: PlanResult) -> None:
    described = result.preview
    for name, task in described.tasks.items():
        Console().print(f"[bold]{name}[/bold] ({task.mechanism}): {task.summary}")
    accountants = [
        (
            name,
            f"{lower:.4f} to {upper:.4f}" if lower else f"at most {upper:.4f}",
            "the promise rests on this" if name == described.accountant else "",
        )
        for name, (lower, upper) in described.epsilon_by_accountant.items()
    ] + [(name, "", reason) for name, reason in described.unsupported.items()]
    output.print_table("ε of the plan", ["accountant", "ε", ""], accountants)
    rows = [
        (f"{name}\n{task.mechanism}", f"{task.sampling_probability:.3f}", task.llm_calls, *_row(task))
        for name, task in described.tasks.items()
    ]
    output.print_table("Per answer", ["task", "q", "calls", *_COLUMNS], rows)
    for name, task in described.tasks.items():
        if task.topics is not None:
            drawn = [(topic, *_drawn(its)) for topic, its in task.topics.items()]
            output.print_table(f"Topics of {name}", ["topic", "public size", "q", "drawn an answer", "ε"], drawn)
            for topic, its in task.topics.items():
                if its.texts:
                    output.print_text(f"Public texts on {topic}: {' | '.join(its.texts)}")
    for name, seen in (result.alternatives or {}).items():
        title = f"{name}: alternatives at the same budget"
        rows = [(option.mechanism, *_row(option), "too noisy" if option.warning else "") for option in seen]
        output.print_table(title, ["mechanism", *_COLUMNS, ""], rows)


def _print_labels(name: str, counts: LabelCounts) -> None:
    others = dict(counts.others.most_common(_MOST_OTHERS))
    known, unknown = sum(counts.labels.values()), counts.others.total()
    Console().print(f"[bold]{name}[/bold]: {known:,} of {known + unknown:,} rows have one of the plan's labels")
    typer.echo(f"  {output.counted(counts.labels)}")
    if missing := [label for label, count in counts.labels.items() if not count]:
        output.print_text(f"  No row has {', '.join(missing)}.", "bold red")
    if unknown:
        more = f", and {len(counts.others) - len(others)} others" if len(counts.others) > len(others) else ""
        count = "1 row has none of them, and counts" if unknown == 1 else f"{unknown:,} rows have none, and count"
        output.print_text(f"  {count} for nothing: {output.counted(others)}{more}", "bold red")


def _short_row(task: TaskPreview) -> tuple[object, ...]:
    answers = "any number" if task.answers is None else f"{task.answers:,}"
    if task.topics is not None:
        answers += f" on each of {len(task.topics)}"
    needed = task.slots_for_95_percent
    reached = task.reach if needed is None else f"{math.ceil(needed):,} of {task.ensemble:,}"
    return answers, reached, f"{task.llm_calls:,}", f"{task.llm_tokens:,}"


_MOST_OTHERS = 20
_COLUMNS = ("answers", "noise", "slots for 95 %", "of", "tokens")


def _drawn(topic: TopicPreview) -> tuple[object, ...]:
    return (
        topic.public_size,
        f"{topic.sampling_probability:.3f}",
        f"about {topic.expected_exemplars:.0f}",
        f"{topic.epsilon:.3g}",
    )


def _row(task: TaskPreview) -> tuple[object, ...]:
    needed = task.slots_for_95_percent
    reached = task.reach if needed is None else math.ceil(needed)
    answers = "any number" if task.answers is None else task.answers
    return answers, task.noise_words, reached, task.ensemble, task.llm_tokens
