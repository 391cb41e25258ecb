"""``dpicl eval``: what a budget buys, measured on data whose right answers are known."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field
from rich.progress import TaskID

from accounting.ledger.budgets import SignedTask
from accounting.ledger.events import AccuracyRecorded
from accounting.plans.tasks import ClassifyTask
from research.evaluation.dataset import PUBLIC_ONLY, ZERO_SHOT, Dataset, Progress
from research.evaluation.evaluator import Evaluator, Pass, Rows
from research.evaluation.labels import LabelEvaluator, LabelScores, OfLabels
from research.evaluation.once import PrototypesEvaluator, SoftmaxRegressionEvaluator, SyntheticExemplarsEvaluator
from research.evaluation.replies import KeptEngine
from research.evaluation.sweeps import Against, combinations, plot, varied, words
from research.evaluation.tables import Grid, read_csv, write_csv
from research.evaluation.texts import TextEvaluator
from service.answering.mechanisms.adapter import NO_CANDIDATES, Adapter, adapter_type, needs_written_texts
from service.answering.mechanisms.prototypes import PrototypesAdapter
from service.answering.mechanisms.softmax_regression import SoftmaxRegressionAdapter
from service.answering.mechanisms.synthetic_exemplars import SyntheticExemplarsAdapter
from service.answering.mechanisms.written_texts import WrittenTextsAdapter
from service.answering.queries import embedded_field
from service.cli import output
from service.cli.gathering import Options
from service.cli.output import Json, TaskName, Yes, print_json, print_table, progress
from service.cli.trying import EngineConfigFile, engine_of, plan_and_task
from service.engines.embedding.words import cache_folder
from service.engines.factory import open_engine
from service.operations import accuracies, wording
from service.records.signed import read_signed, read_task
from service.sources.reading import Reading


def _exported(data: Dataset) -> Evaluator:
    raise ValueError(f"{data.task_name} writes texts once: export them, and try a plan on them")


ONCE: dict[type[Adapter[Any, Any]], Callable[[Dataset], Evaluator]] = {
    SoftmaxRegressionAdapter: SoftmaxRegressionEvaluator,
    PrototypesAdapter: PrototypesEvaluator,
    SyntheticExemplarsAdapter: SyntheticExemplarsEvaluator,
    WrittenTextsAdapter: _exported,
}
"""Evaluators of one-time releases, by the mechanism's adapter."""


def evaluator_of(data: Dataset, mechanisms: Sequence[str]) -> Evaluator:
    """The evaluator for the task's mechanism, or for its kind; for free text it compares the given mechanisms."""
    if (evaluator := ONCE.get(adapter_type(data.task.mechanism))) is not None:
        return evaluator(data)
    return TextEvaluator(data, mechanisms) if data.task.kind == "generate" else LabelEvaluator(data)


_EPSILONS = (1.0, 3.0, 8.0)
_DECLARATION = (
    "Everyone who opens the dashboard will see the accuracy. Are these rows, training and test, public, and none of "
    "them from your knowledge bases?"
)


class NoiseOptions(Options):
    """The budgets, mechanisms and draws of noise that are compared."""

    epsilon: list[float] = Field(default=[])
    """Repeat it. [default: 1, 3, 8]"""
    answers: list[int] = Field(default=[])
    """Repeat it. [default: 1000, 10000; for free text, the plan's]"""
    mechanism: list[str] = Field(default=[])
    """For free text, as in a plan: '{type: keyword_joint_em, k: 5}'. Repeat it. [default: the task's own, and one of
    each other type]"""
    draws: Annotated[int, typer.Option(min=1)] = 20
    """Noise draws per query."""
    prior: Annotated[float, typer.Option(min=0)] = 1.0
    """For labels: weight of the prior, in σ of the noise."""
    fit: bool = False
    """For labels: fit the posterior's calibration, or prototypes' temperature, and print it for the plan, whose answers
    then carry the label's probability of being right. They will depend on these rows, training and test: you declare
    them public."""


class Questions(Options):
    """The questions to ask, and the folder that keeps a language model's replies."""

    queries: Annotated[int | None, typer.Option(min=2)] = None
    """Number of test rows to ask, from the first. [default: all]"""
    same_slots: bool = False
    """Draw slots once, not for each test row: a language model that has read them is several times faster."""
    unit_id: str = "unit_id"
    """The column with the privacy unit's id."""
    embedded_field: str | None = None
    """The field exemplars and queries are compared by. [default: the query's first]"""
    replies: Path | None = None
    """Folder to keep a language model's replies in."""


class Sweep(Options):
    """Numbers that take the place of the plan's, in every combination."""

    ensemble: list[int] = Field(default=[])
    """Number of slots, in place of the plan's. Repeat it."""
    shots: list[int] = Field(default=[])
    """Number of exemplars that a slot shows. Repeat it."""
    drawn: list[int] = Field(default=[])
    """Number of exemplars that a slot draws, with `order: nearest`. Repeat it."""
    candidates: list[int] = Field(default=[])
    """For free text: number of public answers to choose from. Repeat it."""
    against: Against | None = None
    """Horizontal axis of `--png`: a number that is swept, `answers`, or `prompts` (slots that are asked). [default: the
    first that is swept, else ε]"""


class Recording(Options):
    """A signed task whose accuracy is recorded."""

    record: str | None = None
    """Signed task to measure, as in support.team or support.team@1, with its plan, noise and answers. Its accuracy is
    recorded for the overview of the dashboard, and you declare these rows public, training and test. If one is recorded
    already, you are asked whether to replace it."""
    yes: Yes = False


class Drawn(Options):
    """Destinations of the results."""

    csv: Path | None = None
    """Write the table here."""
    png: Path | None = None
    """Draw it here."""
    beside: list[Path] = Field(default=[])
    """Draw the rows of this table, too, which `--csv` wrote for the same labels. Repeat it."""


def evaluate(
    dataset: Annotated[Path, typer.Argument(exists=True, file_okay=False)],
    plan_file: Annotated[Path | None, typer.Option("--plan", exists=True)] = None,
    task: TaskName = None,
    *,
    recording: Recording,
    noise: NoiseOptions,
    sweep: Sweep,
    questions: Questions,
    reading: Reading,
    engine_config: EngineConfigFile = None,
    drawn: Drawn,
    json: Json = False,
) -> None:
    """Measure, offline, how good answers are: zero-shot, aggregated without noise, and at each ε.

    Labels by accuracy, free text by ROUGE, BLEU and Levenshtein similarity. The training rows fill a knowledge base of
    their own; every test row draws its own slots, as in the service, unless `--same-slots` is given. The noise is then
    drawn many times. What is measured on your data is not private: use data you may look at.

    A language model's replies are kept as they are, in clear text, in `--replies` or your cache folder. A run that is
    cut off goes on where it stopped, and other noise, budgets, votes and mechanisms are compared without asking again.

    With `--ensemble`, `--shots`, `--drawn` and `--candidates`, each repeated, the same is measured for every
    combination; every other slot size or number of slots asks the engine again.

    Args:
        dataset: Folder with train and test: train.jsonl, train.csv or whatever else `dpicl kb ingest` takes.
        plan_file: A plan, unless --record names a signed task. Its budget's δ, and one of its tasks, are used.
    """
    from service.engines.embedding.embedder import Embedder, cores

    if drawn.png:
        import matplotlib.figure  # noqa: F401  (an extra: better missed now than after the evaluation)
    if (plan_file is None) == (recording.record is None):
        raise ValueError("name either a plan with --plan or a signed task with --record")
    signed, recorded, field = None, None, questions.embedded_field
    if plan_file is not None:
        plan, name = plan_and_task(plan_file, task)
    else:
        signed = _signed(recording, noise, task)
        plan, name = read_signed(signed.document).plan, signed.name
        field = output.records().store.get(signed.knowledge_base).embedded_field
    if noise.fit and not getattr(plan.tasks[name].mechanism, "can_be_fitted", False):
        fitting = "rnm_gaussian, softmax_regression and prototypes have"
        raise ValueError(f"--fit: {plan.tasks[name].mechanism.type} has nothing to fit; {fitting}")
    swept = combinations(sweep.model_dump())
    against: Any = sweep.against or next(iter(swept[0]), None)
    _check_sweep(sweep, swept[0], recording, noise, drawn)
    drawn_beside = [row for file in drawn.beside for row in read_csv(file, LabelScores)]
    field = embedded_field(plan, name, field)
    as_signed = read_task(signed)[1] if signed else None
    settings = (field, questions.unit_id, questions.queries, reading, as_signed)
    measured = [Dataset(dataset, varied(plan, name, combination), name, *settings) for combination in swept]
    evaluators = [evaluator_of(data, noise.mechanism) for data in measured]
    data, evaluator = measured[0], evaluators[0]
    # Bad rows are reported before much time is spent.
    title = f"{plan.knowledge_base}.{name}, {len(data.questions)} test queries"
    if signed is not None:
        _agree_to_replace(signed, len(data.questions), yes=recording.yes)
    answers = [signed.answers] if signed else noise.answers or evaluator.answers
    epsilons = [plan.budget.epsilon] if signed else noise.epsilon or _EPSILONS
    grid = Grid(epsilons, answers, noise.draws, noise.prior, noise.fit)
    config = engine_of(engine_config)
    if not config.is_llm and needs_written_texts(plan.tasks[name]):
        raise ValueError(f"{name}: {config.name} {NO_CANDIDATES}")
    embedder = Embedder(threads=cores())
    folder = questions.replies or cache_folder() / "replies"
    engine: Any = KeptEngine(config, embedder, folder) if config.is_llm else open_engine(config, embedder)
    # Language models read no embeddings, but what is released once is made of them, slots are ranked by them, and
    # topics found.
    embed = embedder.embed_many if evaluator.needs_embeddings or not config.is_llm else None
    most = max(measured, key=lambda one: one.task.expected * one.task.ensemble)  # whose slots need the most rows
    tables: list[Rows] = []
    with _stages(json) as shown, asyncio.Runner() as runner, closing(engine), most.filled(embed, shown) as store:
        if signed is not None:  # else an engine whose replies are all kept need not start
            answered_by = runner.run(engine.describe()).name
            accuracies.check_engine(output.records(), answered_by)
        for combination, one, measures in zip(swept, measured, evaluators, strict=True):
            stage = partial(_staged, shown, words(combination))
            asked = runner.run(one.ask(store, engine, embedder.embed, same_slots=questions.same_slots, progress=stage))
            given = Pass(asked, store, engine, embedder, runner.run)
            found = measures.evaluate(given, grid, partial(stage, "results"))
            tables.append([replace(row, **combination) for row in found])
    rows = [row for table in tables for row in table]
    if signed is not None and isinstance(evaluator, OfLabels):
        recorded = _record(signed, evaluator, rows, answered_by)
    if drawn.csv:
        write_csv(rows, drawn.csv)
    if drawn.png and against is None:
        evaluator.plot([*rows, *drawn_beside], title).savefig(drawn.png, dpi=150)
    elif drawn.png:
        plot(rows, title, against, evaluator.curves(rows)).savefig(drawn.png, dpi=150)
    if json:
        print_json({"rows": rows, **evaluator.fitted} if evaluator.fitted else rows)
        return
    for combination, measures, found in zip(swept, evaluators, tables, strict=True):
        table = measures.table(found, f"{title}; {words(combination)}" if combination else title)
        print_table(table.title, table.columns, table.rows)
        for note in table.notes:
            typer.echo(note)
    if recorded is not None:
        right = wording.accuracy(recorded.accuracy, recorded.standard_error, recorded.rows)
        without = wording.accuracy(recorded.zero_shot, recorded.zero_shot_error, recorded.rows)
        typer.echo(
            f"Recorded for the overview: {recorded.task} answers {right} right, and {without} without exemplars, on "
            f"{recorded.rows:,} rows."
        )


def _check_sweep(
    sweep: Sweep, swept: Mapping[str, int], recording: Recording, noise: NoiseOptions, drawn: Drawn
) -> None:
    """Check, before time is spent, that a sweep goes with the other options.

    Raises:
        ValueError: it does not.
    """
    options = " and ".join(f"--{key}" for key in swept)
    if swept and recording.record is not None:
        raise ValueError(f"--record measures a task as it was signed: leave {options} out")
    if swept and noise.fit:
        raise ValueError(f"--fit fits one plan: leave {options} out")
    if (swept or sweep.against) and drawn.beside:
        raise ValueError("--beside draws tables against ε: leave it, or the sweep, out")
    if sweep.against and not drawn.png:
        raise ValueError("--against: name the figure's file with --png")
    varying = "ensemble" if sweep.against == "prompts" else sweep.against
    values = noise.answers if varying == "answers" else getattr(sweep, varying or "ensemble")
    if varying and len(set(values)) < 2:
        raise ValueError(f"--against {sweep.against}: repeat --{varying} with other values")


def _staged(shown: Progress, combination: str, stage: str, done: int, total: int) -> None:
    """Show a stage of one of several combinations."""
    shown(f"{stage}, {combination}" if combination else stage, done, total)


def _signed(recording: Recording, noise: NoiseOptions, task: str | None) -> SignedTask:
    """The signed task to measure, once the user has declared the rows public."""
    if given := [f"--{name}" for name in ("epsilon", "answers") if getattr(noise, name)] + ["--task"] * bool(task):
        raise ValueError(f"--record measures a task as it was signed: leave {' and '.join(given)} out")
    signed = output.records().ledger.budgets.task(recording.record or "")
    written, _ = read_task(signed)
    if signed.topic is not None:
        raise ValueError(f"--record: name the whole task, {signed.knowledge_base}.{signed.name}@{signed.version}")
    if not isinstance(written, ClassifyTask):
        raise ValueError(f"--record: {signed.address} answers in words, which have no accuracy")
    if written.prior_from is not None:
        raise ValueError(f"--record: {signed.address} weighs another release (prior_from), which is not measured")
    output.agreed(_DECLARATION, yes=recording.yes)
    return signed


def _agree_to_replace(signed: SignedTask, rows: int, *, yes: bool) -> None:
    """Ask whether to replace the accuracy that is recorded for the task, if one is, before time is spent."""
    before = accuracies.newest(output.records()).get(signed.address)
    if before is not None:
        then = before.accuracy
        share = wording.accuracy(then.accuracy, then.standard_error, then.rows)
        was = f"{share} right on {then.rows:,} rows, on {before.at:%Y-%m-%d}"
        question = f"{signed.address} was measured: {was}. Replace that by a measurement on {rows:,} rows?"
        output.agreed(question, yes=yes)


def _record(signed: SignedTask, evaluator: OfLabels, rows: Sequence[LabelScores], engine: str) -> AccuracyRecorded:
    released = evaluator.released(rows)
    *_, without = (row for row in rows if row.method in (ZERO_SHOT, PUBLIC_ONLY))  # the last is free as it was signed
    return output.do(
        accuracies.record,
        signed,
        accuracy=released.accuracy,
        standard_error=released.standard_error,
        zero_shot=without.accuracy,
        zero_shot_error=without.standard_error,
        rows=len(evaluator.data.questions),
        engine=engine,
    )


@contextmanager
def _stages(hidden: bool) -> Iterator[Progress]:
    """A bar for each stage."""
    # A language model may take a minute for a question: the time left is estimated from fifteen.
    with progress(disable=hidden, speed_estimate_period=900.0) as bar:
        begun: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in begun:
                # What was there at the beginning took no time.
                begun[stage] = bar.add_task(stage, total=total, completed=done)
            bar.update(begun[stage], completed=done)

        yield show
