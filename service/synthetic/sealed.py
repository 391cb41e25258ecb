"""The store of a synthetic database, which takes no exemplars: whose they were, everybody could read them."""

from __future__ import annotations

from typing import Any, NoReturn

from exemplar_store import ExemplarStore, ExemplarStoreError


class SyntheticUploadError(ExemplarStoreError):
    """Exemplars were sent to a service that runs on made-up data; nothing was stored."""


class SealedStore(ExemplarStore):
    """Reads like any other."""

    def ingest(self, *_args: Any, **_options: Any) -> NoReturn:
        """Refuse.

        Raises:
            SyntheticUploadError: always; says what to do instead.
        """
        raise SyntheticUploadError(
            "this service runs on made-up data under a published key and takes no exemplars of yours: start one of "
            "your own, `dpicl serve` without --synthetic, with DPICL_ENCRYPTION_KEY set (openssl rand -base64 32), "
            "and upload them there; to try a task on public exemplars, use its preview"
        )
