"""The audit trail as a transparency log: an RFC 6962 tree over its events, and checkpoints of it that are signed.

Leaf n is event n + 1 as a line of an export, in UTF-8 and without the line's end. An auditor with the export computes
the root from it, and a checkpoint kept elsewhere shows later whether these events were changed, cut or forked.

A log never signs two checkpoints that contradict each other: each continues the newest one that the ledger remembers,
and the newest one that the witness does, which no restore of the ledger takes back.
"""

from collections.abc import Iterator

import sqlalchemy as sa

from accounting.ledger import checkpoints
from accounting.ledger.checkpoints import CheckpointError, fork
from accounting.ledger.dialects import insert, reading
from accounting.ledger.inclusion import InclusionProof
from accounting.ledger.merkle import RootOf, audit_path, leaf_hash
from accounting.ledger.notes import Checkpoint, NoteError, Signer, VerifierKey
from accounting.ledger.tables import audit_blocks, audit_checkpoints
from accounting.ledger.trail import AuditEvent, AuditTrail, every
from accounting.ledger.witness import Witness

BLOCK = 1024
"""Number of events of a whole block, whose root is stored: a power of two."""


def leaf_of(event: AuditEvent) -> bytes:
    """The leaf that an event is."""
    return event.line().encode()


class TrailTree:
    """The tree over the trail in the database. It reads the roots of whole blocks, and the events of at most two.

    Args:
        database: the ledger's database.
    """

    def __init__(self, database: sa.Engine) -> None:
        self._database = database
        self._trail = AuditTrail(database)

    def root(self, size: int) -> bytes:
        """The root over the first events, 32 bytes.

        Args:
            size: number of the events, which must be there.
        """
        self._store_blocks(size // BLOCK)
        return self._root(0, size)

    def path(self, index: int, size: int) -> list[bytes]:
        """The hashes that lead from a leaf to the root over the first events (:func:`audit_path`)."""
        self._store_blocks(size // BLOCK)
        return audit_path(index, size, self._root)

    def _root(self, start: int, end: int) -> bytes:
        tree = RootOf()
        if start % BLOCK == 0:
            numbered = audit_blocks.c.number
            whole = sa.select(audit_blocks.c.root).where(numbered >= start // BLOCK, numbered < end // BLOCK)
            with reading(self._database) as connection:
                for root in connection.scalars(whole.order_by(numbered)):
                    tree.add(root, BLOCK)
        for hashed in self._hashes(start + tree.size, end):
            tree.add(hashed)
        return tree.root()

    def _hashes(self, start: int, end: int) -> Iterator[bytes]:
        """Hashes of the leaves from one number up to, but without, another."""
        number = start
        for number, event in enumerate(every(self._trail.events, start, end + 1), start + 1):
            if event.sequence != number:
                break
            yield leaf_hash(leaf_of(event))
        if number != end:
            raise CheckpointError(f"event {number} of the audit trail is missing: see `dpicl audit verify`")

    def _store_blocks(self, count: int) -> None:
        """Store the roots of the first blocks, as far as they are not."""
        with reading(self._database) as connection:
            stored = connection.scalar(sa.select(sa.func.count()).select_from(audit_blocks)) or 0
        missing = []
        for number in range(stored, count):
            tree = RootOf()
            for hashed in self._hashes(number * BLOCK, (number + 1) * BLOCK):
                tree.add(hashed)
            missing.append({"number": number, "root": tree.root()})
        if missing:  # another process may store them, too
            with self._database.begin() as connection:
                connection.execute(insert(connection.dialect.name, audit_blocks).on_conflict_do_nothing(), missing)


class TransparencyLog:
    """Signs checkpoints of the trail, and proves that events are in it.

    Args:
        database: the ledger's database.
        signer: the log's key and name.
        witness: the ledger's witness, if it has one.
    """

    def __init__(self, database: sa.Engine, signer: Signer, witness: Witness | None) -> None:
        self._database = database
        self._trail = AuditTrail(database)
        self._signer = signer
        self._witness = witness
        self.tree = TrailTree(database)

    @property
    def origin(self) -> str:
        """The log's name."""
        return self._signer.name

    @property
    def verifier(self) -> VerifierKey:
        """The key that others verify checkpoints by."""
        return self._signer.verifier()

    def kept(self) -> list[Checkpoint]:
        """The newest checkpoints that the ledger and the witness remember.

        Raises:
            accounting.ledger.witness.WitnessUnavailableError: the witness does not answer.
        """
        witnessed = self._witness.newest_checkpoint(self.origin) if self._witness is not None else None
        return [one for one in (self._newest(), witnessed) if one is not None]

    def sign(self) -> Checkpoint:
        """A signed checkpoint of the trail as it is now. Reads and writes: call it where no answer waits for it.

        Raises:
            accounting.ledger.checkpoints.CheckpointError: the trail does not continue what was signed before.
            accounting.ledger.witness.LedgerRestoredError: the ledger lacks what was witnessed.
            accounting.ledger.witness.WitnessUnavailableError: the witness does not answer.
        """
        size = self._trail.end().sequence
        if self._witness is not None:
            self._witness.catch_up()
            self._check_continues(self._witness.newest_checkpoint(self.origin), size)
        self._check_continues(self._newest(), size)
        checkpoint = self._signer.sign(size, self.tree.root(size))
        if self._witness is not None:
            self._witness.keep_checkpoint(checkpoint)
        with self._database.begin() as connection:
            checkpoints.keep(connection, audit_checkpoints, checkpoint)
        return checkpoint

    def sign_if_grown(self) -> Checkpoint | None:
        """A signed checkpoint, if the trail has grown since the last; raises as :meth:`sign`."""
        last = self._newest()
        return None if last is not None and last.size == self._trail.end().sequence else self.sign()

    def prove(self, event: AuditEvent) -> InclusionProof:
        """The proof that an event is in the signed trail, by the newest checkpoint that has it, or by a new one.

        Raises:
            accounting.ledger.checkpoints.CheckpointError: the trail does not continue what was signed before.
            accounting.ledger.witness.LedgerRestoredError: the ledger lacks what was witnessed.
            accounting.ledger.witness.WitnessUnavailableError: the witness does not answer.
        """
        newest, index = self._newest(), event.sequence - 1
        if newest is None or newest.size <= index:
            newest = self.sign()
        path = tuple(self.tree.path(index, newest.size))
        proof = InclusionProof(leaf_of(event), index, path, newest)
        try:
            proof.check([self.verifier])
        except NoteError:
            raise fork(self.origin, newest.size) from None
        return proof

    def _newest(self) -> Checkpoint | None:
        with reading(self._database) as connection:
            return checkpoints.newest(connection, audit_checkpoints, self.origin)

    def _check_continues(self, before: Checkpoint | None, size: int) -> None:
        if before is None:
            return
        try:
            ours = before.signers([self.verifier])
        except NoteError:
            ours = {}
        if not ours:
            raise CheckpointError(
                f"another key has signed as {self.origin} before: a new key needs a new name (DPICL_AUDIT_ORIGIN)"
            )
        if before.size > size or self.tree.root(before.size) != before.root:
            raise fork(before.origin, before.size)
