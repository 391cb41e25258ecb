"""Replaying the service's own trail: is it whole, were the plans kept, and does the ledger still count what it says?"""

from collections.abc import Iterable

from accounting.ledger.dialects import reading
from accounting.replay.books import violations
from accounting.replay.trail import Progress, Report, verify
from service.records.records import Records


def replay(
    records: Records, *, heads: Iterable[str] = (), recompute: bool = True, progress: Progress = lambda _plan: None
) -> Report:
    """What :func:`accounting.replay.trail.verify` finds in the trail, and where the ledger's tables disagree with it.

    A counter that somebody lowered in the database is in no export: only the tables show it.

    Args:
        records: whose.
        heads: hashes noted from earlier replays.
        recompute: whether to compute plans again.
        progress: called with what takes long.
    """
    report = verify(records.audit.export(), heads=heads, recompute=recompute, progress=progress)
    with reading(records.database) as connection:
        if connection.dialect.name == "postgresql":  # one snapshot, which a transaction of SQLite has anyway
            connection.execution_options(isolation_level="REPEATABLE READ")
        report.problems += violations(connection)
    return report
