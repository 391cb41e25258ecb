"""Free text: how close the answers come to the right ones, before noise and after, by several mechanisms.

Everything is the pipeline's own, from the mechanism to the engine's ``reconstruct``, except that embeddings and
sentences are computed once and noise is drawn many times.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np
from typing_extensions import override

from accounting.plans import plain_yaml
from accounting.plans.mechanisms import TextMechanism
from accounting.plans.plan import TaskNoise, parse_plan
from accounting.plans.tasks import GenerateTask
from exemplar_store.knowledge_base import Progress, do_nothing
from research.evaluation.dataset import PUBLIC_ONLY, ZERO_SHOT, Asked, Dataset, without_private
from research.evaluation.evaluator import Evaluator, Pass, draw_line, mark_epsilons
from research.evaluation.sweeps import Curves
from research.evaluation.tables import Grid, ReportTable
from research.evaluation.text_metrics import MEAN_METRICS, corpus_bleu, similarities
from service.answering.mechanisms.adapter import ADAPTERS, Author, Public, TextAdapter, adapter_of, answer_adapter_of
from service.answering.queries import InvalidQueryError
from service.answering.trials.consensus import consensus, texts_of
from service.engines.embedding.embedder import TextEmbedder
from service.engines.embedding.memory import EmbeddingMemory
from service.engines.protocol import Engine
from service.engines.task import Sentence, TaskSpec


@dataclass(frozen=True)
class TextScores:
    """One row of the table; measures, their standard errors and shares are percentages.

    A standard error is that of the mean over test queries, each query's figure being averaged over slots or
    draws. BLEU is of all rows together, averaged over slots or draws, and has none.

    Attributes:
        method: name of the method measured.
        mechanism: mechanism and its parameters; empty if there is none.
        epsilon: ε of the plan.
        answers: number of answers of the plan.
        noise: noise of one answer.
        queries: number of queries that count.
        refused: number of queries the service would refuse, for want of candidates or words; they do not count.
        fallbacks: share of answers that were the zero-shot answer because no words stood out.

    The last four are those of the task, where they are swept (:mod:`.sweeps`).
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
    ensemble: int | None = None
    shots: int | None = None
    drawn: int | None = None
    candidates: int | None = None


@dataclass(frozen=True)
class Answers:
    """Texts of one test row by one method: as many as there are slots or draws.

    Attributes:
        right: right answer.
        texts: texts that are compared with it, at least one.
        fallbacks: number of them that are the zero-shot answer.
    """

    right: str
    texts: Sequence[str]
    fallbacks: int | None = None


@dataclass(frozen=True)
class AnsweredTexts:
    """An engine's replies to every test row, and what follows from them without noise, kept for the next mechanism.

    Attributes:
        asked: test rows.
        spec: task as the engine knows it.
        engine: engine that makes sentences of words.
        embedder: embedder for candidates and outputs; should remember (:mod:`service.engines.embedding.memory`).
    """

    asked: Sequence[Asked]
    spec: TaskSpec
    engine: Engine
    embedder: TextEmbedder
    _sentences: dict[tuple[int, tuple[str, ...], bool], Sentence] = field(default_factory=dict, init=False)

    def without_private(self) -> dict[str, list[Answers]]:
        """The first public answer, where there is one, by method (:func:`.dataset.without_private`)."""
        return {
            method: [
                Answers(row.answer, public.texts[:1])
                for row, public in zip(self.asked, outputs, strict=True)
                if public.texts
            ]
            for method, outputs in without_private(self.asked).items()
        }

    def single(self) -> list[Answers]:
        """Every slot by itself; a row none of whose slots answered counts as an empty text."""
        return [Answers(row.answer, texts_of(row.outputs) or [""]) for row in self.asked]

    async def aggregate(self, task: GenerateTask, noise: TaskNoise, draws: int) -> list[Answers]:
        """Aggregate every row that the service would not refuse.

        Args:
            task: task with the mechanism.
            noise: noise of one answer.
            draws: number of noise draws per row; 0 for one answer without noise.
        """
        adapter, answers = answer_adapter_of(task, noise), []
        for number, row in enumerate(self.asked):
            public = Public(row.query, row.zero_shot, self.embedder, partial(self._sentence, number))
            try:
                ready = await adapter.prepare(public)
            except InvalidQueryError:
                continue
            if isinstance(ready, Author):
                raise ValueError(f"{task.mechanism.type}: research/studies/token_ensemble.py measures it")
            if draws:
                released = [await ready.release(row.outputs) for _ in range(draws)]
            else:
                released = [(await consensus(ready, row.outputs)).answer]
            fallbacks = [bool(answer["fallback"]) for answer in released if draws and "fallback" in answer]
            texts = [str(answer["text"]) for answer in released]
            answers.append(Answers(row.answer, texts, sum(fallbacks) if fallbacks else None))
        return answers

    async def _sentence(self, number: int, words: Sequence[str], ordered: bool) -> Sentence:
        row, key = self.asked[number], (number, tuple(words), ordered)
        if key not in self._sentences:
            made = await self.engine.reconstruct(self.spec, row.query, words, ordered, row.zero_shot)
            self._sentences[key] = made
        return self._sentences[key]


def plot(rows: Sequence[TextScores], title: str) -> Any:
    """A figure with ROUGE-1 against ε, a line per mechanism and number of answers, and what there is without noise."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.8), layout="constrained")
    axes = figure.subplots()
    mechanisms = list(dict.fromkeys(result.mechanism for result in rows if result.mechanism))
    several = len({result.answers for result in rows if result.answers}) > 1
    for style, result in zip((":", (0, (1, 5)), "-."), [r for r in rows if not r.mechanism], strict=False):
        axes.axhline(result.rouge1, color="grey", linestyle=style, linewidth=1, label=result.method)
    for number, mechanism in enumerate(mechanisms):
        chosen = [result for result in rows if result.mechanism == mechanism]
        for result in chosen:
            if result.epsilon is None:
                axes.axhline(result.rouge1, color=f"C{number}", linestyle="--", linewidth=1)
        for marker, answers in zip("os^vD", dict.fromkeys(r.answers for r in chosen if r.answers), strict=False):
            line = [result for result in chosen if result.answers == answers]
            label = f"{mechanism}, {answers:,} answers" if several else mechanism
            draw_line(axes, line, "rouge1", "rouge1_error", color=f"C{number}", marker=marker, label=label)
    mark_epsilons(axes, [result for result in rows if result.epsilon is not None])
    axes.set(ylabel="ROUGE-1, % (dashed: without noise)", title=title)
    axes.legend(fontsize="x-small")
    return figure


class TextEvaluator(Evaluator):
    """Measures tasks that release texts; see :class:`research.evaluation.evaluator.Evaluator`.

    Args:
        data: data with a task that generates.
        mechanisms: mechanisms to compare, in YAML as in a plan; empty for the task's own and one of each other type.

    Raises:
        accounting.plans.plan.PlanError: a mechanism cannot be the task's.
        ValueError: a mechanism is not YAML.
    """

    plot = staticmethod(plot)

    def __init__(self, data: Dataset, mechanisms: Sequence[str]):
        super().__init__(data)
        assert isinstance(data.task, GenerateTask)  # noqa: S101  (of texts)
        self._task = data.task
        self._compared = [self._read(written) for written in mechanisms] or compared(self._task.mechanism)
        self.answers = (self._task.answers,)

    def _read(self, written: str) -> TextMechanism:
        document = self.data.plan.model_dump(mode="json")
        try:
            document["tasks"][self.data.task_name] |= {"mechanism": plain_yaml.load(written), "sentence": None}
        except plain_yaml.NotPlainError:
            raise ValueError(f"--mechanism: {written!r} is not YAML; write it as in a plan") from None
        return cast(TextMechanism, parse_plan(document).tasks[self.data.task_name].mechanism)

    @override
    def evaluate(self, given: Pass, grid: Grid, progress: Progress) -> list[TextScores]:
        texts = AnsweredTexts(given.asked, self.data.specification, given.engine, EmbeddingMemory(given.embedder))
        rows: list[TextScores] = given.run(self.scores(texts, grid, progress))
        return rows

    async def scores(self, texts: AnsweredTexts, grid: Grid, progress: Progress = do_nothing) -> list[TextScores]:
        """The table: zero-shot, slots alone, and each mechanism without noise and at every combination of the grid.

        Every mechanism is given the whole of the plan's budget.

        Raises:
            accounting.plans.plan.PlanError: a budget that cannot be kept.
        """
        total = len(texts.asked)
        results = [
            *(measure(answers, total, method) for method, answers in texts.without_private().items()),
            measure(texts.single(), total, f"one slot of {self._task.shots}"),
        ]
        free = len(results)
        for mechanism in self._compared:
            for answers in grid.answers:
                task = self._task.model_copy(update={"mechanism": mechanism, "answers": answers})
                for epsilon in grid.epsilons:
                    noise = self.noise(task, epsilon)
                    if answers == grid.answers[0] and epsilon == grid.epsilons[0]:
                        noiseless = await texts.aggregate(task, noise, 0)
                        results.append(measure(noiseless, total, "aggregate, no noise", mechanism))
                    row = measure(await texts.aggregate(task, noise, grid.draws), total, "private", mechanism)
                    words = adapter_of(task, noise).outlook().noise_words
                    results.append(replace(row, epsilon=epsilon, answers=answers, noise=words))
                    progress(len(results), free + len(self._compared) * (1 + grid.settings))
        return results

    @override
    def curves(self, rows: Sequence[TextScores]) -> Curves:
        def name(row: TextScores) -> str:
            noiseless = f"{row.mechanism}, no noise" if row.epsilon is None else row.mechanism
            return noiseless if row.mechanism else row.method

        free = (ZERO_SHOT, PUBLIC_ONLY)
        return Curves("rouge1", "rouge1_error", "ROUGE-1, %", name, lambda row: row.method in free)

    @override
    def table(self, rows: Sequence[TextScores], title: str) -> ReportTable:
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
        return ReportTable(
            f"{title}, in %",
            ["answer", "ε", *(["answers"] if several else []), "ROUGE-1", "-L", "BLEU", "Lev.", "fallback"],
            shown,
            [
                f"{mechanism or 'zero-shot'}: {count} queries left out, which the service would refuse."
                for mechanism, count in refused.items()
            ],
        )


def compared(own: TextMechanism) -> list[TextMechanism]:
    """A task's own mechanism, and one of each other type that releases the slots' answers by themselves."""
    others = [adapter.example for adapter in ADAPTERS.values() if issubclass(adapter, TextAdapter)]
    return [own, *(other for other in others if other.type != own.type and not other.written_together)]


def measure(answers: Sequence[Answers], total: int, method: str, mechanism: TextMechanism | None = None) -> TextScores:
    """One row of the table, out of ``total`` test rows, without the columns on a plan.

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
    """Mean over slots or draws, each a corpus with one text of every row that has one for it."""
    corpora = [
        [(answer.texts[i], answer.right) for answer in answers if i < len(answer.texts)]
        for i in range(max(len(answer.texts) for answer in answers))
    ]
    scores = [corpus_bleu(*zip(*corpus, strict=True)) for corpus in corpora]
    return float(np.average(scores, weights=[len(corpus) for corpus in corpora]))
