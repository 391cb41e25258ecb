"""Tools that the demos share: `dpicl` commands as a person types them, and a service that runs while it is asked."""

from __future__ import annotations

import base64
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from service.settings import set_operators_aside

DPICL = str(Path(sys.executable).parent / "dpicl")
_ROOT = Path(__file__).parents[1]
_STOPS_WITHIN_S = 330  # what was asked is answered first, for up to 305 s
_WIDTH = 80


def heading(text: str) -> None:
    print(f"\n── {text}", flush=True)


def use_database_in(folder: Path) -> None:
    """Keep the records of further commands and services in a database in this folder."""
    set_operators_aside()
    os.environ["DPICL_DATABASE_URL"] = f"sqlite:///{folder}/demo.sqlite"
    os.environ["DPICL_ENCRYPTION_KEY"] = base64.b64encode(secrets.token_bytes(32)).decode()


def dpicl(*args: str, show: bool = True) -> str:
    """Run a command, and show it as in the repository's folder."""
    print(_typed(f"$ dpicl {shlex.join(args)}".replace(f"{_ROOT}/", "")), flush=True)
    done = subprocess.run([DPICL, *args], stdout=subprocess.PIPE, text=True, check=True)
    if show:
        print(done.stdout, end="", flush=True)
    return done.stdout


def _typed(command: str) -> str:
    """A command that goes on in further lines where it is longer than a screen is wide."""
    return " \\\n".join(
        textwrap.wrap(command, _WIDTH - 2, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    )


def make_key(name: str, role: str) -> str:
    """A new key of the service."""
    return subprocess.run(
        [DPICL, "keys", "create", name, "--role", role], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()


@contextmanager
def serving(
    folder: Path, *options: str, what: str, timeout_s: float, meanwhile: Callable[[], None] = lambda: None
) -> Iterator[httpx.Client]:
    """`dpicl serve` until the block ends; exits if it does not start, or does not stop cleanly.

    Args:
        folder: folder for the log.
        options: options of the command.
        what: name of what it runs on, for people.
        timeout_s: seconds within which it must be ready.
        meanwhile: something to do while it starts.

    Yields:
        A client with an analyst's key, which DPICL_API_KEY holds, too.
    """
    key = os.environ["DPICL_API_KEY"] = make_key("demo", "analyst")
    url = f"http://127.0.0.1:{_free_port()}"
    began = time.monotonic()
    log = folder / "serve.log"
    with log.open("wb") as sink:
        server = subprocess.Popen(
            [DPICL, "serve", "--port", url.rpartition(":")[2], *options],
            stdout=sink,
            stderr=sink,
            start_new_session=True,  # a Ctrl-C reaches this process alone, which then stops the service
        )
    try:
        meanwhile()
        heading(f"The service on {what}, at {url}")
        with httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=300, trust_env=False
        ) as client:
            _wait_until_ready(client, server, log, timeout_s)
            print(f"  ready {time.monotonic() - began:.0f} s after its start", flush=True)
            yield client
    finally:
        server.send_signal(signal.SIGINT)
        status = server.wait(timeout=_STOPS_WITHIN_S)
    heading(f"Stopped cleanly (exit status {status})")
    if status != 0:
        sys.exit(status)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(client: httpx.Client, server: subprocess.Popen[bytes], log: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"the service did not start:\n{log.read_text()}")
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    sys.exit(f"the service was not ready within {timeout_s / 60:g} minutes:\n{log.read_text()}")
