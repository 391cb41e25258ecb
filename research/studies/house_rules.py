"""Replies of the demo's tickets: how often a reply has the house rule, by how many tickets a slot draws.

    python -m research.studies.house_rules OUT

Slots quote the reply of their nearest ticket, and ``keyword_ptr`` releases the words that they share. A house rule
counts as given if at least two of its three words are released; no model is needed to see that. The questions are the
demo's 60 that are not shown, the tickets all 9,000. Noise is calibrated for the whole budget, and drawn 20 times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import lzma
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from accounting.plan import Plan, PlanError, load_plan
from examples.brookfern.texts import HOUSE_RULES
from research.evaluation.dataset import Dataset
from research.evaluation.evaluator import noise_of
from research.studies.nearest import DRAWS, EPSILONS, remembered, told
from service.answering.mechanisms.adapter import words_of
from service.answering.mechanisms.keyword_ptr import KeywordPtrAdapter
from service.engines.configs import NearestExemplarConfig
from service.engines.embedding.embedder import Embedder
from service.engines.factory import open_engine

TICKETS = Path(__file__).parents[2] / "examples" / "brookfern"
SLOTS = {1: 300, 6: 300, 18: 100, 60: 100}
"""Slots by what each draws: as many as the tickets allow."""
ANSWERS = (12, 100, 1000)


def prepare(folder: Path) -> None:
    """The tickets and the questions in the shape that ``dpicl eval`` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    with lzma.open(TICKETS / "tickets.jsonl.xz", "rt", encoding="utf-8") as stream:
        (folder / "train.jsonl").write_text(stream.read(), encoding="utf-8")
    questions = map(json.loads, (TICKETS / "questions.jsonl").read_text(encoding="utf-8").splitlines())
    rows = [{**row, "reply": " ".join(HOUSE_RULES[row["team"]])} for row in questions if row["use"] == "check"]
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def planned(drawn: int) -> Plan:
    """The demo's task for replies by itself, with slots that draw so many tickets."""
    document: Any = load_plan((TICKETS / "plan.yaml").read_text(encoding="utf-8")).model_dump(mode="json")
    task: Mapping[str, Any] = document["tasks"]["reply"]
    tasks = {"reply": {**task, "drawn": drawn, "ensemble": SLOTS[drawn], "share": 1.0}}
    return load_plan(json.dumps({**document, "tasks": tasks}))


def has_rule(words: tuple[str, ...] | None, rule: set[str]) -> bool:
    """Whether released words give it."""
    return len(rule & set(words or ())) >= 2


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out: Path = parser.parse_args().out
    prepare(out / "brookfern")
    embedder, table = Embedder(), dict[tuple[int, int, float], np.ndarray | None]()
    base = Dataset(out / "brookfern", planned(6), "reply", "text")
    embed = remembered(out / "embeddings", embedder.embed_many)
    engine = open_engine(NearestExemplarConfig(), embedder)
    exact: dict[int, np.ndarray] = {}
    with closing(engine), asyncio.Runner() as runner, base.filled(embed, told) as store:
        for drawn in SLOTS:
            data = Dataset(out / "brookfern", planned(drawn), "reply", "text")
            asked = runner.run(data.ask(store, engine, embedder.embed, progress=told))
            said = [[words_of(output) for output in row.outputs] for row in asked]
            rules = [set(row.answer.split()) for row in asked]
            exact[drawn] = np.array(
                [
                    np.mean([len(rule & (words or set())) >= 2 for words in slots if words is not None])
                    for slots, rule in zip(said, rules, strict=True)
                ]
            )
            for answers in ANSWERS:
                task = data.task.model_copy(update={"answers": answers})
                for epsilon in EPSILONS:
                    try:
                        noise = noise_of(data.plan, "reply", task, data.public_size, epsilon)
                    except PlanError:
                        table[drawn, answers, epsilon] = None
                        continue
                    mechanism = KeywordPtrAdapter(task, noise).mechanism
                    hits = [
                        np.mean([has_rule(mechanism.release(slots), rule) for _ in range(DRAWS)])
                        for slots, rule in zip(said, rules, strict=True)
                    ]
                    table[drawn, answers, epsilon] = np.array(hits)
                    print(drawn, answers, epsilon, np.mean(hits), flush=True)
    headings = [f"{answers:,}, ε = {epsilon:g}" for answers in ANSWERS for epsilon in EPSILONS]
    print(f"| a slot draws | slots | one slot | {' | '.join(headings)} |")
    print("|---:|---:|---:" + "|---:" * len(headings) + "|")
    for drawn, slots in SLOTS.items():
        cells = [cell(exact[drawn]), *(cell(table[drawn, a, e]) for a in ANSWERS for e in EPSILONS)]
        print(f"| {drawn} | {slots} | {' | '.join(cells)} |")


def cell(shares: np.ndarray | None) -> str:
    """Percent with its standard error over questions."""
    if shares is None:
        return "no"
    return f"{100 * shares.mean():.0f} ± {100 * shares.std(ddof=1) / len(shares) ** 0.5:.0f}"


if __name__ == "__main__":
    main()
