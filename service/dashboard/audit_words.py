"""Events of the audit trail as sentences."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from accounting.ledger.trail import RESTORED, Event
from service.dashboard.wording import figure, plural

KINDS = {
    "budget.opened": "Knowledge base created",
    "plan.signed": "Plan signed",
    "charge": "Answer charged",
    "release": "Answer released",
    "void": "Charge taken back",
    "lost": "Charge lost",
    "refusal": "Refused",
    "key.created": "Key made",
    "key.changed": "Key’s limits changed",
    "key.revoked": "Key revoked",
    "admin.signed_in": "Admin signed in",
    "admin.signed_out": "Admin signed out",
    "exemplars.ingested": "Exemplars uploaded",
    "unit.forgotten": "Unit forgotten",
    "remote_engine.changed": "Engine outside allowed or forbidden",
    "exemplars.renewed": "Exemplars encrypted anew",
    "encryption_key.added": "Encryption key added",
    "encryption_key.retired": "Encryption key retired",
    RESTORED: "Restored from a backup",
}
"""Every kind of event, in words."""

Body = Mapping[str, Any]
Names = Callable[[Any], str]


@dataclass(frozen=True)
class Told:
    """An event as it is shown.

    Attributes:
        sequence: its number.
        at: when.
        title: its kind in words.
        sentence: what happened.
        particulars: its body as JSON, indented.
        previous: hash of the event before.
        hash: its own.
    """

    sequence: int
    at: datetime
    title: str
    sentence: str
    particulars: str
    previous: str
    hash: str


def tell(event: Event, key_names: Mapping[str, str]) -> Told:
    """An event in words.

    Args:
        event: of the trail.
        key_names: by id; whoever is not among them acted from the command line, under the name noted.
    """
    body = event.particulars

    def named(actor: Any) -> str:
        return f"“{key_names.get(str(actor), str(actor))}”" if actor else "The command line"

    sentence = _SENTENCES[event.kind](body, named) if event.kind in _SENTENCES else f"{event.kind}."
    written = json.dumps(body, indent=2, ensure_ascii=False)
    title = KINDS.get(event.kind, event.kind)
    return Told(event.sequence, event.at, title, sentence, written, event.previous, event.hash)


def _opened(body: Body, named: Names) -> str:
    return f"{named(body.get('by'))} created {body['knowledge_base']} with {_pair(body)} for its whole life."


def _signed(body: Body, named: Names) -> str:
    answers = ", ".join(f"{plural(count, 'answer')} of {task}" for task, count in body["answers"].items())
    return (
        f"{named(body['signed_by'])} signed plan {body['version']} of {body['knowledge_base']}: {_pair(body)} for "
        f"{answers}."
    )


def _charge(body: Body, named: Names) -> str:
    return f"{named(body['key'])} was charged an answer of {body['task']}."


def _release(body: Body, _named: Names) -> str:
    return f"An answer of {body['task']} left."


def _void(body: Body, _named: Names) -> str:
    why = _words(body["reason"])
    return f"A charge of {body['task']} was taken back, before anything private was read: {why}."


def _lost(body: Body, _named: Names) -> str:
    return f"A charge of {body['task']} ended without an answer. It stays spent."


def _refusal(body: Body, named: Names) -> str:
    return f"{named(body['key'])} was refused by {body['task']} {_times(body['times'])}: {_words(body['reason'])}."


def _created(body: Body, named: Names) -> str:
    return f"{named(body.get('by'))} made the {body['role']} key “{body['name']}”, with {_limits(body)}."


def _changed(body: Body, named: Names) -> str:
    return f"{named(body.get('by'))} changed the limits of the key {named(body['key'])}: {_limits(body)}."


def _revoked(body: Body, named: Names) -> str:
    return f"{named(body.get('by'))} revoked the key {named(body['key'])}."


def _signed_in(body: Body, named: Names) -> str:
    return f"{named(body['key'])} signed in to the dashboard."


def _signed_out(body: Body, named: Names) -> str:
    return f"{named(body['key'])} signed out of the dashboard."


def _ingested(body: Body, named: Names) -> str:
    return f"{named(body.get('by'))} uploaded exemplars to {body['knowledge_base']}."


def _forgotten(body: Body, named: Names) -> str:
    return f"{named(body.get('by'))} had a unit of {body['knowledge_base']} forgotten."


def _remote(body: Body, named: Names) -> str:
    did = "allowed" if body["allowed"] else "forbade"
    return f"{named(body.get('by'))} {did} engines outside the deployment for {body['knowledge_base']}."


def _renewed(body: Body, named: Names) -> str:
    return f"{named(body['by'])} had the exemplars of {body['knowledge_base']} encrypted under a new key."


def _encryption_key_added(body: Body, named: Names) -> str:
    return f"{named(body['by'])} let the encryption key {body['fingerprint']} open the database too."


def _encryption_key_retired(body: Body, named: Names) -> str:
    return f"{named(body['by'])} retired the encryption key {body['fingerprint']}."


def _restored(body: Body, named: Names) -> str:
    return (
        f"{named(body['by'])} acknowledged that the ledger was restored from a backup as it was at event "
        f"{body['common']}: {plural(body['charges'], 'answer')} given since stayed charged."
    )


_SENTENCES: Mapping[str, Callable[[Body, Names], str]] = {
    "budget.opened": _opened,
    "plan.signed": _signed,
    "charge": _charge,
    "release": _release,
    "void": _void,
    "lost": _lost,
    "refusal": _refusal,
    "key.created": _created,
    "key.changed": _changed,
    "key.revoked": _revoked,
    "admin.signed_in": _signed_in,
    "admin.signed_out": _signed_out,
    "exemplars.ingested": _ingested,
    "unit.forgotten": _forgotten,
    "remote_engine.changed": _remote,
    "exemplars.renewed": _renewed,
    "encryption_key.added": _encryption_key_added,
    "encryption_key.retired": _encryption_key_retired,
    RESTORED: _restored,
}


def _pair(body: Body) -> str:
    return f"ε {figure(float(body['epsilon']))} and δ {figure(float(body['delta']))}"


def _limits(body: Body) -> str:
    quota, rate = body["quota"], body["rate_per_minute"]
    answers = "no quota" if quota is None else f"a quota of {plural(quota, 'answer')}"
    pace = "no limit on its pace" if rate is None else f"at most {plural(rate, 'request')} a minute"
    return f"{answers} and {pace}"


def _times(times: int) -> str:
    return "once" if times == 1 else f"{times:,} times"


def _words(reason: str) -> str:
    return reason.replace("-", " ")
