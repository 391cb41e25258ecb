"""Free text: how close the answers come to the right ones, before noise and after, by several mechanisms.

Everything is the pipeline's own, from the mechanism to the engine's ``reconstruct``, except that embeddings and
sentences are computed once and noise is drawn many times.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from accounting.mechanisms import TextMechanism
from accounting.plan import Plan, TaskNoise, parse_plan
from accounting.tasks import GenerateTask
from service.embedding.embedder import TextEmbedder
from service.embedding.memory import EmbeddingMemory
from service.engines.protocol import Engine, Sentence, TaskSpec
from service.evaluation.dataset import Asked
from service.evaluation.evaluator import Pass, noise_of
from service.evaluation.tables import Grid, Table
from service.evaluation.text_metrics import MEAN_METRICS, corpus_bleu, similarities
from service.pipeline.mechanisms.adapter import (
    ADAPTERS,
    Author,
    Public,
    TextAdapter,
    adapter_of,
    answer_adapter_of,
    said,
)
from service.pipeline.queries import InvalidQueryError
from service.trials.consensus import consensus


@dataclass(frozen=True)
class TextScores:
    """One row of the table; measures, their standard errors and shares are percentages.

    A standard error is that of the mean over test queries, each query's figure being averaged over slots or
    draws. BLEU is of all rows together, averaged over slots or draws, and has none.

    Attributes:
        method: what was measured.
        mechanism: by which, and its parameters; empty if none.
        epsilon: the plan's.
        answers: the plan's.
        noise: what one answer gets.
        queries: how many count.
        refused: how many the service would refuse, for want of candidates or words; they do not count.
        fallbacks: share of answers that were the zero-shot answer because no words stood out.
    """

    method: str
    mechanism: str
    epsilon: float | None
    answers: int | None
    noise: str
    queries: int
    refused: int
    fallbacks: float | None
    rouge1: float
    rouge1_error: float
    rouge2: float
    rouge2_error: float
    rougeL: float  # noqa: N815  (its name everywhere)
    rougeL_error: float  # noqa: N815
    levenshtein: float
    levenshtein_error: float
    bleu: float


@dataclass(frozen=True)
class Answers:
    """Texts of one test row by one method: as many as there are slots or draws.

    Attributes:
        right: the right answer.
        texts: what is compared with it, at least one.
        fallbacks: how many of them are the zero-shot answer.
    """

    right: str
    texts: Sequence[str]
    fallbacks: int | None = None


class Texts:
    """What an engine said of every test row, and what follows from it without noise, kept for the next mechanism.

    Args:
        asked: the rows.
        spec: the task as the engine knows it.
        engine: makes sentences of words.
        embedder: for candidates and outputs; should remember (:mod:`service.embedding.memory`).
    """

    def __init__(self, asked: Sequence[Asked], spec: TaskSpec, engine: Engine, embedder: TextEmbedder):
        self.asked = asked
        self._spec = spec
        self._engine = engine
        self._embedder = embedder
        self._sentences: dict[tuple[int, tuple[str, ...], bool], Sentence] = {}

    def zero_shot(self) -> list[Answers]:
        """The first public answer, where there is one."""
        return [Answers(row.answer, row.zero_shot.texts[:1]) for row in self.asked if row.zero_shot.texts]

    def single(self) -> list[Answers]:
        """Every slot by itself; a row none of whose slots answered counts as an empty text."""
        return [Answers(row.answer, _usable(row) or [""]) for row in self.asked]

    async def aggregate(self, task: GenerateTask, noise: TaskNoise, draws: int) -> list[Answers]:
        """Aggregate every row that the service would not refuse.

        Args:
            task: with the mechanism.
            noise: of one answer.
            draws: of noise, per row; 0 for one answer without any.
        """
        adapter, answers = answer_adapter_of(task, noise), []
        for number, row in enumerate(self.asked):
            public = Public(row.query, row.zero_shot, self._embedder, self._sentence_maker(number))
            try:
                ready = await adapter.prepare(public)
            except InvalidQueryError:
                continue
            if isinstance(ready, Author):
                raise ValueError(f"{task.mechanism.type}: benchmarks/evaluation/token_ensemble.py measures it")
            if draws:
                released = [await ready.release(row.outputs) for _ in range(draws)]
            else:
                released = [(await consensus(ready, row.outputs)).answer]
            fallbacks = [bool(answer["fallback"]) for answer in released if "fallback" in answer]
            texts = [str(answer["text"]) for answer in released]
            answers.append(Answers(row.answer, texts, sum(fallbacks) if fallbacks else None))
        return answers

    def _sentence_maker(self, number: int) -> Callable[[Sequence[str], bool], Awaitable[Sentence]]:
        row = self.asked[number]

        async def make(words: Sequence[str], ordered: bool) -> Sentence:
            key = number, tuple(words), ordered
            if key not in self._sentences:
                self._sentences[key] = await self._engine.reconstruct(
                    self._spec, row.query, words, ordered, row.zero_shot
                )
            return self._sentences[key]

        return make


def plot(results: Sequence[TextScores], title: str) -> Any:
    """A figure with ROUGE-1 against ε, a line per mechanism and number of answers, and what there is without noise."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.8), layout="constrained")
    axes = figure.subplots()
    mechanisms = list(dict.fromkeys(result.mechanism for result in results if result.mechanism))
    several = len({result.answers for result in results if result.answers}) > 1
    for style, result in zip((":", "-."), [r for r in results if not r.mechanism], strict=False):
        axes.axhline(result.rouge1, color="grey", linestyle=style, linewidth=1, label=result.method)
    for number, mechanism in enumerate(mechanisms):
        chosen = [result for result in results if result.mechanism == mechanism]
        for result in chosen:
            if result.epsilon is None:
                axes.axhline(result.rouge1, color=f"C{number}", linestyle="--", linewidth=1)
        for marker, answers in zip("os^vD", dict.fromkeys(r.answers for r in chosen if r.answers), strict=False):
            line = sorted((r for r in chosen if r.answers == answers), key=_epsilon)
            axes.errorbar(
                [_epsilon(result) for result in line],
                [result.rouge1 for result in line],
                yerr=[result.rouge1_error for result in line],
                color=f"C{number}",
                marker=marker,
                capsize=2,
                label=f"{mechanism}, {answers:,} answers" if several else mechanism,
            )
    axes.set(xscale="log", xlabel="ε of the whole plan", ylabel="ROUGE-1, % (dashed: without noise)", title=title)
    ticks = sorted({result.epsilon for result in results if result.epsilon is not None})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
    axes.minorticks_off()
    axes.legend(fontsize="x-small")
    return figure


class TextEvaluator:
    """Of tasks that release texts; see :class:`service.evaluation.evaluator.Evaluator`.

    Args:
        plan: its δ and accountant are used.
        task_name: a task that generates.
        mechanisms: to compare, in YAML as in a plan; if there are none, the task's own and one of each other type.

    Raises:
        accounting.plan.PlanError: a mechanism cannot be the task's.
        ValueError: one is not YAML.
    """

    plot = staticmethod(plot)
    calibration = None

    def __init__(self, plan: Plan, task_name: str, mechanisms: Sequence[str]):
        self._plan, self._name, self._task = plan, task_name, _generate(plan, task_name)
        self._compared = [self._read(written) for written in mechanisms] or compared(self._task.mechanism)
        self.answers: Sequence[int] = (self._task.answers,)

    def _read(self, written: str) -> TextMechanism:
        document = self._plan.model_dump(mode="json")
        try:
            document["tasks"][self._name]["mechanism"] = yaml.safe_load(written)
        except yaml.YAMLError:
            raise ValueError(f"--mechanism: {written!r} is not YAML; write it as in a plan") from None
        return _generate(parse_plan(document), self._name).mechanism

    def check(self, dataset: Path, limit: int | None) -> None:
        """See :class:`.evaluator.Evaluator`: any text may be an answer."""

    def rows(self, grid: Grid) -> int:
        """See :class:`.evaluator.Evaluator`."""
        return 2 + len(self._compared) * (1 + grid.settings)

    def evaluate(self, given: Pass, grid: Grid, progress: Callable[[int], None]) -> list[TextScores]:
        """See :class:`.evaluator.Evaluator`."""
        texts = Texts(given.asked, given.spec, given.engine, EmbeddingMemory(given.embedder))
        rows: list[TextScores] = given.run(self.scores(texts, given.public_size, grid, progress))
        return rows

    async def scores(
        self, texts: Texts, public_size: int, grid: Grid, progress: Callable[[int], None] = lambda done: None
    ) -> list[TextScores]:
        """The table: zero-shot, slots alone, and each mechanism without noise and at every combination of the grid.

        Every mechanism is given the whole of the plan's budget.

        Raises:
            accounting.plan.PlanError: a budget that cannot be kept.
        """
        total = len(texts.asked)
        results = [
            measure(texts.zero_shot(), total, "zero-shot"),
            measure(texts.single(), total, f"one slot of {self._task.shots}"),
        ]
        for mechanism in self._compared:
            for answers in grid.answers:
                task = self._task.model_copy(update={"mechanism": mechanism, "answers": answers})
                for epsilon in grid.epsilons:
                    noise = noise_of(self._plan, self._name, task, public_size, epsilon)
                    if answers == grid.answers[0] and epsilon == grid.epsilons[0]:
                        row = measure(await texts.aggregate(task, noise, 0), total, "aggregate, no noise", mechanism)
                        results.append(replace(row, fallbacks=None))
                    row = measure(await texts.aggregate(task, noise, grid.draws), total, "private", mechanism)
                    words = adapter_of(task, noise).outlook().noise_words
                    results.append(replace(row, epsilon=epsilon, answers=answers, noise=words))
                    progress(len(results))
        return results

    def table(self, rows: Sequence[TextScores], title: str) -> Table:
        """See :class:`.evaluator.Evaluator`."""
        several = len({row.answers for row in rows if row.answers}) > 1
        shown = [
            (
                row.mechanism or row.method,
                f"{row.epsilon:g}" if row.epsilon else ("no noise" if row.mechanism else ""),
                *([row.answers or ""] if several else []),
                f"{row.rouge1:.1f} ± {row.rouge1_error:.1f}",
                f"{row.rougeL:.1f}",
                f"{row.bleu:.1f}",
                f"{row.levenshtein:.1f}",
                "" if row.fallbacks is None else f"{row.fallbacks:.0f}",
            )
            for row in rows
        ]
        refused = {row.mechanism: row.refused for row in rows if row.refused}
        return Table(
            f"{title}, in %",
            ["answer", "ε", *(["answers"] if several else []), "ROUGE-1", "-L", "BLEU", "Lev.", "fallback"],
            shown,
            [
                f"{mechanism or 'zero-shot'}: {count} queries left out, which the service would refuse."
                for mechanism, count in refused.items()
            ],
        )


def compared(own: TextMechanism) -> list[TextMechanism]:
    """A task's own mechanism, and one of each other type that releases what slots say by themselves."""
    others = [adapter.example for adapter in ADAPTERS.values() if issubclass(adapter, TextAdapter)]
    return [own, *(other for other in others if other.type != own.type and not other.written_together)]


def _generate(plan: Plan, name: str) -> GenerateTask:
    task = plan.tasks[name]
    assert isinstance(task, GenerateTask)  # noqa: S101  (what asks for labels does not come here)  # nosec B101
    return task


def measure(answers: Sequence[Answers], total: int, method: str, mechanism: TextMechanism | None = None) -> TextScores:
    """One row of the table, out of ``total`` test rows, without what is said of a plan.

    Raises:
        ValueError: fewer than two rows were answered.
    """
    if len(answers) < 2:
        name = f"{method} {mechanism or ''}".strip()
        raise ValueError(f"{name}: {len(answers)} of {total} queries can be answered; at least 2 are needed")
    rows = np.array(
        [np.mean([similarities(text, answer.right) for text in answer.texts], axis=0) for answer in answers]
    )
    means, errors = rows.mean(axis=0), rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
    columns: dict[str, Any] = {}
    for name, mean, error in zip(MEAN_METRICS, means, errors, strict=True):
        columns[name], columns[f"{name}_error"] = float(mean), float(error)
    counted = [100 * answer.fallbacks / len(answer.texts) for answer in answers if answer.fallbacks is not None]
    return TextScores(
        method=method,
        mechanism=str(mechanism or ""),
        epsilon=None,
        answers=None,
        noise="",
        queries=len(answers),
        refused=total - len(answers),
        fallbacks=float(np.mean(counted)) if counted else None,
        bleu=_mean_bleu(answers),
        **columns,
    )


def _mean_bleu(answers: Sequence[Answers]) -> float:
    """Mean over slots or draws, each a corpus with one text per row that has so many."""
    corpora = [
        [(answer.texts[i], answer.right) for answer in answers if i < len(answer.texts)]
        for i in range(max(len(answer.texts) for answer in answers))
    ]
    scores = [corpus_bleu(*zip(*corpus, strict=True)) for corpus in corpora]
    return float(np.average(scores, weights=[len(corpus) for corpus in corpora]))


def _usable(row: Asked) -> list[str]:
    return [text for output in row.outputs if (text := said(output))]


def _epsilon(result: TextScores) -> float:
    return result.epsilon or 0.0
