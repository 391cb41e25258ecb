"""Whether a release that measures itself states its accuracy right, within the error that it states.

    python -m research.studies.measured DATA/trec research/studies/trec-regression.yaml --epsilon 1

The labels are those of the plan's one task. Of the training rows, each of which is a unit, 70 % are drawn as the
knowledge base, and the others are new questions. A fifth of the knowledge base is left out, the release is made of the
rest and counts its right answers with noise, and then it answers the new questions. That is repeated with other draws.
Noise is numpy's, a hundred times as fast as the exact sampler: these are not private releases. Embeddings are kept in
the file ``--embeddings``, if it is given.

Prints the mean of stated and of found accuracies in percent, the mean difference with its standard error, the root mean
square of the difference beside the one that the errors of both explain, and how often the difference is within twice
its standard error. New questions are finite, too, so their standard error is added in squares to the stated one.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from accounting.plans.mechanisms import SoftmaxRegressionMechanism
from accounting.plans.plan import Plan, load_plan
from accounting.plans.tasks import ClassifyTask
from accounting.privacy.profiles import Gaussian
from aggregation import softmax_regression
from aggregation.accuracy import Accuracy, RightAnswers
from aggregation.noise import ONE, FixedPoint, from_fixed_point
from aggregation.softmax_regression import SoftmaxRegression
from research.evaluation.evaluator import noise_of
from service.answering.mechanisms.softmax_regression import start
from service.engines.embedded.nearest_exemplar import sentences_of_labels
from service.engines.embedding.embedder import Embedder

KNOWLEDGE_BASE, LEFT_OUT = 0.7, 0.2
_DRAWS = np.random.default_rng()


def quick_noise(values: FixedPoint, sigma: float) -> FixedPoint:
    """As :func:`aggregation.noise.add_gaussian_noise`, for measurements alone."""
    noise: FixedPoint = np.rint(_DRAWS.normal(scale=sigma * ONE, size=values.shape)).astype(np.int64)
    return values + noise


def embedded(texts: Sequence[str], file: Path | None) -> np.ndarray:
    """Embeddings of texts, float32 (n, d); those of new ones are put into the file."""
    known: dict[str, np.ndarray] = {}
    if file is not None and file.exists():
        with np.load(file, allow_pickle=False) as kept:
            known = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))
    if new := [text for text in dict.fromkeys(texts) if text not in known]:
        known |= zip(new, Embedder().embed_many(new), strict=True)
        if file is not None:
            np.savez(file, texts=np.array(list(known)), vectors=np.stack(list(known.values())))
    return np.stack([known[text] for text in texts])


def multiplier(plan: Plan, task: ClassifyTask, epsilon: float) -> float:
    """The noise multiplier of one release that measures itself, of such labels, at the plan's δ."""
    measuring = task.by(SoftmaxRegressionMechanism(type="softmax_regression", measured_on=LEFT_OUT))
    noise = noise_of(plan, "labels", measuring, 1, epsilon).mechanism
    if not isinstance(noise, Gaussian):
        raise TypeError("the release is not Gaussian")
    return noise.noise_multiplier


def release(z: float, vectors: np.ndarray, labels: np.ndarray, sentences: np.ndarray) -> tuple[Accuracy, float, int]:
    """One release: what it states of itself, and its accuracy on new questions, of which there is this number."""
    order = _DRAWS.permutation(len(vectors))
    size = round(KNOWLEDGE_BASE * len(order))
    away = _DRAWS.random(size) < LEFT_OUT
    kept, left_out, new = order[:size][~away], order[:size][away], order[size:]
    regression = SoftmaxRegression(z, len(sentences) // 2, vectors.shape[1], round((1 - LEFT_OUT) * size))

    def units(of: np.ndarray) -> list[list[tuple[int, np.ndarray]]]:
        return [[(int(labels[row]), vectors[row])] for row in of]

    weights = regression.release(units(kept), start(sentences))
    pair = quick_noise(RightAnswers(z).sum(regression.right(units(left_out), weights)), z)
    right, wrong = from_fixed_point(pair)
    found = float(np.mean((vectors[new] @ weights.T).argmax(axis=1) == labels[new]))
    return Accuracy.of(float(right), float(wrong), z), found, len(new)


def main() -> None:
    """Print one line for each ε."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--epsilon", type=float, action="append", required=True)
    parser.add_argument("--rows", type=int, default=10**9)
    parser.add_argument("--releases", type=int, default=50)
    parser.add_argument("--embeddings", type=Path)
    given = parser.parse_args()
    softmax_regression.add_gaussian_noise = quick_noise  # type: ignore[attr-defined]
    plan = load_plan(given.plan.read_text(encoding="utf-8"))
    (task,) = plan.tasks.values()
    if not isinstance(task, ClassifyTask):
        raise SystemExit("the plan has no task with labels")
    lines = (given.data / "train.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines[: given.rows]]
    (field,) = task.query_fields
    vectors = embedded([row[field] for row in rows] + list(sentences_of_labels(task)), given.embeddings)
    labels = np.array([task.labels.index(row[task.label_field]) for row in rows])
    for epsilon in given.epsilon:
        z = multiplier(plan, task, epsilon)
        made = [release(z, vectors[: len(rows)], labels, vectors[len(rows) :]) for _ in range(given.releases)]
        stated = np.array([one.accuracy for one, _, _ in made])
        found = np.array([accuracy for _, accuracy, _ in made])
        errors = np.array([math.hypot(one.standard_error, math.sqrt(p * (1 - p) / n)) for one, p, n in made])
        difference = stated - found
        print(
            f"{given.data.name}, {len(rows):,} rows, epsilon {epsilon:g}, z {z:.2f}, {len(made)} releases: "
            f"stated {100 * stated.mean():.1f} (± {100 * np.mean([one.standard_error for one, _, _ in made]):.1f}), "
            f"found {100 * found.mean():.1f}, difference {100 * difference.mean():+.2f} "
            f"± {100 * difference.std(ddof=1) / math.sqrt(len(made)):.2f}, "
            f"root mean square {100 * np.sqrt(np.mean(difference**2)):.2f} where "
            f"{100 * np.sqrt(np.mean(errors**2)):.2f} is expected, "
            f"within two standard errors {np.sum(np.abs(difference) < 2 * errors)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
