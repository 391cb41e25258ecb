"""Helpers for tests with several processes, or with a server beside them."""

import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(["tests.service.conftest"])
"""A context for processes that start fast: each is forked from one that has imported the service and opened nothing."""


def free_ports(number: int) -> list[int]:
    """Ports of this machine on which no process listens."""
    probes = [socket.socket() for _ in range(number)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition comes true within the given number of seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def answers(url: str, timeout: float = 20) -> bool:
    """Whether a service answers this address with status 200 within the timeout, in seconds."""
    try:
        return httpx.get(url, timeout=timeout).status_code == 200
    except httpx.HTTPError:
        return False


@contextmanager
def listening(app: Any, **options: Any) -> Iterator[str]:
    """Run an application on a port of this machine, in a thread, until the block ends, and yield its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
