"""The open database: knowledge bases, ledger and keys."""

import hmac
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa
import structlog

from accounting.ledger import trail
from accounting.ledger.charges import Ledger
from accounting.ledger.errors import CohortError
from accounting.ledger.events import ExemplarsIngested, Particulars, RemoteEngineChanged, UnitForgotten, UploadEnded
from accounting.ledger.holders import Holder
from accounting.ledger.trail import AuditTrail
from accounting.ledger.transparency_log import TransparencyLog
from accounting.ledger.witness import Witness
from exemplar_store import MAX_EXEMPLAR_BYTES, ExemplarStore, IngestReport, KnowledgeBase, Row, load_key
from exemplar_store.cohorts import note_lost_arrivals
from exemplar_store.knowledge_base import BeforeCommit, Progress, do_nothing
from service.engines.embedding.embedder import Embed
from service.engines.embedding.model import identity
from service.records.apart import Apart
from service.records.api_keys import ApiKeys
from service.records.audit_key import signer_of
from service.records.database import nothing_at, open_database, require_there, sqlite_file
from service.records.rate_limits import RateLimits
from service.records.requests_once import RequestsOnce
from service.records.schema import migrate, require, revision
from service.records.synthetic_store import KEY, SyntheticStore
from service.records.text_ledger import TextLedger
from service.records.topics import lists_of
from service.records.witness import open_witness, witness_url
from service.settings import Settings

log = structlog.get_logger()


@dataclass(frozen=True)
class Records:
    """The contents of the open database: knowledge bases, ledger, keys. Enough for admins' commands."""

    settings: Settings
    database: sa.Engine
    store: ExemplarStore
    ledger: Ledger
    keys: ApiKeys
    audit: AuditTrail
    witness: Witness | None
    """Detects a ledger restored from a backup; None where the settings name none."""
    rates: RateLimits
    texts: TextLedger
    requests: RequestsOnce
    digest_key: bytes
    log: TransparencyLog | None
    """Signs checkpoints of the audit trail; None where the settings name no key."""
    synthetic: bool
    """Whether the data are made up (:mod:`service.serving.synthetic`)."""
    apart: Apart | None = None
    """The process that reads whole knowledge bases instead of this one; None where this one serves no requests."""

    def create_knowledge_base(
        self,
        name: str,
        *,
        epsilon: float,
        delta: float,
        public_size: int,
        fields: Sequence[str],
        embedded_field: str,
        response_field: str | None = None,
        max_exemplar_bytes: int = MAX_EXEMPLAR_BYTES,
        remote_engine: bool = False,
        by: str = "",
    ) -> None:
        """Create a knowledge base together with its lifetime budget, or neither; ``by`` is for the audit trail."""
        with self.database.begin() as connection:
            self.store.create(
                connection,
                name,
                public_size=public_size,
                fields=fields,
                embedded_field=embedded_field,
                response_field=response_field,
                max_exemplar_bytes=max_exemplar_bytes,
                remote_engine=remote_engine,
            )
            # A knowledge base lost in a restore keeps the budget that it had, and takes it up again.
            if self.ledger.budgets.has(connection, name, epsilon, delta):
                note_lost_arrivals(connection, name)
            else:
                self.ledger.budgets.open(connection, name, epsilon, delta, by)
            if remote_engine:
                audited(RemoteEngineChanged(knowledge_base=name, allowed=True, by=by))(connection)

    def delete_knowledge_base(self, name: str, *, by: str) -> None:
        """Delete a knowledge base that is empty together with its lifetime budget, or neither.

        Raises:
            exemplar_store.UnknownKnowledgeBaseError: there is none of this name.
            exemplar_store.KnowledgeBaseNotEmptyError: it has, or had, exemplars.
            accounting.ledger.errors.NotEmptyError: it has a plan or a group, or an upload to it was begun.
        """
        with self.database.begin() as connection:
            self.store.delete(connection, name)
            self.ledger.budgets.delete(connection, name, by)

    def open_cohort(
        self, name: str, *, epsilon: float, delta: float, public_size: int, by: str, after: int | None = None
    ) -> int:
        """Open a cohort with its lifetime budget, or neither; returns its number. Further units will belong to it.

        Args:
            name: name of the knowledge base.
            epsilon: see :meth:`accounting.ledger.cohorts.Cohorts.open`, as all further arguments.
            delta: ditto.
            public_size: ditto.
            by: ditto.
            after: number that the newest cohort must have; None: any.

        Raises:
            accounting.ledger.errors.CohortError: another cohort was opened meanwhile, or as of ``Cohorts.open``.
        """

        def grant(connection: sa.Connection, number: int) -> None:
            if after is not None and number != after + 1:
                raise CohortError(f"cohort {number - 1} of {name!r} was opened meanwhile: look at it, then decide")
            self.ledger.cohorts.open(connection, name, number, epsilon, delta, public_size=public_size, by=by)

        return self.store.open_cohort(name, public_size, grant)

    def ingest(
        self,
        name: str,
        rows: Iterable[Row],
        embed: Embed,
        *,
        by: str,
        progress: Progress = do_nothing,
        replace: bool = False,
        skip_forgotten: bool = False,
        dry_run: bool = False,
    ) -> IngestReport:
        """Add exemplars (:meth:`exemplar_store.ExemplarStore.ingest`), with two events in the audit trail.

        The first event is appended, and witnessed, before the exemplars are stored, the second as they are stored
        (:mod:`accounting.ledger.restoring`). The second bears the time of the first: the duration of storing would
        disclose how much is stored.

        Raises:
            accounting.ledger.errors.KnowledgeBaseArchivedError: it no longer takes exemplars; nothing is stored.
            accounting.ledger.witness.LedgerRestoredError: the ledger lacks what was witnessed; nothing is stored.
            accounting.ledger.witness.WitnessUnavailableError: the witness does not answer; nothing is stored.
        """

        self.ledger.cohorts.not_closed(name)  # before seconds go into embedding

        upload = str(uuid.uuid4())
        begun = ExemplarsIngested(knowledge_base=name, upload=upload, by=by)
        ended = UploadEnded(knowledge_base=name, upload=upload, by=by)
        announced: datetime | None = None

        def announce() -> None:
            nonlocal announced
            if self.witness is not None:
                self.witness.catch_up()  # an upload that is refused leaves no event
            now = datetime.now(UTC)
            with self.database.begin() as connection:
                self.ledger.cohorts.check_open(connection, name)
                trail.append(connection, now, begun)
            announced = now
            if self.witness is not None:
                self.witness.catch_up()

        def store(connection: sa.Connection) -> None:
            self.ledger.cohorts.check_open(connection, name)
            trail.append(connection, announced or datetime.now(UTC), ended)

        try:
            return self.store.ingest(
                name,
                rows,
                embed,
                progress,
                store,
                announce=announce,
                replace=replace,
                skip_forgotten=skip_forgotten,
                dry_run=dry_run,
                topics=lambda connection: lists_of(connection, name),
            )
        except BaseException:
            if announced:
                with suppress(sa.exc.SQLAlchemyError), self.database.begin() as connection:
                    trail.append(connection, announced, ended)
            raise

    def forget(self, name: str, unit_id: str, *, by: str) -> int:
        """Delete a unit (:meth:`exemplar_store.ExemplarStore.forget`); the audit trail does not name it."""
        return self.store.forget(name, unit_id, audited(UnitForgotten(knowledge_base=name, by=by)))

    def allow_remote_engine(self, name: str, allowed: bool, *, by: str) -> KnowledgeBase:
        """Set whether a remote engine may see exemplars; the audit trail records it."""
        changed = RemoteEngineChanged(knowledge_base=name, allowed=allowed, by=by)
        return self.store.allow_remote_engine(name, allowed, audited(changed))


def audited(happened: Particulars) -> BeforeCommit:
    """A function that appends an event to the audit trail, in the transaction it is called in."""
    return lambda connection: trail.append(connection, datetime.now(UTC), happened)


def _report_readable(settings: Settings) -> None:
    """Log which of the files that hold databases others can read."""
    files = [sqlite_file(settings.database_url)]
    if (witness := witness_url(settings)) is not None:
        files.append(sqlite_file(witness, "DPICL_WITNESS_URL"))
    for file in files:
        if file is not None and file.is_file() and file.stat().st_mode & 0o077:
            log.warning("database_readable_by_others", file=str(file), advice=f"chmod 600 {file}*")


def open_records(settings: Settings, *, restored: bool = False, create: bool = True) -> Records:
    """Open the database, read the encryption key, and compare the ledger with its witness.

    An empty database gets its schema first, if it is to be created and unless ``DPICL_MIGRATE=never``.

    Args:
        settings: the addresses of database and witness, and the encryption key.
        restored: whether to open even a ledger that lacks witnessed events; it charges nothing.
        create: whether to create a database that does not exist, and the schema of an empty one.

    Raises:
        service.records.database.MissingDatabaseError: the database does not exist, and is not to be created.
        service.records.schema.SchemaError: the schema is older or newer than this code.
        accounting.ledger.witness.LedgerRestoredError: the ledger was restored from a backup, or is a second copy.
        accounting.ledger.witness.WitnessUnavailableError: the witness does not answer.
        exemplar_store.EncryptionKeyError: no usable encryption key, or a database written under another.
        exemplar_store.OtherEmbeddingModelError: another model embedded the exemplars.
        service.engines.embedding.model.EmbeddingModelError: the embedding model cannot be loaded.
        service.records.audit_key.AuditKeyError: the audit trail's key cannot be used.
        accounting.ledger.notes.NoteError: the audit trail's name cannot name a key.
    """
    signer = signer_of(settings)
    if not create:
        require_there(settings.database_url)
    master = load_key(
        settings.encryption_key.get_secret_value() if settings.encryption_key else None,
        settings.encryption_key_file,
        development=settings.development,
    )
    if settings.development and settings.encryption_key is None and settings.encryption_key_file is None:
        log.warning("development_key", advice="exemplars are encrypted under a published key: made-up data only")
    _report_readable(settings)
    database = open_database(settings.database_url)
    if settings.migrate == "auto" and revision(database) is None:
        if not create:
            raise nothing_at(settings.database_url)
        migrate(database)
    require(database)
    synthetic = hmac.compare_digest(master, KEY)
    store = (SyntheticStore if synthetic else ExemplarStore)(database, master, identity(settings.embedding_model))
    store.list()  # refuses keys of another database and another model's embeddings, now rather than at the first query
    store.clear_abandoned()
    witness = open_witness(settings, database, create=create or restored)
    if witness is not None and not restored:
        witness.catch_up()
    return Records(
        settings=settings,
        database=database,
        store=store,
        ledger=Ledger(database, lease_s=settings.lease_s, witness=witness, holder=Holder(database)),
        keys=ApiKeys(database),
        audit=AuditTrail(database),
        witness=witness,
        rates=RateLimits(database),
        texts=TextLedger(database, store.keyring.queries, cap=settings.text_epsilon_cap),
        requests=RequestsOnce(database, store.keyring.queries),
        digest_key=store.keyring.queries,
        log=TransparencyLog(database, signer, witness) if signer else None,
        synthetic=synthetic,
    )
