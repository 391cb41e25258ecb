"""Envelope encryption: a database's data keys, stored only wrapped under master keys.

Everything secret is derived from data keys, which are random and made when the database is first opened. The master key
opens them and does nothing else, so another one can take its place without a single exemplar being touched, while
services run: :meth:`DataKeys.add` wraps the data keys under a second master, services start with either, and
:meth:`DataKeys.retire` removes the wraps under the first. A process that has the data keys open keeps them.

This protects from who comes to know a master key, but no copy of the database, from before it was retired. Who has both
has the data keys. Then exemplars must be encrypted under another one (:mod:`exemplar_store.renewing`), which protects
those ingested since, and later copies; what an old copy holds stays readable. The key that queries are hashed under
stays: with it and a later copy of the ledger one can confirm that a guessed query was asked.

Who may write to the database can withhold keys and put old wraps back, never learn keys or make some up. Wraps of
another database under the same master open here, if all are replaced; then no knowledge base's key check fits, and all
is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

import sqlalchemy as sa

from exemplar_store.dialects import as_utc, empty_write_ahead_log, overwrite_deleted, reading
from exemplar_store.encryption import KnowledgeBaseKeys
from exemplar_store.errors import EncryptionKeyError, TamperedError, WrongKeyError
from exemplar_store.hidden import VISIBLE
from exemplar_store.master_key import KEY_BYTES, DataKey, MasterKey
from exemplar_store.tables import data_keys, key_wraps, knowledge_bases

_LOCK = 0x64706963_6C6B  # PostgreSQL's advisory lock of both tables


BeforeKeyCommit = Callable[[sa.Connection, str], None]
"""Called last in the transaction that adds or retires a master key, with its fingerprint."""


def do_nothing(_connection: sa.Connection, _fingerprint: str) -> None:
    """The default :data:`BeforeKeyCommit`."""


@dataclass(frozen=True)
class Master:
    """A master key that opens the database, as far as the database knows it."""

    fingerprint: str
    added_at: datetime
    held: bool
    """Whether it is the one this process was started with."""


class DataKeys:
    """One database's data keys, opened; the first is made if there is none. May be shared by threads.

    Args:
        database: has the tables of ``exemplar_store.tables``.
        master: 32 bytes, see :func:`exemplar_store.master_key.load_key`.

    Raises:
        WrongKeyError: this master key does not open the database.
    """

    def __init__(self, database: sa.Engine, master: bytes) -> None:
        self._database = database
        self._master = MasterKey(master)
        self._opened: dict[int, DataKey] = {}
        self._derived = lru_cache(maxsize=1024)(self._derive)
        with reading(database) as connection:
            self._open(connection)
        if not self._opened:
            with database.begin() as connection:
                self._lock(connection)
                self._open(connection)  # another process may have been faster
                if not self._opened:
                    first = DataKey(os.urandom(KEY_BYTES), os.urandom(KEY_BYTES))
                    self._store(connection, first, datetime.now(UTC))
                    self._open(connection)

    @property
    def fingerprint(self) -> str:
        """Of the master key that this process was started with."""
        return self._master.fingerprint

    @property
    def queries(self) -> bytes:
        """32 bytes under which queries are hashed; they never change."""
        return self._opened[min(list(self._opened))].queries

    def of(self, connection: sa.Connection, row: sa.Row[tuple[object, ...]]) -> KnowledgeBaseKeys:
        """A knowledge base's keys.

        Args:
            connection: that ``row`` was read with.
            row: of ``knowledge_bases``.

        Raises:
            WrongKeyError: its data key is not wrapped under this process's master key, or is another one.
        """
        if row.data_key not in self._opened:
            self._open(connection)
        try:
            keys = self._derived(row.data_key, bytes(row.key_salt), bytes(row.earlier_tag_keys))
        except (KeyError, TamperedError):
            keys = None
        if keys is None or keys.check != row.key_check:
            raise WrongKeyError(
                f"Knowledge base {row.name!r} was written under another encryption key than the database's: the table "
                "data_keys, key_wraps or knowledge_bases was changed outside this program. Put the first two back as "
                "the newest backup has them; the ledger stays as it is."
            )
        return keys

    def newest(self, connection: sa.Connection) -> tuple[int, bytes]:
        """The data key of new knowledge bases: its number, and 32 bytes. No key can change until the transaction ends.

        Raises:
            WrongKeyError: this process's master key was retired before that data key was made.
        """
        self._lock(connection)
        number = connection.execute(sa.select(sa.func.max(data_keys.c.id))).scalar_one()
        if number not in self._opened:
            self._open(connection)
        return number, self._opened[number].exemplars

    def masters(self) -> list[Master]:
        """The master keys that open this database, in the order they were added."""
        with reading(self._database) as connection:
            found = _masters(connection)
        return [Master(one, at, one == self.fingerprint) for one, at in found.items()]

    def since(self) -> dict[str, datetime]:
        """When the data key was made that each knowledge base's exemplars are under, by its name."""
        joined = sa.select(knowledge_bases.c.name, data_keys.c.created_at).join_from(knowledge_bases, data_keys)
        with reading(self._database) as connection:
            found = connection.execute(joined.where(VISIBLE).order_by(knowledge_bases.c.name)).all()
        return {name: as_utc(at) for name, at in found}

    def add(self, master: bytes, before_commit: BeforeKeyCommit = do_nothing) -> str:
        """Let another master key open the database too.

        Args:
            master: 32 bytes.
            before_commit: called with it.

        Returns:
            The new key's fingerprint.

        Raises:
            EncryptionKeyError: it opens the database already.
            WrongKeyError: this process's master key was retired meanwhile.
        """
        new = MasterKey(master)
        with self._database.begin() as connection:
            if new.fingerprint in self._standing(connection):
                raise EncryptionKeyError(
                    f"Encryption key {new.fingerprint} opens this database already; nothing was changed."
                )
            at = datetime.now(UTC)
            opened = self._open(connection)
            connection.execute(
                sa.insert(key_wraps), [_wrap(new, number, data_key, at) for number, data_key in opened.items()]
            )
            before_commit(connection, new.fingerprint)
        return new.fingerprint

    def retire(self, fingerprint: str | None = None, before_commit: BeforeKeyCommit = do_nothing) -> list[str]:
        """Let other master keys open the database no longer. The one this process holds always stays.

        On SQLite the wraps are overwritten in the file; on PostgreSQL they go with the table's next rewriting.

        Args:
            fingerprint: of the one to retire; None for all that were added before the one this process holds.
            before_commit: called with each.

        Returns:
            Fingerprints of those retired.

        Raises:
            EncryptionKeyError: the key named is the one this process holds, or no key of this database; or none is
                named, and one is newer than the one held.
            WrongKeyError: this process's master key was retired meanwhile.
        """
        with self._database.begin() as connection:
            overwrite_deleted(connection)
            standing = self._standing(connection)
            others = [one for one in standing if one != self.fingerprint]
            if fingerprint is None and (newer := [one for one in others if standing[one] > standing[self.fingerprint]]):
                raise EncryptionKeyError(
                    f"Encryption key {newer[-1]} was added after the one given, {self.fingerprint}. Start this command "
                    f"with {newer[-1]} to retire the older one, or name the key to be retired. Nothing was changed."
                )
            if fingerprint is not None and fingerprint not in others:
                held = "is the one given: what it opens would be lost" if fingerprint in standing else "is none of them"
                raise EncryptionKeyError(
                    f"Encryption key {fingerprint} {held}. Keys that open this database: {', '.join(standing)}. "
                    "Nothing was changed."
                )
            gone = others if fingerprint is None else [fingerprint]
            connection.execute(sa.delete(key_wraps).where(key_wraps.c.fingerprint.in_(gone)))
            for one in gone:
                before_commit(connection, one)
        empty_write_ahead_log(self._database)
        return gone

    def make(self, connection: sa.Connection) -> tuple[int, bytes]:
        """Store another data key, wrapped; no key can change until the transaction ends.

        Returns:
            Its number, which no other data key of this database ever has, and its 32 bytes for exemplars.

        Raises:
            EncryptionKeyError: more than one master key opens the database. Only one of them is available, and those
                who have the others could not open what is encrypted under the data key.
            WrongKeyError: this process's master key was retired.
        """
        standing = self._standing(connection)
        if others := standing.keys() - {self.fingerprint}:
            raise EncryptionKeyError(
                f"Encryption key {', '.join(sorted(others))} opens this database too, and only {self.fingerprint} is "
                "available to wrap a new data key: finish the rotation with `dpicl encryption retire` first."
            )
        made = DataKey(os.urandom(KEY_BYTES), self.queries)
        return self._store(connection, made, standing[self.fingerprint]), made.exemplars

    def drop_unused(self, connection: sa.Connection) -> None:
        """Delete data keys that no knowledge base uses, hidden ones among them, but for the newest."""
        self._lock(connection)
        newest = sa.select(sa.func.max(data_keys.c.id)).scalar_subquery()
        unused = data_keys.c.id.not_in(sa.select(knowledge_bases.c.data_key)) & (data_keys.c.id != newest)
        numbers = connection.scalars(sa.select(data_keys.c.id).where(unused)).all()
        connection.execute(sa.delete(key_wraps).where(key_wraps.c.data_key.in_(numbers)))
        connection.execute(sa.delete(data_keys).where(data_keys.c.id.in_(numbers)))

    def _derive(self, number: int, salt: bytes, earlier: bytes) -> KnowledgeBaseKeys:
        return KnowledgeBaseKeys(self._opened[number].exemplars, salt, earlier)

    def _open(self, connection: sa.Connection) -> dict[int, DataKey]:
        """Every data key there is, by number; those opened before are opened again."""
        mine = sa.and_(key_wraps.c.data_key == data_keys.c.id, key_wraps.c.fingerprint == self.fingerprint)
        rows = connection.execute(
            sa.select(data_keys.c.id, key_wraps.c.wrapped).join_from(data_keys, key_wraps, mine, isouter=True)
        ).all()
        if any(row.wrapped is None for row in rows):
            known = ", ".join(f"{one} (added {at:%Y-%m-%d})" for one, at in _masters(connection).items())
            raise WrongKeyError(
                f"This database was written under another encryption key than the one given, {self.fingerprint}. It "
                f"opens with: {known or 'none'}. If yours was retired, start with the newer key; if not, see whether "
                "DPICL_DATABASE_URL names the right database."
            )
        opened = {row.id: self._master.unwrap(bytes(row.wrapped), row.id) for row in rows}
        self._opened.update(opened)
        return opened

    def _standing(self, connection: sa.Connection) -> dict[str, datetime]:
        """Lock the keys; the masters that open them. The one held is among them, tried on every data key."""
        self._lock(connection)
        self._open(connection)
        return _masters(connection)

    def _store(self, connection: sa.Connection, data_key: DataKey, since: datetime) -> int:
        """Its number. It is not remembered as open before it is read again: the transaction may be undone."""
        made = sa.insert(data_keys).values(created_at=datetime.now(UTC)).returning(data_keys.c.id)
        number: int = connection.execute(made).scalar_one()
        connection.execute(sa.insert(key_wraps).values(_wrap(self._master, number, data_key, since)))
        return number

    @staticmethod
    def _lock(connection: sa.Connection) -> None:
        if connection.dialect.name == "postgresql":  # SQLite's transaction has locked the database
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


def _wrap(master: MasterKey, number: int, data_key: DataKey, at: datetime) -> dict[str, object]:
    return {
        "data_key": number,
        "fingerprint": master.fingerprint,
        "wrapped": master.wrap(data_key, number),
        "added_at": at,
    }


def _masters(connection: sa.Connection) -> dict[str, datetime]:
    """When each master key that opens the database was added, the oldest first."""
    since = sa.func.min(key_wraps.c.added_at, type_=key_wraps.c.added_at.type)
    found = connection.execute(
        sa.select(key_wraps.c.fingerprint, since).group_by(key_wraps.c.fingerprint).order_by(since)
    )
    return {fingerprint: as_utc(at) for fingerprint, at in found}
