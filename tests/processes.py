"""Other processes at no cost: each is forked from one that has imported the service, and has opened nothing."""

from __future__ import annotations

import multiprocessing

FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(["tests.service.conftest"])
