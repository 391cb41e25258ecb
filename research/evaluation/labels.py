"""Labels: the share of right answers, before noise and after."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from typing_extensions import override

import accounting.plans.mechanisms
from accounting.plans import plain_yaml
from accounting.plans.mechanisms import RnmGaussianMechanism
from accounting.plans.plan import TaskNoise, calibrate_plan
from accounting.plans.tasks import ClassifyTask
from accounting.privacy.profiles import Gaussian
from aggregation.noise import FixedPoint, add_gaussian_noise, from_fixed_point, to_fixed_point
from aggregation.posterior import LabelPosterior, PosteriorParameters
from aggregation.rnm_gaussian import RnmGaussian
from aggregation.votes import Vote, sum_votes
from exemplar_store.knowledge_base import Progress, do_nothing
from research.evaluation.dataset import PUBLIC_ONLY, ZERO_SHOT, Asked, Dataset, without_private
from research.evaluation.evaluator import Evaluator, Pass, draw_line, mark_epsilons
from research.evaluation.fitting import Labelled, fit
from research.evaluation.sweeps import Curves
from research.evaluation.tables import Grid, ReportTable
from service.answering.mechanisms.rnm_gaussian import posterior_model

ARGMAX, ARGMAX_WITH_PRIOR, POSTERIOR, FITTED = "argmax", "argmax, prior", "posterior", "posterior, fitted"
"""Rules that choose a label from noisy votes."""
PRIVATE = "private"
"""The method as released; :data:`.dataset.ZERO_SHOT` and :data:`.dataset.PUBLIC_ONLY` see no private exemplar."""
_BINS = 10
_CHANCES = 200
_DIGITS = 3


@dataclass(frozen=True)
class Votes:
    """An engine's votes on every test query, before any noise.

    Attributes:
        truth: index of the right label, int (queries,).
        zero_shot: public label probabilities, float (queries, labels).
        single: whether one slot alone is right, averaged over the slots that answered, float (queries,).
        hard: sums of hard votes, float (queries, labels).
        soft: sums of soft votes, float (queries, labels).
        without_private: public label probabilities by method (:func:`.dataset.without_private`).
    """

    truth: np.ndarray
    zero_shot: np.ndarray
    single: np.ndarray
    hard: np.ndarray
    soft: np.ndarray
    without_private: Mapping[str, np.ndarray]

    def of(self, vote: Vote) -> Labelled:
        """The rows with the votes of one kind."""
        return Labelled(self.truth, self.zero_shot, self.hard if vote == "hard" else self.soft)


@dataclass(frozen=True)
class LabelScores:
    """One row of the table. All but the first six, and the number of questions, are percentages.

    The standard error is that of the mean over test queries, each query's accuracy being averaged over noise draws.
    The four before the number of questions judge probabilities, and so need a posterior: the expected calibration error
    in ten bins, its average if the probabilities were exact (a finite number of rows never fits perfectly), and the
    accuracy of the most probable 80 % and 50 % of answers. The last four are those of the task, where they are swept
    (:mod:`.sweeps`).
    """

    method: str
    epsilon: float | None
    answers: int | None
    vote: str
    decide: str
    sigma: float
    accuracy: float
    standard_error: float
    calibration_error: float | None = None
    error_by_chance: float | None = None
    accuracy_of_80: float | None = None
    accuracy_of_50: float | None = None
    questions: int | None = None
    ensemble: int | None = None
    shots: int | None = None
    drawn: int | None = None
    candidates: int | None = None


_LINES = {ARGMAX: ":", POSTERIOR: "-", FITTED: "--"}
"""Line style of each rule to decide; the table has one more."""
_FREE: dict[str, Any] = {ZERO_SHOT: "-", PUBLIC_ONLY: (0, (5, 1))}
_NOISELESS = {
    "soft": "-.",
    "hard": "--",
    "softmax_regression": "-",
    "prototypes": ":",
    "synthetic_exemplars": (0, (1, 5)),
}
_COLOURS = {"hard": "C0", "soft": "C1", "softmax_regression": "C4", "prototypes": "C2", "synthetic_exemplars": "C3"}
"""Colours by the kind of votes, or by the mechanism of a one-time release."""


def plot(rows: Sequence[LabelScores], title: str) -> Any:
    """A figure with accuracy against ε, a panel for each number of answers, and what there is without noise."""
    from matplotlib.figure import Figure

    private = [result for result in rows if result.epsilon is not None]
    flat = {(result.method, result.vote): result for result in rows if result.epsilon is None}
    panels = list(dict.fromkeys(result.answers for result in private))
    figure = Figure(figsize=(2.2 + 2.9 * len(panels), 4.4), layout="constrained")
    every = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, answers in zip(every, panels, strict=True):
        for result in flat.values():
            if not result.method.startswith("one slot"):
                method = result.method.removesuffix(", no noise")
                style = _FREE.get(method) or _NOISELESS[result.vote or method]
                label = f"{result.method}{f' ({result.vote})' if result.vote else ''}"
                axes.axhline(result.accuracy, color="grey", linestyle=style, linewidth=1, label=label)
        lines: dict[tuple[str, str, str], list[LabelScores]] = {}
        for result in private:
            if result.answers == answers and result.decide in ("", *_LINES):
                lines.setdefault((result.method, result.vote, result.decide), []).append(result)
        for (method, vote, decide), line in lines.items():
            label = f"{vote} votes, {decide}" if vote else method
            look: dict[str, Any] = {"color": _COLOURS[vote or method], "linestyle": _LINES.get(decide, "-")}
            draw_line(axes, line, "accuracy", "standard_error", linewidth=1, marker=".", label=label, **look)
        mark_epsilons(axes, [result for line in lines.values() for result in line])
        axes.set_title("any number of answers" if answers is None else f"{answers:,} answers", fontsize="medium")
    every[0].set_ylabel("accuracy, %")
    figure.suptitle(title)
    known = {label: line for axes in every for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(known.values(), known, loc="outside right center", fontsize="x-small", handlelength=4)
    return figure


class OfLabels(Evaluator):
    """Measures tasks that release labels; see :class:`.evaluator.Evaluator`."""

    plot = staticmethod(plot)

    def __init__(self, data: Dataset):
        super().__init__(data)
        assert isinstance(data.task, ClassifyTask)  # noqa: S101  (of labels)
        self._task = data.task

    @override
    def table(self, rows: Sequence[LabelScores], title: str) -> ReportTable:
        shown = [
            (
                row.method,
                "" if row.epsilon is None else f"{row.epsilon:g}",
                "any number" if row.epsilon is not None and row.answers is None else row.answers or "",
                row.vote,
                row.decide,
                f"{row.sigma:.1f}" if row.sigma else "",
                f"{row.accuracy:.1f}" + (f" ± {row.standard_error:.1f}" if 0 < row.accuracy < 100 else ""),
                "" if row.calibration_error is None else f"{row.calibration_error:.1f} ({row.error_by_chance:.1f})",
                "" if row.accuracy_of_80 is None else f"{row.accuracy_of_80:.1f} / {row.accuracy_of_50:.1f}",
            )
            for row in rows
        ]
        columns = ["method", "ε", "answers", "vote", "decide", "σ", "accuracy, % ± s.e."]
        columns += ["calibration error (by chance), %", "surest 80 / 50 %"]
        if not self.fitted:
            return ReportTable(title, columns, shown)
        # Lines to be pasted: only what is innermost in braces.
        innermost = any(isinstance(value, dict) for value in self.fitted.values())
        block = plain_yaml.dump(self.fitted, in_line=innermost)
        return ReportTable(title, columns, shown, ["For the plan's mechanism, fitted to all rows:", block.rstrip()])

    @override
    def curves(self, rows: Sequence[LabelScores]) -> Curves:
        released = self.released(rows)

        def name(row: LabelScores) -> str:
            if row.epsilon is not None:
                same = (row.method, row.vote, row.decide) == (released.method, released.vote, released.decide)
                return row.method if same else ""
            return row.method if row.vote in ("", released.vote) or row.method.startswith("one slot") else ""

        free = (ZERO_SHOT, PUBLIC_ONLY)
        return Curves("accuracy", "standard_error", "accuracy, %", name, lambda row: row.method in free)

    @abstractmethod
    def released(self, rows: Sequence[LabelScores]) -> LabelScores:
        """The first row of the table with the answers that the service would release."""

    @property
    def enough(self) -> dict[str, int]:
        """``fitted_to``, as a plan writes it, if there are enough rows to call a score a probability."""
        rows = len(self.data.questions)
        return {"fitted_to": rows} if rows >= accounting.plans.mechanisms.FEWEST_ROWS else {}


class LabelEvaluator(OfLabels):
    """Measures tasks that release labels by votes. The calibration is fitted to all rows at the plan's own noise.

    Raises:
        ValueError: the task's labels are not released by votes, the only mechanism measured here.
    """

    answers = (1000, 10_000)

    def __init__(self, data: Dataset):
        super().__init__(data)
        if not isinstance(self._task.mechanism, RnmGaussianMechanism):
            used = self._task.mechanism.type
            raise ValueError(f"{data.task_name}: only votes (rnm_gaussian) are measured, not {used}")
        self._written = self._task.mechanism

    @override
    def evaluate(self, given: Pass, grid: Grid, progress: Progress) -> list[LabelScores]:
        votes = tally(given.asked, self._task.labels)
        if grid.fit:
            self.fitted = {"calibration": {**self.enough, **self._fit(votes).model_dump()}}
        return self.scores(votes, grid, progress)

    def scores(self, votes: Votes, grid: Grid, progress: Progress = do_nothing) -> list[LabelScores]:
        """The table: zero-shot, one slot, the aggregate without noise, and every combination of the grid.

        Raises:
            accounting.plans.plan.PlanError: a budget that cannot be kept.
        """
        rows = [
            *free_rows(votes.without_private, votes.truth),
            score(f"one slot of {self._task.shots}", votes.single, vote="hard"),
            score("aggregate, no noise", votes.hard.argmax(axis=1) == votes.truth, vote="hard"),
            score("aggregate, no noise", votes.soft.argmax(axis=1) == votes.truth, vote="soft"),
        ]
        free = len(rows)
        for answers in grid.answers:
            task = self._task.model_copy(update={"answers": answers})
            for epsilon in grid.epsilons:
                z = _multiplier(self.noise(task, epsilon))
                for vote in get_args(Vote):
                    private = self._private(votes, vote, z, grid)
                    rows += [replace(row, epsilon=epsilon, answers=answers) for row in private]
                progress(len(rows), free + (8 if grid.fit else 6) * grid.settings)
        return rows

    @override
    def released(self, rows: Sequence[LabelScores]) -> LabelScores:
        written = self._written
        rule = POSTERIOR if written.decide == "posterior" else ARGMAX_WITH_PRIOR if written.prior_weight else ARGMAX
        return next(row for row in rows if (row.method, row.vote, row.decide) == (PRIVATE, written.vote, rule))

    def _private(self, votes: Votes, vote: Vote, z: float, grid: Grid) -> list[LabelScores]:
        """A row for each way to decide, with the noise multiplier z."""
        task, sums = self._task, votes.of(vote).votes
        plain = RnmGaussian(z, len(task.labels), vote)
        weight = grid.prior_in_sigmas * plain.sigma if self.data.signed is None else self._written.prior_weight or 0.0
        informed = RnmGaussian(z, len(task.labels), vote, prior_weight=weight)
        posteriors = {
            decide: [LabelPosterior(plain.sigma, task.ensemble, calibration) for calibration in each]
            for decide, each in self._calibrations(votes, vote, plain.sigma, grid.fit).items()
        }
        right = {decide: np.zeros((grid.draws, len(sums))) for decide in (ARGMAX, ARGMAX_WITH_PRIOR, *posteriors)}
        probability = {decide: np.zeros((grid.draws, len(sums))) for decide in posteriors}
        noisy = with_noise(np.tile(to_fixed_point(sums), (grid.draws, 1, 1)), plain.sigma)
        for i, truth in enumerate(votes.truth):
            prior = votes.zero_shot[i]
            right[ARGMAX][:, i] = [plain.select(drawn) == truth for drawn in noisy[:, i]]
            right[ARGMAX_WITH_PRIOR][:, i] = [informed.select(drawn, prior) == truth for drawn in noisy[:, i]]
            for decide, posterior in posteriors.items():
                believed = posterior[i].probabilities(noisy[:, i], prior)
                right[decide][:, i] = believed.argmax(axis=-1) == truth
                probability[decide][:, i] = believed.max(axis=-1)
        rows = []
        for decide, hits in right.items():
            row = score(PRIVATE, hits.mean(axis=0), vote=vote, decide=decide, sigma=plain.sigma)
            rows.append(replace(row, **sureness(hits, probability[decide])) if decide in probability else row)
        return rows

    def _calibrations(
        self, votes: Votes, vote: Vote, sigma: float, fitted: bool
    ) -> dict[str, list[PosteriorParameters]]:
        """The task's, and if asked for those fitted to the half of the rows that has not the row to be decided.

        By way to decide, one for each row.
        """
        default, rows = self._believed(vote), len(votes.truth)
        calibrations = {POSTERIOR: [default] * rows}
        if fitted:
            calibrations[FITTED] = [default] * rows
            for seen, unseen in halves(rows):
                calibration = fit(votes.of(vote).only(seen), sigma, self._task.ensemble, default)
                for row in unseen:
                    calibrations[FITTED][row] = calibration
        return calibrations

    def _fit(self, votes: Votes) -> accounting.plans.mechanisms.Calibration:
        vote, task = self._written.vote, self._task
        noise = calibrate_plan(self.data.plan, self.data.public_size).noise[self.data.task_name]
        sigma = RnmGaussian(_multiplier(noise), len(task.labels), vote).sigma
        fitted = fit(votes.of(vote), sigma, task.ensemble, self._believed(vote))
        weights = {label: round(weight, _DIGITS) for label, weight in zip(task.labels, fitted.weights, strict=True)}
        rest = {name: round(getattr(fitted, name), _DIGITS) for name in ("prior", "decisiveness", "lead", "echo")}
        return accounting.plans.mechanisms.Calibration(**rest, label_weights=weights)

    def _believed(self, vote: Vote) -> PosteriorParameters:
        """The task's calibration, or the default if it has another vote or none."""
        written = self._written
        if written.vote != vote or written.calibration is None:
            written = RnmGaussianMechanism(type="rnm_gaussian", vote=vote)
        return posterior_model(written, self._task)


def halves(rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows to fit to and rows to measure, by index: each half once."""
    shuffled = np.random.default_rng(0).permutation(rows)
    one, other = shuffled[::2], shuffled[1::2]
    return [(one, other), (other, one)]


def tally(asked: Sequence[Asked], labels: Sequence[str]) -> Votes:
    """Count the votes for each label, every query by itself."""
    truth, zero_shot, single, hard, soft = [], [], [], [], []
    for row in asked:
        right = labels.index(row.answer)
        votes = [output if isinstance(output, np.ndarray) else None for output in row.outputs]
        answered = [int(np.argmax(vote)) == right for vote in votes if vote is not None]
        truth.append(right)
        zero_shot.append(row.zero_shot.probabilities)
        single.append(float(np.mean(answered)) if answered else 0.0)
        hard.append(from_fixed_point(sum_votes(votes, len(labels), "hard")))
        soft.append(from_fixed_point(sum_votes(votes, len(labels), "soft")))
    public = public_probabilities(asked)
    return Votes(np.array(truth), np.array(zero_shot), np.array(single), np.array(hard), np.array(soft), public)


def public_probabilities(asked: Sequence[Asked]) -> dict[str, np.ndarray]:
    """Public label probabilities, float (queries, labels), by method (:func:`.dataset.without_private`)."""
    return {
        method: np.array([public.probabilities for public in outputs])
        for method, outputs in without_private(asked).items()
    }


def free_rows(without_private: Mapping[str, np.ndarray], truth: np.ndarray) -> list[LabelScores]:
    """The rows of the methods that see no private exemplar; the last is the free answer."""
    return [score(method, public.argmax(axis=1) == truth) for method, public in without_private.items()]


def _multiplier(noise: TaskNoise) -> float:
    assert isinstance(noise.mechanism, Gaussian)  # noqa: S101  (as votes are released)
    return noise.mechanism.noise_multiplier


def with_noise(exact: FixedPoint, sigma: float) -> np.ndarray:
    """Gaussian noise on values of any shape."""
    return from_fixed_point(add_gaussian_noise(exact.ravel(), sigma)).reshape(exact.shape)


def sureness(right: np.ndarray, probability: np.ndarray) -> dict[str, Any]:
    """The last four columns, by name; both arguments have shape (draws, rows)."""
    surest = right.ravel()[np.argsort(-probability.ravel(), kind="stable")]
    shares = [100 * float(surest[: max(1, len(surest) * share // 100)].mean()) for share in (80, 50)]
    lots = np.random.default_rng(0).random((_CHANCES, 1, right.shape[1]))  # a row is as lucky in every draw
    return {
        "calibration_error": _calibration_error(right, probability),
        "error_by_chance": float(np.mean([_calibration_error(lot < probability, probability) for lot in lots])),
        "accuracy_of_80": shares[0],
        "accuracy_of_50": shares[1],
    }


def _calibration_error(right: np.ndarray, probability: np.ndarray) -> float:
    bins = np.minimum((probability * _BINS).astype(int), _BINS - 1)
    gap = np.bincount(bins.ravel(), weights=(right - probability).ravel(), minlength=_BINS)
    return 100 * float(np.abs(gap).sum()) / right.size


def score(method: str, right: np.ndarray, *, vote: str = "", decide: str = "", sigma: float = 0.0) -> LabelScores:
    """A row that belongs to no plan, without the columns on probabilities.

    Args:
        method: name of the method measured.
        right: whether each query's answer is right, or how often, float or bool (queries,).
        vote: kind of the slots' votes.
        decide: rule by which labels are chosen.
        sigma: standard deviation of the noise.
    """
    right = np.asarray(right, dtype=np.float64)
    error = right.std(ddof=1) / np.sqrt(len(right))
    accuracy, error = 100 * float(right.mean()), 100 * float(error)
    return LabelScores(method, None, None, vote, decide, sigma, accuracy, error, questions=len(right))
