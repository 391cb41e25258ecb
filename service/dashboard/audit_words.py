"""Events of the audit trail as the pages show them, in the words of :mod:`accounting.ledger.events`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from accounting.ledger.events import Names
from accounting.ledger.trail import AuditEvent
from service.records.api_keys import called


@dataclass(frozen=True)
class EventInWords:
    """An event as it is shown.

    Attributes:
        event: as it is in the trail.
        title: its kind in words.
        sentence: what happened.
        particulars: its body as JSON, indented.
    """

    event: AuditEvent
    title: str
    sentence: str
    particulars: str


def in_words(event: AuditEvent, key_names: Mapping[str, str]) -> EventInWords:
    """An event in words; one that only a newer version knows goes by its kind.

    Args:
        event: of the trail.
        key_names: by id; see :func:`names`.
    """
    indented = json.dumps(json.loads(event.body), indent=2, ensure_ascii=False)
    particulars = event.particulars
    if particulars is None:
        return EventInWords(event, event.kind, f"{event.kind}.", indented)
    return EventInWords(event, particulars.title, particulars.sentence(names(key_names)), indented)


def names(key_names: Mapping[str, str]) -> Names:
    """What to call the actor: a key by its name and id, anyone else as the trail does."""

    def named(actor: str) -> str:
        if not actor:
            return "The command line"
        return f"“{key_names[actor]}” ({actor})" if actor in key_names else f"“{actor}”"

    return named


def told_apart(key_names: Mapping[str, str]) -> dict[str, str]:
    """What to call keys where no two may look alike, by id: their names, and beside one that several have the id."""
    times = Counter(key_names.values())
    return {key: name if times[name] == 1 else called(key, key_names) for key, name in key_names.items()}
