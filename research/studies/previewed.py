"""Does the preview report the right share of right answers? It measures; then the plan is signed, and questions asked.

    python -m research.studies.previewed DATA trec agnews ddxplus

``DATA`` is that of ``nearest.py``. :data:`ANSWERS` training rows, drawn at random, are set aside as later questions: a
data set's test rows may be of another kind, as TREC's are. The preview gets the other rows, as ``dpicl plan preview
--rows`` does, and measures each task of :data:`TASKS`. Then a service with a database of its own takes the same rows,
signs the plan, and answers the questions from each task, charged and with noise. With ``--test`` these are test rows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accounting.plans.plan import CalibratedPlan, Plan, calibrate_plan, load_plan
from exemplar_store import Row
from research.studies.nearest import HERE, SETS, show_progress
from service.answering.plans.signing import release, sign
from service.answering.trials.held_out import Accuracy, HeldOut
from service.engines.configs import NearestExemplarConfig
from service.engines.embedding.embedder import Embedder
from service.engines.factory import open_engine
from service.operations.services import open_services
from service.records.records import Records, open_records
from service.settings import Settings

ANSWERS = 300
TASKS: Mapping[str, Mapping[str, Any]] = {
    "softmax_regression": {"release": "once", "mechanism": {"type": "softmax_regression"}},
    "rnm_gaussian": {
        "shots": 1,
        "drawn": 4,
        "order": "nearest",
        "slots": "quote",
        "ensemble": 40,
        "answers": ANSWERS,
        "mechanism": {"type": "rnm_gaussian"},
    },
}
"""A one-time release, and 40 slots that quote the nearest of four exemplars; each has half of ε = 2."""

Shares = Mapping[str, Accuracy]
_OF_THE_SET = ("kind", "labels", "label_field", "label_descriptions", "prompt")
_ENGINE = NearestExemplarConfig(name="nearest_exemplar")


def plan_for(name: str) -> Plan:
    """Both tasks with the labels and the prompt of a set's own plan."""
    (task,) = load_plan((HERE / SETS[name].plan).read_text(encoding="utf-8")).tasks.values()
    shown = {key: value for key, value in task.model_dump(mode="json").items() if key in _OF_THE_SET}
    tasks = {each: {**shown, **how} for each, how in TASKS.items()}
    return load_plan(json.dumps({"knowledge_base": name, "budget": {"epsilon": 2, "delta": 1e-4}, "tasks": tasks}))


def rows_of(file: Path, fields: Sequence[str], unit: str) -> list[Row]:
    """Rows of a file with the fields that a plan's prompts have."""
    read = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return [Row(n, str(row[unit]), {field: str(row[field]) for field in fields}) for n, row in enumerate(read, 1)]


async def previewed(records: Records, calibrated: CalibratedPlan, rows: Sequence[Row], embedder: Embedder) -> Shares:
    """What the preview measures, in percent."""
    services = open_services(records, open_engine(_ENGINE, embedder), embedder)
    held_out = HeldOut(services.answering.stages, rows, "text", progress=show_progress)
    return {task: (await held_out.measure(calibrated, task)).accuracy for task in TASKS}


async def served(records: Records, name: str, rows: Sequence[Row], embedder: Embedder) -> Shares:
    """What the service answers, in percent."""
    answering = open_services(records, open_engine(_ENGINE, embedder), embedder).answering
    found = {}
    for task in TASKS:
        right = []
        for number, row in enumerate(rows, 1):
            answer = await answering.answer(f"{name}.{task}", row.fields["text"], key_id="study")
            right.append(answer.release.answer["label"] == row.fields["label"])
            show_progress(task, number, len(rows))
        found[task] = Accuracy.of(np.array([right], dtype=np.float64), [row.unit_id for row in rows])
    return found


def measure(data: Path, name: str, embedder: Embedder, *, tested: bool) -> tuple[Shares, Shares]:
    """Both shares of one set: as previewed, and as served; asked are rows set aside, or those for testing."""
    plan, its = plan_for(name), SETS[name]
    task = plan.tasks["rnm_gaussian"]
    fields = (its.field, task.answer_field)
    train = rows_of(data / name / "train.jsonl", fields, its.unit)
    random.Random(7).shuffle(train)
    later, train = (
        (rows_of(data / name / "test.jsonl", fields, its.unit), train) if tested else (train, train[ANSWERS:])
    )
    calibrated = calibrate_plan(plan, public_size=len(train))
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/study.sqlite"
        records = open_records(Settings(database_url=url, development=True, witness_url="none", latency_unpadded=True))
        before = asyncio.run(previewed(records, calibrated, train, embedder))
        records.create_knowledge_base(
            name, epsilon=2, delta=1e-4, public_size=len(train), fields=fields, embedded_field=its.field
        )
        records.ingest(name, train, embedder.embed_many, by="study")
        sign(records, calibrated, "study")
        release(records, f"{name}.softmax_regression", embedder.embed)
        after = asyncio.run(served(records, name, later[:ANSWERS], embedder))
        records.database.dispose()
    return before, after


def main() -> None:
    """Print a line of a table for each set and task, in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("sets", nargs="+", choices=[name for name in SETS if SETS[name].field == "text"])
    parser.add_argument("--test", action="store_true", help="ask the first test rows")
    arguments = parser.parse_args()
    lines, embedder = [], Embedder()
    for name in arguments.sets:
        before, after = measure(arguments.data, name, embedder, tested=arguments.test)
        lines += [f"| {name} | {task} | {_shown(before[task])} | {_shown(after[task])} |" for task in TASKS]
    print("\n".join(["| data set | mechanism | preview | served |", "|---|---|---:|---:|", *lines]))


def _shown(accuracy: Accuracy) -> str:
    return f"{accuracy.share:.1f} % ± {accuracy.error:.1f} of {accuracy.rows}"


if __name__ == "__main__":
    main()
