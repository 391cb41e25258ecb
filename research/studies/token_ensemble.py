"""Whole texts: what ``token_ensemble`` writes, beside zero-shot, one slot and ``keyword_ptr``, by a real model.

    python research/studies/prepare.py support examples/support DATA/support
    python research/studies/prepare.py samsum FOLDER DATA/samsum
    python research/studies/products.py DATA
    python -m research.studies.token_ensemble DATA --minutes 9
    python -m research.studies.token_ensemble DATA --set topics --vary

The sets: support tickets, whose house rules only the tickets know; SAMSum's summaries; reviews of ``products`` (one
knowledge base of all) and of ``topics`` (one of each product, from which every answer draws all reviews).

A condition is ``zero_shot``, ``slot`` (one by itself: not private), ``alone`` (tokens drawn as ``token_ensemble`` does,
without slots), or a mechanism with the ε of all the plan's answers, then with what else it changes in its task:
``token_ensemble:3,clip=4,answers=1000``. Where that number of answers cannot cost as much, less ε is spent; the table
shows how much, and what clip C and weight λ it buys.

Answers are kept as they are given, in clear text, so a run that ended early goes on. *Facts* is the share of words that
occur, of those that only exemplars know; *perplexity* is of the answers in the model without exemplars; and *fallback*
counts those that are zero-shot's, or none.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import math
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from accounting.plans.plan import TaskNoise
from accounting.plans.tasks import GenerateTask
from exemplar_store import Slot
from exemplar_store.cohorts import FIRST
from research.evaluation.dataset import NAME, Dataset
from research.evaluation.replies import KeptEngine
from research.evaluation.text_metrics import similarities
from research.studies.perplexity import nats
from research.studies.text_sets import BASE, DATA, TASK, TOKENS, cost, planned, signed
from service.answering.draw import draw
from service.answering.queries import InvalidQueryError
from service.answering.stages import Stages
from service.engines.configs import VllmConfig
from service.engines.embedding.embedder import Embedder
from service.engines.embedding.words import cache_folder
from service.engines.prompts import render
from service.engines.task import TaskSpec
from service.sources.files import read_records

TIMEOUT_S = 600.0
CONDITIONS = ("zero_shot", "slot", "alone", "keyword_ptr:8", "token_ensemble:1", "token_ensemble:3", BASE)
VARIED = tuple(f"clip={clip},weight=10" for clip in (1, 2, 4, 8))
"""The weight follows from the budget and the clip: no budget allows for 10."""
SLOTS = {"topics": ("ensemble=15,shots=4", "ensemble=60,shots=1")}
"""Continuations of :data:`VARIED`; for other sets half and twice as many slots."""


@dataclass(frozen=True)
class MeasuredAnswer:
    """An answer to a test row, its prompt without exemplars, whether it is a fallback, and how long it took."""

    row: Mapping[str, str]
    prompt: str
    text: str
    fallback: bool
    seconds: float


@dataclass(frozen=True)
class Answerer:
    """The means to answer a question: the pipeline's stages, with a task as it was signed and as the engine sees it."""

    stages: Stages
    task: GenerateTask
    noise: TaskNoise
    spec: TaskSpec

    async def answer(
        self, condition: str, query: Mapping[str, str], slots: Callable[[], Sequence[Slot]]
    ) -> tuple[str, bool]:
        """The text of a condition, without its ε, and whether it is a fallback: zero-shot's, or none."""
        try:
            ready = await self.stages.probe(self.task, self.noise, self.spec, query)
        except InvalidQueryError:
            return "", True
        match condition:
            case "zero_shot":
                return ready.zero_shot.texts[0], False
            case "slot":
                (text,) = await ready.ask([next(filter(None, slots()))])
                return str(text or ""), text is None
        shown = () if condition == "alone" else slots()
        answer = await ready.answer(shown)
        return str(answer["text"]), bool(answer["fallback"])


@cache
def training(base: Path) -> tuple[int, str]:
    """Number of training rows of a knowledge base, and a digest of them."""
    file = base / "train.jsonl"
    return len(read_records(str(file))), hashlib.sha256(file.read_bytes()).hexdigest()


async def measured_answers(
    name: str, bases: Sequence[Path], condition: str, kept: KeptEngine, questions: int, until: float
) -> list[MeasuredAnswer]:
    """Answers to a set's first questions: those that are kept, and others until this time."""
    asked = [(base, row) for base in bases for row in read_records(str(base / "test.jsonl"))]
    random.Random(7).shuffle(asked)
    plan, what, stages = planned(name, condition), condition.partition(":")[0], Stages(kept, Embedder(), TIMEOUT_S)
    data = [Dataset(base, plan, TASK, plan.tasks[TASK].query_fields[0], DATA[name].unit_id) for base in bases]
    spec, answers = data[0].specification, []
    with ExitStack() as opened:

        @cache
        def store(base: Path) -> Any:
            return opened.enter_context(data[bases.index(base)].filled(None))

        for base, row in asked[:questions]:
            size, digest = training(base)
            task, noise, _ = signed(name, condition, size)
            drawn: dict[str, Any] = {"public_size": size, "probability": noise.sampling_probability, "cohorts": FIRST}
            query = {key: row[key] for key in task.query_fields}
            key = kept.key(what, digest, spec, task.model_dump(mode="json"), noise.model_dump(mode="json"), query)
            if kept.get(key) is None and time.monotonic() < until:
                await kept.describe()  # starts it, and does not count
                slots = partial(draw, store(base), NAME, task, embeddings=False, **drawn)
                start = time.monotonic()
                text, fallback = await Answerer(stages, task, noise, spec).answer(what, query, slots)
                kept.store(key, [text, fallback, time.monotonic() - start])
            if reply := kept.get(key):
                answers.append(MeasuredAnswer(row, render(spec.prompt, query), *reply))
    return answers


def shared(words: str, text: str) -> float:
    """The share of these words that a text has, in percent."""
    wanted, has = (set(re.findall(r"\w+", both.lower())) for both in (words, text))
    return 100 * len(wanted & has) / len(wanted)


def figures(name: str, answers: Sequence[MeasuredAnswer], model: str) -> list[str]:
    """The columns of the table but for the first two; ± is the standard error."""
    data = DATA[name]
    facts = [shared(one.row[data.facts], one.text) for one in answers if data.facts]
    rouge = [similarities(one.text, one.row[data.right]) for one in answers if data.right]
    surprise = np.array(nats(model, [(one.prompt, one.text) for one in answers if one.text]))
    return [
        str(len(answers)),
        mean(facts),
        mean([measures[0] for measures in rouge]),
        mean([measures[2] for measures in rouge]),
        f"{np.exp(surprise.mean()):.1f} ± {np.exp(surprise.mean()) * error(surprise):.1f}" if len(surprise) else "",
        str(sum(one.fallback for one in answers)),
        f"{np.mean([one.seconds for one in answers]):.1f}",
    ]


def mean(values: Sequence[float]) -> str:
    return f"{np.mean(values):.1f} ± {error(values):.1f}" if len(values) else ""


def error(values: Sequence[float] | np.ndarray) -> float:
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else math.nan


async def run(arguments: argparse.Namespace) -> None:
    until = time.monotonic() + 60 * arguments.minutes
    config = VllmConfig(
        name="vllm",
        model=arguments.model,
        chat=False,
        kv_cache_gib=3,
        max_answer_tokens=TOKENS,
        timeout_s=TIMEOUT_S,
    )
    kept = KeptEngine(config, Embedder(), arguments.replies)
    try:
        for name in arguments.set:
            folder, sizes = arguments.data / name, DATA[name].sizes
            bases = [folder] if (folder / "train.jsonl").exists() else sorted(folder.iterdir())
            varied = VARIED + SLOTS.get(name, ("ensemble=20", "ensemble=80")) if arguments.vary else ()
            conditions = (BASE, *(f"{BASE},{change}" for change in varied)) if varied else CONDITIONS
            print(
                f"\n{name}: {sizes['ensemble']} slots of {sizes['shots']}, {sizes['answers']} answers, {TOKENS} tokens"
            )
            print("| condition | ε, C, λ | questions | facts | ROUGE-1 | ROUGE-L | perplexity | fallback | s |")
            print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
            for condition in arguments.condition or conditions:
                if answers := await measured_answers(name, bases, condition, kept, arguments.questions, until):
                    spent = cost(name, condition, training(bases[0])[0]) if ":" in condition else ""
                    print(
                        "|", " | ".join([condition, spent, *figures(name, answers, arguments.model)]), "|", flush=True
                    )
                for one in answers[: arguments.show]:
                    print(f"    {one.row[DATA[name].facts or DATA[name].right]}: {one.text}")
    finally:
        kept.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with a folder for each set")
    parser.add_argument("--set", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--condition", nargs="+", help="conditions to measure; unless given, all of them")
    parser.add_argument("--vary", action="store_true", help="clip with weight, and slots instead, one at a time")
    parser.add_argument("--questions", type=int, default=30, help="most questions of each set")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--minutes", type=float, default=math.inf, help="time to ask for, then the tables are printed")
    parser.add_argument("--show", type=int, default=0, help="number of answers of each condition to print")
    parser.add_argument("--replies", type=Path, default=cache_folder() / "replies")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
