"""A pod's departure: it ends when the last request in flight has its answer, as a pod's ``preStop`` on Kubernetes.

    python -m service.serving.departure service

Each process of a node that does charged work shares a lock while it has some (:class:`WorkInHand`). The departure waits
until it has the lock for itself. The kernel frees the lock of a process that ends.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from service.serving import ray_private

Part = Literal["service", "engine", "head"]

MOST_S = 305.0
"""Seconds that a departure takes at most: a request may take 300."""
LEAVES_SERVICE_WITHIN_S = 5.0
"""Seconds in which a Service's proxies see that a pod is about to go; until then they send it requests."""
_OTHERS_BEGIN_WITHIN_S = 10.0
"""Seconds in which the other pods of a cluster that goes as a whole begin their departures."""
_POLL_S = 5.0
"""Seconds between two looks, as of a latency grain: when a pod goes must not show when private work in it ended."""


class WorkInHand:
    """Charged work of this process that a departure waits for. Belongs to one thread or event loop.

    Args:
        folder: folder of the node, the same for all of its processes; None: this process is not one of a Ray node,
            and nothing waits for it.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = None if folder is None else os.open(_lock(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._pieces = 0

    @property
    def leaving(self) -> bool:
        """Whether the pod is about to go, and takes no further requests."""
        return self._folder is not None and _mark(self._folder).exists()

    @contextmanager
    def piece(self) -> Iterator[None]:
        """Hold the departure up until the block ends."""
        if self._lock is not None and not self._pieces:
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        self._pieces += 1
        try:
            yield
        finally:
            self._pieces -= 1
            if self._lock is not None and not self._pieces:
                fcntl.flock(self._lock, fcntl.LOCK_UN)


@cache
def work_in_hand() -> WorkInHand:
    """The charged work of this process."""
    return WorkInHand(ray_private.session_folder())


def depart(part: Part, folder: Path, others: ray_private.Departures, *, most_s: float = MOST_S) -> None:
    """Return when the pod may be stopped.

    Pods of the service stop taking requests, and finish those they have. Those of an engine and the head go after all
    pods of the service that are about to go, since these still ask them.

    Args:
        part: the pod's part.
        folder: folder of the node.
        others: departures of the cluster's other nodes.
        most_s: seconds that it takes at most.
    """
    until = time.monotonic() + most_s
    if part == "service":
        _try(lambda: others.announce(most_s))
        time.sleep(min(LEAVES_SERVICE_WITHIN_S, most_s))
        _mark(folder).touch(mode=0o600)
        _wait_for_work(folder, until)
        _try(others.end)
        return
    time.sleep(min(_OTHERS_BEGIN_WITHIN_S, most_s))
    while time.monotonic() < until and _try(others.any):
        time.sleep(_POLL_S)
    if part == "engine":
        _wait_for_work(folder, until)


def _try(call: Callable[[], object]) -> object:
    """What the call returns; None if the cluster's head does not answer, which must not end a departure."""
    from ray.exceptions import RayError

    try:
        return call()
    except (RayError, OSError) as error:
        print(f"departure: the head does not answer: {error}", file=sys.stderr)
        return None


def _wait_for_work(folder: Path, until: float) -> None:
    with _lock(folder).open("w") as lock:
        while time.monotonic() < until:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_POLL_S)
            else:
                return


def _mark(folder: Path) -> Path:
    return folder / "dpicl-leaving"


def _lock(folder: Path) -> Path:
    return folder / "dpicl-work"


def main() -> None:
    """Run a departure of the pod that this runs in."""
    part = sys.argv[1] if len(sys.argv) == 2 else ""
    if part not in get_args(Part):
        sys.exit(f"usage: python -m service.serving.departure {'|'.join(get_args(Part))}")
    depart(part, Path(tempfile.gettempdir(), "ray", "session_latest"), ray_private.Departures())  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
