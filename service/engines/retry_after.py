"""The wait that a server asks for: the header ``Retry-After`` (RFC 9110, section 10.2.3)."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def retry_after_s(header: str, longest_s: float) -> float:
    """Seconds, from a number or a date; 0 if it is neither.

    Args:
        header: value of the header.
        longest_s: longest wait, whatever the header asks for.
    """
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]*)?", header):
        return min(float(header), longest_s)
    try:
        until = parsedate_to_datetime(header).astimezone(UTC)
    except (ValueError, OverflowError):
        return 0.0
    return min(max((until - datetime.now(UTC)).total_seconds(), 0.0), longest_s)
