"""Charges of the last days by task or by key, fallbacks and refusals. All of it is public."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from accounting.ledger.history import Fallbacks, History, Use
from accounting.ledger.refusals import Refusal
from service.operations.command import command
from service.operations.keys import distinct_names
from service.operations.plans import names
from service.operations.roles import Actor, Right
from service.records.records import Records

DAYS = 30
"""Number of days shown, including today."""


@dataclass(frozen=True)
class DailyCharges:
    """Answers charged on each of the last days.

    Attributes:
        days: the last :data:`DAYS`, in UTC.
        series: pairs (name, answers charged on each of the days), the busiest first; none if nothing was charged.
    """

    days: Sequence[date]
    series: Sequence[tuple[str, Sequence[int]]]


@dataclass(frozen=True)
class UsageView:
    """Charges, fallbacks and refusals of a knowledge base.

    Attributes:
        charged: daily charges by task or by key.
        totals: triples (key, task, answers charged on these days), the most answers first.
        fallbacks: numbers of fallbacks, for each task that may fall back.
        refusals: questions refused without a charge.
        key_names: names of keys by id, no two alike.
    """

    charged: DailyCharges
    totals: Sequence[tuple[str, str, int]]
    fallbacks: Sequence[Fallbacks]
    refusals: Sequence[Refusal]
    key_names: Mapping[str, str]


@command(Right.BROWSE)
def read(actor: Actor, records: Records, name: str, by: Literal["task", "key"] = "task") -> UsageView:
    """The usage of a knowledge base, its charges by task or by key."""
    today, history = datetime.now(UTC).date(), History(records.database)
    spent = history.usage(knowledge_base=name, since=_last_days(today)[0])
    called = distinct_names(names(actor, records))

    def named(use: Use) -> str:
        return called.get(use.key_id, use.key_id) if by == "key" else use.task.split(".", 1)[-1]

    return UsageView(
        charged(spent, named, today),
        _totals(spent, called),
        history.fallbacks(knowledge_base=name),
        records.ledger.refusals(name),
        called,
    )


def charged(spent: Sequence[Use], named: Callable[[Use], str], today: date) -> DailyCharges:
    """Answers charged on each of the last days.

    Args:
        spent: charges; those of other days are ignored.
        named: returns the name of the series that a charge belongs to.
        today: the last of the days.
    """
    days, counts = _last_days(today), dict[str, list[int]]()
    for use in spent:
        # Midnight may have passed since ``today`` was read, or another replica's clock be ahead of ours.
        if use.day in days:
            counts.setdefault(named(use), [0] * len(days))[days.index(use.day)] += use.answers
    return DailyCharges(days, sorted(counts.items(), key=lambda pair: -sum(pair[1])))


def _last_days(today: date) -> list[date]:
    return [today - timedelta(days=ago) for ago in reversed(range(DAYS))]


def _totals(spent: Sequence[Use], key_names: Mapping[str, str]) -> list[tuple[str, str, int]]:
    counts: Counter[tuple[str, str]] = Counter()
    for use in spent:
        counts[key_names.get(use.key_id, use.key_id), use.task] += use.answers
    return [(key, task, answers) for (key, task), answers in counts.most_common()]
