"""``dpicl plan try``: a plan's task on public exemplars, before it is signed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import yaml

from accounting.plan import CalibratedPlan, Plan, load_plan
from service.cli.gathering import gathered
from service.cli.output import Json, PlanFile, TaskName, actor, print_json, print_table, records, say
from service.commands import trials
from service.commands.trials import TrialView, Trying
from service.engines.configs import EngineConfig, NearestExemplarConfig
from service.engines.factory import open_engine
from service.evaluation.dataset import embedded_field as field_of
from service.evaluation.dataset import response_field
from service.pipeline.stages import Stages
from service.plans.calibrating import calibrate
from service.plans.signing import prepare
from service.private_threads import privately
from service.sources.typed import read_fields, read_file
from service.trials.trials import Trial, Trials, check_exemplars

T = TypeVar("T")
TIMEOUT_S = 600.0
"""Longer than a service's: nobody else waits, and a language model may have to warm up."""

EngineConfigFile = Annotated[
    Path | None,
    typer.Option(
        help="A Ray Serve config, as for `dpicl serve`, or its `engine` block alone: what answers. "
        "[default: nearest_exemplar]",
        exists=True,
        dir_okay=False,
    ),
]


def plan_and_task(file: Path, task: str | None) -> tuple[Plan, str]:
    """A plan, and the name of a task of it: the first unless one is named.

    Raises:
        ValueError: it has no such task.
    """
    plan = load_plan(file.read_text())
    name = task or next(iter(plan.tasks))
    if name not in plan.tasks:
        raise ValueError(f"{file} has no task {name!r}; it has {', '.join(plan.tasks)}")
    return plan, name


@gathered
def try_(
    file: PlanFile,
    exemplars: Annotated[Path, typer.Option(exists=True)],
    query: str,
    task: TaskName = None,
    repeats: int = 20,
    public_size: Annotated[int | None, typer.Option(min=1)] = None,
    embedded_field: str | None = None,
    engine_config: EngineConfigFile = None,
    json: Json = False,
) -> None:
    """Try a plan, signed or not, on public exemplars: it spends nothing and reads no private exemplar.

    Engine, prompts, mechanism and noise are the real ones; the exemplars fill as many slots, as full, as a knowledge
    base of the public size would. Because nothing here is private, it also shows the answer without noise, and how
    often that survives the noise.

    Args:
        exemplars: Public exemplars, JSON Lines or CSV, with the fields the task's prompt shows.
        query: The text to answer, or a JSON object of fields.
        repeats: How many times noise is drawn, 1 to 100.
        public_size: Public number of exemplars, for a knowledge base that does not exist yet.
        embedded_field: With --public-size: the field by which exemplars are compared. [default: the query's first]
    """
    plan, name = plan_and_task(file, task)
    lines = list(read_file(exemplars))
    check_exemplars(plan.tasks[name], lines)  # before the plan is calibrated and the engine started
    if public_size is None:
        opened = records()
        described = opened.store.get(plan.knowledge_base)
        field, response = described.embedded_field, described.response_field
        calibrated = prepare(opened, plan)
    else:
        field, response = field_of(plan, name, embedded_field), response_field(plan, name)
        calibrated = calibrate(plan, public_size)
    trying = Trying(query=read_fields(query), exemplars=lines, repeats=repeats)
    trial, took_s = asyncio.run(_try(calibrated, name, trying, field, response, engine_of(engine_config)))
    if json:
        print_json(TrialView.of(f"{plan.knowledge_base}.{name}", trial).model_dump(mode="json") | {"took_s": took_s})
    else:
        _print(trial, calibrated, took_s)


async def _try(
    calibrated: CalibratedPlan, name: str, trying: Trying, field: str, response: str | None, config: EngineConfig
) -> tuple[Trial, float]:
    """The trial, and the seconds that it took an engine with nothing else to do."""
    with stages_of(config) as stages:
        started = time.perf_counter()
        trial = await trials.try_(actor(), Trials(stages), calibrated, name, trying, field, response)
        return trial, time.perf_counter() - started


@contextmanager
def stages_of(config: EngineConfig) -> Iterator[Stages]:
    """An engine of one's own, as long as it is used."""
    from service.embedding.embedder import Embedder

    embedder = Embedder()
    engine = open_engine(config, embedder)
    try:
        yield Stages(engine, embedder, TIMEOUT_S)
    finally:
        engine.close()


def beside_engine(config: Path | None, work: Callable[[Stages | None], T]) -> T:
    """Do something in a private thread, beside an engine of one's own if a config names one."""

    async def both(named: Path) -> T:
        with stages_of(engine_of(named)) as stages:
            return await privately(lambda: work(stages))

    return work(None) if config is None else asyncio.run(both(config))


def engine_of(config: Path | None) -> EngineConfig:
    """The engine of the config's one application, or the one that the file describes.

    Raises:
        ValueError: the file describes no engine; names it and says what is wrong.
    """
    if config is None:
        return NearestExemplarConfig()
    from service.application import ApplicationArgs
    from service.serve_config import load_serve_config

    with suppress(yaml.YAMLError):
        written = yaml.safe_load(config.read_text())
        if isinstance(written, dict) and "name" in written:
            return ApplicationArgs.model_validate({"engine": written}).engine
    applications = load_serve_config(config).applications
    if len(applications) != 1:
        raise ValueError(f"{config}: it has {len(applications)} applications; name a config with one")
    return ApplicationArgs.model_validate(applications[0].args).engine


def _print(trial: Trial, calibrated: CalibratedPlan, took_s: float) -> None:
    budget = calibrated.plan.budget
    name = f"{calibrated.plan.knowledge_base}.{trial.task}"
    say(f"{name} on {trial.supplied} public exemplars; nothing was charged", "bold")
    rows = [
        ("without noise", _said(trial.consensus.answer)),
        (f"one answer at ε = {budget.epsilon:g}, δ = {budget.delta:g} of the plan", _said(trial.answer)),
        ("draws of noise that gave the first", f"{trial.agreeing} of {trial.repeats}"),
    ]
    if trial.fallbacks is not None:
        rows.append(("draws that fell back on the zero-shot answer", f"{trial.fallbacks} of {trial.repeats}"))
    rows.append(("slots that answered (others were empty or abstained)", f"{trial.answered} of {trial.slots}"))
    print_table("", ["", "answer"], rows)
    support = [(answer, f"{value:.3g}") for answer, value in trial.consensus.support.items()]
    print_table("What the slots say", ["", trial.consensus.measure], support)
    say(f"Note: {trial.caution}.")
    say(f"Engine: {trial.engine.name}. {trial.engine.notice}")
    say(f"Took {took_s:.2f} s on an idle engine.")


def _said(answer: Any) -> str:
    said: str = answer["label"] if "label" in answer else answer["text"]
    if "probability" in answer:
        said += f" (probability {answer['probability']:.2f})"
    return f"{said}\nkeywords: {', '.join(answer['keywords'])}" if answer.get("keywords") else said
