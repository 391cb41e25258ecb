"""Exemplars at random against the nearest ones, and slots that quote against slots that ask a language model.

    python -m research.studies.nearest DATA OUT quote trec agnews sst2 ddxplus
    python -m research.studies.nearest DATA OUT model trec sst2 agnews ddxplus
    python -m research.studies.nearest DATA OUT extract sroie
    python -m research.studies.nearest DATA OUT tables

Slots quote, ask SmolLM2, or take lines of the question's own document (``extract``: the engine ``nearest_exemplar``).

``DATA`` holds a folder for each set, with ``train.jsonl`` and ``test.jsonl``, as ``prepare.py`` makes them. The slots'
answers are computed once and kept in ``OUT``, with embeddings and results: a run that is cut off goes on where it was.
Slots are drawn for each question anew, from all training rows, as in the service. Noise is calibrated by the project's
own accountant, for the whole budget, and drawn 20 times. Standard errors are over the questions.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from accounting.plans.plan import Plan, load_plan
from accounting.plans.tasks import GenerateTask
from research.evaluation.dataset import Dataset
from research.evaluation.evaluator import Pass
from research.evaluation.labels import LabelEvaluator, LabelScores, tally
from research.evaluation.once import PrototypesEvaluator
from research.evaluation.replies import KeptEngine
from research.evaluation.tables import Grid
from research.evaluation.texts import TextEvaluator, TextScores
from service.engines.configs import NearestExemplarConfig, VllmConfig
from service.engines.embedding.embedder import Embed, Embedder
from service.engines.factory import open_engine

HERE = Path(__file__).parent
EPSILONS, ANSWERS, DRAWS = (1.0, 3.0, 8.0), (100, 1000), 20
QUOTED_ROWS, ASKED_ROWS, ASKED_SLOTS = 300, 40, 12
PUBLIC_TEXTS = 8
"""Number of the plan's public texts to use: every slot of every question is calibrated by all of them."""
EXTRACTS = {"candidates": 100, "mechanism": {"type": "embedding_mean"}}
"""Settings of a task whose slots take lines."""


@dataclass(frozen=True)
class Rows:
    """A set of rows.

    Attributes:
        plan: name of the plan's file.
        field: field of a question, which exemplars are compared with.
        unit: column of the privacy unit.
        slots: number of slots that fit, unless a model is asked.
    """

    plan: str
    field: str = "text"
    unit: str = "id"
    slots: int = 40


SETS = {
    "trec": Rows("trec-model.yaml"),
    "agnews": Rows("agnews-model.yaml"),
    "sst2": Rows("sst2-model.yaml"),
    "ddxplus": Rows("ddxplus.yaml"),
    "samsum": Rows("samsum-model.yaml", "dialogue"),
    "sroie": Rows("sroie-model.yaml", "question", "doc_id", slots=30),
}


@dataclass(frozen=True)
class Slots:
    """A way to fill slots and to answer in them.

    Attributes:
        slots: ``quote`` or ``model``, as in a plan; ``extract`` for that engine; ``prototypes``, which has no slots.
        shots: exemplars that a slot shows.
        drawn: exemplars that it draws; as many as it shows means at random.
    """

    slots: str
    shots: int = 1
    drawn: int = 1

    @property
    def vote(self) -> str:
        """Votes that the table shows: a quoting slot is always sure."""
        return {"model": "soft", "quote": "hard"}.get(self.slots, "")

    def of(self, plan: Plan, ensemble: int) -> Plan:
        """The plan with such slots."""
        (name,), (task,) = plan.tasks, plan.tasks.values()
        document = task.model_dump(mode="json")
        document |= {"shots": self.shots, "ensemble": ensemble}
        document |= EXTRACTS if self.slots == "extract" else {}
        document |= {name: document[name][:PUBLIC_TEXTS] for name in document.keys() & {"public_texts"}}
        if self.slots == "prototypes":
            kept = ("kind", "labels", "label_field", "prompt")
            document = {key: document[key] for key in kept} | {"release": "once", "mechanism": {"type": "prototypes"}}
        elif self.drawn > self.shots:
            slots = "quote" if self.slots == "quote" else "model"
            document |= {"drawn": self.drawn, "order": "nearest", "slots": slots}
        written = plan.model_dump(mode="json") | {"tasks": {name: document}}
        return load_plan(json.dumps(written))


QUOTED = [Slots("quote", 1, drawn) for drawn in (4, 16, 64, 128)]
EXTRACTED = [Slots("extract", 4, drawn) for drawn in (4, 16, 64)]
ASKED = [Slots("model", *shown) for shown in ((1, 1), (1, 16), (1, 64), (4, 4), (4, 16), (4, 64), (4, 128))]
WAYS = {"quote": [Slots("prototypes"), *QUOTED], "extract": EXTRACTED, "model": ASKED}


def remembered(folder: Path, embed: Embed) -> Embed:
    """Embeddings that are kept in a folder, a file for each batch of texts."""

    def embedded(texts: Sequence[str]) -> np.ndarray:
        file = folder / f"{hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()}.npy"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            whole_soon = file.with_name(f"{file.name}.{os.getpid()}")
            with whole_soon.open("wb") as stream:
                np.save(stream, embed(texts))
            whole_soon.rename(file)
        vectors: np.ndarray = np.load(file)
        return vectors

    return embedded


class Results:
    """Lines of a file, so that whatever is measured stays measured."""

    def __init__(self, out: Path) -> None:
        self._file = out / "nearest.jsonl"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._file.exists():
            yield from map(json.loads, self._file.read_text(encoding="utf-8").splitlines())

    def has(self, name: str, slots: Slots) -> bool:
        """Whether this was measured."""
        return any(row["set"] == name and row["filled"] == asdict(slots) for row in self)

    def add(self, name: str, slots: Slots, ensemble: int, questions: int, scores: Sequence[Any]) -> None:
        """Keep the rows of one way to fill slots, all or none."""
        about = {"set": name, "filled": asdict(slots), "ensemble": ensemble, "questions": questions}
        lines = [json.dumps(about | asdict(row)) + "\n" for row in scores]
        with self._file.open("a", encoding="utf-8") as stream:
            stream.write("".join(lines))


def measure(
    data: Path, out: Path, name: str, ways: Sequence[Slots], engine: Any, rows: int, ensemble: int, embedder: Embedder
) -> None:
    """Measure what is not measured yet of one set."""
    its, results = SETS[name], Results(out)
    missing = [way for way in ways if not results.has(name, way)]
    if not missing:
        return
    plan = load_plan((HERE / its.plan).read_text(encoding="utf-8"))
    (task,) = plan.tasks
    base = Dataset(data / name, plan, task, its.field, its.unit, rows)
    with (
        asyncio.Runner() as runner,
        base.filled(remembered(out / "embeddings", embedder.embed_many), show_progress) as store,
    ):
        for way in missing:
            if way.drawn * ensemble > 1.1 * base.public_size:
                print(f"{name}: too few training rows for {way}", flush=True)
                continue
            these = replace(base, plan=way.of(plan, ensemble))
            asked = runner.run(these.ask(store, engine, embedder.embed, progress=show_progress))
            given, progress = Pass(asked, store, engine, embedder, runner.run), partial(show_progress, "results")
            grid, scores = Grid(EPSILONS, ANSWERS, DRAWS), list[LabelScores | TextScores]()
            if isinstance(these.task, GenerateTask):
                scores += TextEvaluator(these, [json.dumps(EXTRACTS["mechanism"])]).evaluate(given, grid, progress)
            elif way.slots == "prototypes":
                scores += PrototypesEvaluator(these).evaluate(given, replace(grid, answers=[1]), progress)
            else:
                scores += LabelEvaluator(these).scores(tally(asked, these.task.labels), grid, progress)
            results.add(name, way, ensemble, len(asked), scores)
            print(name, way, *scores, sep="\n  ", flush=True)


def show_progress(stage: str, done: int, total: int) -> None:
    """Progress, now and then."""
    if done == total or done % 20 == 0:
        print(f"  {stage} {done} / {total}", flush=True)


def tables(out: Path) -> None:
    """Print what was measured, a table in Markdown for each set, and write all figures to two files in CSV."""
    rows = list(Results(out))
    for name in dict.fromkeys(row["set"] for row in rows):
        its = [row for row in rows if row["set"] == name]
        lines = text_lines(its) if "rouge1" in its[0] else label_lines(its)
        headings = [f"{answers:,}, ε = {epsilon:g}" for answers in ANSWERS for epsilon in EPSILONS]
        print(f"\n{name}\n\n| slots | questions | one slot | no noise | {' | '.join(headings)} |")
        print("|---" + "|---:" * (3 + len(headings)) + "|", *lines, sep="\n")
        print(f"\nzero-shot of the engine that was asked: {zero_shots(its)}")
    for file, measure in (("nearest.csv", "accuracy"), ("nearest-texts.csv", "rouge1")):
        flat = [{"set": row["set"], **row["filled"], **row} for row in rows if measure in row]
        with (out / file).open("w", newline="", encoding="utf-8") as stream:
            names = [key for key in flat[0] if key != "filled"] if flat else []
            writer = csv.DictWriter(stream, names, lineterminator="\n", extrasaction="ignore")
            writer.writeheader()
            writer.writerows({k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()} for row in flat)


def by_way(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[Slots, list[dict[str, Any]]]]:
    """Each way that slots were filled, and its rows."""
    for way in sorted({Slots(**row["filled"]) for row in rows}, key=in_order):
        yield way, [row for row in rows if row["filled"] == asdict(way)]


def label_lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Lines of a table of labels, one for each way."""
    for way, of in by_way(rows):
        cells = [str(of[0]["questions"]), cell(pick(of, method=f"one slot of {way.shots}"))]
        if way.slots == "prototypes":
            wanted: dict[str, Any] = {"decide": ""}
            cells.append(cell(pick(of, method="prototypes, no noise")))
        else:
            wanted = {"decide": "posterior", "vote": way.vote}
            cells.append(cell(pick(of, method="aggregate, no noise", vote=way.vote)))
        for answers in ANSWERS:
            count = {} if way.slots == "prototypes" else {"answers": answers}
            cells += [cell(pick(of, epsilon=epsilon, **count, **wanted)) for epsilon in EPSILONS]
        yield line(way, cells)


def text_lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Lines of a table of texts, one for each way."""
    for way, of in by_way(rows):
        cells = [str(of[0]["questions"]), cell(pick(of, method=f"one slot of {way.shots}"))]
        cells.append(cell(pick(of, method="aggregate, no noise")))
        cells += [cell(pick(of, answers=answers, epsilon=epsilon)) for answers in ANSWERS for epsilon in EPSILONS]
        yield line(way, cells)


def in_order(way: Slots) -> tuple[int, int, int]:
    """Sort key of a table's lines: the model first, prototypes last, and what draws least first."""
    return ("model", "extract", "quote", "prototypes").index(way.slots), way.shots, way.drawn


def zero_shots(rows: Sequence[dict[str, Any]]) -> str:
    """The zero-shot figure of each engine."""
    found = {}
    for row in rows:
        if row["method"] == "zero-shot":
            found["SmolLM2" if row["filled"]["slots"] == "model" else "nearest_exemplar"] = cell(row)
    return ", ".join(f"{engine} {figure}" for engine, figure in found.items())


def pick(rows: Sequence[dict[str, Any]], **wanted: Any) -> dict[str, Any] | None:
    """The first row with these values, if any."""
    return next((row for row in rows if all(row[key] == value for key, value in wanted.items())), None)


def line(way: Slots, cells: Sequence[str]) -> str:
    """One line of a table."""
    drawn = "" if way.slots == "prototypes" else f", {way.shots} of {way.drawn}"
    return f"| {way.slots}{drawn} | {' | '.join(cells)} |"


def cell(row: dict[str, Any] | None) -> str:
    """A figure with its standard error: accuracy of labels, ROUGE-1 of texts."""
    if row is None:
        return ""
    figure, error = ("accuracy", "standard_error") if "accuracy" in row else ("rouge1", "rouge1_error")
    return f"{row[figure]:.0f} ± {row[error]:.0f}"


def main() -> None:
    """Measure, or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("what", choices=("quote", "extract", "model", "tables"))
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], default=[])
    parser.add_argument("--ways", type=int, help="number of ways to fill slots, from the first; unless given, all")
    parser.add_argument("--questions", type=int, help=f"unless given, {QUOTED_ROWS}, or {ASKED_ROWS} for a model")
    arguments = parser.parse_args()
    if arguments.what == "tables":
        tables(arguments.out)
        return
    embedder = Embedder()
    for name in arguments.sets or SETS:
        its, ways, rows = SETS[name], WAYS[arguments.what][: arguments.ways], arguments.questions or QUOTED_ROWS
        ensemble = its.slots
        if arguments.what == "model":
            config = VllmConfig(name="vllm", model="smollm2", timeout_s=3600)
            engine: Any = KeptEngine(config, embedder, arguments.out)
            rows, ensemble = arguments.questions or ASKED_ROWS, ASKED_SLOTS
        else:
            engine = open_engine(NearestExemplarConfig(name="nearest_exemplar"), embedder)
        with closing(engine):
            measure(arguments.data, arguments.out, name, ways, engine, rows, ensemble, embedder)


if __name__ == "__main__":
    main()
