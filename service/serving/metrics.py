"""The service's public quantities for Prometheus: budgets, charges, refusals, keys, responses, the audit trail.

What the ledger holds is read from the database at each scrape, so every ingress replica reports the same and a restart
resets no counter. Each replica counts its own responses, and checks engine, witness and the audit trail's chain on its
own. Nothing here depends on exemplars or on how long an engine took: metrics are as public as answers are.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version

import sqlalchemy as sa
import structlog
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from accounting.ledger.budgets import BudgetStatus, SignedPlan, TaskStatus, address
from accounting.ledger.dialects import reading
from accounting.ledger.entries import entry
from accounting.ledger.errors import LedgerError
from accounting.ledger.tables import OPEN, charges
from accounting.ledger.witness import LedgerRestoredError
from accounting.replay.chain import ChainCheck, Checked
from service.answering.plans.preview import epsilon_spent
from service.gateway.telemetry.responses import Responses
from service.operations.roles import MAY
from service.problem_kinds import ProblemKind
from service.records.api_keys import StoredKey
from service.records.engine_record import last_engine
from service.records.records import Records
from service.records.signed import read_signed
from service.settings import Settings

log = structlog.get_logger()

_REFUSED_FOR = (ProblemKind.ANSWERS_EXHAUSTED.slug, ProblemKind.QUOTA_EXHAUSTED.slug)
"""The reasons for which every task can refuse a question."""
_CHECKED_AT_ONCE = 10_000  # events of the audit trail: about a tenth of a second

Values = Iterable[tuple[tuple[str, ...], float]]
"""The values of a metric, each with its labels' values."""


class Metrics:
    """The metrics of one replica.

    Args:
        records: records whose state is reported.

    Attributes:
        responses: counter of responses, to be informed of each.
    """

    def __init__(self, records: Records) -> None:
        self.responses = Responses()
        self._records = records
        self._chain = ChainCheck(records.audit)
        self._told_of_break = False

    def exposition(self, *, engine_up: bool, accept: str = "") -> tuple[bytes, str]:
        """The metrics as Prometheus reads them.

        Args:
            engine_up: whether the engine answers.
            accept: the request's Accept header; Prometheus' own text or OpenMetrics.

        Returns:
            The text and its media type.
        """
        checked = self._chain.advance(_CHECKED_AT_ONCE)
        if checked.broken and not self._told_of_break:
            self._told_of_break = True
            log.error("audit_chain_broken", after=checked.events)
        encode, media_type = choose_encoder(accept)
        return encode(Scrape(self._records, self.responses, checked, engine_up)), media_type


@dataclass(frozen=True)
class Scrape(Collector):
    """One reading of everything."""

    records: Records
    responses: Responses
    checked: Checked
    engine_up: bool

    def collect(self) -> Iterator[Metric]:
        """Every family."""
        records = self.records
        records.ledger.expire_leases()  # so that charges whose holder died show as lost
        budgets = records.ledger.budgets.statuses()
        yield InfoMetricFamily("dpicl_build", "Always 1: the service's version.", {"version": version("dp-icl")})
        yield from _engine(records, self.engine_up)
        yield from _budgets(budgets)
        plans = [plan for budget in budgets for plan in records.ledger.budgets.plans(budget.knowledge_base)]
        yield _spent(plans, budgets)
        once = {
            address(plan.knowledge_base, name, plan.version)
            for plan in plans
            for name in read_signed(plan.document).plan.once
        }
        tasks = [(budget.knowledge_base, task) for budget in budgets for task in budget.tasks]
        yield from _tasks(tasks, once)
        yield from _attention(records.settings)
        yield _overdue(records)
        yield _refusals(records, [task.address for budget in budgets for task in budget.tasks])
        yield from _keys(records.keys.list())
        yield _responses(self.responses)
        yield from _audit(records.audit.end().sequence, self.checked)
        if records.witness is not None:
            yield from _witness(records.witness.trouble)


def _engine(records: Records, up: bool) -> Iterator[Metric]:
    says = "Whether the engine answered a health check in the last 15 seconds (1) or not (0)."
    yield GaugeMetricFamily("dpicl_engine_up", says, int(up))
    engine = last_engine(records.database)
    if engine is not None:
        flags = {"is_llm": str(engine.is_llm).lower(), "remote": str(engine.remote).lower()}
        told = {"name": engine.name, "isolation": engine.isolation, **flags}
        yield InfoMetricFamily("dpicl_engine", "Always 1: the engine that answers, or answered last.", told)


def _family(
    kind: type[GaugeMetricFamily | CounterMetricFamily], name: str, says: str, labels: Sequence[str], values: Values
) -> Metric:
    family = kind(name, says, labels=labels)
    for where, value in values:
        family.add_metric(where, value)
    return family


_gauge, _counter = partial(_family, GaugeMetricFamily), partial(_family, CounterMetricFamily)


def _budgets(budgets: list[BudgetStatus]) -> Iterator[Metric]:
    says = (
        "of each knowledge base, by share: lifetime (in all), promised (to signed plans), free (for further plans); of "
        "several cohorts the open one with least epsilon free."
    )
    shares = {"lifetime": "", "promised": "promised_", "free": "free_"}
    for letter in ("epsilon", "delta"):
        values = [
            ((budget.knowledge_base, share), float(getattr(budget.tightest, before + letter)))
            for budget in budgets
            for share, before in shares.items()
        ]
        yield _gauge(f"dpicl_budget_{letter}", f"The {letter} {says}", ("knowledge_base", "share"), values)


def _spent(plans: list[SignedPlan], budgets: list[BudgetStatus]) -> Metric:
    tasks = {budget.knowledge_base: budget.tasks for budget in budgets}

    def spent(plan: SignedPlan) -> float:
        charged = {
            entry(task.name, task.topic): task.charged
            for task in tasks[plan.knowledge_base]
            if task.version == plan.version
        }
        return epsilon_spent(plan.document, charged)

    says = "The epsilon of each plan's charges so far, for information only: the whole plan counts once it is signed."
    values = [((plan.knowledge_base, str(plan.version)), spent(plan)) for plan in plans]
    return _gauge("dpicl_plan_epsilon_spent", says, ("knowledge_base", "version"), values)


def _tasks(tasks: list[tuple[str, TaskStatus]], once: set[str]) -> Iterator[Metric]:
    """Metrics of every task; one with a one-time release (in ``once``) is spent from the start and never runs out."""
    labels = ("knowledge_base", "task")
    # They come by version. A retired plan answers no more, and gives way to any that is not.
    answering = [(knowledge_base, task) for knowledge_base, task in tasks if not task.retired]
    newest = {(knowledge_base, task.name): task.version for knowledge_base, task in answering}
    placed = [((knowledge_base, task.address), task) for knowledge_base, task in tasks]
    counted = [(where, task) for where, task in placed if task.address not in once]

    def charges(state: str) -> Values:
        return [(where, task.states[state]) for where, task in placed]

    answers = [(where, task.answers) for where, task in counted]
    yield _gauge("dpicl_task_answers", "Answers a task may give in all.", labels, answers)
    left = [(where, task.left) for where, task in counted]
    yield _gauge("dpicl_task_answers_left", "Answers a task may still give.", labels, left)
    current = [(where, int(task.version == newest.get((where[0], task.name)))) for where, task in placed]
    says = "1 for the version that answers questions without a version, 0 for older ones and retired ones."
    yield _gauge("dpicl_task_current", says, labels, current)
    made = [(where, sum(task.states.values())) for where, task in placed]
    yield _counter("dpicl_charges", "Charges ever made.", labels, made)
    yield _counter("dpicl_charges_released", "Charges that became an answer.", labels, charges("released"))
    says = "Charges given back: the question failed without exemplars."
    yield _counter("dpicl_charges_voided", says, labels, charges("voided"))
    says = "Answers that used no exemplars: what the slots agreed on did not stand out from the noise."
    fell_back = [(where, task.fell_back) for where, task in placed]
    yield _counter("dpicl_charges_fell_back", says, labels, fell_back)
    # Not counters: an open charge is settled, and a lost one may still become an answer.
    yield _gauge("dpicl_charges_open", "Charges being answered now.", labels, charges("charged"))
    says = "Charges spent without an answer: their replica died."
    yield _gauge("dpicl_charges_lost", says, labels, charges("lost"))


def _attention(settings: Settings) -> Iterator[Metric]:
    """Rules know no settings, so they compare with these."""
    says = "The percentage of its answers at which a task needs attention."
    yield GaugeMetricFamily("dpicl_attention_percent", says, settings.attention_percent)
    says = "A task that runs out within this many days needs attention."
    yield GaugeMetricFamily("dpicl_attention_days", says, settings.attention_days)


def _overdue(records: Records) -> Metric:
    """Charges that are open for longer than most queries take: usually their replica was killed."""
    half = timedelta(seconds=records.settings.lease_s / 2)
    overdue = sa.select(sa.func.count()).where(OPEN, charges.c.lease_until <= datetime.now(UTC) + half)
    with reading(records.database) as connection:
        count = connection.execute(overdue).scalar_one()
    return GaugeMetricFamily("dpicl_charges_overdue", "Open charges past half their lease.", count)


def _refusals(records: Records, tasks: list[str]) -> Metric:
    # From 0 on, or Prometheus would not see the first one as an increase.
    times: Counter[tuple[str, str]] = Counter({(task, reason): 0 for task in tasks for reason in _REFUSED_FOR})
    for refusal in records.ledger.refusals():
        times[refusal.task, refusal.reason] += refusal.times
    says = "Questions refused without a charge: answers-exhausted, quota-exhausted, remote-engine-forbidden."
    return _counter("dpicl_refusals", says, ("task", "reason"), sorted(times.items()))


def _keys(keys: list[StoredKey]) -> Iterator[Metric]:
    """Ids, not names: scrapers may not list keys, and names are often people's."""
    now = datetime.now(UTC)
    counted: Counter[tuple[str, str]] = Counter((key.role, key.status(now)) for key in keys)
    statuses = ("valid", "expired", "revoked")
    by_role = [((role, status), counted[role, status]) for role in MAY for status in statuses]
    yield _gauge("dpicl_keys", "API keys by role: valid, expired or revoked.", ("role", "status"), by_role)
    asking = [key for key in keys if key.role == "analyst" and key.status(now) == "valid"]
    charged = [((key.id,), key.charged) for key in asking]
    yield _gauge("dpicl_key_answers", "Answers charged to a valid analyst key, by its id.", ("key",), charged)
    quotas = [((key.id,), key.quota) for key in asking if key.quota is not None]
    yield _gauge("dpicl_key_quota_answers", "The key's quota, if it has one.", ("key",), quotas)


def _responses(responses: Responses) -> Metric:
    says = (
        "Responses of one replica's api or dashboard, by status and problem; those about exemplars only if the key was "
        "wrong."
    )
    counts = [
        ((surface, str(status), slug, responses.replica), times)
        for (surface, status, slug), times in responses.counts().items()
    ]
    return _counter("dpicl_http_responses", says, ("surface", "status", "problem", "replica"), counts)


def _audit(events: int, checked: Checked) -> Iterator[Metric]:
    yield CounterMetricFamily("dpicl_audit_events", "Events in the audit trail.", events)
    says = "Events this replica has checked since it started: 10,000 more at each scrape, in 0.1 seconds."
    yield GaugeMetricFamily("dpicl_audit_checked_events", says, checked.events)
    says = "1 if this replica found a changed event in the audit trail."
    yield GaugeMetricFamily("dpicl_audit_chain_broken", says, int(checked.broken))


def _witness(trouble: LedgerError | None) -> Iterator[Metric]:
    restored = isinstance(trouble, LedgerRestoredError)
    says = "1 if the ledger lacks what its witness has seen; absent without a witness."
    yield GaugeMetricFamily("dpicl_ledger_restored", says, int(restored))
    says = "Whether the witness answers (1) or not (0); absent without a witness."
    yield GaugeMetricFamily("dpicl_witness_up", says, int(trouble is None or restored))
