"""Signing checkpoints of the audit trail while the service runs."""

import asyncio

import structlog
from sqlalchemy.exc import SQLAlchemyError

from accounting.ledger.errors import LedgerError
from accounting.ledger.transparency_log import TransparencyLog

log = structlog.get_logger()

EVERY_S = 600.0
"""Seconds between two checkpoints of a trail that grows."""


async def keep_signed(trail: TransparencyLog) -> None:
    """Sign a checkpoint every ten minutes, if the trail has grown; log when that begins to fail.

    It runs beside answers: no charge waits for it.
    """
    failing = False
    while True:
        try:
            await asyncio.to_thread(trail.sign_if_grown)
            failing = False
        except (LedgerError, SQLAlchemyError) as error:
            if not failing:
                advice = str(error) if isinstance(error, LedgerError) else type(error).__name__
                log.error("audit_trail_not_signed", advice=advice)
            failing = True
        await asyncio.sleep(EVERY_S)
