"""Setup and teardown of the service that a scenario breaks, with its folder, databases, keys, supervisor and load."""

from __future__ import annotations

import base64
import os
import random
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from chaos import toys
from chaos.endpoint import Endpoint, modelling
from chaos.load import Load
from chaos.postgres import Postgres, running
from chaos.supervisor import Supervisor
from service.cli.serve import DEFAULT_CONFIG
from tests.e2e.serving import DPICL, opened
from tests.processes import answers, free_ports, wait_for

RECOVERS_IN_S = 600.0
_READY_IN_S = 600.0


@dataclass(frozen=True)
class Scenario:
    """A kind of fault, and the service that it breaks.

    Attributes:
        name: name on the command line and in the report.
        inflict: function that injects the fault for about the given number of seconds, and then ends conditions that
            the service cannot end, for example a full disk.
        seconds: duration, unless the command line sets another.
        postgresql: whether the ledger is on PostgreSQL instead of SQLite.
        remote: whether the service asks a language model outside it, which :mod:`chaos.endpoint` plays.
        callers: number of callers that ask meanwhile.
        answers: number of answers in each of the two larger tasks.
        environment: function that returns further settings of the service, given its folder.
        prepare: function that prepares the world before the service starts, and returns another that undoes this after
            the service has ended.
    """

    name: str
    inflict: Callable[[World, float], None]
    seconds: float = 40.0
    postgresql: bool = False
    remote: bool = False
    callers: int = 4
    answers: int = 4000
    environment: Callable[[Path], Mapping[str, str]] = lambda _folder: {}
    prepare: Callable[[World], object] | None = None


@dataclass
class World:
    """The running service and its surroundings, which a fault may change.

    Attributes:
        folder: folder for all files of the run: databases in ``base``, Ray's files in ``ray``.
        draw: source of all random choices.
        faults: faults so far, each with the seconds until a newly asked question was answered; None: not in time.
        notes: figures that only this scenario has.
        wrong: failures that the run itself observed.
    """

    scenario: Scenario
    folder: Path
    draw: random.Random
    postgres: Postgres | None = None
    endpoint: Endpoint | None = None
    faults: list[tuple[str, float | None]] = field(default_factory=list)
    notes: dict[str, object] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    url: str = ""

    supervisor: Supervisor = field(init=False)
    load: Load = field(init=False)

    def note(self, fault: str, began: float, *, within: float = RECOVERS_IN_S) -> None:
        """Wait until a question asked after ``began`` (monotonic seconds) is answered, and note how long that took."""
        wait_for(lambda: self.load.answered_after(began) is not None, within)
        self.faults.append((fault, self.load.answered_after(began)))


@contextmanager
def world(scenario: Scenario, seed: int) -> Iterator[World]:
    """Run a service under load until the block ends; then stop and remove everything.

    Raises:
        RuntimeError: the service does not start, or does not answer.
    """
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))
    folder.chmod(0o711)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        this = World(scenario, folder, random.Random(f"{seed} {scenario.name}"))
        for name in ("base", "tmp"):
            (folder / name).mkdir()
        if scenario.prepare is not None:
            stack.callback(scenario.prepare(this))  # type: ignore[arg-type]
        if scenario.postgresql:
            this.postgres = stack.enter_context(running(folder / "base" / "pg"))
            this.postgres.create("chaos")
        if scenario.remote:
            this.endpoint = stack.enter_context(modelling())
        (port,) = free_ports(1)
        this.url = f"http://127.0.0.1:{port}"
        this.environment = _environment(this)
        _fill(this)
        config = folder / "serve.yaml"
        config.write_text(_config(this))
        command = [DPICL, "serve", "--port", str(port), "--config", str(config)]
        this.supervisor = Supervisor(command, {**os.environ, **this.environment}, this.url, folder / "serve.log")
        this.load = Load(
            this.url,
            this.tokens["analyst"],
            scenario.callers,
            this.draw.getrandbits(32),
            forbidden=(toys.EXEMPLAR_CANARY, toys.UNIT_CANARY, *this.tokens.values()),
        )
        stack.callback(lambda: this.supervisor.stop())
        this.supervisor.start()
        if not wait_for(lambda: answers(f"{this.url}/readyz", 10), _READY_IN_S):
            raise RuntimeError(f"the service did not start: {(folder / 'serve.log').read_text()[-2000:]}")
        stack.callback(this.load.stop)
        this.load.start()
        if not wait_for(lambda: this.load.statuses()[200] > 2, _READY_IN_S):
            raise RuntimeError(f"the service does not answer: {this.load.statuses()}")
        yield this


def recover(this: World) -> None:
    """Wait, after all faults have ended, until the service answers by itself."""
    this.note("the end", time.monotonic())


def _environment(this: World) -> dict[str, str]:
    base = this.folder / "base"
    ledger = f"sqlite:///{base}/chaos.sqlite" if this.postgres is None else this.postgres.url("chaos")
    return {
        "DPICL_DATABASE_URL": ledger,
        "DPICL_WITNESS_URL": f"sqlite:///{this.folder}/witness.sqlite",
        "DPICL_ENCRYPTION_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        "DPICL_LATENCY_GRAIN_MS": "4000",  # slow machines need more than a second to answer
        "DPICL_QUERY_TIMEOUT_S": "5",
        "DPICL_LEASE_S": "90",
        "RAY_TMPDIR": str(this.folder),
        "TMPDIR": str(this.folder / "tmp"),
        **this.scenario.environment(this.folder),
    }


def _fill(this: World) -> None:
    with opened(this.environment) as records:
        toys.fill(records, remote_engine=this.scenario.remote, answers=this.scenario.answers)
        for name in ("analyst", "admin"):
            _, this.tokens[name] = records.keys.create(name, name)  # type: ignore[arg-type]


def _config(this: World) -> str:
    config = yaml.safe_load(DEFAULT_CONFIG.read_text())
    if this.endpoint is not None:
        config["applications"][0]["args"]["engine"] = {
            "name": "openai_compatible",
            "model": "chaos",
            "base_url": this.endpoint.url,
            "isolation": "best_effort",
            "timeout_s": 4,
            "request_timeout_s": 2,
            "max_attempts": 2,
        }
    return yaml.safe_dump(config)
