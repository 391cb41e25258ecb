"""How long a server asks to be left alone: the header Retry-After (RFC 9110, section 10.2.3)."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def retry_after_s(header: str, most_s: float) -> float:
    """Seconds to wait, from a number or a date; 0 if it is neither.

    Args:
        header: its value.
        most_s: longer waits are cut to this.
    """
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]*)?", header):
        return min(float(header), most_s)
    try:
        until = parsedate_to_datetime(header)
    except ValueError:
        return 0.0
    left = (until.astimezone(UTC) - datetime.now(UTC)).total_seconds()
    return min(max(left, 0.0), most_s)
