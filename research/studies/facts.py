"""Facts that only exemplars know: how often the words that an answer releases have them, by what slots draw.

    python -m research.studies.facts OUT tickets
    python -m research.studies.facts OUT products

Slots quote their nearest exemplar, and a mechanism releases words that they share; no model is needed to see what is
among them. Noise is calibrated for the whole budget, and drawn 20 times. Standard errors are over questions.

*tickets*: the demo's, all 9,000, and its 60 questions that it does not show. An answer must have two of the three words
of a house rule.

*products*: reviews of 100 products, 60 of each, that ``products.py`` makes up, and a question on each. An answer must
have the product's colour, material or country. With topics, each product is one, and gives its hundredth of all
answers; reviews are compared with the question by their text. Without them the question must find its product, so
they are compared by the name of theirs. ``keyword_joint_em`` chooses three of the 24 public colours, materials and
countries, and the question's words. As reviews are made up independently of each other, those that an answer draws are
the same whether there are 60 of a product or more; with more, each is drawn less often, which is all that changes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import lzma
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accounting.plans.plan import Plan, PlanError, TaskNoise, load_plan
from accounting.plans.tasks import GenerateTask
from examples.brookfern.texts import HOUSE_RULES
from research.evaluation.dataset import Dataset
from research.evaluation.evaluator import noise_of
from research.studies import products
from research.studies.nearest import DRAWS, EPSILONS, remembered, show_progress
from service.answering.mechanisms.adapter import adapter_of, words_of
from service.answering.mechanisms.keyword_joint_em import KeywordJointEmAdapter, public_domain
from service.engines.configs import NearestExemplarConfig
from service.engines.embedding.embedder import Embedder
from service.engines.factory import open_engine

TICKETS = Path(__file__).parents[2] / "examples" / "brookfern"
PTR = {"type": "keyword_ptr", "k_min": 3, "k_max": 5, "choice_share": 0.1, "delta_share": 0.8}
"""Mechanism that releases words."""
JOINT_EM = {"type": "keyword_joint_em", "k": 3}
MORE = (1, 10, 100)


@dataclass(frozen=True)
class Way:
    """A way to answer the questions of a set.

    Attributes:
        name: name in the table.
        folder: folder with rows, as ``dpicl eval`` reads them.
        plan: plan with one task, by ``keyword_ptr``.
        field: field by which exemplars and questions are compared.
        unit: column of the privacy unit.
        words: number of a fact's words that an answer must have.
        topics: number of topics that share the answers.
        more: factors by which the number of people may grow.
    """

    name: str
    folder: Path
    plan: Plan
    field: str
    unit: str
    words: int
    topics: int = 1
    more: Sequence[int] = (1,)


def tickets(out: Path) -> Iterator[Way]:
    """The demo's task for replies by itself, with as many slots as the tickets allow."""
    folder, document = out / "brookfern", load_plan((TICKETS / "plan.yaml").read_text("utf-8")).model_dump(mode="json")
    with lzma.open(TICKETS / "tickets.jsonl.xz", "rt", encoding="utf-8") as stream:
        train = [json.loads(line) for line in stream]
    questions = map(json.loads, (TICKETS / "questions.jsonl").read_text("utf-8").splitlines())
    test = [{**row, "reply": " ".join(HOUSE_RULES[row["team"]])} for row in questions if row["use"] == "check"]
    products.write_rows(folder, train, test)
    task: Mapping[str, Any] = document["tasks"]["reply"]
    for drawn, slots in ((1, 300), (6, 300), (18, 100), (60, 100)):
        tasks = {"reply": {**task, "mechanism": PTR, "drawn": drawn, "ensemble": slots, "share": 1.0}}
        plan = load_plan(json.dumps({**document, "tasks": tasks}))
        yield Way(f"{slots} slots draw {drawn}", folder, plan, "text", "unit_id", 2)


def reviews(out: Path) -> Iterator[Way]:
    """Each product a topic, and all in one."""
    products.write(out)
    train, test = (
        [json.loads(line) for line in (out / "products" / f"{name}.jsonl").read_text("utf-8").splitlines()]
        for name in ("train", "test")
    )
    by_text = out / "products-by-text"
    products.write_rows(by_text, [{**row, "question": row["answer"]} for row in train], test)
    topics = {"by": "field", "field": "product", "names": [row["product"] for row in test]}
    for mechanism in (PTR, JOINT_EM):
        for drawn, slots in ((1, 60), (2, 30)):
            name = f"topics, {slots} slots draw {drawn}, {mechanism['type']}"
            plan = reviewed(drawn, slots, mechanism, topics)
            yield Way(name, by_text, plan, "question", "id", 1, len(test), MORE)
        name = f"no topics, 40 slots draw 128, {mechanism['type']}"
        yield Way(name, out / "products", reviewed(128, 40, mechanism), "question", "id", 1, 1, MORE)


def reviewed(drawn: int, slots: int, mechanism: Mapping[str, Any], topics: Mapping[str, Any] | None = None) -> Plan:
    """Ways to answer questions on products."""
    task = {
        "kind": "generate",
        "prompt": {"exemplar": "Question: {question}\nAnswer: {answer}", "query": "Question: {question}\nAnswer:"},
        "response_field": "answer",
        "public_answers": [" ".join(values) for _, values, _ in products.KINDS.values()],
        "candidates": 1,
        "order": "nearest",
        "slots": "quote",
        "shots": 1,
        "drawn": drawn,
        "ensemble": slots,
        "answers": 1,
        "mechanism": mechanism,
    }
    task |= {"topics": topics} if topics else {}
    budget = {"epsilon": 1, "delta": 1e-5}
    return load_plan(json.dumps({"knowledge_base": "products", "budget": budget, "tasks": {"answer": task}}))


WAYS = {"tickets": (tickets, (12, 100, 1000)), "products": (reviews, (100, 1000, 10_000))}
"""Ways to fill slots, and numbers of answers in all."""


def releasing(
    task: GenerateTask, noise: TaskNoise, query: Mapping[str, str]
) -> Callable[[Sequence[frozenset[str] | None]], Sequence[str] | None]:
    """A function that releases words of those in the slots' answers, by the task's mechanism."""
    adapter: Any = adapter_of(task, noise)
    if isinstance(adapter, KeywordJointEmAdapter):
        domain = public_domain(query, task.public_answers)
        return lambda said: adapter.mechanism.release(said, domain)
    release: Any = adapter.mechanism.release
    return release


def lines(way: Way, engine: Any, embedder: Embedder, out: Path, numbers: Sequence[int]) -> Iterator[str]:
    """Lines of the table: the share of slots, then of answers by number and ε, that have the fact."""
    (name,) = way.plan.tasks
    data, embed = Dataset(way.folder, way.plan, name, way.field, way.unit), embedder.embed_many
    with asyncio.Runner() as runner, data.filled(remembered(out / "embeddings", embed), show_progress) as store:
        asked = runner.run(data.ask(store, engine, embedder.embed, progress=show_progress))
    said = [[words_of(output) for output in row.outputs] for row in asked]
    facts = [set(row.answer.lower().split()) for row in asked]

    def has(released: Any, fact: set[str]) -> bool:
        return len(fact & set(released or ())) >= way.words

    def share(task: GenerateTask, noise: TaskNoise, number: int) -> float:
        release = releasing(task, noise, asked[number].query)
        return float(np.mean([has(release(said[number]), facts[number]) for _ in range(DRAWS)]))

    every = range(len(asked))
    single = [np.mean([has(words, facts[i]) for words in said[i] if words is not None]) for i in every]
    for more in way.more:
        size, cells = data.public_size * more, [cell(single)]
        for answers, epsilon in itertools.product(numbers, EPSILONS):
            task: Any = data.task.model_copy(update={"answers": answers // way.topics})
            try:
                noise = noise_of(data.plan, name, task, size, epsilon)
            except PlanError:
                cells.append("no")
                continue
            cells.append(cell([share(task, noise, i) for i in every]))
        yield f"| {way.name} | {size // way.topics:,} | {' | '.join(cells)} |"


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("set", choices=WAYS)
    arguments = parser.parse_args()
    ways, numbers = WAYS[arguments.set]
    embedder = Embedder()
    headings = [f"{answers:,}, ε = {epsilon:g}" for answers in numbers for epsilon in EPSILONS]
    print(f"| | exemplars | one slot | {' | '.join(headings)} |\n|---|---:|---:{'|---:' * len(headings)}|")
    with closing(open_engine(NearestExemplarConfig(), embedder)) as engine:
        for way in ways(arguments.out):
            for line in lines(way, engine, embedder, arguments.out, numbers):
                print(line, flush=True)


def cell(shares: Sequence[float | np.floating[Any]]) -> str:
    """Percent with its standard error over questions."""
    return (
        f"{100 * np.mean(np.asarray(shares)):.0f} ± {100 * np.std(np.asarray(shares), ddof=1) / len(shares) ** 0.5:.0f}"
    )


if __name__ == "__main__":
    main()
