"""The ledger's names for tasks and their topics."""

from collections.abc import Mapping

SEPARATOR = "#"
"""The separator between a task's name and a topic's."""


def entry(task: str, topic: str | None) -> str:
    """The ledger's name for a task, or for one of its topics: ``reply``, or ``reply#kettle``."""
    return task if topic is None else f"{task}{SEPARATOR}{topic}"


def parts(named: str) -> tuple[str, str | None]:
    """The inverse of :func:`entry`."""
    task, separator, topic = named.partition(SEPARATOR)
    return task, topic if separator else None


def by_task(counts: Mapping[str, int]) -> dict[str, int]:
    """The largest count of each task, from counts by :func:`entry`: the most that a unit can have paid."""
    largest: dict[str, int] = {}
    for named, count in counts.items():
        task, _ = parts(named)
        largest[task] = max(count, largest.get(task, 0))
    return largest
