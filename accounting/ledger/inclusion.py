"""A proof that one event is in the signed trail, in the format of https://c2sp.org/tlog-proof.

It holds the event as the leaf that it is, its place, the hashes that lead to the root, and the checkpoint of that root.
Hashes of other events reveal nothing of them: each event has a random number.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from accounting.ledger.merkle import leaf_hash, root_from
from accounting.ledger.notes import LOG, Checkpoint, NoteError, VerifierKey

_FIRST = "c2sp.org/tlog-proof@v1"
_INDEX = re.compile(r"index (0|[1-9][0-9]{0,17})")
_LONGEST_PATH = 63


@dataclass(frozen=True)
class InclusionProof:
    """The proof, which nothing has verified yet.

    Attributes:
        leaf: the event as a line of an export, without the line's end.
        index: number of the leaf, from 0.
        path: hashes from the leaf's sibling upwards, 32 bytes each.
        checkpoint: signed checkpoint of the root that they lead to.
    """

    leaf: bytes
    index: int
    path: tuple[bytes, ...]
    checkpoint: Checkpoint

    def __str__(self) -> str:
        lines = [_FIRST, f"extra {_encoded(self.leaf)}", f"index {self.index}", *map(_encoded, self.path)]
        return "\n".join(lines) + f"\n\n{self.checkpoint}"

    @classmethod
    def read(cls, written: str) -> InclusionProof:
        """Read a proof as ``str`` writes it.

        Raises:
            NoteError: it is not one.
        """
        head, _, note = written.partition("\n\n")
        try:
            first, extra, index, *path = head.split("\n")
            found = _INDEX.fullmatch(index)
            word, _, leaf = extra.partition(" ")
            if first != _FIRST or word != "extra" or found is None or len(path) > _LONGEST_PATH:
                raise ValueError
            hashes = tuple(base64.b64decode(one, validate=True) for one in path)
            read = cls(base64.b64decode(leaf, validate=True), int(found[1]), hashes, Checkpoint.read(note))
        except NoteError:
            raise
        except ValueError:
            raise NoteError(f"it is not a receipt: it begins with {_FIRST}, and ends with a checkpoint") from None
        return read

    def check(self, keys: Collection[VerifierKey]) -> dict[VerifierKey, datetime | None]:
        """The keys that vouch for the event, each with the time of a witness's signature (a log's has none).

        Args:
            keys: verifier keys of the log, and of witnesses, each of which must have signed.

        Raises:
            NoteError: the event is not in the tree, a signature is not genuine, or one is missing.
        """
        root = root_from(self.path, self.index, self.checkpoint.size, leaf_hash(self.leaf))
        if root != self.checkpoint.root:
            raise NoteError("the receipt is not genuine: its event is not among those that were signed")
        signers = self.checkpoint.signers(keys)
        if not any(key.type == LOG for key in signers):
            raise NoteError(f"no given verifier key of {self.checkpoint.origin} signed the receipt")
        for key in keys:
            if key.type != LOG and key not in signers:
                raise NoteError(f"the witness {key.name} did not sign the receipt's checkpoint")
        return signers


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
