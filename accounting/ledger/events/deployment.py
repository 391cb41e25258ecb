"""Events of the whole deployment: bundles, encryption, restores."""

# ruff: noqa: D102 - Particulars documents these methods
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from accounting.ledger.entries import parts
from accounting.ledger.events.particulars import Names, Particulars, plural
from accounting.ledger.events.replayed import Replayed


class BundlePublished(Particulars, kind="bundle.published", words="Bundle published"):
    """A bundle of restoration vectors was published; all of it is public, and so must the data behind it be."""

    bundle: str
    sha256: str
    data: str
    data_sha256: str
    declared_by: str
    by: str

    says = "{by} published {bundle}. {declared_by} declared its data to be {data}."
    lost = "bundle {bundle} was published: its folder is not in the database, so nothing is to be done"

    def replay(self, past: Replayed) -> Iterable[str]:
        if self.data not in ("public", "consented") or not self.declared_by:
            yield f"no reason was declared why the data of {self.bundle} may be shown"


class EncryptionKeyChanged(Particulars, kind="encryption_key.changed", words="Encryption key changed"):
    """Another master key opens the database, and the one before no longer."""

    fingerprint: str
    by: str

    says = "{by} changed the encryption key to {fingerprint}."
    lost = "the encryption key was changed to {fingerprint}: change it again"

    def replay(self, past: Replayed) -> Iterable[str]:
        yield from _incomplete(self)


class ExemplarsReencrypted(Particulars, kind="exemplars.reencrypted", words="Exemplars encrypted again"):
    """All exemplars were encrypted under a new data key."""

    by: str

    says = "{by} had all exemplars encrypted under a new data key."
    lost = "all exemplars were encrypted under a new data key: encrypt them again"

    def replay(self, past: Replayed) -> Iterable[str]:
        yield from _incomplete(self)


@dataclass(frozen=True)
class Mark:
    """A place in the trail: an event's sequence number and hash; (0, zeros) before the first."""

    sequence: int
    hash: str


class LedgerRestored(Particulars, kind="ledger.restored", words="Restored from a backup"):
    """An admin acknowledged a restore from a backup (:mod:`accounting.ledger.restoring`).

    Attributes:
        common: sequence number of the newest event that backup and witness shared.
        witness: the newest event witnessed by then.
        charges: number of lost charges that were charged again.
        ended: knowledge bases that no longer answer, since their promises could not be kept otherwise.
        closed: groups that no knowledge base can join any longer, for the same reason.
        charged_twice: ended knowledge bases that were charged answers in two histories, or whose groups were.
        spent: addresses of topics that no longer answer, since it is not known which units were on them.
    """

    by: str
    common: int
    witness: Mark
    charges: int
    ended: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    charged_twice: tuple[str, ...] = ()
    spent: tuple[str, ...] = ()

    def sentence(self, named: Names) -> str:
        ended = f" These knowledge bases no longer answer: {', '.join(self.ended)}." if self.ended else ""
        closed = f" These groups take no further knowledge base: {', '.join(self.closed)}." if self.closed else ""
        whole = sorted({f"{parts(one)[0]}@{one.rpartition('@')[2]}" for one in self.spent})
        spent = f" These tasks give no more answers on their topics: {', '.join(whole)}." if whole else ""
        return (
            f"{named(self.by)} acknowledged that the ledger was restored from a backup as it was at event "
            f"{self.common}: {plural(self.charges, 'answer')} given since stayed charged.{ended}{spent}{closed}"
        )

    def replay(self, past: Replayed) -> Iterable[str]:
        past.used_up.update(self.spent)
        for name in self.charged_twice:
            yield f"{name} or its group was charged answers in two histories, together perhaps more than were planned"
        if self.common > past.events or self.witness.sequence < self.common:
            yield "restore marks out of order"


def _incomplete(changed: EncryptionKeyChanged | ExemplarsReencrypted) -> Iterable[str]:
    if not all(changed.model_dump().values()):
        yield "the encryption key, or who changed it, is missing"
