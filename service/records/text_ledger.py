"""The cost of each owner's sanitised texts, and the texts themselves: a text is sanitised once, and then remembered.

Independent copies of a text add up, so a caller who gets several copies may average the noise away. Here a repeated
text gets its first output, at no cost. A text is remembered for its owner alone: were outputs shared, two owners' equal
outputs would show that their texts are equal. Equal texts of one owner do show as equal.

The text itself is not stored, but a hash of it under a secret key.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import sqlalchemy as sa

from accounting.ledger.dialects import insert, reading
from sanitization.text import Sanitized, TextSanitizer
from service.problem_kinds import ProblemKind, RefusalError
from service.records.database import open_database
from service.records.tables import metadata, sanitized_texts, text_costs

ALL = ""
"""The name under which all conversations of an owner are counted together."""


class TextBudgetExhaustedError(RefusalError, RuntimeError):
    """The texts would cost their owner more than the cap. None of them was sanitised, and nothing was charged."""

    kind = ProblemKind.TEXT_BUDGET_EXHAUSTED

    def __init__(self, cap: float, cost: float) -> None:
        super().__init__(
            f"these texts cost ε = {cost:.6g}, and together with earlier ones that would exceed the cap of {cap:g}; "
            "texts sanitised before are still free"
        )


@dataclass(frozen=True)
class TextCost:
    """The cost of texts: by basic composition, the sum of ε over all words drawn."""

    texts: int
    words: int
    epsilon: float


class TextLedger:
    """Sanitises texts, remembers them and counts their cost, in the database.

    Args:
        database: a database from :func:`service.records.database.open_database`, with its tables.
        secret: key of the hashes.
        cap: greatest ε that an owner's texts may cost, all conversations together; None: no cap.
    """

    def __init__(self, database: sa.Engine, secret: bytes, *, cap: float | None = None) -> None:
        self._database = database
        self._secret = secret
        self.cap = cap

    def sanitize(
        self, sanitizer: TextSanitizer, texts: Sequence[str], *, owner: str, conversation: str = ALL
    ) -> tuple[list[Sanitized], TextCost]:
        """Sanitise texts, all of them or none; a text that was sanitised before gets the same output again.

        The results are stored, and their cost committed, before they are returned.

        Args:
            sanitizer: the sanitizer to use; another one sanitises the same text anew.
            texts: the texts, of any content.
            owner: the owner of the texts, 1 to 200 characters. Exemplars have no owner: nothing of them is stored here.
            conversation: a conversation that the cost is counted under, too, at most 200 characters.

        Returns:
            The sanitised texts in order, and the cost of those that are new.

        Raises:
            TextBudgetExhaustedError: the texts would cost more than the cap.
            sanitization.text.TextError: a text is too long.
            ValueError: no owner is named.
        """
        if not owner:
            raise ValueError("texts are remembered for an owner: name one")
        digests = [self._digest(sanitizer, text, owner) for text in texts]
        drawn = dict(zip(digests, sanitizer.sanitize_all(texts), strict=True))
        with self._database.begin() as connection:
            # In one order, or two batches might each wait for a text of the other's.
            new = [digest for digest in sorted(drawn) if _remember(connection, digest, drawn[digest].text)]
            cost = TextCost(
                len(new),
                sum(drawn[digest].charged for digest in new),
                sum(drawn[digest].epsilon_text for digest in new),
            )
            if new:
                self._charge(connection, owner, cost, conversation)
            stored = _stored(connection, sorted(drawn))
        return [replace(drawn[digest], text=stored[digest]) for digest in digests], cost

    def cost(self, owner: str, conversation: str = ALL) -> TextCost:
        """The cost of an owner's texts so far, in all or in one conversation."""
        query = sa.select(text_costs.c.texts, text_costs.c.words, text_costs.c.epsilon).where(
            text_costs.c.owner == owner, text_costs.c.conversation == conversation
        )
        with reading(self._database) as connection:
            row = connection.execute(query).first()
        return TextCost(0, 0, 0.0) if row is None else TextCost(*row)

    def _charge(self, connection: sa.Connection, owner: str, cost: TextCost, conversation: str) -> None:
        total = _add(connection, owner, ALL, cost)
        if self.cap is not None and cost.epsilon and total > self.cap:
            raise TextBudgetExhaustedError(self.cap, cost.epsilon)  # the transaction takes all of it back
        if conversation != ALL:
            _add(connection, owner, conversation, cost)

    def _digest(self, sanitizer: TextSanitizer, text: str, owner: str) -> bytes:
        content = json.dumps([owner, sanitizer.artifact.digest, text]).encode()
        return hmac.digest(self._secret, content, hashlib.sha256)


def open_local(file: Path, *, cap: float | None = None) -> TextLedger:
    """A ledger in a SQLite file of its own; the secret key is in a file beside it, which only its owner can read.

    Raises:
        ValueError: the file is not such a ledger, or its key is missing: it would sanitise known texts once more.
    """
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    database = open_database(sa.URL.create("sqlite", database=str(file)).render_as_string())
    try:
        metadata.create_all(database, [text_costs, sanitized_texts])
        with reading(database) as connection:
            used = connection.execute(sa.select(sanitized_texts.c.digest).limit(1)).first() is not None
    except sa.exc.DatabaseError as error:
        raise ValueError(f"{file} is not a ledger of texts: {error.orig}") from error
    key = file.with_suffix(".key")
    if used and not key.exists():
        raise ValueError(f"{key} is missing, without which {file} knows no text again: put it back, or begin another")
    return TextLedger(database, _secret(key), cap=cap)


def _secret(key: Path) -> bytes:
    """The key in this file, created if there is none."""
    if not key.exists():
        partial = key.with_suffix(f".{os.getpid()}.key")
        partial.touch(mode=0o600)
        partial.write_bytes(secrets.token_bytes(32))
        try:
            os.link(partial, key)  # of two that begin together the first wins
        except FileExistsError:
            pass
        finally:
            partial.unlink()
    return key.read_bytes()


def _remember(connection: sa.Connection, digest: bytes, text: str) -> bool:
    """Store a text unless it is stored already; returns whether it was new."""
    new = insert(connection.dialect.name, sanitized_texts).values(digest=digest, sanitized=text)
    once = new.on_conflict_do_nothing(index_elements=[sanitized_texts.c.digest])
    return connection.execute(once.returning(sanitized_texts.c.digest)).first() is not None


def _stored(connection: sa.Connection, digests: Sequence[bytes]) -> dict[bytes, str]:
    query = sa.select(sanitized_texts.c.digest, sanitized_texts.c.sanitized)
    rows = connection.execute(query.where(sanitized_texts.c.digest.in_(digests)))
    return {bytes(row.digest): row.sanitized for row in rows}


def _add(connection: sa.Connection, owner: str, conversation: str, cost: TextCost) -> float:
    """Add a cost; returns the total ε."""
    added = asdict(cost)
    new = insert(connection.dialect.name, text_costs).values(owner=owner, conversation=conversation, **added)
    more = new.on_conflict_do_update(
        index_elements=[text_costs.c.owner, text_costs.c.conversation],
        set_={name: text_costs.c[name] + by for name, by in added.items()},
    )
    total: float = connection.execute(more.returning(text_costs.c.epsilon)).scalar_one()
    return total
