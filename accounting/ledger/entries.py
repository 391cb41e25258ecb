"""What a ledger calls a task, or one of its topics."""

from collections.abc import Mapping

SEPARATOR = "#"
"""Stands between a task's name and a topic's."""


def entry(task: str, topic: str | None) -> str:
    """What a ledger calls a task, or one of its topics: ``reply``, or ``reply#kettle``."""
    return task if topic is None else f"{task}{SEPARATOR}{topic}"


def parts(named: str) -> tuple[str, str | None]:
    """The inverse of :func:`entry`."""
    task, separator, topic = named.partition(SEPARATOR)
    return task, topic if separator else None


def by_task(counts: Mapping[str, int]) -> dict[str, int]:
    """The largest count of each task, from counts by what a ledger calls it: what a unit can have paid at most."""
    largest: dict[str, int] = {}
    for named, count in counts.items():
        task, _ = parts(named)
        largest[task] = max(count, largest.get(task, 0))
    return largest
