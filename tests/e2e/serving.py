"""Helpers that run ``dpicl serve`` in a process of its own, with the example's tickets."""

import base64
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from accounting.plans.plan import CalibratedPlan, calibrate_plan, load_plan
from exemplar_store import Layout
from service.answering.plans.signing import sign
from service.cli.serve import DEFAULT_CONFIG
from service.engines.embedding.embedder import Embedder
from service.records.records import Records, open_records
from service.settings import Settings
from tests.documented import reader
from tests.processes import free_ports

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
DPICL = str(Path(sys.executable).parent / "dpicl")
CANARY = "canary-77d0c2"


@dataclass
class Running:
    url: str
    key: str
    log: Path
    process: subprocess.Popen[bytes]
    database_url: str
    environment: dict[str, str]

    def dpicl(self, *args: str) -> str:
        return dpicl(self.environment, *args)

    def logs(self) -> str:
        """The output of the service, and the content of Ray's own log files."""
        session = Path(self.environment["RAY_TMPDIR"], "ray", "session_latest", "logs")
        files = [self.log, *(file for file in session.rglob("*") if file.is_file())]
        return "".join(file.read_text(errors="replace") for file in files)

    def listening(self) -> list[tuple[str, str, int]]:
        """The name, address and port of each process of the service that waits for connections."""
        itself = psutil.Process(self.process.pid)
        return [
            (process.name(), connection.laddr.ip.removeprefix("::ffff:"), connection.laddr.port)
            for process in (itself, *itself.children(recursive=True))
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers={"Authorization": f"Bearer {self.key}"})

    def post(self, path: str, body: object, timeout: Any = 150) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.post(f"{self.url}{path}", json=body, headers=headers, timeout=timeout)

    def ask(self, query: str, task: str = "support.team", timeout: Any = 150) -> httpx.Response:
        return self.post(f"/v1/tasks/{task}/answers", {"query": query}, timeout)


def dpicl(environment: dict[str, str], *args: str) -> str:
    done = subprocess.run([DPICL, *args], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def serving(folder: Path, *options: str, plans: Sequence[str | Path] = ()) -> Iterator[Running]:
    """Run the service with the example's plans, 150 of its tickets and one with a canary, until the block ends.

    Args:
        folder: folder for the database and the log.
        options: further options of ``dpicl serve``.
        plans: plans to sign instead of the example's.
    """
    with own(folder) as environment:
        key = prepared(environment, *plans)
        with started(folder, environment, *options) as (url, log, process):
            yield Running(url, key, log, process, environment["DPICL_DATABASE_URL"], environment)


@contextmanager
def own(folder: Path, **more: str) -> Iterator[dict[str, str]]:
    """The environment of a service with a database in a folder and a Ray of its own, until the block ends."""
    # A folder for Ray alone, with a short path as its sockets need.
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as ray:
        yield {
            **os.environ,
            "DPICL_DATABASE_URL": f"sqlite:///{folder}/e2e.sqlite",
            "DPICL_ENCRYPTION_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
            "RAY_TMPDIR": ray,
            "CXX": "none",  # the service needs no compiler
            **more,
        }


@contextmanager
def made_up(
    folder: Path, *options: str, program: str = DPICL, environment: dict[str, str] | None = None
) -> Iterator[str]:
    """Run ``dpicl serve --synthetic`` until the block ends, when it must stop cleanly, and yield its output.

    Args:
        folder: working folder of the service, which gets its log.
        options: further options.
        program: the command, if not this environment's.
        environment: the variables, if not a reader's.
    """
    log = folder / "serve.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [program, "serve", "--synthetic", *options],
            cwd=folder,
            env=environment or reader(),
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 600  # the machine may be busy
        while "DPICL_ENCRYPTION_KEY='" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.5)
        yield log.read_text()
    finally:
        process.send_signal(signal.SIGINT)
        status = process.wait(90)
    assert status == 0, log.read_text()


def configured(folder: Path, **arguments: Any) -> tuple[str, str]:
    """Options of ``dpicl serve`` for the packaged config, with other arguments of the application."""
    config = yaml.safe_load(DEFAULT_CONFIG.read_text())
    config["applications"][0]["args"] |= arguments
    (folder / "serve.yaml").write_text(yaml.safe_dump(config))
    return "--config", str(folder / "serve.yaml")


def stops(process: subprocess.Popen[bytes]) -> None:
    """Stop the service, and check that all its processes end."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []


@contextmanager
def opened(environment: Mapping[str, str]) -> Iterator[Records]:
    """Open the records that an environment names, as a command does; at the end, the witness catches up."""
    own = {
        name.removeprefix("DPICL_").lower(): value for name, value in environment.items() if name.startswith("DPICL_")
    }
    records = open_records(Settings.model_validate(own))
    try:
        yield records
        if records.witness is not None:
            records.witness.catch_up()
    finally:
        records.database.dispose()


def prepared(environment: Mapping[str, str], *plans: str | Path) -> str:
    """Fill the database that the environment names with 150 of the example's tickets and one with a canary.

    Args:
        environment: environment of the service.
        plans: plans to sign, by their name in the example or their path; by default, both of the example's.

    Returns:
        An API key.
    """
    tickets = [json.loads(line) for line in (SUPPORT / "tickets.jsonl").read_text().splitlines()[:150]]
    canary = {"text": f"my name is {CANARY}", "team": "Payments", "desk": "Office", "reply": f"{CANARY} it is"}
    layout = Layout(("text", "team", "desk", "reply"))
    with opened(environment) as records:
        records.create_knowledge_base(
            "support",
            epsilon=12,
            delta=2e-4,
            public_size=900,
            fields=layout.fields,
            embedded_field="text",
            response_field="reply",
        )
        rows = (layout.row(n, one) for n, one in enumerate([*tickets, {"unit_id": CANARY, **canary}], start=1))
        records.ingest("support", rows, embedder().embed_many, by="e2e")
        for plan in plans or ("plan.yaml", "replies.yaml"):
            sign(records, calibrated((SUPPORT / plan).read_text(), 900), "e2e")
        return records.keys.create("e2e", "analyst")[1]


@cache
def embedder() -> Embedder:
    return Embedder()


@cache
def calibrated(plan: str, public_size: int) -> CalibratedPlan:
    return calibrate_plan(load_plan(plan), public_size)


@contextmanager
def started(
    folder: Path,
    environment: dict[str, str],
    *options: str,
    not_ready: Callable[[httpx.Response], object] = lambda _: None,
) -> Iterator[tuple[str, Path, subprocess.Popen[bytes]]]:
    """Run ``dpicl serve`` on a free port until the block ends, and yield its address, its log and its process.

    Args:
        folder: folder for the log.
        environment: environment of the process.
        options: options of the command.
        not_ready: function that gets each answer of ``/readyz`` until the service is ready.
    """
    (port,) = free_ports(1)
    log = folder / "serve.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [DPICL, "serve", "--port", str(port), *options],
            env=environment,
            stdout=sink,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(1200):  # ten minutes: the machine may be busy
            assert process.poll() is None, log.read_text()
            try:
                ready = httpx.get(f"{url}/readyz")
                if ready.status_code == 200:
                    break
                not_ready(ready)
            except httpx.TransportError:
                pass
            time.sleep(0.5)
        else:
            pytest.fail(log.read_text())
        yield url, log, process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            assert process.wait(60) == 0, log.read_text()
            said = log.read_text().partition("\nStopping\n")[2]
            assert not re.search(r"Traceback|retries|^\(", said, re.MULTILINE), said
