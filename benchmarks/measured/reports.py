"""Reports, scrapes, the overview and pages of the audit trail, by the number of releases; and what a charge costs.

Figures are seconds of processor time, with the database (SQLite) in the same process. The releases of 400 days by six
keys are written row by row as the ledger would have them, which takes a thousandth of the time of asking for each.
"""

import argparse
import inspect
import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from accounting.ledger import events, tables, trail
from accounting.ledger.charges import Charged
from accounting.ledger.history import History, midnight
from accounting.plans.plan import calibrate_plan, load_plan
from accounting.replay.books import violations
from service.operations import overview, usage
from service.operations.budget_report import budget_report
from service.operations.roles import Actor
from service.records.records import Records, open_records
from service.serving.metrics import Metrics
from service.settings import Settings

TARGETS = {
    "budget report, 100000 releases": 20.0,
    "scrape, 100000 releases": 20.0,
    "overview, 100000 releases": 20.0,
    "usage, 100000 releases": 20.0,
    "audit page of a key, 100000 releases": 20.0,
    "audit page of a knowledge base, 100000 releases": 20.0,
    "audit page of a day, 100000 releases": 20.0,
    "releases of a knowledge base, 100000 releases": 20.0,
    "charge, 1000 releases": 1.0,
    "release, 1000 releases": 0.97,
}
SIZES = (1_000, 10_000, 100_000)
DAYS = 400
KEYS = 6
PLAN = """
knowledge_base: support
budget: {epsilon: 2, delta: 1.0e-5}
tasks:
  queue:
    kind: classify
    labels: [billing, technical]
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    shots: 2
    ensemble: 10
    answers: 1000000
    mechanism: {type: rnm_gaussian}
  reply:
    kind: generate
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    response_field: label
    public_answers: ["yes", "no"]
    shots: 2
    ensemble: 10
    answers: 1000000
    mechanism: {type: keyword_ptr, k_min: 1, k_max: 4}
"""
ADMIN = Actor("admin", "admin", "key", "admin")


def opened(folder: Path) -> Records:
    """The records in a folder."""
    return open_records(Settings(database_url=f"sqlite:///{folder}/ledger.sqlite", development=True, _env_file=None))


def prepare(records: Records) -> None:
    """Make a knowledge base that many ask, and one that is asked seldom, each with a signed plan."""
    for name in ("support", "rare"):
        records.create_knowledge_base(
            name, epsilon=4, delta=1e-4, public_size=1000, fields=["text", "label"], embedded_field="text"
        )
        calibrated = calibrate_plan(load_plan(PLAN.replace("support", name)), 1000)
        sign(records, calibrated)


def sign(records: Records, calibrated: Any) -> None:
    """Sign a plan as :func:`service.answering.plans.signing.sign`, which differs between commits."""
    plan = calibrated.plan
    records.ledger.budgets.sign(
        plan.knowledge_base,
        epsilon=plan.budget.epsilon,
        delta=plan.budget.delta,
        accountant=plan.accountant,
        document=calibrated.model_dump_json(),
        tasks=plan.counters(),
        signed_by="admin",
    )


def fill(records: Records, number: int) -> None:
    """Write charges and their releases: those of the last key and the second knowledge base are the oldest."""
    keys = [records.keys.create(f"key {place}", "analyst")[0].id for place in range(KEYS)]
    names = ("support.queue", "support.reply", "rare.queue")
    queue, reply, rare = (records.ledger.budgets.task(name) for name in names)
    now = datetime.now(UTC)
    rows: dict[sa.Table, list[dict[str, Any]]] = {tables.charges: [], tables.releases: [], tables.audit_events: []}
    last = records.audit.end()
    counted = {task.id: 0 for task in (queue, reply, rare)}
    by_key = dict.fromkeys(keys, 0)

    def note(at: datetime, happened: events.Particulars) -> None:
        nonlocal last
        fields = happened.model_dump()
        body = trail.canonical(fields)
        place = last.sequence + 1
        written = trail.digest(place, trail.timestamp(at), happened.kind, body, last.hash)
        event = trail.AuditEvent(place, at, happened.kind, body, last.hash, written)
        found = trail.found_by(at, fields) if hasattr(trail, "found_by") else {}
        rows[tables.audit_events].append(vars(event) | found)
        last = event.mark

    for place in range(number):
        seldom = place < 5
        task = rare if seldom else (queue, reply)[place % 2]
        key = keys[-1] if seldom else keys[place % (KEYS - 1)]
        answer: dict[str, Any] = {"label": "billing"}
        if task is reply:
            answer = {"text": "yes", "keywords": [], "fallback": place % 3 == 0, "method": "keywords"}
        at = now - timedelta(days=DAYS) * (1 - place / number)
        charge, release, query = str(uuid.uuid4()), str(uuid.uuid4()), b"%032d" % place
        counted[task.id] += 1
        by_key[key] += 1
        row = {"id": charge, "task_id": task.id, "query_digest": query, "key_id": key, "state": "released"}
        rows[tables.charges].append({**row, "created_at": at, "lease_until": at, "settled_at": at})
        row = {"id": release, "charge_id": charge, "task_id": task.id, "query_digest": query}
        rows[tables.releases].append({**row, "answer": answer, "created_at": at})
        note(at, events.AnswerCharged(charge=charge, task=task.address, key=key))
        sha = "0" * 64
        note(at, events.AnswerReleased(release=release, charge=charge, task=task.address, answer_sha256=sha))
    with records.database.begin() as connection:
        for table, written in rows.items():
            connection.execute(sa.insert(table), written)
        for task_id, times in counted.items():
            connection.execute(sa.update(tables.tasks).where(tables.tasks.c.id == task_id).values(charged=times))
        for key, times in by_key.items():
            connection.execute(sa.update(tables.quotas).where(tables.quotas.c.key_id == key).values(charged=times))


def seconds(work: Callable[[], object], times: int = 7) -> float:
    """Processor time of a piece of work, the median of some runs after a first."""
    work()
    taken = []
    for _ in range(times):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return statistics.median(taken)


def charging(records: Records, times: int) -> dict[str, float]:
    """The median processor time of a charge and of its release."""
    task, key = records.ledger.budgets.task("support.queue"), records.keys.list()[0].id
    spent: dict[str, list[float]] = {"charge": [], "release": []}
    for place in range(times):
        begun = time.process_time()
        charged = records.ledger.charge(task, b"%032d" % (10**9 + place), key_id=key)
        then = time.process_time()
        assert isinstance(charged, Charged)
        records.ledger.release(charged.id, {"label": "billing"})
        spent["charge"].append(then - begun)
        spent["release"].append(time.process_time() - then)
    return {name: statistics.median(taken) for name, taken in spent.items()}


def measure(number: int) -> dict[str, float]:
    """The figures of one size."""
    with tempfile.TemporaryDirectory(prefix="reports-") as folder:
        records = opened(Path(folder))
        prepare(records)
        fill(records, number)
        records.database.dispose()  # so that nothing is left in the write-ahead log
        records = opened(Path(folder))
        with records.database.connect() as connection:
            assert number > SIZES[0] or violations(connection) == []
        audit, oldest = records.audit, datetime.now(UTC) - timedelta(days=DAYS)
        second = oldest.date() + timedelta(days=1)
        rare = records.keys.list()[-1].id
        metrics, history = Metrics(records), History(records.database)
        for _ in range(2 + 2 * number // 10_000):  # each scrape checks more of the trail, until it has checked all
            metrics.exposition(engine_up=True)
        day: dict[str, Any] = {"day": second}
        if "day" not in inspect.signature(audit.events).parameters:
            day = {"since": midnight(second), "until": midnight(second + timedelta(days=1))}
        page = {"limit": 10, "newest_first": True}
        found = {
            "budget report": seconds(lambda: budget_report(records)),
            "scrape": seconds(lambda: metrics.exposition(engine_up=True)),
            "overview": seconds(lambda: overview.read(ADMIN, records)),
            "usage": seconds(lambda: usage.read(ADMIN, records, "support")),
            "audit page of a key": seconds(lambda: audit.events(by=[rare], **page)),
            "audit page of a knowledge base": seconds(lambda: audit.events(knowledge_base="rare", **page)),
            "audit page of a day": seconds(lambda: audit.events(**day, **page)),
            "releases of a knowledge base": seconds(lambda: history.releases(knowledge_base="support")),
        }
        assert audit.events(by=[rare], **page)
        assert audit.events(knowledge_base="rare", **page)
        if number == SIZES[0]:
            found |= charging(records, 400)
        records.database.dispose()
    return {f"{name}, {number} releases": value for name, value in found.items()}


def main() -> None:
    """Print the figures of each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the smallest size only")
    sizes = SIZES[:1] if parser.parse_args().quick else SIZES
    print(json.dumps({name: value for number in sizes for name, value in measure(number).items()}))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
