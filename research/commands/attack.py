"""``dpicl attack``: what attackers find out about a made-up person, without noise and as signed."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from accounting.plans.plan import CalibratedPlan, PlanError, load_plan
from research.evaluation.tables import write_csv
from research.leaks.canaries import ATTACKS
from research.leaks.experiment import AS_SIGNED, FEWEST_ROWS, Experiment, Found, Size, check
from service.answering.plans.signing import Fitted, prepare
from service.answering.queries import embedded_field, response_field
from service.answering.stages import Stages
from service.cli import output
from service.cli.gathering import Options
from service.cli.output import Json, Name, TaskName, print_json, print_table, waiting
from service.cli.reading import read_texts
from service.cli.trying import EngineConfigFile, engine_of, with_engine
from service.records.signed import read_signed
from service.sources.encodings import read_text
from service.sources.reading import Reading


class Effort(Options):
    """The number of trials, and what an attacker may do in each."""

    trials: Annotated[int, typer.Option(min=20)] = 500
    """Trials with the person that are counted, and as many without. The attacker learns from as many more."""
    answers: Annotated[int, typer.Option(min=1)] = 4
    """Answers that an attacker gets in a trial. Each is to another question, for which the engine is asked once for
    each slot without the person and once with them, whatever the number of trials."""
    rows: Annotated[int, typer.Option(min=1)] = 1
    """Rows of the made-up person."""
    error: Annotated[float, typer.Option(min=1e-9, max=0.2)] = 0.001
    """Probability that any lower bound in the table is wrong, at most."""
    attack: list[str] = Field(default=[])
    """'membership inference', 'prompt leak' or 'ContextLeak'. Repeat it. [default: all three]"""


def attack(
    knowledge_base: Name,
    plan: Annotated[str, typer.Option()],
    exemplars: Annotated[Path, typer.Option(exists=True)],
    task: TaskName = None,
    *,
    reading: Reading,
    effort: Effort,
    public_size: Annotated[int | None, typer.Option(min=1)] = None,
    engine_config: EngineConfigFile = None,
    csv: Path | None = None,
    json: Json = False,
) -> None:
    """Attack a plan's answers on a copy with made-up people: what leaks without noise, and what as signed.

    It reads no private row and charges nothing: public rows fill as many slots, as full, as in the knowledge base, and
    a made-up person is among them or not. Engine, prompts, mechanism and noise are the real ones. For one slot without
    noise, the plan without noise, and the plan as signed, the table has a lower bound on ε beside the promise. It shows
    something of the public rows, and nothing of the people in the knowledge base. If a bound is above the promise, the
    exit status is 1.

    Args:
        plan: The plan: a YAML file, or the version of a signed one.
        exemplars: Public rows, at least 3, with the fields that the prompts show, in any format of `dpicl kb ingest`.
            Take none of your knowledge base: what is printed of them is not private.
        public_size: Public number of exemplars, for a knowledge base that does not exist yet.
        csv: Write the table here.
    """
    if unknown := [name for name in effort.attack if name not in ATTACKS]:
        raise ValueError(f"--attack: {unknown[0]!r} is unknown; there are {', '.join(map(repr, ATTACKS))}")
    config = engine_of(engine_config)
    calibrated, name, field, response = _calibrated(knowledge_base, plan, task, public_size, effort.answers)
    planned = calibrated.plan.tasks[name]
    rows = read_texts(exemplars, list(dict.fromkeys([*planned.exemplar_fields, *planned.query_fields])), reading)
    if len(rows) < FEWEST_ROWS:
        raise ValueError(f"--exemplars: at least {FEWEST_ROWS} rows are needed; the file has {len(rows)}")
    size = Size(effort.trials, effort.answers, effort.rows, effort.error)

    async def attacked(stages: Stages) -> list[Found]:
        experiment = Experiment(stages, calibrated, name, field, rows, response)
        return await experiment.run(effort.attack or ATTACKS, size)

    with waiting("Starting the engine, and attacking the plan"):
        found = with_engine(config, attacked)
    address = f"{knowledge_base}.{name}"
    if csv is not None:
        write_csv(found, csv)
    if json:
        described = {"task": address, "engine": config.name, "delta": calibrated.plan.budget.delta, **asdict(size)}
        print_json({**described, "found": [{**asdict(one), "broken": one.broken} for one in found]})
    else:
        _print(address, calibrated, size, found)
    if any(one.broken for one in found):
        raise ValueError(
            f"{address}: a lower bound on ε is above what is promised. Ask again with fewer than {size.error:g} as "
            "--error; if it stays, the answers cost more than is accounted for: report it (SECURITY.md)"
        )


def _calibrated(
    knowledge_base: str, written: str, task: str | None, public_size: int | None, answers: int
) -> tuple[CalibratedPlan, str, str, str | None]:
    """The plan with its noise, the task, and the fields of it that the knowledge base embeds.

    Raises:
        ValueError: the plan does not fit the knowledge base, or its task cannot be attacked.
    """
    signed = None
    if written.isdecimal() and not Path(written).exists():
        if public_size is not None:
            raise ValueError("--public-size: a signed plan has its own; leave it out")
        signed = read_signed(output.records().ledger.budgets.plan(knowledge_base, int(written)).document)
        plan = signed.plan
    elif Path(written).is_file():
        plan = load_plan(read_text(Path(written)))
    else:
        raise ValueError(f"--plan: there is no file {written!r}; name a plan's file, or the version of a signed plan")
    if plan.knowledge_base != knowledge_base:
        raise ValueError(f"--plan: it is a plan for {plan.knowledge_base}, not for {knowledge_base}")
    name = task or next(iter(plan.tasks))
    if name not in plan.tasks:
        raise ValueError(f"--task: the plan has no task {name!r}; it has {', '.join(plan.tasks)}")
    check(plan.tasks[name], name)
    if answers > plan.tasks[name].answers:
        raise ValueError(f"--answers: the plan has {plan.tasks[name].answers} answers for {name}, not {answers}")
    if public_size is not None:
        fields = embedded_field(plan, name), response_field(plan.tasks[name])
        with waiting("Calibrating the noise"):
            return Fitted(plan, public_size).calibrate(), name, *fields
    described = output.records().store.get(knowledge_base)
    if signed is None:
        with waiting("Calibrating the noise"):
            try:
                signed = prepare(output.records(), plan)
            except PlanError as error:
                raise ValueError(f"--plan: it does not fit {knowledge_base}: {error}") from error
    return signed, name, described.embedded_field, described.response_field


def _print(address: str, calibrated: CalibratedPlan, size: Size, found: Sequence[Found]) -> None:
    budget = calibrated.plan.budget
    print_table(
        f"{address}: {size.trials:,} trials with a made-up person of {size.rows} "
        f"{'row' if size.rows == 1 else 'rows'}, {size.trials:,} without, {size.answers} answers in each; "
        f"δ = {budget.delta:g}",
        ["attack", "target", "seen with the person, %", "without, %", "ε at least", "ε promised"],
        [
            (
                one.attack,
                one.target,
                f"{100 * one.seen_with / one.trials:.1f}",
                f"{100 * one.seen_without / one.trials:.1f}",
                f"{one.epsilon_at_least:.2f}",
                "" if one.epsilon_promised is None else f"{one.epsilon_promised:.2f}",
            )
            for one in found
        ],
        unbroken=["attack", "target"],
    )
    output.print_text(
        f"Bounds are by Clopper-Pearson intervals, and all hold together with a probability of at least "
        f"{100 * (1 - size.error):g} %. The promise is of {size.answers} answers; that of all "
        f"{calibrated.plan.tasks[address.rpartition('.')[2]].answers:,}, and of the plan, is ε = {budget.epsilon:g}."
    )
    most = max((one.epsilon_at_least for one in found if one.target != AS_SIGNED), default=0.0)
    if not most:
        output.print_text(
            "No attack saw the person even without noise, so this test shows nothing about the noise: take a "
            "model that reads its examples, more --rows, or more --trials."
        )
