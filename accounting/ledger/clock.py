"""The present time, in UTC; a test may bring another clock."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The present."""
    return datetime.now(UTC)
