"""``dpicl eval``: what a budget buys, measured on data whose right answers are known."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from accounting.mechanisms import TextMechanism
from accounting.plan import Plan, load_plan, parse_plan
from accounting.tasks import ClassifyTask, GenerateTask
from service.cli.output import Json, print_json, print_table
from service.evaluation import dataset as data
from service.evaluation import labels, texts
from service.evaluation.tables import Grid, write_csv


def evaluate(
    dataset: Annotated[Path, typer.Argument(help="Folder with train.jsonl and test.jsonl.", exists=True)],
    plan_file: Annotated[
        Path, typer.Option("--plan", help="A plan; its budget's δ, and one of its tasks, are used.", exists=True)
    ],
    task: Annotated[str | None, typer.Option(help="Which of the plan's tasks. [default: the first]")] = None,
    epsilon: Annotated[list[float] | None, typer.Option(help="Repeat it. [default: 1, 3, 8]")] = None,
    answers: Annotated[
        list[int] | None, typer.Option(help="Repeat it. [default: 1000, 10000; for free text, the plan's]")
    ] = None,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            help="For free text, as in a plan: '{type: keyword_joint_em, k: 5}'. Repeat it. [default: the task's own, "
            "and one of each other type]"
        ),
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="Noise draws per query.")] = 20,
    prior: Annotated[float, typer.Option(min=0, help="For labels: weight of the prior, in σ of the noise.")] = 1.0,
    queries: Annotated[int | None, typer.Option(min=2, help="Only the first so many test rows.")] = None,
    unit_id: Annotated[str, typer.Option(help="The column with the privacy unit's id.")] = "id",
    embedded_field: Annotated[
        str | None, typer.Option(help="The field exemplars and queries are compared by. [default: the query's first]")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table here.")] = None,
    png: Annotated[Path | None, typer.Option(help="Draw it here.")] = None,
    json: Json = False,
) -> None:
    """Measure, offline, how good answers are: zero-shot, aggregated without noise, and at each ε.

    Labels by accuracy, free text by ROUGE, BLEU and Levenshtein similarity. The training rows fill a knowledge base of
    their own; every test row draws its own slots, as in the service. The noise is then drawn many times. What is
    measured on your data is not private: use data you may look at.
    """
    from service.embedding.embedder import Embedder, cores
    from service.embedding.memory import EmbeddingMemory
    from service.engines.embedded.nearest_exemplar import NearestExemplarEngine

    if png:
        import matplotlib.figure  # noqa: F401  (an extra: better missed now than after the evaluation)
    plan = load_plan(plan_file.read_text())
    name = task or next(iter(plan.tasks))
    if name not in plan.tasks:
        raise ValueError(f"{plan_file} has no task {name!r}; it has {', '.join(plan.tasks)}")
    chosen = plan.tasks[name]
    field = data.embedded_field(plan, name, embedded_field)
    if isinstance(chosen, ClassifyTask):
        labels.require_labels(dataset, chosen, queries)
        default = [1000, 10_000]
    else:
        compared = _mechanisms(mechanism, plan, name)
        default = [chosen.answers]
    grid = Grid(epsilon or [1.0, 3.0, 8.0], answers or default, draws, prior)
    settings = len(grid.epsilons) * len(grid.answers)
    embedder = Embedder(threads=cores())
    engine = NearestExemplarEngine(embedder)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, disable=json) as bar:
        bars: dict[str, int] = {}

        def progress(stage: str, done: int, total: int) -> None:
            if stage not in bars:
                bars[stage] = bar.add_task(stage, total=total)
            bar.update(bars[stage], completed=done)  # type: ignore[arg-type]

        asked = asyncio.run(
            data.ask(
                dataset,
                plan,
                name,
                engine,
                embedder.embed,
                field=field,
                unit_id=unit_id,
                limit=queries,
                progress=progress,
            )
        )
        size = data.training_size(dataset)
        results: Sequence[labels.Result] | Sequence[texts.Result]
        if isinstance(chosen, ClassifyTask):
            votes = labels.tally(asked, chosen.labels)
            total = 4 + 4 * settings
            results = found = labels.evaluate(
                votes, plan, name, chosen, size, grid, lambda done: progress("results", done, total)
            )
        else:
            total = 2 + len(compared) * (1 + settings)
            kept = texts.Texts(asked, data.specification(plan, name, field), engine, EmbeddingMemory(embedder))
            results = read = asyncio.run(
                texts.evaluate(
                    kept, plan, name, chosen, size, compared, grid, lambda done: progress("results", done, total)
                )
            )
    title = f"{plan.knowledge_base}.{name}, {len(asked)} test queries"
    if csv:
        write_csv(results, csv)
    if png:
        figure = labels.plot(found, title) if isinstance(chosen, ClassifyTask) else texts.plot(read, title)
        figure.savefig(png, dpi=150)
    if json:
        print_json([asdict(result) for result in results])
    elif isinstance(chosen, ClassifyTask):
        _print_labels(found, title)
    else:
        _print_texts(read, title)


def _mechanisms(written: list[str] | None, plan: Plan, name: str) -> list[TextMechanism]:
    """Those of ``--mechanism``, read as if the plan had them; or the task's own and one of each other type."""
    document = plan.model_dump(mode="json")
    read = []
    for one in written or []:
        try:
            document["tasks"][name]["mechanism"] = yaml.safe_load(one)
        except yaml.YAMLError:
            raise ValueError(f"--mechanism: {one!r} is not YAML; write it as in a plan") from None
        read.append(_generate(parse_plan(document), name).mechanism)
    own = _generate(plan, name).mechanism
    return read or [own, *(other for other in texts.COMPARED if other.type != own.type)]


def _generate(plan: Plan, name: str) -> GenerateTask:
    task = plan.tasks[name]
    assert isinstance(task, GenerateTask)  # noqa: S101  (what asks for labels does not come here)  # nosec B101
    return task


def _print_labels(results: Sequence[labels.Result], title: str) -> None:
    rows = [
        (
            result.method,
            "" if result.epsilon is None else f"{result.epsilon:g}",
            result.answers or "",
            result.vote,
            "yes" if result.prior else "",
            f"{result.sigma:.1f}" if result.sigma else "",
            f"{result.accuracy:.1f} ± {result.standard_error:.1f}",
        )
        for result in results
    ]
    print_table(title, ["method", "ε", "answers", "vote", "prior", "σ (votes)", "accuracy, % ± s.e."], rows)


def _print_texts(results: Sequence[texts.Result], title: str) -> None:
    """The important columns, so that a terminal holds them; files and JSON have them all."""
    several = len({result.answers for result in results if result.answers}) > 1
    rows = [
        (
            result.mechanism or result.method,
            f"{result.epsilon:g}" if result.epsilon else ("no noise" if result.mechanism else ""),
            *([result.answers or ""] if several else []),
            f"{result.rouge1:.1f} ± {result.rouge1_error:.1f}",
            f"{result.rougeL:.1f}",
            f"{result.bleu:.1f}",
            f"{result.levenshtein:.1f}",
            "" if result.fallbacks is None else f"{result.fallbacks:.0f}",
        )
        for result in results
    ]
    columns = ["answer", "ε", *(["answers"] if several else []), "ROUGE-1", "-L", "BLEU", "Lev.", "fallback"]
    print_table(f"{title}, in %", columns, rows)
    for mechanism, refused in {result.mechanism: result.refused for result in results if result.refused}.items():
        typer.echo(f"{mechanism or 'zero-shot'}: {refused} queries left out, which the service would refuse.")
