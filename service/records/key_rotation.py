"""Changing the encryption key while services run (:mod:`exemplar_store.data_keys`), noted in the audit trail."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime

import sqlalchemy as sa

from accounting.ledger import trail
from accounting.ledger.events import EncryptionKeyAdded, EncryptionKeyRetired, ExemplarsRenewed
from exemplar_store import EncryptionKeyError
from exemplar_store.data_keys import BeforeKeyCommit
from exemplar_store.renewing import Percent
from service.records.records import Records, audited
from service.records.synthetic_store import KEY


def add_key(records: Records, master: bytes, *, by: str) -> str:
    """Let another encryption key open the database too.

    Args:
        records: opened with a key that does.
        master: 32 bytes.
        by: who does it.

    Returns:
        Its fingerprint.

    Raises:
        exemplar_store.EncryptionKeyError: it opens the database already, or one of the two keys is published.
    """
    if records.synthetic or hmac.compare_digest(master, KEY):
        raise EncryptionKeyError(
            "The key of made-up data is published and marks a database as made up: it is neither added nor replaced. "
            "For exemplars of your own make a database of your own (openssl rand -base64 32)."
        )
    return records.store.data_keys.add(master, _audited(EncryptionKeyAdded, by))


def retire_keys(records: Records, fingerprint: str | None = None, *, by: str) -> list[str]:
    """Let other encryption keys open the database no longer (:meth:`exemplar_store.DataKeys.retire`)."""
    return records.store.data_keys.retire(fingerprint, _audited(EncryptionKeyRetired, by))


def renew_exemplars(records: Records, name: str, *, by: str, progress: Percent | None = None) -> int:
    """Encrypt a knowledge base's exemplars under a new data key (:meth:`exemplar_store.ExemplarStore.renew`)."""
    return records.store.renew(name, progress, audited(ExemplarsRenewed(knowledge_base=name, by=by)))


def _audited(kind: type[EncryptionKeyAdded | EncryptionKeyRetired], by: str) -> BeforeKeyCommit:
    def append(connection: sa.Connection, fingerprint: str) -> None:
        trail.append(connection, datetime.now(UTC), kind(fingerprint=fingerprint, by=by))

    return append
