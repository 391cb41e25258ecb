"""Events of the audit trail as the pages show them, in the words of :mod:`accounting.ledger.events`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from accounting.ledger.events import Names
from accounting.ledger.trail import AuditEvent


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
    """What to call whoever acted: a key by its name, anyone else by the name noted on the command line."""
    return lambda actor: f"“{key_names.get(actor, actor)}”" if actor else "The command line"
