"""Invariants that must hold after any fault, checked against the audit trail, the ledger, and callers' responses.

:func:`collect` gathers the evidence, and :func:`problems` judges it. The latter is a pure function, so that a test can
alter the evidence and check that the change is caught.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from accounting.ledger.charges import Release
from accounting.ledger.tables import charges, releases
from accounting.ledger.trail import canonical
from accounting.replay.books import violations
from accounting.replay.trail import Report, verify
from chaos import toys
from chaos.load import NOTHING_CHARGED, Received
from chaos.world import World
from service.operations.answers import ReleaseView
from tests.e2e.serving import opened

_PIECE = 1 << 20
_SECRETS = (toys.EXEMPLAR_CANARY, toys.UNIT_CANARY, toys.QUESTION_CANARY)


@dataclass(frozen=True)
class Charge:
    """A charge in the ledger; times are Unix times."""

    question: bytes
    state: str
    created_at: float
    settled_at: float | None


@dataclass(frozen=True)
class Evidence:
    """Evidence that a run left behind.

    Attributes:
        export: lines of the exported audit trail.
        ledger: violations that :func:`accounting.replay.books.violations` finds.
        charges: charges by id.
        stored: stored answers by release id: the charge's id, and the answer as the API would show it.
        received: questions that callers asked, with the responses.
        digests: digest of each question, as in the ledger.
        shown: Unix times at which a model outside the service saw each question together with exemplars.
        found: secrets in files and responses, and failures that faults observed.
    """

    export: tuple[str, ...]
    ledger: tuple[str, ...]
    charges: Mapping[str, Charge]
    stored: Mapping[str, tuple[str, Mapping[str, Any]]]
    received: tuple[Received, ...]
    digests: Mapping[str, bytes]
    shown: Mapping[str, tuple[float, ...]]
    found: tuple[str, ...] = ()

    def with_export(self, export: Iterable[str]) -> Evidence:
        """The same evidence with another export."""
        return replace(self, export=tuple(export))


def collect(world: World) -> Evidence:
    """Read the databases and files; the service must have stopped."""
    received = tuple(world.load.received)
    with opened(world.environment) as records:  # raises at its end if the ledger lacks witnessed events
        with records.database.connect() as connection:
            ledger = violations(connection)
            charged = {
                row.id: Charge(
                    row.query_digest,
                    row.state,
                    row.created_at.timestamp(),
                    row.settled_at and row.settled_at.timestamp(),
                )
                for row in connection.execute(sa.select(charges))
            }
            ids = connection.execute(sa.select(releases.c.id)).scalars().all()
        return Evidence(
            export=tuple(records.audit.export()),
            ledger=tuple(ledger),
            charges=charged,
            stored={id: _stored(records.ledger.get_release(id)) for id in ids},
            received=received,
            digests={one.question: _digest(records.digest_key, one.question) for one in received},
            shown={} if world.endpoint is None else {q: tuple(at) for q, at in world.endpoint.shown.items()},
            found=(*world.wrong, *sorted(set(world.load.leaks)), *_leaks(world)),
        )


def replayed(evidence: Evidence) -> Report:
    """Replay the export alone, without the databases."""
    return verify(evidence.export, recompute=False)


def problems(evidence: Evidence) -> list[str]:
    """Descriptions of the invariants that do not hold; empty if all hold.

    The replay checks the hash chain, ``released <= charged <= planned`` for each task, that a charge precedes each
    release, and that each charge ends at most once.
    """
    return [
        *replayed(evidence).problems,
        *evidence.ledger,
        *_answers(evidence),
        *_once(evidence),
        *_voids(evidence),
        *_costless(evidence),
        *evidence.found,
    ]


def _answers(evidence: Evidence) -> Iterable[str]:
    """Every answer that a caller received is stored unchanged, and the trail has its charge and its release."""
    trail: dict[str, dict[str, Any]] = defaultdict(dict)
    for line in evidence.export:
        event = json.loads(line)
        if "kind" in event and "charge" in event["body"]:
            trail[event["kind"]][event["body"]["charge"]] = event["body"]
    for question, told in [(one.question, one.release) for one in evidence.received if one.release is not None]:
        id = told["id"]
        if id not in evidence.stored:
            yield f"a caller has the answer {id}, which the ledger does not have"
            continue
        charge, answer = evidence.stored[id]
        if any(told.get(name) != value for name, value in answer.items()):
            yield f"a caller was told something else than the answer {id} that is stored"
        if charge not in trail["charge"]:
            yield f"the answer {id} was given without a charge in the trail"
        released = trail["release"].get(charge)
        if released is None or released["release"] != id:
            yield f"the answer {id} was given without its release in the trail"
        elif released["answer_sha256"] != hashlib.sha256(canonical(_plain(answer)).encode()).hexdigest():
            yield f"the answer {id} is not the one whose hash is in the trail"
        if evidence.charges[charge].question != evidence.digests[question]:
            yield f"the answer {id} was charged for another question"
        if evidence.charges[charge].state != "released":
            yield f"the answer {id} was given, and its charge is {evidence.charges[charge].state}"


def _once(evidence: Evidence) -> Iterable[str]:
    """The same question to the same task has one answer."""
    given = defaultdict(set)
    for one in evidence.received:
        if one.release is not None:
            given[one.task, one.question].add(one.release["id"])
    for (task, _), ids in given.items():
        if len(ids) > 1:
            yield f"one question to {task} got the answers {', '.join(sorted(ids))}"


def _voids(evidence: Evidence) -> Iterable[str]:
    """No charge is given back once exemplars were shown for its question: no void follows a private sample."""
    by_question = defaultdict(list)
    for id, charge in evidence.charges.items():
        by_question[charge.question].append((id, charge))
    for question, times in evidence.shown.items():
        for id, charge in by_question[evidence.digests.get(question, b"")]:
            if charge.state == "voided" and any(charge.created_at <= at <= (charge.settled_at or at) for at in times):
                yield f"charge {id} was given back after exemplars were drawn for it"


def _costless(evidence: Evidence) -> Iterable[str]:
    """A question has no charge if every response to it promised that nothing was charged."""
    told = defaultdict(set)
    for one in evidence.received:
        told[one.question].add(one.slug if one.status in (402, 422, 429, 503) else str(one.status))
    spent = Counter(charge.question for charge in evidence.charges.values() if charge.state != "voided")
    for question, slugs in told.items():
        if slugs <= NOTHING_CHARGED and spent[evidence.digests[question]]:
            yield f"a question was told that nothing was charged ({', '.join(sorted(slugs))}), and was charged"


def _stored(release: Release) -> tuple[str, Mapping[str, Any]]:
    return release.charge_id, ReleaseView.of(release).model_dump(mode="json")


def _plain(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an answer whose hash is in the trail."""
    return {name: value for name, value in answer.items() if name not in ("id", "task", "created_at")}


def _digest(key: bytes, question: str) -> bytes:
    """The digest that the pipeline computes for a query with one field, ``text``."""
    return hmac.digest(key, json.dumps({"text": " ".join(question.split())}).encode(), hashlib.sha256)


def _leaks(world: World) -> Iterable[str]:
    """No file holds a secret, not even the databases: they hold ciphertexts and hashes of secrets."""
    secrets = (*_SECRETS, *world.tokens.values(), world.environment["DPICL_ENCRYPTION_KEY"])
    for path in sorted(world.folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield from (f"{path.relative_to(world.folder)} holds {one}" for one in secrets if _holds(path, one))


def _holds(path: Path, secret: str) -> bool:
    wanted, kept = secret.encode(), b""
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE):
            if wanted in kept + piece:
                return True
            kept = piece[-len(wanted) :]
    return False
