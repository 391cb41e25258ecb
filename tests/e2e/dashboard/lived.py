"""A service that has been used for eight weeks: every charge goes through the ledger, whose clock is moved.

The answers are labels drawn at random: no engine is asked, and no test reads them.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from accounting.ledger import trail
from accounting.ledger.charges import Charged, Ledger
from accounting.ledger.events import AccuracyRecorded, ExemplarsIngested
from service.answering.plans.signing import sign
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.operations.services import open_services
from service.records.api_keys import ApiKeys
from service.records.records import Records
from service.serving.web import create_app
from tests.conftest import Clock
from tests.e2e.serving import calibrated, embedder
from tests.processes import listening

_WEEKS = 8
_FIELDS = ["text", "team", "desk", "reply"]
_TASK = """
  {name}:
    kind: classify
    labels: [{labels}]
    label_field: queue
    prompt:
      instruction: "Say which team answers the ticket."
      exemplar: "Ticket: {{text}}\\nTeam: {{queue}}"
      query: "Ticket: {{text}}\\nTeam:"
    shots: 4
    ensemble: 100
    answers: {answers}
    share: {share}
    mechanism: {{type: rnm_gaussian, vote: soft}}"""
_TEAMS = ["Payments", "Shipping", "Security", "Garden", "Members"]
_DESKS = ["Office", "Workshop"]


def _plan(knowledge_base: str, epsilon: float, *tasks: tuple[str, list[str], int, float]) -> str:
    written = "".join(
        _TASK.format(name=name, labels=", ".join(labels), answers=answers, share=share)
        for name, labels, answers, share in tasks
    )
    return f"knowledge_base: {knowledge_base}\nbudget: {{epsilon: {epsilon}, delta: 1.0e-5}}\ntasks:{written}\n"


def live(opened: Records) -> str:
    """Let eight weeks pass until now, and return the token of Maria, an admin."""
    clock = Clock()
    clock.now = datetime.now(UTC) - timedelta(weeks=_WEEKS)
    keys = ApiKeys(opened.database, clock=clock)
    records = replace(opened, ledger=Ledger(opened.database, clock=clock), keys=keys)
    maria, admin = keys.create("Maria", "admin")
    ana, _ = keys.create("ana", "analyst", by=maria.id)
    form, _ = keys.create("ticket form", "analyst", by=maria.id, scope=["support", "claims"])

    def create(name: str, epsilon: float, public_size: int) -> None:
        records.create_knowledge_base(
            name,
            epsilon=epsilon,
            delta=1e-4,
            public_size=public_size,
            fields=_FIELDS,
            embedded_field="text",
            by=maria.id,
        )
        with records.database.begin() as connection:
            trail.append(connection, clock(), ExemplarsIngested(knowledge_base=name, upload=name, by=maria.id))

    def plan(knowledge_base: str, public_size: int, epsilon: float, *tasks: tuple[str, list[str], int, float]) -> None:
        sign(records, calibrated(_plan(knowledge_base, epsilon, *tasks), public_size), "Maria")

    def measure(task: str, accuracy: float, zero_shot: float) -> None:
        shares = {"accuracy": accuracy, "standard_error": 1.7, "zero_shot": zero_shot, "zero_shot_error": 2.3}
        recorded = AccuracyRecorded(task=task, rows=400, engine="nearest_exemplar", by=maria.id, **shares)
        with records.database.begin() as connection:
            trail.append(connection, clock(), recorded)

    drawn, asked = random.Random(17), 0

    def ask(task: str, times: int, labels: list[str]) -> None:
        nonlocal asked
        signed = records.ledger.budgets.task(task)
        for _ in range(min(times, records.ledger.answers_left(signed))):
            asked += 1
            digest, key = sha256(str(asked).encode()).digest(), drawn.choice([ana, form, form])
            charge = records.ledger.charge(signed, digest, key_id=key.id)
            assert isinstance(charge, Charged)
            records.ledger.release(charge.id, {"label": drawn.choice(labels)})

    create("support", 8, 6000)
    plan("support", 6000, 2, ("team", _TEAMS, 600, 3), ("triage", _DESKS, 60, 1))
    measure("support.team@1", 91.0, 74.5)
    for day in range(_WEEKS * 7):
        if day == 20:
            create("claims", 3, 4000)
            plan("claims", 4000, 1.5, ("code", _DESKS, 300, 1))
            measure("claims.code@1", 70.0, 71.5)
            records.ledger.groups.open("care", 4, 1e-4, by=maria.id)
            records.ledger.groups.join("care", "claims", by=maria.id)
        if day == 34:
            create("letters", 4, 5000)
            plan("letters", 5000, 1, ("topic", _TEAMS, 500, 1))
            records.ledger.groups.join("care", "letters", by=maria.id)
        weekday = clock.now.weekday() < 5
        ask("support.team@1", drawn.randint(5, 12) if weekday else drawn.randint(0, 2), _TEAMS)
        ask("support.triage@1", drawn.randint(1, 4) if weekday else 0, _DESKS)
        if day >= 24:
            ask("claims.code@1", drawn.randint(9, 16) if weekday else 1, _DESKS)
        if not records.ledger.answers_left(records.ledger.budgets.task("support.triage@1")):
            records.ledger.refuse("support.triage@1", form.id, "answers-exhausted")
        clock.now += timedelta(days=1)
    return admin


@contextmanager
def running(records: Records) -> Iterator[str]:
    """Run a service of these records on a port of this machine until the block ends, and yield its address."""
    services = open_services(records, NearestExemplarEngine(embedder()), embedder())
    try:
        with listening(create_app(services)) as url:
            yield url
    finally:
        records.database.dispose()
