"""Signed checkpoints against the events of an export: who vouches for how many of them.

The root over the first events is computed from the export's lines. So a checkpoint that was signed for more events
shows that the export was cut, and one with another root that it was rewritten, or that its log was forked.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from accounting.ledger.merkle import RootOf, leaf_hash
from accounting.ledger.notes import LOG, WITNESS, Checkpoint, NoteError, VerifierKey


@dataclass(frozen=True)
class SignedHead:
    """A genuine signature for the first events of an export.

    Attributes:
        origin: name of the log.
        size: number of events.
        signed_by: name of the key.
        cosigned_at: time of a witness's signature; None: the log's own.
    """

    origin: str
    size: int
    signed_by: str
    cosigned_at: datetime | None


class SignedHeads:
    """Checkpoints that are compared with an export while it is read.

    Args:
        keys: verifier keys of the log, old ones too, and of its witnesses. Each witness must have signed one of the
            checkpoints. Without any key no signature is checked.
        checkpoints: checkpoints that were kept elsewhere.
    """

    def __init__(self, keys: Iterable[VerifierKey] = (), checkpoints: Iterable[Checkpoint] = ()) -> None:
        self._keys = tuple(keys)
        self._checkpoints = list(checkpoints)
        self._sizes = {one.size for one in self._checkpoints}
        self._tree = RootOf()
        self._roots = {0: self._tree.root()}
        self._ends: Checkpoint | None = None

    def add(self, line: str) -> None:
        """Take the next event into account, by its line without the line's end."""
        self._tree.add(leaf_hash(line.encode()))
        if self._tree.size in self._sizes:
            self._roots[self._tree.size] = self._tree.root()

    def end(self, note: str) -> None:
        """Take the checkpoint in the export's last line into account.

        Raises:
            accounting.ledger.notes.NoteError: it is not one.
        """
        self._ends = Checkpoint.read(note)
        self._checkpoints.append(self._ends)
        self._roots[self._tree.size] = self._tree.root()

    @property
    def unchecked(self) -> bool:
        """Whether there is a checkpoint, and no key to check its signatures by."""
        return bool(self._checkpoints) and not self._keys

    def compare(self) -> tuple[list[SignedHead], list[str]]:
        """The genuine signatures, and the problems found, in words."""
        heads: list[SignedHead] = []
        problems = [*self._missing(), *self._contradictions()]
        for checkpoint in self._checkpoints:
            try:
                signers = checkpoint.signers(self._keys)
            except NoteError as error:
                problems.append(f"the checkpoint of {checkpoint.size} events counts for nothing: {error}")
                continue
            if self._keys and not any(key.type == LOG for key in signers):
                problems.append(
                    f"the checkpoint of {checkpoint.size} events counts for nothing: no given verifier key of "
                    f"{checkpoint.origin} signed it"
                )
                continue
            wrong = self._wrong(checkpoint)
            problems += wrong
            if not wrong:
                heads += [SignedHead(checkpoint.origin, checkpoint.size, key.name, at) for key, at in signers.items()]
        vouching = {head.signed_by for head in heads if head.cosigned_at is not None}
        problems += [
            f"the witness {key.name} cosigned no checkpoint of these events: give one that it did with --checkpoint"
            for key in self._keys
            if key.type == WITNESS and key.name not in vouching
        ]
        return list(dict.fromkeys(heads)), list(dict.fromkeys(problems))

    def _missing(self) -> Iterator[str]:
        if self._keys and not self._checkpoints:
            yield (
                "no signature vouches for these events: the export has no checkpoint. Export it again from a service "
                "that signs, or give a checkpoint with --checkpoint"
            )
        if self._ends is not None and self._ends.size < self._tree.size:
            yield f"the export goes on after its checkpoint of {self._ends.size} events"

    def _wrong(self, checkpoint: Checkpoint) -> list[str]:
        """What is wrong with the events, if a checkpoint is right."""
        size, root = checkpoint.size, self._roots.get(checkpoint.size)
        if size > self._tree.size:
            return [
                f"{size} events were signed by {checkpoint.origin}, and the export has {self._tree.size}: it was cut"
            ]
        if root is not None and root != checkpoint.root:
            return [
                f"the first {size} events are not those that {checkpoint.origin} signed: they were rewritten, or the "
                "log has another history"
            ]
        return []

    def _contradictions(self) -> Iterator[str]:
        """Forks that the log's own signatures prove, whatever the export is."""
        roots: dict[tuple[str, int], set[bytes]] = defaultdict(set)
        for one in self._checkpoints:
            try:
                if any(key.type == LOG for key in one.signers(self._keys)):
                    roots[one.origin, one.size].add(one.root)
            except NoteError:
                continue
        for (origin, size), different in roots.items():
            if len(different) > 1:
                yield f"{origin} signed {len(different)} different histories of {size} events: it was forked"
