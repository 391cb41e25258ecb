"""The audit trail: events, also in words, its export, and its replay."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from accounting.ledger import events as kinds
from accounting.ledger.checkpoints import CheckpointError
from accounting.ledger.notes import Checkpoint, VerifierKey
from accounting.ledger.trail import AuditEvent
from accounting.replay.trail import Progress, Report
from service.operations.command import command
from service.operations.keys import distinct_names
from service.operations.roles import Actor, Right
from service.records import replaying
from service.records.records import Records


@command(Right.AUDIT)
def events(_actor: Actor, /, records: Records, **wanted: Any) -> list[AuditEvent]:
    """Events of the trail, filtered and in pages; arguments as of :meth:`accounting.ledger.trail.AuditTrail.events`."""
    return records.audit.events(**wanted)


@command(Right.AUDIT)
def export(_actor: Actor, records: Records) -> Iterator[str]:
    """Every event as a line of JSON, and a last line that shows where the trail ended, with a checkpoint if signed.

    Raises:
        accounting.ledger.checkpoints.CheckpointError: the trail does not continue what was signed before.
        accounting.ledger.witness.LedgerRestoredError: the ledger lacks what was witnessed.
        accounting.ledger.witness.WitnessUnavailableError: the witness does not answer.
    """
    return records.audit.export(records.log.sign() if records.log else None)


@command(Right.AUDIT)
def checkpoint(_actor: Actor, records: Records) -> Checkpoint:
    """A signed checkpoint of the trail as it is now; raises as :func:`export`, and where nothing is signed."""
    if records.log is None:
        raise CheckpointError(
            "the audit trail is not signed here: the operator makes a key with `dpicl audit key`, and names it in "
            "DPICL_AUDIT_KEY_FILE and DPICL_AUDIT_ORIGIN"
        )
    return records.log.sign()


@command(Right.AUDIT)
def replay(
    _actor: Actor,
    records: Records,
    heads: Collection[str] = (),
    *,
    keys: Collection[VerifierKey] = (),
    checkpoints: Collection[Checkpoint] = (),
    recompute: bool = True,
    progress: Progress = lambda _plan: None,
) -> Report:
    """Replay the whole trail; arguments and errors as of :func:`service.records.replaying.replay`."""
    return replaying.replay(
        records, heads=heads, keys=keys, checkpoints=checkpoints, recompute=recompute, progress=progress
    )


CHANGES = tuple(
    change.kind
    for change in (
        *(kinds.ExemplarsIngested, kinds.UnitForgotten, kinds.CohortOpened, kinds.CohortClosed),
        *(kinds.KnowledgeBaseArchived, kinds.RemoteEngineChanged, kinds.PlanRetired),
    )
)
"""Kinds of events that change a knowledge base."""


@dataclass(frozen=True)
class TrailFilters:
    """Values by which events can be filtered.

    Attributes:
        kinds: pairs (kind, its title).
        keys: pairs (id, name of the key), revoked ones too; no two names are alike.
        knowledge_bases: names of the knowledge bases.
    """

    kinds: Sequence[tuple[str, str]]
    keys: Sequence[tuple[str, str]]
    knowledge_bases: Sequence[str]


class EventInWords(NamedTuple):
    """An event of the trail, its kind in words, and what happened."""

    event: AuditEvent
    title: str
    sentence: str


@command(Right.AUDIT)
def filters(_actor: Actor, records: Records) -> TrailFilters:
    """Values by which events can be filtered."""
    keys = records.keys.list()
    shown = distinct_names({key.id: key.name for key in keys})
    return TrailFilters(
        [(kind, particulars.title) for kind, particulars in kinds.KINDS.items()],
        [(key.id, shown[key.id] + (", revoked" if key.revoked_at else "")) for key in keys],
        [described.name for described in records.store.list()],
    )


@command(Right.AUDIT)
def describe(_actor: Actor, /, records: Records, **wanted: Any) -> list[EventInWords]:
    """Events in words, the newest first; as :func:`events`."""
    names = records.keys.names()
    return [in_words(event, names) for event in records.audit.events(**wanted, newest_first=True)]


def in_words(event: AuditEvent, key_names: Mapping[str, str]) -> EventInWords:
    """An event in words: keys by their names and ids. One that only a newer version knows goes by its kind."""
    particulars = event.particulars
    if particulars is None:
        return EventInWords(event, event.kind, f"{event.kind}.")
    return EventInWords(event, particulars.title, particulars.sentence(lambda actor: in_quotes(actor, key_names)))


def in_quotes(actor: str, key_names: Mapping[str, str]) -> str:
    """An actor of the trail: a key by its name and id, and others by their name."""
    if not actor:
        return "The command line"
    return f"“{key_names[actor]}” ({actor})" if actor in key_names else f"“{actor}”"
