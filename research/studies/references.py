"""What a language model's label scores are divided by, compared: votes of nearest exemplars' slots, without noise.

    python -m research.studies.references DATA OUT trec agnews sst2 ddxplus --shots 1 4

``DATA`` and ``OUT`` are those of ``nearest.py``; replies are kept in ``OUT``. Each slot shows the nearest of 16
exemplars. A line holds accuracy in percent: of slots that quote, of zero-shot, and of hard and soft votes of the
model's slots by the weight of a slot's own reference (``own_reference``): 0 is one for all slots, 1 each slot's own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from accounting.plans.plan import Plan, load_plan
from accounting.plans.tasks import ClassifyTask
from research.evaluation.dataset import Dataset
from research.evaluation.labels import tally
from research.evaluation.replies import KeptEngine
from research.studies.nearest import HERE, SETS, Slots, remembered, show_progress
from service.engines.configs import NearestExemplarConfig, VllmConfig
from service.engines.embedding.embedder import Embedder
from service.engines.factory import open_engine

DRAWN, OWN = 16, (0.0, 0.5, 1.0)


def with_own_reference(plan: Plan, weight: float) -> Plan:
    """The plan of one task with this weight of each slot's own reference."""
    document = plan.model_dump(mode="json")
    (task,) = document["tasks"].values()
    return load_plan(json.dumps(document | {"tasks": {name: task | {"own_reference": weight} for name in plan.tasks}}))


def votes(dataset: Dataset, store: Any, engine: Any, embedder: Embedder) -> list[str]:
    """Accuracy of zero-shot, and of hard and soft votes."""
    task = dataset.task
    assert isinstance(task, ClassifyTask)
    asked = asyncio.run(dataset.ask(store, engine, embedder.embed, progress=show_progress))
    found = tally(asked, task.labels)
    zero_shot = [None if row.zero_shot.probabilities is None else row.zero_shot.probabilities.argmax() for row in asked]
    shares = [np.mean(np.array(zero_shot) == found.truth)]
    shares += [np.mean(each.argmax(axis=1) == found.truth) for each in (found.hard, found.soft)]
    return [f"{100 * share:.0f}" for share in shares]


def main() -> None:
    """Print a line of a table, in Markdown, for each set and number of exemplars shown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("sets", nargs="+", choices=[name for name in SETS if SETS[name].field == "text"])
    parser.add_argument("--shots", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--slots", type=int, default=12)
    arguments = parser.parse_args()
    embedder = Embedder()
    quoting = open_engine(NearestExemplarConfig(name="nearest_exemplar"), embedder)
    model = KeptEngine(VllmConfig(name="vllm", model="smollm2", timeout_s=3600), embedder, arguments.out)
    headings = [f"own_reference {weight:g}, hard / soft" for weight in OWN]
    lines = [f"| set, shown | quotes | zero-shot | {' | '.join(headings)} |", "|---" + "|---:" * 5 + "|"]
    with closing(quoting), closing(model):
        for name in arguments.sets:
            its = SETS[name]
            plan = load_plan((HERE / its.plan).read_text(encoding="utf-8"))
            (task,) = plan.tasks
            base = Dataset(arguments.data / name, plan, task, its.field, its.unit, arguments.questions)
            with base.filled(remembered(arguments.out / "embeddings", embedder.embed_many), show_progress) as store:
                way = replace(base, plan=Slots("quote", 1, DRAWN).of(plan, arguments.slots))
                quotes = votes(way, store, quoting, embedder)[1]
                for shots in arguments.shots:
                    asks = Slots("model", shots, DRAWN).of(plan, arguments.slots)
                    ways = [replace(base, plan=with_own_reference(asks, weight)) for weight in OWN]
                    found = [votes(way, store, model, embedder) for way in ways]
                    cells = [f"{hard} / {soft}" for _, hard, soft in found]
                    lines.append(f"| {name}, {shots} | {quotes} | {found[0][0]} | {' | '.join(cells)} |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
