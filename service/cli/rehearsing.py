"""``dpicl plan rehearse``: how often a plan's answers would be right, privately and at a small price."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from accounting.plan import CalibratedPlan, calibrate_plan, load_plan
from service.cli.output import Json, console, print_json, records, who
from service.cli.trying import TIMEOUT_S, EngineConfigFile, engine_of
from service.engines.configs import EngineConfig
from service.engines.factory import open_engine
from service.engines.protocol import EngineUnavailableError
from service.pipeline.answering import RemoteEngineForbiddenError
from service.pipeline.stages import Stages
from service.plans.preview import preview
from service.plans.rehearsing import EPSILON, QUESTIONS, Rehearsed, begin, written
from service.plans.signing import prepare
from service.records.records import Records


def rehearse(
    file: Annotated[Path, typer.Argument(help="The plan, a YAML file.", exists=True, dir_okay=False)],
    task: Annotated[str | None, typer.Option(help="Which of the plan's tasks. [default: the first]")] = None,
    epsilon: Annotated[float, typer.Option(help="What the rehearsal costs.")] = EPSILON,
    delta: Annotated[float | None, typer.Option(help="Likewise. [default: a tenth of the plan's]")] = None,
    questions: Annotated[int, typer.Option(min=1, help="How many are asked at most.")] = QUESTIONS,
    engine_config: EngineConfigFile = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    signed_by: Annotated[str | None, typer.Option(help="Who signs. [default: your user name]")] = None,
    json: Json = False,
) -> None:
    """Find out privately how often a plan's answers would be right, before it is signed. This spends budget for good.

    Some units ask, the others answer with the plan's noise, and only noisy counts of right and wrong answers leave.
    Run it where the service runs. It ends at a time fixed before anything private is read.
    """
    plan = load_plan(file.read_text())
    opened = records()
    rehearsed = prepare(opened, plan)
    own = written(rehearsed, task or next(iter(plan.tasks)), epsilon, delta, questions)
    calibrated = calibrate_plan(own, rehearsed.public_size)
    budget = calibrated.plan.budget
    (described,) = preview(calibrated).tasks.values()
    if not json:
        console().print(described.summary, markup=False, highlight=False)
    for doubt in filter(None, [described.warning]):
        if not yes and not typer.confirm(f"{doubt} Go on all the same?"):
            raise typer.Exit(1)
    question = f"Take ε = {budget.epsilon:g}, δ = {budget.delta:g} from {plan.knowledge_base} for good?"
    if not yes and not typer.confirm(question):
        raise typer.Exit(1)
    try:
        found = asyncio.run(_run(opened, calibrated, signed_by or who(), engine_of(engine_config)))
    except (EngineUnavailableError, RemoteEngineForbiddenError) as error:
        raise ValueError(f"{error}; nothing was signed") from error
    if json:
        between = {"accuracy": found.counts.accuracy, "zero_shot_accuracy": found.counts.zero_shot_accuracy}
        print_json({"task": found.task, "epsilon": budget.epsilon, "delta": budget.delta, **between})
        return
    console().print(f"With the plan: {_said(found.counts.accuracy)} of answers right, 95 % sure.", highlight=False)
    console().print(f"Zero-shot, free: {_said(found.counts.zero_shot_accuracy)}.", highlight=False)


async def _run(opened: Records, calibrated: CalibratedPlan, signed_by: str, config: EngineConfig) -> Rehearsed:
    from service.embedding.embedder import Embedder

    embedder = Embedder()
    engine = open_engine(config, embedder)
    try:
        stages = Stages(engine, embedder, TIMEOUT_S)
        begun = await begin(opened, calibrated, signed_by, stages)
        return await begun.run(padded=not opened.settings.latency_unpadded)
    finally:
        engine.close()


def _said(between: tuple[float, float]) -> str:
    low, high = between
    return f"between {100 * low:.0f} and {100 * high:.0f} %"
