"""Labels released once, for any number of questions: right answers by mechanism, by number of people and by ε.

    python -m research.studies.released_labels DATA OUT trec sst2 agnews ddxplus
    python -m research.studies.released_labels DATA OUT --tables

``DATA`` holds a folder for each set, with ``train.jsonl`` and ``test.jsonl``, as ``prepare.py`` makes them; a row is a
unit. Units are drawn from the training rows, the mechanisms release what they hold, and all test rows are asked. Each
release has other units, unless it has all of them, and other noise. The noise is numpy's Gaussian on the service's
lattice, a hundred times as fast as the exact sampler. Embeddings are kept in ``OUT``, and so are results: what is
measured there is not measured again.

A standard error has two parts, added in squares: over test rows, each being right in a share of all releases, and over
releases. Mechanisms have the same units and questions, so the error of a difference is that of differences.

``kept`` is the share of what exemplars add to zero-shot's answers, or take from them, that noise leaves.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from accounting.plans.plan import Budget, Plan, TaskNoise, load_plan
from accounting.plans.tasks import ClassifyTask
from accounting.privacy.profiles import Gaussian
from aggregation import softmax_regression
from aggregation.noise import ONE, FixedPoint, from_fixed_point
from aggregation.prototypes import shrunk
from research.evaluation import labels
from research.evaluation.evaluator import noise_of
from service.answering.mechanisms.adapter import once_adapter_of
from service.answering.mechanisms.prototypes import PrototypesAdapter
from service.answering.mechanisms.softmax_regression import SoftmaxRegressionAdapter, start
from service.engines.embedded.nearest_exemplar import directions_of, sentences_of_labels
from service.engines.embedding.embedder import Embed, Embedder

HERE = Path(__file__).parent
SETS = ("trec", "sst2", "agnews", "ddxplus")
MECHANISMS = ("softmax_regression", "prototypes")
EPSILONS = (0.1, 0.3, 1.0, 3.0)
UNITS: tuple[int | None, ...] = (150, 600, None)
"""Numbers of units; None: all training rows."""
RELEASES = 4


def add_quick_noise(values: FixedPoint, sigma: float) -> FixedPoint:
    """As :func:`aggregation.noise.add_gaussian_noise`, for measurements alone: not a private release."""
    noise: FixedPoint = np.rint(_NOISE.normal(scale=sigma * ONE, size=values.shape)).astype(np.int64)
    return values + noise


_NOISE = np.random.default_rng()


class Rows:
    """Embeddings and labels of a set.

    Attributes:
        train: embeddings of the training rows, float32 (rows, d).
        train_labels: indices of their labels.
        test: embeddings of the test rows, float64 (rows, d).
        truth: indices of their labels.
        sentences: embeddings of the labels' sentences, float32 (2 · labels, d).
    """

    def __init__(self, data: Path, task: ClassifyTask, file: Path, embed: Embed) -> None:
        rows = [_read(data / f"{name}.jsonl") for name in ("train", "test")]
        asked = [row["text"] for of in rows for row in of] + list(sentences_of_labels(task))
        vectors = _remembered(file, asked, embed)
        first, second = len(rows[0]), len(rows[0]) + len(rows[1])
        self.train, self.test, self.sentences = vectors[:first], vectors[first:second].astype(float), vectors[second:]
        self.train_labels, self.truth = ([task.labels.index(row["label"]) for row in of] for of in rows)


def _read(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _remembered(file: Path, texts: Sequence[str], embed: Embed) -> np.ndarray:
    """Embeddings of texts, float32 (n, d), and those of new ones put into the file."""
    known: dict[str, np.ndarray] = {}
    if file.exists():
        with np.load(file, allow_pickle=False) as kept:
            known = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))
    if new := [text for text in dict.fromkeys(texts) if text not in known]:
        known |= zip(new, embed(new), strict=True)
        np.savez(file, texts=np.array(list(known)), vectors=np.stack(list(known.values())))
    return np.stack([known[text] for text in texts])


def planned(name: str, mechanism: str) -> Plan:
    """The set's plan for one release, with a mechanism."""
    document = load_plan((HERE / f"{name}-regression.yaml").read_text(encoding="utf-8")).model_dump(mode="json")
    for task in document["tasks"].values():
        task["mechanism"] = {"type": mechanism}
    return load_plan(json.dumps(document))


def labelling(name: str, mechanism: str = MECHANISMS[0]) -> ClassifyTask:
    """The one task of that plan."""
    (task,) = planned(name, mechanism).tasks.values()
    if not isinstance(task, ClassifyTask):
        raise TypeError(f"{name} has no labels")
    return task


@cache
def noise_at(epsilon: float) -> TaskNoise:
    """The noise of one release: the same for every set and mechanism."""
    plan = planned(SETS[0], MECHANISMS[0])
    ((name, task),) = plan.tasks.items()
    budget = Budget(epsilon=epsilon, delta=plan.budget.delta)
    return noise_of(plan.model_copy(update={"budget": budget}), name, task, 1, epsilon)


def multiplier(noise: TaskNoise) -> float:
    """The noise multiplier of one release."""
    if not isinstance(noise.mechanism, Gaussian):
        raise TypeError("one release has Gaussian noise")
    return noise.mechanism.noise_multiplier


def scores(task: ClassifyTask, noise: TaskNoise, units: Sequence[Any], rows: Rows, *, noisy: bool) -> np.ndarray:
    """Scores of all test rows by one release of units, (rows, labels)."""
    adapter, dimension = once_adapter_of(task, noise), rows.test.shape[1]
    if isinstance(adapter, SoftmaxRegressionAdapter):
        regression = adapter.regression(dimension, len(units))
        packed, begin = regression.pack(units), start(rows.sentences)
        weights: np.ndarray = regression.descend(packed, begin, regression.sigma if noisy else None)
    else:
        if not isinstance(adapter, PrototypesAdapter):
            raise TypeError(f"{task.mechanism.type} does not sum embeddings")
        sums, z = adapter.sums(dimension), multiplier(noise) if noisy else _HARDLY
        exact = sums.sum(units)
        released = labels.with_noise(exact, z) if noisy else from_fixed_point(exact)
        weights = shrunk(released, directions_of(rows.sentences), z)
    found: np.ndarray = rows.test @ weights.T
    return found


_HARDLY = 1e-6  # so that a label without units has a direction


def measure(data: Path, out: Path, name: str, embed: Embed) -> None:
    """Measure what is not measured yet of one set, a line for each release."""
    file = out / f"{name}.jsonl"
    rows = Rows(data / name, labelling(name), out / f"{name}.npz", embed)
    done = {(row["all"], row["units"], row["seed"]) for row in measured(file)}
    zero_shot = (rows.test @ directions_of(rows.sentences).T).argmax(axis=1) == rows.truth
    for seed, number in itertools.product(range(RELEASES), UNITS):
        chosen = np.random.default_rng(seed).permutation(len(rows.train))[:number]
        about = {"all": number is None, "units": len(chosen), "seed": seed}
        if tuple(about.values()) in done:
            continue
        units = [[(rows.train_labels[row], rows.train[row])] for row in chosen]
        lines = []
        for mechanism in MECHANISMS:
            task = labelling(name, mechanism)
            for epsilon in (None, *EPSILONS):
                noise = noise_at(epsilon or EPSILONS[-1])
                seen = scores(task, noise, units, rows, noisy=epsilon is not None).argmax(axis=1) == rows.truth
                of = {"mechanism": mechanism, "epsilon": epsilon, "z": multiplier(noise)}
                lines.append(json.dumps(about | of | {"right": _digits(seen), "zero_shot": _digits(zero_shot)}))
        with file.open("a", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in lines)
        print(name, about, flush=True)


def _digits(right: np.ndarray) -> str:
    return "".join(map(str, right.astype(int)))


def measured(file: Path) -> list[dict[str, Any]]:
    """What is measured already, a release each; whether each test row is right is a 1 or a 0 of a text."""
    return _read(file) if file.exists() else []


def right(rows: Sequence[dict[str, Any]], key: str) -> np.ndarray:
    """Whether test rows are right, (releases, test rows)."""
    return np.array([list(map(int, row[key])) for row in rows], float)


def mean(found: np.ndarray) -> tuple[float, float]:
    """The mean of some figure in percent, and its standard error; shape (releases, test rows)."""
    releases, asked = found.shape
    over_rows = found.mean(axis=0).std(ddof=1) / np.sqrt(asked)
    over_releases = found.mean(axis=1).std(ddof=1) / np.sqrt(releases) if releases > 1 else 0.0
    return 100 * float(found.mean()), 100 * float(np.hypot(over_rows, over_releases))


def summary(out: Path) -> list[dict[str, Any]]:
    """A line for each set, number of units, ε and mechanism; without an ε, of releases without noise."""
    lines = []
    for name in SETS:
        rows, labels_of = measured(out / f"{name}.jsonl"), len(labelling(name).labels)
        for units, epsilon in itertools.product(sorted({row["units"] for row in rows}), (*EPSILONS, None)):
            its = [row for row in rows if row["units"] == units]
            for mechanism in MECHANISMS:
                of, exact = pick(its, mechanism, epsilon), right(pick(its, mechanism, None), "right")
                found, other = right(of, "right"), right(pick(its, MECHANISMS[-1], epsilon), "right")
                zero_shot = right(of, "zero_shot")
                line: dict[str, Any] = {"set": name, "units": units, "epsilon": epsilon, "mechanism": mechanism}
                line |= {"z": of[0]["z"] if epsilon else 0.0, "releases": len(of), "test_rows": found.shape[1]}
                line["accuracy"], line["error"] = mean(found)
                line["zero_shot"], line["zero_shot_error"] = mean(zero_shot)
                line["above_prototypes"], line["above_prototypes_error"] = mean(found - other)
                line["z_units_a_label"] = units / labels_of / line["z"] if epsilon else None
                line["kept"] = float((found - zero_shot).mean() / (exact - zero_shot).mean())
                lines.append(line)
    return lines


def pick(rows: Sequence[dict[str, Any]], mechanism: str, epsilon: float | None) -> list[dict[str, Any]]:
    """Releases of a mechanism at an ε."""
    return [row for row in rows if (row["mechanism"], row["epsilon"]) == (mechanism, epsilon)]


def tables(out: Path) -> None:
    """Write all figures as CSV, and print them as Markdown."""
    lines = summary(out)
    with (out / "released-labels.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: round(v, 2) if isinstance(v, float) else v for k, v in line.items()} for line in lines)
    print(f"| set | units | zero-shot | mechanism | {' | '.join(f'ε = {e:g}' for e in EPSILONS)} | no noise |")
    for _, group in itertools.groupby(lines, lambda line: (line["set"], line["units"])):
        of = list(group)
        for mechanism in MECHANISMS:
            its = [line for line in of if line["mechanism"] == mechanism]
            cells = [cell(line, "accuracy", "error") for line in its]
            about = f"{of[0]['set']} | {of[0]['units']:,} | {cell(of[0], 'zero_shot', 'zero_shot_error')}"
            print(f"| {about} | {mechanism} | {' | '.join(cells)} |")


def cell(line: dict[str, Any], column: str, error: str) -> str:
    """A figure with its standard error."""
    return f"{line[column]:.1f} ± {line[error]:.1f}"


def main() -> None:
    """Measure, or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], default=[])
    parser.add_argument("--tables", action="store_true", help="print what is measured")
    arguments = parser.parse_args()
    if arguments.tables:
        tables(arguments.out)
        return
    for module in (softmax_regression, labels):
        vars(module)["add_gaussian_noise"] = add_quick_noise
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.sets or SETS:
        measure(arguments.data, arguments.out, name, lambda texts: Embedder().embed_many(texts))


if __name__ == "__main__":
    main()
