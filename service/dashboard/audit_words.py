"""Events of the audit trail as the pages show them, in the words of :mod:`accounting.ledger.events`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from accounting.ledger.trail import AuditEvent
from service.records.api_keys import called


class EventInWords(NamedTuple):
    """An event of the trail, its kind in words, and what happened."""

    event: AuditEvent
    title: str
    sentence: str


def in_words(event: AuditEvent, key_names: Mapping[str, str]) -> EventInWords:
    """An event in words: keys by their names and ids. One that only a newer version knows goes by its kind."""

    def named(actor: str) -> str:
        if not actor:
            return "The command line"
        return f"“{key_names[actor]}” ({actor})" if actor in key_names else f"“{actor}”"

    particulars = event.particulars
    if particulars is None:
        return EventInWords(event, event.kind, f"{event.kind}.")
    return EventInWords(event, particulars.title, particulars.sentence(named))


def told_apart(key_names: Mapping[str, str]) -> dict[str, str]:
    """What to call keys where no two may look alike, by id: their names, and beside one that several have the id."""
    times = Counter(key_names.values())
    return {key: name if times[name] == 1 else called(key, key_names) for key, name in key_names.items()}
