"""What slots of a language model cost with references of their own, and with one for all of them.

Without a reference of its own a slot asks one prompt; with one it also asks every public text of the plan. Random slots
of the demo's tickets are asked the demo's questions, each question of other slots, so that no exemplar is found cached.

    python benchmarks/references.py                     # a tiny model, here
    python benchmarks/references.py --model smollm2
"""

from __future__ import annotations

import argparse
import asyncio
import json
import lzma
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from accounting.plans.plan import load_plan
from examples.tiny_model import make_tiny_model
from exemplar_store import Exemplar, Slot
from service.answering.queries import task_spec
from service.engines.configs import VllmConfig
from service.engines.factory import open_engine
from service.engines.task import TaskSpec
from service.sources.files import read_records

DEMO = Path(__file__).parents[1] / "examples" / "brookfern"


@dataclass(frozen=True)
class Cost:
    """The cost of an answer's slots, on average, and of the task's first question."""

    prompts: float
    seconds: float
    first_s: float

    def __str__(self) -> str:
        return f"{self.prompts:7.0f}  {self.seconds:9.2f}  {self.first_s:12.1f}"


async def cost(engine: Any, spec: TaskSpec, queries: Sequence[dict[str, str]], slots: Sequence[list[Slot]]) -> Cost:
    """The cost of the slots' answers to some questions."""
    asked, ask = 0, engine._ask

    async def counted(*given: Any) -> Any:
        nonlocal asked
        asked += 1
        return await ask(*given)

    started = time.perf_counter()
    zero_shots = [await engine.zero_shot(spec, query) for query in queries[:1]]
    first_s = time.perf_counter() - started
    zero_shots += [await engine.zero_shot(spec, query) for query in queries[1:]]
    engine._ask = counted
    started = time.perf_counter()
    for query, zero_shot, shown in zip(queries, zero_shots, slots, strict=True):
        outputs = await engine.contributions(spec, query, shown, zero_shot)
        assert all(output is not None for output in outputs)
    seconds = time.perf_counter() - started
    engine._ask = ask
    return Cost(asked / len(queries), seconds / len(queries), first_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="unless given, a tiny one of random weights")
    parser.add_argument("--slots", type=int, default=40)
    parser.add_argument("--shots", type=int, default=2)
    parser.add_argument("--questions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few slots and questions")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.slots, arguments.questions = 8, 2
    plan = load_plan((DEMO / "plan.yaml").read_text(encoding="utf-8"))
    task = plan.tasks["team"].model_copy(update={"slots": "model", "shots": arguments.shots})
    spec = task_spec("brookfern.team@1", task, "brookfern", "text", response_field=None, asker="")
    with lzma.open(DEMO / "tickets.jsonl.xz", "rt", encoding="utf-8") as lines:
        tickets = [Exemplar({name: row[name] for name in ("text", "team")}) for row in map(json.loads, lines)]
    queries = [{"text": row["text"]} for row in read_records(str(DEMO / "questions.jsonl"))[: arguments.questions]]
    lots = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or str(make_tiny_model(Path(folder)))
        with closing(open_engine(VllmConfig(name="vllm", model=model, timeout_s=3600), None)) as engine:

            async def compare() -> list[Cost]:
                costs = []
                for share in (1.0, 0.0, 1.0, 0.0):  # the first two warm up
                    slots = [
                        [tuple(lots.sample(tickets, arguments.shots)) for _ in range(arguments.slots)] for _ in queries
                    ]
                    costs.append(await cost(engine, replace(spec, own_reference=share), queries, slots))
                return costs

            first_own, first_shared, own, shared = asyncio.run(compare())
    print(f"{arguments.slots} slots of {arguments.shots} exemplars, {len(task.public_texts)} public texts\n")
    print("references     prompts  seconds     first question, seconds")
    print(f"of each slot   {replace(own, first_s=first_own.first_s)}")
    print(f"one for all    {replace(shared, first_s=first_shared.first_s)}")
    print(f"\n{own.prompts / shared.prompts:.1f} times fewer prompts, {own.seconds / shared.seconds:.1f} times sooner")


if __name__ == "__main__":
    main()
