"""Leads of the right label among slots that quote, and the leads that a plan's noise demands of the same slots.

    python -m research.studies.leads measure DATA LEADS.csv trec agnews ddxplus sst2
    python -m research.studies.leads table LEADS.csv

``DATA`` is that of ``nearest.py``; :data:`QUESTIONS` test rows of each set are asked. A lead is the right label's votes
minus those of the strongest other label. A slot draws :data:`DRAWN` exemplars, on average, and votes for the label of
the nearest. :func:`needed` computes the table of ``docs/fit.md``, and a test compares them.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np

from accounting.plans.plan import calibrate_plan, load_plan
from accounting.plans.tasks import ClassifyTask
from research.evaluation.dataset import Dataset
from research.evaluation.labels import tally
from research.studies.nearest import HERE, SETS, Slots, show_progress
from service.answering.mechanisms.adapter import adapter_of
from service.engines.configs import NearestExemplarConfig
from service.engines.embedding.embedder import Embedder
from service.engines.factory import open_engine

QUESTIONS, SLOTS, DRAWN = 300, 40, (4, 16)
LABELS = {"trec": 6, "agnews": 4, "ddxplus": 16, "sst2": 2}
NAMES = {"trec": "TREC", "agnews": "AG News", "ddxplus": "DDXPlus", "sst2": "SST-2"}

Leads = Mapping[tuple[str, int], np.ndarray]
"""Leads of all questions, sorted, by set and by number drawn."""

_PLAN = """
knowledge_base: people
budget: {{epsilon: {epsilon}, delta: {delta}}}
tasks:
  label:
    kind: classify
    labels: [{labels}]
    prompt: {{exemplar: "{{text}} {{label}}", query: "{{text}}"}}
    shots: 1
    drawn: {drawn}
    order: nearest
    slots: quote
    ensemble: {slots}
    answers: {answers}
    mechanism: {{type: rnm_gaussian, vote: hard}}
"""


def leads(votes: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The lead of the right label for each question, negative where another has more votes.

    Args:
        votes: sums of hard votes, float (questions, labels).
        truth: index of the right label, int (questions,).
    """
    rows = np.arange(len(truth))
    others = votes.copy()
    others[rows, truth] = -math.inf
    difference: np.ndarray = votes[rows, truth] - others.max(axis=1)
    return difference


def measure(data: Path, name: str, embedder: Embedder) -> Iterator[tuple[int, np.ndarray]]:
    """The leads of one set, by number drawn."""
    its = SETS[name]
    plan = load_plan((HERE / its.plan).read_text(encoding="utf-8"))
    (task,) = plan.tasks
    engine = open_engine(NearestExemplarConfig(name="nearest_exemplar"), embedder)
    base = Dataset(data / name, plan, task, its.field, its.unit, QUESTIONS)
    with closing(engine), base.filled(embedder.embed_many, show_progress) as store:
        for drawn in DRAWN:
            way = Dataset(base.folder, Slots("quote", 1, drawn).of(plan, SLOTS), task, its.field, its.unit, QUESTIONS)
            asked = asyncio.run(way.ask(store, engine, embedder.embed, progress=show_progress))
            asks = way.task
            assert isinstance(asks, ClassifyTask)
            votes = tally(asked, asks.labels)
            yield drawn, leads(votes.hard, votes.truth)


def write(found: Iterable[tuple[str, int, np.ndarray]], file: Path) -> None:
    """Write how many questions have each lead."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("set", "drawn", "lead", "questions"))
        for name, drawn, values in found:
            writer.writerows((name, drawn, lead, times) for lead, times in sorted(Counter(values.astype(int)).items()))


def read(file: Path) -> Leads:
    """What :func:`write` wrote."""
    found: dict[tuple[str, int], list[int]] = {}
    with file.open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            found.setdefault((row["set"], int(row["drawn"])), []).extend([int(row["lead"])] * int(row["questions"]))
    return {which: np.array(sorted(values)) for which, values in found.items()}


def needed(people: int, answers: int, epsilon: float, *, drawn: int, labels: int) -> float:
    """The lead with which a label is released in 95 of 100 cases, as ``dpicl plan preview`` computes it; maybe more
    than all slots give.

    Args:
        people: public size, each person having one exemplar.
        answers: number of answers.
        epsilon: ε of them all.
        drawn: number of exemplars that a slot draws.
        labels: number of labels.
    """
    names = ", ".join(f"label {number}" for number in range(labels))
    delta = min(1e-5, 0.1 / people)
    text = _PLAN.format(epsilon=epsilon, delta=delta, labels=names, drawn=drawn, slots=SLOTS, answers=answers)
    calibrated = calibrate_plan(load_plan(text), public_size=people)
    return adapter_of(calibrated.plan.tasks["label"], calibrated.noise["label"]).outlook().needed


def measured_table(found: Leads) -> list[str]:
    """Lines of the table of leads, in Markdown."""
    lines = [
        "| data set | labels | a slot draws | average lead | the right label leads | by 5 or more | by 10 or more |"
    ]
    lines.append("|---" + "|---:" * 6 + "|")
    for (name, drawn), values in found.items():
        shares = [f"{share(values, least):.0f} %" for least in (1, 5, 10)]
        lines.append(f"| {NAMES[name]} | {LABELS[name]} | {drawn} | {values.mean():.1f} | {' | '.join(shares)} |")
    return lines


def share(values: np.ndarray, least: float) -> float:
    """The percentage of questions with at least this lead."""
    return 100 * float((values >= least).mean())


def main() -> None:
    """Measure, or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    measuring, printing = commands.add_parser("measure"), commands.add_parser("table")
    measuring.add_argument("data", type=Path)
    for command in (measuring, printing):
        command.add_argument("file", type=Path)
    measuring.add_argument("sets", nargs="+", choices=list(LABELS))
    arguments = parser.parse_args()
    if arguments.what == "measure":
        embedder = Embedder()
        found = ((name, *each) for name in arguments.sets for each in measure(arguments.data, name, embedder))
        write(list(found), arguments.file)
        return
    print("\n".join(measured_table(read(arguments.file))))


if __name__ == "__main__":
    main()
