"""Sentences that many tickets share: how often an answer of ``common_sentences`` has them, and whether they fit.

    python -m research.studies.sentences OUT

The demo's 9,000 tickets and all its 84 questions; slots quote the reply of their nearest ticket. Slots are drawn for
each question anew, as in the service. Noise is calibrated for the whole budget and drawn five times for each question;
standard errors are over questions. A sentence has a team's house rule if it has two of its three words.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from accounting.plans.plan import load_plan
from aggregation.keywords import keywords
from examples.brookfern.texts import GREETINGS, HOUSE_RULES, SIGNATURES
from research.evaluation.dataset import Asked, Dataset
from research.evaluation.evaluator import noise_of
from research.studies import products
from research.studies.facts import TICKETS, cell
from research.studies.nearest import EPSILONS, remembered, show_progress
from service.answering.mechanisms.adapter import Public, answer_adapter_of
from service.engines.configs import NearestExemplarConfig
from service.engines.embedding.embedder import Embedder
from service.engines.embedding.memory import EmbeddingMemory
from service.engines.factory import open_engine
from service.engines.task import Sentence

ANSWERS, DRAWS = 12, 5
LEFT_OUT = {"sentences": 2, "leave_out": [*GREETINGS, *SIGNATURES]}
WAYS: Mapping[int, Sequence[Mapping[str, Any]]] = {
    6: ({"sentences": 2}, LEFT_OUT, {"sentences": 1}, {"sentences": 3}),
    3: ({"sentences": 2},),
}
"""Parameters of the mechanism, by the number of tickets that each of 300 slots draws."""


def write(folder: Path) -> None:
    """Write the tickets, and the questions with the team that answers them."""
    with lzma.open(TICKETS / "tickets.jsonl.xz", "rt", encoding="utf-8") as stream:
        train = [json.loads(line) for line in stream]
    questions = map(json.loads, (TICKETS / "questions.jsonl").read_text("utf-8").splitlines())
    products.write_rows(folder, train, [{**row, "reply": row["team"]} for row in questions])


def planned(drawn: int, mechanism: Mapping[str, Any]) -> dict[str, Any]:
    """The demo's plan with its task for replies alone, by another mechanism."""
    document = load_plan((TICKETS / "plan.yaml").read_text("utf-8")).model_dump(mode="json")
    task = document["tasks"]["reply"]
    task |= {"mechanism": {"type": "common_sentences", **mechanism}, "drawn": drawn, "ensemble": 300, "share": 1.0}
    return {**document, "tasks": {"reply": {**task, "answers": ANSWERS, "slots": "quote", "order": "nearest"}}}


def team_of(sentence: str) -> str | None:
    """The team whose house rule a sentence has."""
    return next((team for team, words in HOUSE_RULES.items() if len(keywords(sentence) & set(words)) >= 2), None)


def found(sentences: Sequence[str], right: str) -> tuple[bool, bool, bool]:
    """Whether an answer has a sentence, one with the right house rule, and the first rule that it has is the right."""
    rules = [team for team in map(team_of, sentences) if team is not None]
    return bool(sentences), right in rules, rules[:1] == [right]


async def _unasked(_words: Sequence[str], _ordered: bool) -> Sentence:
    raise AssertionError("no sentence is made of words")


async def shares(data: Dataset, asked: Sequence[Asked], epsilon: float, embedder: EmbeddingMemory) -> np.ndarray:
    """Shares of the draws of noise in which an answer has what :func:`found` looks for, shape (questions, 3)."""
    task = data.task
    adapter = answer_adapter_of(task, noise_of(data.plan, "reply", task, data.public_size, epsilon))
    rows = []
    for row in asked:
        ready: Any = await adapter.prepare(Public(row.query, row.zero_shot, embedder, _unasked))
        contributed = ready.contributions(row.outputs)  # cut once, as only the noise differs
        answers = [await ready.answer(ready.mechanism.release(contributed)) for _ in range(DRAWS)]
        rows.append(np.mean([found(answer["sentences"], row.answer) for answer in answers], axis=0))
    return np.array(rows)


def lines(out: Path, embedder: Embedder, engine: Any) -> Iterator[str]:
    """Lines of the table."""
    folder, memory = out / "brookfern-sentences", EmbeddingMemory(embedder)
    write(folder)
    with asyncio.Runner() as runner:
        for drawn, mechanisms in WAYS.items():
            asked = None
            for mechanism in mechanisms:
                data = Dataset(folder, load_plan(json.dumps(planned(drawn, mechanism))), "reply", "text", "unit_id")
                if asked is None:  # slots do not depend on the mechanism
                    with data.filled(remembered(out / "embeddings", embedder.embed_many), show_progress) as store:
                        asked = runner.run(data.ask(store, engine, memory.embed, progress=show_progress))
                cells = []
                for epsilon in EPSILONS:
                    columns = runner.run(shares(data, asked, epsilon, memory)).T
                    cells += [cell(column) for column in columns]
                left_out = ", greetings left out" if "leave_out" in mechanism else ""
                yield f"| {drawn} | {mechanism['sentences']}{left_out} | {' | '.join(cells)} |"


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    embedder = Embedder()
    headings = [
        f"ε = {epsilon:g}: {what}" for epsilon in EPSILONS for what in ("any", "right rule", "right rule first")
    ]
    print(f"| a slot draws | contributes | {' | '.join(headings)} |\n|---:|---{'|---:' * len(headings)}|")
    with closing(open_engine(NearestExemplarConfig(), embedder)) as engine:
        for line in lines(out, embedder, engine):
            print(line, flush=True)


if __name__ == "__main__":
    main()
