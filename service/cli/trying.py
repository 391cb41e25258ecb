"""``dpicl plan try``: a plan's task on public exemplars, before it is signed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from accounting.plan import CalibratedPlan, load_plan
from service.cli.output import Json, actor, console, print_json, print_table, records
from service.commands import trials
from service.commands.trials import TrialView, Trying
from service.engines.configs import EngineConfig, NearestExemplarConfig
from service.engines.factory import open_engine
from service.engines.protocol import EngineUnavailableError
from service.evaluation.dataset import embedded_field as field_of
from service.evaluation.dataset import response_field
from service.pipeline.answering import BusyError
from service.pipeline.stages import Stages
from service.plans.calibrating import calibrate
from service.plans.signing import prepare
from service.sources.typed import read_fields, read_file
from service.trials.trials import Trial, Trials, check_exemplars

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


def try_(
    file: Annotated[Path, typer.Argument(help="The plan, a YAML file.", exists=True, dir_okay=False)],
    exemplars: Annotated[
        Path,
        typer.Option(help="Public exemplars, JSON Lines or CSV, with the fields the task's prompt shows.", exists=True),
    ],
    query: Annotated[str, typer.Option(help="The text to answer, or a JSON object of fields.")],
    task: Annotated[str | None, typer.Option(help="Which of the plan's tasks. [default: the first]")] = None,
    repeats: Annotated[int, typer.Option(help="How many times noise is drawn, 1 to 100.")] = 20,
    public_size: Annotated[
        int | None,
        typer.Option(min=1, help="Public number of exemplars, for a knowledge base that does not exist yet."),
    ] = None,
    embedded_field: Annotated[
        str | None,
        typer.Option(
            help="With --public-size: the field by which exemplars are compared. [default: the query's first]"
        ),
    ] = None,
    engine_config: EngineConfigFile = None,
    json: Json = False,
) -> None:
    """Try a plan, signed or not, on public exemplars: it spends nothing and reads no private exemplar.

    Engine, prompts, mechanism and noise are the real ones; the exemplars fill as many slots, as full, as a knowledge
    base of the public size would. Because nothing here is private, it also shows the answer without noise, and how
    often that survives the noise.
    """
    plan = load_plan(file.read_text())
    name = task or next(iter(plan.tasks))
    if name not in plan.tasks:
        raise ValueError(f"{file} has no task {name!r}; it has {', '.join(plan.tasks)}")
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
    try:
        trial, took_s = asyncio.run(_try(calibrated, name, trying, field, response, engine_of(engine_config)))
    except (EngineUnavailableError, BusyError) as error:
        raise ValueError(f"{error}: check --engine-config") from error
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
    console().print(
        f"{calibrated.plan.knowledge_base}.{trial.task} on {trial.supplied} public exemplars; nothing was charged",
        style="bold",
        markup=False,
        highlight=False,
    )
    rows = [
        ("without noise", _said(trial.consensus.answer)),
        (f"one answer at ε = {budget.epsilon:g}, δ = {budget.delta:g} of the plan", _said(trial.answer)),
        ("draws of noise that gave the first", f"{trial.agreeing} of {trial.repeats}"),
    ]
    if trial.fallbacks is not None:
        rows.append(("draws that fell back on the zero-shot answer", f"{trial.fallbacks} of {trial.repeats}"))
    rows.append(("slots that answered (others were empty or abstained)", f"{trial.answered} of {trial.slots}"))
    print_table("", ["", "answer"], rows)
    said = trial.consensus
    print_table(
        "What the slots say", ["", said.measure], [(name, f"{value:.3g}") for name, value in said.support.items()]
    )
    console().print(f"Note: {trial.caution}.", markup=False, highlight=False)
    console().print(f"Engine: {trial.engine.name}. {trial.engine.notice}", markup=False, highlight=False)
    console().print(f"Took {took_s:.2f} s on an idle engine.", markup=False, highlight=False)


def _said(answer: Any) -> str:
    said: str = answer["label"] if "label" in answer else answer["text"]
    if "probability" in answer:
        said += f" (probability {answer['probability']:.2f})"
    return f"{said}\nkeywords: {', '.join(answer['keywords'])}" if answer.get("keywords") else said
