"""Commands that run an engine of their own before a plan is signed: ``dpicl plan try`` and ``candidates``."""

import asyncio
import json as to_json
import time
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from accounting.plans import plain_yaml
from accounting.plans.plan import CalibratedPlan, Plan, load_plan
from accounting.plans.tasks import ClassifyTask
from service.answering import queries
from service.answering.plans.candidates import write_candidates
from service.answering.plans.signing import Fitted, prepare
from service.answering.stages import Stages
from service.answering.trials.trials import MAX_EXEMPLARS, Trial, Trials, check_exemplars
from service.cli import output
from service.cli.output import Json, PlanFile, TaskName
from service.cli.reading import read_texts
from service.engines.configs import EngineConfig, NearestExemplarConfig
from service.engines.factory import open_engine
from service.engines.private_threads import privately
from service.operations import trials
from service.operations.trials import TrialView, Trying
from service.sources.encodings import read_text
from service.sources.reading import Reading

T = TypeVar("T")
TIMEOUT_S = 600.0
"""Seconds that an engine may take. More than in a service: no other caller waits, and a language model may warm up."""

EngineConfigFile = Annotated[
    Path | None,
    typer.Option(
        help="The engine that answers: a Ray Serve config, as for `dpicl serve`, or its `engine` block alone. "
        "[default: nearest_exemplar]",
        exists=True,
        dir_okay=False,
    ),
]


def plan_and_task(file: Path, task: str | None) -> tuple[Plan, str]:
    """A plan, and the name of a task of it: the first unless one is named.

    Raises:
        ValueError: the plan has no such task.
    """
    plan = load_plan(read_text(file))
    name = task or next(iter(plan.tasks))
    if name not in plan.tasks:
        raise ValueError(f"{file} has no task {name!r}; it has {', '.join(plan.tasks)}")
    return plan, name


def try_(
    file: PlanFile,
    exemplars: Annotated[Path, typer.Option(exists=True)],
    query: str,
    task: TaskName = None,
    *,
    reading: Reading,
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
        exemplars: Public exemplars, at most 200, with the fields the task's prompt shows, in any format of
            `dpicl kb ingest`.
        query: The text to answer; for a task of several fields, a JSON object of them.
        repeats: Number of times that noise is drawn, 1 to 100.
        public_size: Public number of exemplars, for a knowledge base that does not exist yet.
        embedded_field: Field by which exemplars are compared, with --public-size. [default: the query's first]
    """
    plan, name = plan_and_task(file, task)
    lines = read_texts(exemplars, plan.tasks[name].exemplar_fields, reading)
    if len(lines) > MAX_EXEMPLARS:
        raise ValueError(f"--exemplars: at most {MAX_EXEMPLARS} rows are tried; the file has {len(lines)}")
    check_exemplars(plan.tasks[name], lines)  # before the plan is calibrated and the engine started
    calibrating = output.waiting("Calibrating the noise")
    if public_size is None:
        opened = output.records()
        described = opened.store.get(plan.knowledge_base)
        field, response = described.embedded_field, described.response_field
        with calibrating:
            calibrated = prepare(opened, plan)
    else:
        field, response = queries.embedded_field(plan, name, embedded_field), queries.response_field(plan.tasks[name])
        with calibrating:
            calibrated = Fitted(plan, public_size).calibrate()
    trying = Trying(query=query, exemplars=lines, repeats=repeats)

    async def timed(stages: Stages) -> tuple[Trial, float]:
        """The trial, and the seconds that it took an engine with nothing else to do."""
        started = time.perf_counter()
        trial = await trials.try_(output.actor(), Trials(stages), calibrated, name, trying, field, response)
        return trial, time.perf_counter() - started

    with output.waiting("Starting the engine, and asking it"):
        trial, took_s = with_engine(engine_of(engine_config), timed)
    address = f"{plan.knowledge_base}.{name}"
    if json:
        output.print_json(TrialView.of(address, trial).model_dump(mode="json") | {"took_s": took_s})
    else:
        _print(address, trial, calibrated, took_s)


def candidates(
    file: PlanFile,
    task: str | None = None,
    per_label: Annotated[int, typer.Option(min=1, max=100)] = 12,
    vary: Annotated[Path | None, typer.Option(exists=True)] = None,
    *,
    reading: Reading,
    engine_config: EngineConfigFile = None,
) -> None:
    """Let the engine write candidates for `synthetic_exemplars`: it is shown the plan, and nothing private.

    Prints YAML to put below `candidates:`. Read it before you sign: what is chosen of it is shown with every question.

    Args:
        task: Name of the task with the labels. [default: the first with labels]
        per_label: Greatest number for each label, or for each text that is varied.
        vary: File of public exemplars to vary: one from `dpicl plan export`, or one as for `dpicl kb ingest`.
    """
    plan = load_plan(read_text(file))
    labelled = {name: planned for name, planned in plan.tasks.items() if isinstance(planned, ClassifyTask)}
    name = task or next(iter(labelled), "")
    if name not in labelled:
        raise ValueError(f"{file} has no task {name!r} with labels")
    varied = [] if vary is None else read_texts(vary, labelled[name].exemplar_fields, reading)
    config = engine_of(engine_config)
    if not config.is_llm:
        raise ValueError(f"{config.name} writes no texts: name a language model's config with --engine-config")
    with output.waiting("Starting the engine, and writing candidates"):
        written = with_engine(
            config, lambda stages: write_candidates(stages.engine, name, labelled[name], per_label, varied)
        )
    for candidate in written:
        typer.echo(f"- {to_json.dumps(candidate, ensure_ascii=False)}")


def with_engine(config: EngineConfig, work: Callable[[Stages], Coroutine[Any, Any, T]]) -> T:
    """The result of some work with an engine of its own, which is closed after it."""
    from service.engines.embedding.embedder import Embedder

    async def done() -> T:
        embedder = Embedder()
        with closing(open_engine(config, embedder)) as engine:
            return await work(Stages(engine, embedder, TIMEOUT_S))

    return asyncio.run(done())


def beside_engine(config: Path | None, work: Callable[[Stages | None], T]) -> T:
    """The result of some work in a private thread, beside an engine of its own if a config names one."""
    if config is None:
        return work(None)
    return with_engine(engine_of(config), lambda stages: privately(lambda: work(stages)))


def engine_of(config: Path | None) -> EngineConfig:
    """The engine of the config's one application, or the one that the file describes.

    Raises:
        ValueError: the file describes no engine; the message names the file and the fault.
    """
    if config is None:
        return NearestExemplarConfig()
    from service.serving.application import ApplicationArgs
    from service.serving.serve_config import load_serve_config

    with suppress(plain_yaml.NotPlainError):
        written = plain_yaml.load(read_text(config))
        if isinstance(written, dict) and "name" in written:
            return ApplicationArgs.model_validate({"engine": written}).engine
    applications = load_serve_config(config).applications
    if len(applications) != 1:
        raise ValueError(f"{config}: it has {len(applications)} applications; name a config with one")
    return ApplicationArgs.model_validate(applications[0].args).engine


def _print(task: str, trial: Trial, calibrated: CalibratedPlan, took_s: float) -> None:
    budget = calibrated.plan.budget
    output.print_text(f"{task} on {trial.supplied} public exemplars; nothing was charged", "bold")
    rows = [
        ("without noise", _in_words(trial.consensus.answer)),
        (f"one answer at ε = {budget.epsilon:g}, δ = {budget.delta:g} of the plan", _in_words(trial.answer)),
        ("draws of noise that gave the first", f"{trial.agreeing} of {trial.repeats}"),
    ]
    if trial.fallbacks is not None:
        rows.append(("draws that fell back on the zero-shot answer", f"{trial.fallbacks} of {trial.repeats}"))
    rows.append(("slots that answered (others were empty or abstained)", f"{trial.answered} of {trial.slots}"))
    output.print_table("", ["", "answer"], rows)
    support = [(answer, f"{value:.3g}") for answer, value in trial.consensus.support.items()]
    output.print_table("Outputs of the slots", ["", trial.consensus.measure], support)
    output.print_text(f"Note: {trial.caution}.")
    output.print_text(f"Engine: {trial.engine.name}. {trial.engine.notice}")
    output.print_text(f"Took {took_s:.2f} s on an idle engine.")


def _in_words(answer: Any) -> str:
    text: str = answer["label"] if "label" in answer else answer["text"]
    if "score" in answer:
        text += f" (score {answer['score']:.2f})"
    if "probability" in answer:
        text += f" (probability {answer['probability']:.2f})"
    return f"{text}\nkeywords: {', '.join(answer['keywords'])}" if answer.get("keywords") else text
