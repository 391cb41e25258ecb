"""A simulated year: people keep arriving, a cohort is opened each quarter, and plans draw on the newest four.

The knowledge base begins with a number of people, and a tenth as many arrive each month. Each quarter, a cohort
is opened for the people who arrive in it, and one plan is signed; each month uses a third of its answers. Everything
goes through the service's own functions: upload, calibration, ledger, sample, engine, noise.

    python benchmarks/arrivals.py DATA/agnews [--people 3500] [--answers 999] [--quick]

DATA/agnews has ``train.jsonl`` and ``test.jsonl`` with ``id``, ``text``, ``label``; each row is a person.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from accounting.ledger.errors import BudgetExceededError
from accounting.plans.plan import Plan, load_plan
from exemplar_store import Layout, Row
from service.answering.plans.signing import check_free, prepare, sign
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.engines.embedding.embedder import Embedder, cores
from service.operations.services import Services, open_services
from service.records.records import open_records
from service.records.signed import read_signed
from service.settings import Settings

PLAN = Path(__file__).parents[1] / "research" / "studies" / "agnews.yaml"
TICKETS = Path(__file__).parents[1] / "examples" / "support" / "tickets.jsonl"
EPSILON, DELTA = 8.0, 1e-4
RETAIN = 4
MONTHS, QUARTERS = 3, 4
LAYOUT = Layout(("text", "label"))

Example = Mapping[str, str]
"""A text and its label."""


@dataclass(frozen=True)
class Month:
    """The answers to one month's questions.

    Attributes:
        plan: version of the plan.
        cohorts: cohorts that the plan draws on.
        public_size: public size of these cohorts.
        noise: standard deviation of the noise on each label's votes.
        asked: number of questions; each was answered.
        right: number of right answers.
    """

    plan: int
    cohorts: tuple[int, ...]
    public_size: int
    noise: float
    asked: int
    right: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--people", type=int, default=3500, help="number of people at the beginning")
    parser.add_argument("--answers", type=int, default=999, help="number of answers in each quarter's plan")
    parser.add_argument("--quick", action="store_true", help="made-up tickets: 100 people, 12 answers")
    options = parser.parse_args()
    plan = load_plan(PLAN.read_text())
    if options.quick:
        people, answers = 100, 12
        exemplars, questions = made_up()
        labels = tuple(sorted({one["label"] for one in exemplars}))
        tasks = {"topic": plan.tasks["topic"].model_copy(update={"labels": labels, "ensemble": 20})}
        plan = plan.model_copy(update={"tasks": tasks})
    else:
        people, answers = options.people, options.answers
        exemplars, questions = (read(options.data / f"{name}.jsonl") for name in ("train", "test"))
    plan = rolling(plan, answers)
    with tempfile.TemporaryDirectory() as folder:
        records = open_records(
            Settings(database_url=f"sqlite:///{folder}/year.sqlite", development=True, latency_unpadded=True)
        )
        embedder = Embedder(threads=cores())
        services = open_services(records, NearestExemplarEngine(embedder), embedder)
        months = list(asyncio.run(year(services, plan, exemplars, questions, people)))
        show(services, plan, months)


def rolling(plan: Plan, answers: int) -> Plan:
    """The plan to sign each quarter: it takes a quarter of a cohort's budget from each of the newest four cohorts."""
    ((name, task),) = plan.tasks.items()
    budget = plan.budget.model_copy(update={"epsilon": EPSILON / RETAIN, "delta": DELTA / RETAIN})
    tasks = {name: task.model_copy(update={"answers": answers})}
    return plan.model_copy(update={"budget": budget, "retain": RETAIN, "tasks": tasks})


async def year(
    services: Services, plan: Plan, exemplars: Sequence[Example], questions: Sequence[Example], people: int
) -> list[Month]:
    """Simulate the year.

    Args:
        services: services with an empty database.
        plan: from :func:`rolling`.
        exemplars: one exemplar per person, in the order in which the people arrive.
        questions: at least as many as a plan answers, with the right labels.
        people: number of people at the beginning; a tenth as many arrive each month.
    """
    records, name = services.records, plan.knowledge_base
    ((task, written),) = plan.tasks.items()
    monthly, asking = people // 10, written.answers // MONTHS
    rows = (Row(number, f"person {number}", dict(one)) for number, one in enumerate(exemplars))
    records.create_knowledge_base(
        name, epsilon=EPSILON, delta=DELTA, public_size=people, fields=LAYOUT.fields, embedded_field="text"
    )
    upload(services, name, islice(rows, people))
    key, _token = records.keys.create("whoever asks", "analyst")
    months = []
    for _quarter in range(QUARTERS):
        records.open_cohort(name, epsilon=EPSILON, delta=DELTA, public_size=MONTHS * monthly, by="calendar")
        again = months[-1].plan if months else None
        signed = sign(records, prepare(records, plan), "calendar", again=again)
        calibrated = read_signed(signed.document)
        for month in range(MONTHS):
            upload(services, name, islice(rows, monthly))
            asked = questions[month * asking : (month + 1) * asking]
            right = 0
            for one in asked:
                answer = await services.answering.answer(
                    f"{name}.{task}@{signed.version}", {"text": one["text"]}, key_id=key.id
                )
                right += answer.charged and answer.release.answer["label"] == one["label"]
            noise = calibrated.noise[task].mechanism.noise_multiplier * 2**0.5
            months.append(Month(signed.version, signed.cohorts, calibrated.public_size, noise, len(asked), right))
    return months


def upload(services: Services, name: str, rows: Iterator[Row]) -> None:
    services.records.ingest(name, rows, services.embedder.embed_many, by="calendar")


def forecast(plan: Plan) -> float:
    """Answers per month that the cohorts' budgets allow: each plan takes its ε from the newest ``RETAIN`` cohorts."""
    (task,) = plan.tasks.values()
    return task.answers * (EPSILON // plan.budget.epsilon) / (RETAIN * MONTHS)


def show(services: Services, plan: Plan, months: Sequence[Month]) -> None:
    print("month  plan  cohorts     public size  noise  asked  right")
    for number, month in enumerate(months, 1):
        share, cohorts = month.right / month.asked, ", ".join(map(str, month.cohorts))
        error = (share * (1 - share) / month.asked) ** 0.5
        print(
            f"{number:>5}  {month.plan:>4}  {cohorts:<10}  {month.public_size:>11,}  {month.noise:>5.1f}  "
            f"{month.asked:>5}  {100 * share:5.1f} ± {100 * error:.1f} %"
        )
    charged = sum(task.charged for task in services.records.ledger.budgets.status(plan.knowledge_base).tasks)
    print(f"forecast: {forecast(plan):g} answers a month, {forecast(plan) * len(months):g} in all")
    print(f"the ledger: {charged} answers charged")
    try:
        check_free(services.records, plan)
    except BudgetExceededError as error:
        print(f"one more plan before the next cohort: {error}")


def read(file: Path) -> list[Example]:
    with file.open(encoding="utf-8") as stream:
        rows = [{name: row[name] for name in LAYOUT.fields} for row in map(json.loads, stream)]
    return list({row["text"]: row for row in rows}.values())  # a question asked twice is answered twice for one charge


def made_up() -> tuple[list[Example], list[Example]]:
    tickets = map(json.loads, TICKETS.read_text(encoding="utf-8").splitlines())
    rows = [{"text": one["text"], "label": one["team"]} for one in tickets]
    random.Random(0).shuffle(rows)
    return rows[100:], rows[:100]


if __name__ == "__main__":
    main()
