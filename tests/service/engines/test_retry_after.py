"""How long a server is left alone: as long as it asks, within reason."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from service.engines.retry_after import retry_after_s

NEVER = (
    *("", "soon", "-5", "nan", "0", "120, 240", "9" * 400, "Wed, 21 Oct 2015 07:28:00 GMT"),
    "Mon, 01 Jan 0001 00:00:00 +2359",
)
WAITS = {**dict.fromkeys(NEVER, 0), "3": 3, "1.5": 1.5, "86400": 20, "Fri, 31 Dec 2100 23:59:59 GMT": 20}


@pytest.mark.parametrize("header", WAITS)
def test_no_server_makes_its_client_wait_forever(header: str) -> None:
    assert retry_after_s(header, 20) == WAITS[header]


def test_a_server_may_name_a_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=9), usegmt=True)
    assert 5 < retry_after_s(soon, 20) <= 9
