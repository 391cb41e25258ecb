"""Replaying the service's own trail: is it whole, were the plans kept, and do the ledger's tables agree with it?"""

from collections.abc import Iterable

from accounting.ledger.dialects import reading
from accounting.ledger.notes import Checkpoint, VerifierKey
from accounting.replay.books import violations
from accounting.replay.trail import Progress, Report, verify
from service.records.records import Records


def replay(
    records: Records,
    *,
    heads: Iterable[str] = (),
    keys: Iterable[VerifierKey] = (),
    checkpoints: Iterable[Checkpoint] = (),
    recompute: bool = True,
    progress: Progress = lambda _plan: None,
) -> Report:
    """The findings of :func:`accounting.replay.trail.verify`, and where the ledger's tables disagree with the trail.

    An export does not show a counter that was lowered in the database: only the tables show it. The newest checkpoints
    that were signed here show whether the trail was rewritten since.

    Args:
        records: the records to check.
        heads: hashes noted from earlier replays.
        keys: verifier keys, beside the service's own.
        checkpoints: signed checkpoints kept elsewhere.
        recompute: whether to compute plans again.
        progress: a function that is called with each plan before it is computed again.

    Raises:
        accounting.ledger.witness.WitnessUnavailableError: the trail is signed, and the witness does not answer.
    """
    kept = records.log.kept() if records.log else []
    known = [records.log.verifier] if records.log and kept else []
    report = verify(
        records.audit.export(),
        heads=heads,
        keys=[*keys, *known],
        checkpoints=[*checkpoints, *kept],
        recompute=recompute,
        progress=progress,
    )
    with reading(records.database) as connection:
        if connection.dialect.name == "postgresql":  # one snapshot, which a transaction of SQLite has anyway
            connection.execution_options(isolation_level="REPEATABLE READ")
        report.problems += violations(connection)
    return report
