"""Envelope encryption: the database's data key, stored only wrapped under the master key.

Everything secret is derived from the data key, which is random and made when the database is first opened. The master
key opens it and does nothing else, so :meth:`Keyring.rewrap` puts another master in its place at once, without touching
an exemplar. A process that has the data key open keeps it.

This protects from who comes to know a master key, but no copy of the database, from before it was replaced. Who has
both has the data key. Then exemplars must be encrypted under another one (:mod:`exemplar_store.reencryption`), which
protects those ingested since, and later copies; what an old copy holds stays readable. The key that queries are hashed
under stays: with it and a later copy of the ledger one can confirm that a guessed query was asked.

Who may write to the database can withhold the key and put old wraps back, never learn it or make one up. A wrap of
another database under the same master opens here; then no knowledge base's key check fits, and all is refused.
"""

import os
from functools import lru_cache, partial

import sqlalchemy as sa

from exemplar_store.dialects import empty_write_ahead_log, insert_new, overwrite_deleted, reading
from exemplar_store.encryption import KEY_BYTES, DataKey, KnowledgeBaseKeys, MasterKey
from exemplar_store.errors import EncryptionKeyError, OtherEmbeddingModelError, UnknownKnowledgeBaseError, WrongKeyError
from exemplar_store.knowledge_base import BeforeCommit, KnowledgeBaseRow, do_nothing, find
from exemplar_store.tables import data_key


class Keyring:
    """One database's data key, opened; made if there is none. May be shared by threads.

    Args:
        database: has the tables of ``exemplar_store.tables``.
        master: 32 bytes, see :func:`exemplar_store.encryption.load_key`.
        embedding_model: identifier of the model that embeds here.

    Raises:
        WrongKeyError: this master key does not open the database.
    """

    def __init__(self, database: sa.Engine, master: bytes, embedding_model: str = "") -> None:
        self._database = database
        self.embedding_model = embedding_model
        self._master = MasterKey(master)
        with reading(database) as connection:
            row = connection.execute(sa.select(data_key)).one_or_none()
        if row is None:
            with database.begin() as connection:
                made = DataKey(os.urandom(KEY_BYTES), os.urandom(KEY_BYTES))
                first = insert_new(connection, data_key).values(_wrap(self._master, made, 1))
                connection.execute(first)  # unless another process was faster
                row = connection.execute(sa.select(data_key)).one()
        self._number = row.number
        self._data_key = self._unwrap(row)
        self._derived = lru_cache(maxsize=1024)(partial(KnowledgeBaseKeys, self._data_key.exemplars))

    @property
    def queries(self) -> bytes:
        """32 bytes under which queries are hashed; they never change."""
        return self._data_key.queries

    def open(
        self, connection: sa.Connection, name: str, *, lock: bool = False
    ) -> tuple[KnowledgeBaseRow, KnowledgeBaseKeys]:
        """A knowledge base's row and keys. ``lock`` keeps the row until the transaction ends.

        Raises:
            UnknownKnowledgeBaseError: no knowledge base has this name.
            WrongKeyError: it is under another data key.
            OtherEmbeddingModelError: it was embedded by another model.
        """
        row = find(connection, name, lock=lock)
        if row is None:
            raise UnknownKnowledgeBaseError(f"There is no knowledge base named {name!r}.")
        return row, self.of(row)

    def of(self, row: KnowledgeBaseRow) -> KnowledgeBaseKeys:
        """A knowledge base's keys.

        Args:
            row: row of ``knowledge_bases``.

        Raises:
            WrongKeyError: it is under another data key.
            OtherEmbeddingModelError: it was embedded by another model.
        """
        if row.embedding_model not in (None, self.embedding_model):
            raise OtherEmbeddingModelError(row.name, row.embedding_model, self.embedding_model)
        keys = self._derived(bytes(row.key_salt))
        if keys.check != row.key_check:
            raise WrongKeyError(
                f"Knowledge base {row.name!r} is encrypted under another data key than the one this process opened. If "
                "`dpicl encryption reencrypt` ran meanwhile, restart this process. If not, the table data_key or "
                "knowledge_bases was changed outside this program: put data_key back as the newest backup has it; the "
                "ledger stays as it is."
            )
        return keys

    def of_new(self, connection: sa.Connection, salt: bytes) -> KnowledgeBaseKeys:
        """The keys of a new knowledge base. No other data key takes this one's place until the transaction ends.

        Raises:
            WrongKeyError: another one has taken its place.
        """
        if connection.scalar(sa.select(data_key.c.number).with_for_update(read=True)) != self._number:
            raise WrongKeyError("All exemplars were encrypted under another data key meanwhile: restart this process.")
        return self._derived(salt)

    def rewrap(self, master: MasterKey, before_commit: BeforeCommit = do_nothing) -> None:
        """Let another master key open the database, and the present one no longer.

        On SQLite the old wrap is overwritten in the file; on PostgreSQL it goes with the table's next rewriting.

        Args:
            master: new master key.
            before_commit: further work of the caller in the same transaction, done last.

        Raises:
            EncryptionKeyError: it is the present one.
            WrongKeyError: the present one is another than this process's.
        """
        with self._database.begin() as connection:
            overwrite_deleted(connection)
            row = connection.execute(sa.select(data_key).with_for_update()).one()
            opened = self._unwrap(row)
            if master.fingerprint == row.fingerprint:
                raise EncryptionKeyError(
                    f"Encryption key {master.fingerprint} opens this database already; nothing was changed."
                )
            connection.execute(sa.update(data_key).values(_wrap(master, opened, row.number)))
            before_commit(connection)
        empty_write_ahead_log(self._database)

    def replace(self, connection: sa.Connection) -> bytes:
        """Put a fresh data key in this one's place.

        Returns:
            Its 32 bytes for exemplars, which knowledge bases' keys are to be derived from.

        Raises:
            WrongKeyError: the present master key is another than this process's.
        """
        row = connection.execute(sa.select(data_key).with_for_update()).one()
        made = DataKey(os.urandom(KEY_BYTES), self._unwrap(row).queries)
        connection.execute(sa.update(data_key).values(_wrap(self._master, made, row.number + 1)))
        return made.exemplars

    def _unwrap(self, row: sa.Row[tuple[object, ...]]) -> DataKey:
        if row.fingerprint != self._master.fingerprint:
            raise WrongKeyError(
                "This database was written under another encryption key than the one given, "
                f"{self._master.fingerprint}. It opens with {row.fingerprint}. If the key was changed, start with "
                "the new one; if not, see whether DPICL_DATABASE_URL names the right database."
            )
        return self._master.unwrap(bytes(row.wrapped), row.number)


def _wrap(master: MasterKey, opened: DataKey, number: int) -> dict[str, object]:
    return {"number": number, "fingerprint": master.fingerprint, "wrapped": master.wrap(opened, number)}
