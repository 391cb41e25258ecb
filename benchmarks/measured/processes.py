"""What `dpicl serve` takes to be ready with the engine that compares sentences: memory, processor time and processes.

Memory that processes share counts once (PSS).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil

TARGETS = {"bytes": 2.0, "processor seconds": 2.0}
SERVE = "import sys; sys.argv = ['dpicl', *sys.argv[1:]]; from service.cli import main; main()"
SETTLES_S = 5


def main() -> None:
    """Start the service once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the same: one start is the least")
    parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as service:
        print(json.dumps(taken(service)))


@contextlib.contextmanager
def started(folder: Path, *arguments: str, **variables: str) -> Iterator[psutil.Process]:
    """The service once it is ready and has settled, with a database in a folder; it is stopped at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"sqlite:///{folder}/processes.sqlite"
    environment = {**os.environ, "DPICL_DEVELOPMENT": "true", "DPICL_DATABASE_URL": url, **variables}
    with Path(folder, "log").open("wb") as log:
        command = [sys.executable, "-c", SERVE, "serve", *arguments, "--port", str(port)]
        service = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        while not ready(port):
            assert service.poll() is None, Path(folder, "log").read_text()
            time.sleep(0.5)
        time.sleep(SETTLES_S)
        yield psutil.Process(service.pid)
    finally:
        service.terminate()
        service.wait(120)


def ready(port: int) -> bool:
    """Whether the service would answer."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=30).status_code == 200
    except httpx.TransportError:
        return False


def taken(service: psutil.Process) -> dict[str, float]:
    """What a process and all that it started have taken."""
    family = [service, *service.children(recursive=True)]
    processor = [each.cpu_times() for each in family]
    return {
        "bytes": sum(each.memory_full_info().pss for each in family),
        "processor seconds": sum(each.user + each.system for each in processor),
        "processes": len(family),
    }


if __name__ == "__main__":
    main()
