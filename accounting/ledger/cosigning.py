"""The witness's own signature: that its copy of the audit trail has the root that a checkpoint names.

The keeper of the witness's database signs, with a key that the service does not have. The witness has every event, so
it computes the root itself, of this checkpoint and of the newest one that it cosigned before. It cosigns no checkpoint
that does not continue that, whatever was acknowledged in between. Its signature carries the time
(https://c2sp.org/tlog-cosignature).
"""

from collections.abc import Iterable

import sqlalchemy as sa

from accounting.ledger import checkpoints, witness
from accounting.ledger.checkpoints import CheckpointError
from accounting.ledger.clock import Clock, utc_now
from accounting.ledger.dialects import reading
from accounting.ledger.merkle import RootOf, leaf_hash
from accounting.ledger.notes import LOG, Checkpoint, Signer, VerifierKey
from accounting.ledger.trail import AuditEvent, every
from accounting.ledger.transparency_log import leaf_of
from accounting.ledger.witness import cosigned_checkpoints


class Cosigner:
    """Cosigns checkpoints of the trail that a witness has a copy of.

    Args:
        database: the witness's database, with its tables.
        signer: the witness's key and name.
        clock: function that returns the time.
    """

    def __init__(self, database: sa.Engine, signer: Signer, clock: Clock = utc_now) -> None:
        self._database = database
        self._signer = signer
        self._clock = clock

    def cosign(self, checkpoint: Checkpoint, keys: Iterable[VerifierKey]) -> Checkpoint:
        """The checkpoint with the witness's signature.

        It reads the whole copy, and locks nothing that a charge waits for.

        Args:
            checkpoint: the checkpoint, signed by the log.
            keys: verifier keys of the log.

        Raises:
            accounting.ledger.notes.NoteError: a signature is not genuine.
            accounting.ledger.checkpoints.CheckpointError: the log did not sign it, the witness's copy is not what it
                names, or it does not continue what was cosigned before.
        """
        signers = checkpoint.signers(keys)
        if not any(key.type == LOG for key in signers):
            raise CheckpointError(f"no given verifier key of {checkpoint.origin} signed the checkpoint")
        if any(key.public == self._signer.verifier().public for key in signers):
            raise CheckpointError("a witness needs a key of its own: its signature would prove nothing more")
        with reading(self._database) as connection:
            before = checkpoints.newest(connection, cosigned_checkpoints, checkpoint.origin)
        if before is not None and before.size > checkpoint.size:
            raise CheckpointError(
                f"a checkpoint of {before.size} events was cosigned before, and this one has {checkpoint.size}: get "
                "the newest"
            )
        found = self._roots({checkpoint.size, *([before.size] if before else [])})
        if before is not None and found.get(before.size) != before.root:
            raise checkpoints.fork(before.origin, before.size)
        if checkpoint.size not in found:
            raise CheckpointError(
                f"the witness has fewer events than the checkpoint's {checkpoint.size}: the service copies them within "
                "seconds, so try again; if that does not help, the checkpoint is of another trail"
            )
        if found[checkpoint.size] != checkpoint.root:
            raise CheckpointError(
                f"the witness's copy of the first {checkpoint.size} events has another root than the checkpoint: one "
                "of the two was rewritten. Nothing was cosigned; keep the checkpoint as evidence"
            )
        with self._database.begin() as connection:
            checkpoints.keep(connection, cosigned_checkpoints, checkpoint)
        return self._signer.cosign(checkpoint, self._clock())

    def _roots(self, sizes: set[int]) -> dict[int, bytes]:
        """The roots over this many first events of the copy; none for more events than it has."""
        tree = RootOf()
        roots = {0: tree.root()}
        for event in every(self._events, before=max(sizes) + 1):
            if event.sequence != tree.size + 1:
                break
            tree.add(leaf_hash(leaf_of(event)))
            if tree.size in sizes:
                roots[tree.size] = tree.root()
        return roots

    def _events(self, *, after: int, limit: int, before: int) -> list[AuditEvent]:
        with reading(self._database) as connection:
            return [event for event in witness.standing(connection, after, limit) if event.sequence < before]
