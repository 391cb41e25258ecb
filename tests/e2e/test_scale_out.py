"""Several engine replicas on several nodes share one stream of questions, and die under it."""

import itertools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest
import sqlalchemy as sa

from accounting.ledger.tables import charges, releases
from accounting.plans.plan import calibrate_plan, load_plan
from accounting.replay.books import violations
from service.answering.plans.signing import sign
from service.records.records import Records
from tests.processes import free_ports, wait_for
from tests.service.conftest import PLAN, make_records

pytestmark = pytest.mark.service

ANSWERS = 250
QUESTIONS = 80  # while something dies
CLIENTS = 8


@dataclass(frozen=True)
class Asked:
    """A question and its outcome."""

    question: str
    status: int
    release: str | None


@dataclass
class Running:
    """The program of cluster.py, and a client of the service it runs."""

    client: httpx.Client
    records: Records
    journal: Path
    program: subprocess.Popen[str]
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def ask(self) -> Asked:
        """Ask a new question."""
        question = f"toy {next(self.numbers)}"
        response = self.client.post("/v1/tasks/toys.colour/answers", json={"query": question})
        return Asked(question, response.status_code, response.json().get("id"))

    def alive(self) -> set[int]:
        """The ids of the processes of the engine's replicas."""
        return {int(file.name) for file in self.journal.iterdir() if psutil.pid_exists(int(file.name))}

    def noted(self, event: str, process: int) -> Counter[str]:
        """How often a replica began, or finished, each question's slots."""
        lines = (self.journal / str(process)).read_text().splitlines()
        return Counter(line.removeprefix(f"{event} ") for line in lines if line.startswith(f"{event} "))

    def at_work(self, process: int) -> set[str]:
        """The questions whose slots this replica has begun, but not finished."""
        return set(self.noted("began", process) - self.noted("done", process))

    def sampled(self) -> dict[int, set[str]]:
        """The questions whose slots reached an engine, for each replica, alive or dead."""
        return {int(file.name): set(self.noted("began", int(file.name))) for file in self.journal.iterdir()}

    def kill_a_replica(self) -> None:
        """Kill a replica that is at work."""
        victim = min(self.alive())
        deadline = time.monotonic() + 60
        while True:
            os.kill(victim, signal.SIGSTOP)  # so that it is still at work when it is killed
            if self.at_work(victim):
                break
            os.kill(victim, signal.SIGCONT)
            assert time.monotonic() < deadline, "the replica has nothing to do"
            time.sleep(0.02)
        os.kill(victim, signal.SIGKILL)

    def remove_a_node(self) -> None:
        self.program.stdin.write("remove\n")
        self.program.stdin.flush()
        assert self.hear() == "removed"

    def hear(self) -> str:
        """The next line that the program prints."""
        assert select.select([self.program.stdout], [], [], 180)[0], "the cluster prints nothing"
        return self.program.stdout.readline().strip()


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    journal = folder / "journal"
    journal.mkdir()
    url = f"sqlite:///{folder}/scale.sqlite"
    records = make_records(folder, url)
    plan = PLAN.replace("answers: 20", f"answers: {ANSWERS}")
    sign(records, calibrate_plan(load_plan(plan), public_size=60), "test")
    _, token = records.keys.create("load", "analyst")
    (port,) = free_ports(1)
    # Ten prompts of 0.25 s at once: two queries keep a replica busy, and there is always one in flight to lose.
    simulation = {"latency_s": 0.25, "concurrency": 10, "journal": str(journal)}
    url_of_service, authorised = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {token}"}
    with (
        tempfile.TemporaryDirectory(prefix="ray") as session,  # its own: sockets need short paths
        (folder / "cluster.log").open("w") as log,
        httpx.Client(base_url=url_of_service, headers=authorised, timeout=60) as client,
    ):
        own = {"RAY_TMPDIR": session, "DPICL_DATABASE_URL": url, "DPICL_DEVELOPMENT": "true"}
        program = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("cluster.py")), str(port), json.dumps(simulation)],
            env={**os.environ, **own, "DPICL_QUERY_TIMEOUT_S": "15"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        service = Running(client, records, journal, program)
        try:
            assert service.hear() == "ready", Path(log.name).read_text()[-5000:]
            yield service
        finally:
            program.stdin.close()
            try:
                program.wait(60)
            finally:
                program.kill()
                records.database.dispose()
        assert wait_for(lambda: not processes_of(url), 30), "every process is gone"


def processes_of(database_url: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("DPICL_DATABASE_URL") == database_url:
                found.append(process.pid)
    return found


def during(service: Running, event: Callable[[], None]) -> list[Asked]:
    """Ask from several clients, cause an event after a quarter of the answers, and ask until one more is answered."""
    answered = threading.Semaphore(0)

    def ask(_: int) -> Asked:
        asked = service.ask()
        if asked.status == 200:
            answered.release()
        return asked

    with ThreadPoolExecutor(CLIENTS) as pool:
        load = pool.map(ask, range(QUESTIONS))
        for _ in range(QUESTIONS // 4):
            assert answered.acquire(timeout=60)
        event()
        asked = list(load)
    deadline = time.monotonic() + 45
    asked.append(service.ask())
    while asked[-1].status != 200:
        assert time.monotonic() < deadline, f"no answer since: {asked[-1]}"
        time.sleep(0.2)
        asked.append(service.ask())
    return asked


def use_up(service: Running) -> list[Asked]:
    """Ask from several clients until no client gets an answer."""

    def ask_on(_: int) -> list[Asked]:
        asked = [service.ask()]
        while asked[-1].status != 402:
            assert len(asked) <= ANSWERS
            asked.append(service.ask())
        return asked

    with ThreadPoolExecutor(CLIENTS) as pool:
        asked = [one for client in pool.map(ask_on, range(CLIENTS)) for one in client]
    return [*asked, *ask_on(0)]  # a question is refused while another is in flight, whose charge may then be voided


@pytest.mark.lengthy
def test_a_replica_and_a_node_die_under_load(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        first = service.alive()
        assert len(first) == 3
        asked = during(service, service.kill_a_replica)
        (killed,) = first - service.alive()
        assert service.at_work(killed), "no question lost its engine between the probe and its slots"
        assert wait_for(lambda: len(service.alive()) == 3, 90), "the replica is replaced"

        before = service.alive()
        asked += during(service, service.remove_a_node)
        # A worker has room for two, and there is one worker left.
        assert wait_for(lambda: len(service.alive()) == 2, 90), "two replicas are left"
        assert before - service.alive(), "the node's replicas died with it"
        asked += use_up(service)
        sampled = service.sampled()
        assert all(sampled[replica] for replica in first | service.alive()), "they share the load"

        assert {one.status for one in asked} <= {200, 402, 503}
        answers = {one.release for one in asked if one.status == 200}
        refused = [one for one in asked if one.status == 503]
        # Nothing fails after the sample, whichever engine dies: otherwise a failure would depend on private data.
        # The service's own measurements ask other questions, which do not count.
        asked_for = {question for question in set().union(*sampled.values()) if question.startswith("toy ")}
        assert asked_for == {one.question for one in asked if one.status == 200}
        with service.records.database.connect() as connection:
            assert violations(connection) == []
            paid = sa.select(releases.c.id).join(charges).where(charges.c.state == "released")
            states = Counter(connection.execute(sa.select(charges.c.state)).scalars())
            assert set(connection.execute(paid).scalars()) == answers
        # Every answer of the plan was given; what failed was voided, or not charged, and nothing is pending or lost.
        assert states == Counter(released=ANSWERS, voided=states["voided"])
        assert states["voided"] <= len(refused)
