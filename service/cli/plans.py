"""``dpicl plan``: see what a plan gives, then sign it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from accounting.ledger.amounts import Number
from accounting.plan import CalibratedPlan, Plan, load_plan
from service.cli.candidates import candidates
from service.cli.output import Json, console, print_engine, print_json, print_table, records, who
from service.cli.rehearsing import rehearse
from service.cli.trying import try_
from service.plans.alternatives import alternatives as spent_otherwise
from service.plans.calibrating import calibrate
from service.plans.exported import certificate_of
from service.plans.exported import export as export_exemplars
from service.plans.preview import PlanPreview, TaskPreview, plot, preview
from service.plans.proposals import approve, open_proposals, propose
from service.plans.signing import check_free, not_free, prepare
from service.plans.signing import release as make_release
from service.plans.signing import sign as sign_plan
from service.plans.steady import MONTHS, Arrivals, SteadyPreview, preview_steadily
from service.records.api_keys import called
from service.records.engine_record import last_engine
from service.records.records import Records

app = typer.Typer(no_args_is_help=True, help="Preview, try and sign plans: grants of budget to tasks.")
app.command("try")(try_)
app.command("rehearse")(rehearse)
app.command()(candidates)

PlanFile = Annotated[Path, typer.Argument(help="The plan, a YAML file.", exists=True, dir_okay=False)]
PlotFile = Annotated[Path | None, typer.Option("--plot", help="Also plot it to this PNG file.", dir_okay=False)]


@app.command("preview")
def preview_(
    file: PlanFile,
    public_size: Annotated[
        int | None,
        typer.Option(min=1, help="Public number of exemplars, for a knowledge base that does not exist yet."),
    ] = None,
    units_a_month: Annotated[
        float | None,
        typer.Option(
            min=1e-3,
            help="About how many new people arrive, announced: also show what it gives for ever.",
        ),
    ] = None,
    months_a_cohort: Annotated[float, typer.Option(min=1e-3, help="Months from one cohort to the next.")] = MONTHS,
    units_a_cohort: Annotated[
        float | None,
        typer.Option(min=1e-3, help="In place of months: as long as so many people take to arrive at that rate."),
    ] = None,
    cohort_epsilon: Annotated[
        float | None, typer.Option(help="Lifetime ε of each cohort. [default: the newest one's]")
    ] = None,
    cohort_delta: Annotated[
        float | None, typer.Option(help="Lifetime δ of each cohort. [default: the newest one's]")
    ] = None,
    plot_file: PlotFile = None,
    json: Json = False,
) -> None:
    """Show what a plan would give, before anything is spent.

    The noise, how many slots must agree for a reliable release, the plan's ε by every accountant, the engine calls each
    answer takes, and what the same budget gives if it is spent otherwise.
    """
    plan = load_plan(file.read_text())
    opened = records() if public_size is None else None  # else it needs no database and no key
    steady = None
    if units_a_month is not None:
        months = months_a_cohort if units_a_cohort is None else units_a_cohort / units_a_month
        epsilon, delta = _cohort_budget(opened, plan, cohort_epsilon, cohort_delta)
        arrivals = Arrivals(units_a_month=units_a_month, months_a_cohort=months, epsilon=epsilon, delta=delta)
        steady = preview_steadily(plan, arrivals)
    calibrated = prepare(opened, plan) if opened else calibrate(plan, public_size or 0)
    _show(calibrated, opened, plot_file, json, alternatives=True, steady=steady)


def _cohort_budget(
    opened: Records | None, plan: Plan, epsilon: float | None, delta: float | None
) -> tuple[Number, Number]:
    """As written, or else the newest cohort's."""
    if epsilon is not None and delta is not None:
        return epsilon, delta
    if opened is None:
        raise ValueError("say what each cohort has with --cohort-epsilon and --cohort-delta")
    newest = opened.ledger.budgets.status(plan.knowledge_base).cohorts[-1]
    return newest.epsilon if epsilon is None else epsilon, newest.delta if delta is None else delta


@app.command()
def sign(
    file: PlanFile,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, whatever is expected of the plan.")] = False,
    signed_by: Annotated[str | None, typer.Option(help="Who signs. [default: your user name]")] = None,
    json: Json = False,
) -> None:
    """Sign a plan. Irrevocable: its (ε, δ) is taken from the knowledge base's lifetime budget for good."""
    opened, plan = records(), load_plan(file.read_text())
    check_free(opened, plan)
    calibrated = prepare(opened, plan)
    if not json:
        _show(calibrated, opened)
    for warning in preview(calibrated).warnings:
        if not yes and not typer.confirm(f"{warning} Sign it all the same?"):
            raise typer.Exit(1)
    budget = calibrated.plan.budget
    question = f"Take ε = {budget.epsilon:g}, δ = {budget.delta:g} from {calibrated.plan.knowledge_base} for good?"
    if not yes and not typer.confirm(question):
        raise typer.Exit(1)
    if opened.settings.two_person_signing:
        proposal = propose(opened, calibrated, signed_by or who())
        if json:
            print_json({"proposed": proposal.id, "digest": proposal.digest})
        else:
            typer.echo(f"Proposed. Somebody else: dpicl plan approve {proposal.knowledge_base} {proposal.id}")
        return
    signed = sign_plan(opened, calibrated, signed_by or who())
    tasks = [f"{signed.knowledge_base}.{name}@{signed.version}" for name, _ in signed.tasks]
    if json:
        print_json({"version": signed.version, "digest": signed.digest, "tasks": tasks})
    else:
        typer.echo(f"Signed as version {signed.version}: {', '.join(tasks)}")


@app.command()
def proposals(
    knowledge_base: Annotated[str, typer.Argument(help="The knowledge base's name.")], json: Json = False
) -> None:
    """List plans that somebody else has to approve (DPICL_TWO_PERSON_SIGNING)."""
    opened = records()
    found = open_proposals(opened, knowledge_base)
    if json:
        print_json(
            [{"id": one.id, "digest": one.digest, "by": one.proposed_by, "at": str(one.proposed_at)} for one in found]
        )
    else:
        names = opened.keys.names()
        rows = [(one.id, called(one.proposed_by, names), one.proposed_at) for one in found]
        print_table("Proposals", ["id", "by", "at"], rows)


@app.command("approve")
def approve_(
    knowledge_base: Annotated[str, typer.Argument(help="The knowledge base's name.")],
    proposal: Annotated[str, typer.Argument(help="The proposal's id, from `dpicl plan proposals`.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    signed_by: Annotated[str | None, typer.Option(help="Who approves. [default: your user name]")] = None,
) -> None:
    """Approve a plan that somebody else proposed. Irrevocable, as signing is."""
    opened, me = records(), signed_by or who()
    for one in open_proposals(opened, knowledge_base):
        if one.id == proposal:
            _show(one.calibrated, opened)
    if not yes and not typer.confirm(f"Take this from {knowledge_base} for good?"):
        raise typer.Exit(1)
    signed = approve(opened, knowledge_base, proposal, me)
    typer.echo(f"Signed as version {signed.version}")


@app.command()
def release(task: Annotated[str, typer.Argument(help="knowledge_base.task, or knowledge_base.task@version.")]) -> None:
    """Make a task's one release, if signing could not, or say why it cannot be made.

    A release that is made once is charged before anything is read. Where that charge was lost, it stays spent.
    """
    made = make_release(records(), task)
    typer.echo(f"{made.task} answers from a release made on {made.created_at:%Y-%m-%d %H:%M} UTC")


@app.command()
def export(
    task: Annotated[str, typer.Argument(help="knowledge_base.task, or knowledge_base.task@version.")],
    file: Annotated[Path, typer.Argument(help="Where to write them, as lines of JSON.", dir_okay=False)],
) -> None:
    """Write the exemplars that `synthetic_exemplars` has chosen, and beside them a certificate.

    They are public, and come from the release that was paid for. `dpicl audit verify --exemplars` checks them.
    """
    lines, certificate = export_exemplars(records(), task)
    file.write_bytes(lines)
    beside = certificate_of(file)
    beside.write_text(certificate.model_dump_json(indent=2) + "\n", encoding="utf-8")
    typer.echo(f"{file}: the exemplars that {certificate.task} has chosen; their certificate: {beside}")


def _show(
    calibrated: CalibratedPlan,
    opened: Records | None,
    plot_file: Path | None = None,
    json: bool = False,
    *,
    alternatives: bool = False,
    steady: SteadyPreview | None = None,
) -> None:
    described = preview(calibrated)
    otherwise = spent_otherwise(calibrated.plan, calibrated.public_size) if alternatives else {}
    engine = last_engine(opened.database) if opened else None
    exceeds = not_free(opened, calibrated.plan) if opened else None
    if plot_file:
        plot(calibrated).savefig(plot_file, dpi=150)
    if json:
        listed = {name: [one.model_dump() for one in seen] for name, seen in otherwise.items()}
        shown = {**described.model_dump(), "alternatives": listed, "engine": engine.model_dump() if engine else None}
        for_ever = {"steady": steady.model_dump()} if steady else {}
        print_json({**shown, "exceeds": exceeds, **for_ever})
        return
    _print(described)
    if exceeds:
        console().print(f"It cannot be signed: {exceeds}.", style="bold red", markup=False, highlight=False)
    for name, seen in otherwise.items():
        title = f"{name}: its share of the budget spent otherwise"
        rows = [(one.mechanism, *_row(one), "too noisy" if one.warning else "") for one in seen]
        print_table(title, ["mechanism", *_COLUMNS, ""], rows)
    if steady:
        console().print(f"[bold]For ever[/bold]: {steady.state.in_words}")
        rows = [(f"{name}\n{task.mechanism}", *_row(task)) for name, task in steady.tasks.items()]
        print_table(f"Then, with {steady.public_size:,} exemplars", ["task", *_COLUMNS], rows)
    if opened:
        print_engine(engine)
    if plot_file:
        typer.echo(f"Plot: {plot_file}")


def _print(described: PlanPreview) -> None:
    accountants = [
        (
            name,
            f"{lower:.4f} to {upper:.4f}" if lower else f"at most {upper:.4f}",
            "the promise rests on this" if name == described.accountant else "",
        )
        for name, (lower, upper) in described.epsilon_by_accountant.items()
    ] + [(name, "", reason) for name, reason in described.unsupported.items()]
    title = f"{described.knowledge_base}: the plan promises ε = {described.epsilon:g} at δ = {described.delta:g}"
    print_table(title, ["accountant", "ε of the plan", ""], accountants)
    rows = [
        (f"{name}\n{task.mechanism}", f"{task.sampling_probability:.3f}", task.llm_calls, *_row(task))
        for name, task in described.tasks.items()
    ]
    print_table("Per answer", ["task", "q", "calls", *_COLUMNS], rows)
    for name, task in described.tasks.items():
        console().print(f"[bold]{name}[/bold]: {task.summary}")
    for warning in described.warnings:
        console().print(f"Warning: {warning}", style="bold red", markup=False, highlight=False)


_COLUMNS = ("answers", "noise", "slots for 95 %", "of", "tokens")


def _row(task: TaskPreview) -> tuple[object, ...]:
    needed = task.slots_for_95_percent
    reached = "out of reach" if needed is None else math.ceil(needed)
    answers = "any number" if task.answers is None else task.answers
    return answers, task.noise_words, reached, task.ensemble, task.llm_tokens
