"""The store of a synthetic database, which takes no exemplars: its encryption key is published."""

import base64
from typing import Any, NoReturn

from exemplar_store import ExemplarStore, ExemplarStoreError
from service.problem_kinds import ProblemKind, RefusalError

KEY = b"dp-icl: made-up data, published!"
"""The published encryption key, 32 bytes."""

KEY_BASE64 = base64.b64encode(KEY).decode()
"""The key as ``DPICL_ENCRYPTION_KEY`` has it."""

NOTICE = "MADE-UP DATA (dpicl serve --synthetic): tickets of no real person, nothing here is confidential."


class SyntheticUploadError(RefusalError, ExemplarStoreError):
    """Exemplars were sent to a service that runs on made-up data; nothing was stored."""

    kind = ProblemKind.MADE_UP_DATA


class SyntheticStore(ExemplarStore):
    """A store of made-up exemplars: reading works as in any other store, ingesting is refused."""

    def ingest(self, *_args: Any, **_options: Any) -> NoReturn:
        """Refuse.

        Raises:
            SyntheticUploadError: always; the message names the alternatives.
        """
        raise SyntheticUploadError(
            "this service runs on made-up data under a published key and takes no exemplars of yours: start one of "
            "your own, `dpicl serve` without --synthetic, with DPICL_ENCRYPTION_KEY set (openssl rand -base64 32), "
            "and upload them there; to try a task on public exemplars, use its preview"
        )
