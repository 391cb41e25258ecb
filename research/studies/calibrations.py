"""Ways to calibrate label scores, compared: a language model's answers to the same questions.

    python research/studies/calibrations.py DATA/agnews research/studies/agnews-model.yaml smollm2
    python research/studies/calibrations.py ... --shots 8 --chat true --words good bad --queries 80 --slots 24

Every slot is asked every question, the plan's public texts, and texts without content; without noise. Accuracy in
percent: zero-shot, one slot by itself, and the votes of all, hard and soft. *Arithmetic* and *geometric* are the means
that scores are divided by; *pooled* adds a quarter of zero-shot's opinion (:mod:`service.engines.vllm.label_scoring`).
*Earlier votes* are summed votes over their mean in all these questions, as a service might know them.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from accounting.plans.plan import load_plan
from accounting.plans.tasks import ClassifyTask
from exemplar_store import Exemplar, Slot
from research.evaluation.dataset import Dataset
from service.engines.configs import VllmConfig
from service.engines.embedding.embedder import Embedder
from service.engines.factory import open_engine
from service.engines.vllm.label_scoring import calibrated, reference
from service.sources.files import read_records

NOTHING = ("N/A", "", "[MASK]")


def arithmetic(scores: np.ndarray) -> np.ndarray:
    mean: np.ndarray = np.mean(scores, axis=0)
    return mean


def geometric(scores: np.ndarray) -> np.ndarray:
    return reference(list(scores))


Calibrate = Callable[[np.ndarray, np.ndarray, np.ndarray | None], np.ndarray]
"""Calibrated scores from a slot's scores of a question (L,), those of all public texts (texts, L) and zero-shot's."""
METHODS: Mapping[str, tuple[str, Calibrate]] = {
    "none": ("public", lambda scores, _texts, _zero_shot: scores),
    "nothing, arithmetic": ("nothing", lambda scores, texts, _: calibrated(scores, arithmetic(texts))),
    "nothing, geometric": ("nothing", lambda scores, texts, _: calibrated(scores, geometric(texts))),
    "nothing, geometric, pooled": (
        "nothing",
        lambda scores, texts, zero: calibrated(scores, geometric(texts), zero),
    ),
    "public, arithmetic": ("public", lambda scores, texts, _: calibrated(scores, arithmetic(texts))),
    "public, geometric": ("public", lambda scores, texts, _: calibrated(scores, geometric(texts))),
    "public, geometric, pooled": (
        "public",
        lambda scores, texts, zero: calibrated(scores, geometric(texts), zero),
    ),
}


async def scores_of(arguments: argparse.Namespace, task: ClassifyTask, rows: list[dict[str, Any]]) -> np.ndarray:
    """Uncalibrated, float64 (slots + 1, texts, L); the last is zero-shot's."""
    train = read_records(str(arguments.data / "train.jsonl"))
    random.Random(7).shuffle(train)
    names, words = task.exemplar_fields, dict(zip(task.labels, arguments.words or task.labels, strict=True))
    shown = [{**row, task.label_field: words[row[task.label_field]]} for row in train[: arguments.slots * task.shots]]
    exemplars = [Exemplar({name: row[name] for name in names}, None) for row in shown]
    slots: list[Slot] = [tuple(exemplars[at : at + task.shots]) for at in range(0, len(exemplars), task.shots)]
    config = VllmConfig(name="vllm", model=arguments.model, dtype=arguments.dtype, chat=arguments.chat, timeout_s=3600)
    engine: Any = open_engine(config, Embedder())
    try:
        plan = load_plan(arguments.plan.read_text())
        (name,) = plan.tasks
        spec = Dataset(arguments.data, plan, name, task.query_fields[0]).specification
        spec = replace(spec, labels=tuple(words.values()), calibration=(), slot_tokens=4096)
        (field,) = task.query_fields
        queries = [{field: row[field]} for row in rows]
        queries += [dict(query) for query in task.calibration_queries] + [{field: text} for text in NOTHING]
        said = []
        for query in queries:
            zero_shot = await engine.zero_shot(spec, query)
            said.append([*await engine.contributions(spec, query, slots, zero_shot), zero_shot.probabilities])
        return np.array(said).swapaxes(0, 1)
    finally:
        engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with train.jsonl and test.jsonl")
    parser.add_argument("plan", type=Path)
    parser.add_argument("model")
    parser.add_argument("--queries", type=int, default=80)
    parser.add_argument("--slots", type=int, default=24)
    parser.add_argument("--shots", type=int, help="number of exemplars in a slot; unless given, the plan's")
    parser.add_argument("--words", nargs="+", help="words for the labels, in their order")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="float32 without AVX512")
    parser.add_argument("--chat", type=lambda text: text == "true", default=False)
    arguments = parser.parse_args()
    (task,) = load_plan(arguments.plan.read_text()).tasks.values()
    assert isinstance(task, ClassifyTask)
    if arguments.shots:
        task = task.model_copy(update={"shots": arguments.shots})
    rows = read_records(str(arguments.data / "test.jsonl"))[: arguments.queries]
    truth = np.array([task.labels.index(row[task.label_field]) for row in rows])
    scores = asyncio.run(scores_of(arguments, task, rows))
    asked, public = scores[:, : len(rows)], {"nothing": scores[:, -len(NOTHING) :], "public": scores[:, len(rows) : -3]}
    most = 50 / len(rows) ** 0.5
    print(f"{len(rows)} questions, {arguments.slots} slots of {task.shots}; standard errors up to {most:.1f}")
    print(f"{'calibration':28}  zero-shot  one slot   hard   soft")
    for method, (texts, calibrate) in METHODS.items():
        zero = [calibrate(one, public[texts][-1], None) for one in asked[-1]]
        slots = [
            [calibrate(one, own, base) for one, base in zip(each, zero, strict=True)]
            for each, own in zip(asked[:-1], public[texts][:-1], strict=True)
        ]
        report(method, truth, np.array(zero), np.array(slots))
    summed = asked[:-1].sum(axis=0)
    earlier = summed / summed.mean(axis=0)
    print(f"{'earlier votes':28} {'':10} {'':9} {'':6} {share(earlier.argmax(axis=1) == truth)}")


def report(method: str, truth: np.ndarray, zero: np.ndarray, slots: np.ndarray) -> None:
    labels = slots.shape[2]
    hard = np.array([np.bincount(votes, minlength=labels) for votes in slots.argmax(axis=2).T])
    figures = (
        zero.argmax(axis=1) == truth,
        slots.argmax(axis=2) == truth,
        hard.argmax(axis=1) == truth,
        slots.sum(axis=0).argmax(axis=1) == truth,
    )
    print(f"{method:28} {share(figures[0]):>10} {share(figures[1]):>9} {share(figures[2]):>6} {share(figures[3]):>6}")


def share(right: np.ndarray) -> str:
    return f"{100 * right.mean():.1f}"


if __name__ == "__main__":
    main()
