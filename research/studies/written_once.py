"""Made-up facts by texts that are written once: how many questions the model then answers, for any number of questions.

    python research/studies/products.py DATA
    python -m research.studies.written_once DATA/products --products 24

A text is written on each product, of what all of its reviewers wrote (q = 1), and shown with the question on it.
*Written* is the share of texts that have the fact that is asked for, *right* that of answers. Without ε: the engine's
answers without any text, and with two of the reviews themselves, which is not private. *A form* is a sentence with
three gaps and public words for each: what no exemplar need be read for is not paid.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accounting.plans.plan import CalibratedPlan, calibrate_plan, parse_plan
from accounting.plans.tasks import GenerateTask
from exemplar_store import Exemplar, Slot
from research.studies.products import KINDS
from research.studies.token_ensemble import mean, shared
from service.answering.mechanisms.adapter import once_adapter_of
from service.answering.queries import task_spec
from service.answering.stages import Stages
from service.engines.configs import VllmConfig
from service.engines.embedding.embedder import Embedder
from service.engines.factory import open_engine
from service.engines.task import TaskSpec
from service.engines.vllm.model_folder import model_folder

DELTA = 1e-5
SIZES: Mapping[str, Any] = {"ensemble": 30, "shots": 2, "slot_tokens": 200}
FREE: Mapping[str, Any] = {"tokens": 12, "temperature": 0.7, "top_k": 120}
FORM: Mapping[str, Any] = {
    "tokens": 8,
    "max_tokens": 40,
    "gate": 0.9,
    "weight": 3,
    "regex": " It is made of ({material}) in ({origin}) and it is ({colour})[.]".format(
        **{kind: "|".join(values) for kind, (_, values, _) in KINDS.items()}
    ),
}
"""A sentence of public words, of which slots choose."""
VARIED: Sequence[Mapping[str, Any]] = (
    {},
    {"weight": 1},
    {"clip": 1},
    {"ensemble": 15, "shots": 4},
    {"ensemble": 60, "shots": 1},
    {"gate": 1},
    {"gate": 1, "tokens": 13},
)
"""Changes of the form; the clip follows from the weight and the budget. Without a gate its own words are paid for."""
PROMPT = {
    "instruction": "Reviews say what a product is made of, in which country it is made, and which colour it has.",
    "exemplar": "What is the {product} like? {answer}",
    "query": "What is the {product} like?",
    "written": "{written}\n\n{question}",
}


def signed(topics: Sequence[str], size: int, epsilon: float, rules: Mapping[str, Any]) -> CalibratedPlan:
    """The plan that writes a text on each topic; rules are the mechanism's, or sizes."""
    sizes = {key: rules.get(key, size) for key, size in SIZES.items()}
    own = {key: value for key, value in rules.items() if key not in SIZES}
    mechanism = {"type": "token_ensemble", "texts": 1, "topics": [*topics], **own}
    task = {"kind": "generate", "release": "once", "prompt": PROMPT, "response_field": "answer", **sizes}
    task["mechanism"], budget = mechanism, {"epsilon": epsilon, "delta": DELTA}
    return calibrate_plan(parse_plan({"knowledge_base": "products", "budget": budget, "tasks": {"about": task}}), size)


async def made(task: GenerateTask, spec: TaskSpec, stages: Stages, plan: CalibratedPlan, units: Sequence[Slot]) -> Any:
    """The release, by the adapter that signing makes it with."""
    each, noise, loop = task.one_text, plan.noise["about"], asyncio.get_running_loop()

    def write(query: Mapping[str, str], slots: Sequence[Slot]) -> str:
        async def written() -> str:
            ready = await stages.probe(each, noise, spec, query)
            return str((await ready.answer(slots))["text"])

        return asyncio.run_coroutine_threadsafe(written(), loop).result()

    return await asyncio.to_thread(once_adapter_of(task, noise).make, units, np.empty((0, 0)), write, len(units))


async def run(arguments: argparse.Namespace) -> None:
    train, test = (
        [json.loads(line) for line in (arguments.data / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in ("train", "test")
    )
    test = test[: arguments.products]
    topics, reviews = [row["product"] for row in test], [Exemplar(row, None) for row in train]
    embedder = Embedder()
    config = VllmConfig(name="vllm", model=model_folder(arguments.model), max_answer_tokens=24, timeout_s=600)
    engine = open_engine(config, embedder)
    stages = Stages(engine, embedder, 600.0)
    print(f"{len(topics)} products, {SIZES['ensemble']} slots of {SIZES['shots']} reviews; {arguments.model}")
    print("| ε | log-odds, C, λ | written | right | seconds to write |\n|---|---:|---:|---:|---:|")

    async def asked(
        name: str, plan: CalibratedPlan, texts: Mapping[str, list[str]], log_odds: str, took_s: float
    ) -> None:
        task: Any = plan.plan.tasks["about"]
        spec = task_spec("products.about", task, "products", "question", response_field=None, asker="")
        reader = once_adapter_of(task, plan.noise["about"]).open({"texts": texts}, spec, embedder, stages.show)
        said = [
            str((await reader.answer({"product": row["product"], "question": row["question"]}, ""))["text"])
            for row in test
        ]
        has = [shared(row["answer"], " ".join(texts[row["product"]])) for row in test]
        right = [shared(row["answer"], text) for row, text in zip(test, said, strict=True)]
        print(f"| {name} | {log_odds} | {mean(has)} | {mean(right)} | {took_s:.0f} |", flush=True)
        for row, text in [*zip(test, said, strict=True)][: arguments.show]:
            print(f"    {row['question']} ({row['answer']}) {texts[row['product']]} -> {text}")

    try:
        plain = signed(topics, len(train), arguments.epsilon[0], FREE)
        await asked("without texts", plain, {topic: [" "] for topic in topics}, "", 0)
        own = {topic: [row["answer"] for row in train if row["product"] == topic][:2] for topic in topics}
        await asked("two reviews", plain, own, "", 0)
        changes = VARIED if arguments.vary else ({},)
        plans = [FREE] * (not arguments.vary) + [{**FORM, **change} for change in changes]
        for number, (rules, epsilon) in enumerate(itertools.product(plans, arguments.epsilon)):
            plan = signed(topics, len(train), epsilon, rules)
            task: Any = plan.plan.tasks["about"]
            each = task.one_text
            spec = task_spec(
                "products.about", each, f"texts of plan {number}", "product", response_field="answer", asker=""
            )
            begun = time.monotonic()
            release = await made(task, spec, stages, plan, [(review,) for review in reviews])
            told = once_adapter_of(task, plan.noise["about"]).outlook().noise
            name = f"{epsilon:g}{', a form' if 'regex' in rules else ''}, {task.ensemble} slots"
            moves = f"± {told['log_odds']:.1f}, {told['clip']:.1f}, {told['weight']:.1f}"
            await asked(name, plan, release["texts"], moves, time.monotonic() - begun)
    finally:
        engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--products", type=int, default=24)
    parser.add_argument("--epsilon", type=float, action="append", help="1, 3 and 8 unless given")
    parser.add_argument("--vary", action="store_true", help="weight, slots and gate of the form, one at a time")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--show", type=int, default=0, help="number of texts and answers to print")
    arguments = parser.parse_args()
    arguments.epsilon = arguments.epsilon or [1.0, 3.0, 8.0]
    asyncio.run(run(arguments))


if __name__ == "__main__":
    main()
