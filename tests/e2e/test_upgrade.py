"""A new cluster takes over from an old one on the same ledger, while clients go on asking."""

from __future__ import annotations

import base64
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import sqlalchemy as sa

from accounting.ledger.trail import AuditTrail
from accounting.replay.books import violations
from accounting.replay.trail import verify
from service.records.database import open_database
from service.records.schema import migrate, revision
from tests.documented import DOCS, blocks
from tests.e2e.serving import dpicl, opened, prepared, started
from tests.service.records.test_rolling_migration import ADDS, NEXT, next_version

QUESTIONS = 30
"""Of each client; then it asks them again, for free."""


class Switch:
    """Leads each connection to the port that is set when it comes in, as KubeRay's Service leads to one cluster."""

    def __init__(self, port: int) -> None:
        self.to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._lead, args=(near, self.to), daemon=True).start()

    def _lead(self, near: socket.socket, to: int) -> None:
        with near, socket.create_connection(("127.0.0.1", to)) as far:
            back = threading.Thread(target=self._pass_on, args=(far, near), daemon=True)
            back.start()
            self._pass_on(near, far)
            back.join()

    @staticmethod
    def _pass_on(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.close()


class Client:
    """Asks one question after the other through the switch, each on a connection of its own."""

    def __init__(self, name: str, url: str, key: str) -> None:
        self.name = name
        self.answers: list[httpx.Response] = []
        self.asked: set[str] = set()
        self.enough = threading.Event()
        self._url, self._key = url, key

    def run(self) -> None:
        while not self.enough.wait(0.2):
            question = f"{self.name} asks question {len(self.answers) % QUESTIONS}"
            self.asked.add(question)
            self.answers.append(ask(self._url, self._key, question))

    def after(self, more: int, within_s: float = 300) -> None:
        """Wait until it was answered so many times more."""
        until, deadline = len(self.answers) + more, time.monotonic() + within_s
        while len(self.answers) < until:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def ask(url: str, key: str, question: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}", "Connection": "close"}
    return httpx.post(f"{url}/v1/tasks/support.team/answers", json={"query": question}, headers=headers, timeout=300)


@contextmanager
def typed(page: Path, folder: Path, environment: dict[str, str], old: int, port: int) -> Iterator[Callable[[], None]]:
    """The page's commands, in a shell, up to ``switch``; calling what is yielded switches, and so on."""
    (commands,) = blocks(page, "bash")
    switch = "switch() { touch ready; until [ -e go ]; do sleep 0.1; done; }\ntrap 'kill -TERM \"$NEW\"; wait' EXIT\n"
    script = switch + commands.replace("8124", str(port)) + "touch done\nread -r _\n"
    with (folder / "shell.log").open("wb") as sink:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env=environment | {"OLD": str(old)},
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )

    def until(name: str) -> None:
        while not (folder / name).exists():
            assert shell.poll() is None, (folder / "shell.log").read_text()
            time.sleep(0.1)

    def go_on() -> None:
        (folder / "go").touch()
        until("done")

    try:
        until("ready")
        yield go_on
    finally:
        assert shell.stdin is not None
        shell.stdin.close()
        shell.wait(300)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_no_question_fails_and_none_is_charged_twice(new_postgres: Callable[[], str], tmp_path: Path) -> None:
    url = new_postgres()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "DPICL_DATABASE_URL": url,
        "DPICL_WITNESS_URL": new_postgres(),
        "DPICL_ENCRYPTION_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        "DPICL_LATENCY_GRAIN_MS": "4000",
        "DPICL_MIGRATE": "never",
    }
    folders = [tmp_path / name for name in ("old", "new")]
    for folder in folders:
        folder.mkdir()
    dpicl(environment, "migrate")
    database = open_database(url)
    with ThreadPoolExecutor(16) as pool:
        preparing = pool.submit(prepared, environment, "plan.yaml")  # while the old cluster starts
        with started(folders[0], environment) as (old, _, old_process):
            key = preparing.result()
            with opened(environment) as records:
                _, direct = records.keys.create("direct", "analyst")
            switch = Switch(httpx.URL(old).port or 0)
            clients = [Client(name, switch.url, key) for name in ("Ana", "Bo")]
            asking = [pool.submit(client.run) for client in clients]
            try:
                clients[0].after(2)
                # The next version's migration; what starts next is this version, as if it were gone back to.
                assert migrate(database, next_version(tmp_path, ADDS))[1] == NEXT
                port = free_port()
                with typed(DOCS / "upgrading.md", folders[1], environment, old_process.pid, port) as go_on:
                    both = (old, f"http://127.0.0.1:{port}")
                    twins = list(pool.map(lambda where: ask(where, key, "Both of us ask this."), both))
                    assert len({twin.json()["id"] for twin in twins}) == 1
                    assert sorted(twin.json()["cost"]["charged"] for twin in twins) == [0, 1]

                    switch.to = port
                    late = [pool.submit(ask, old, direct, f"Late question {i}") for i in range(6)]
                    until_charged(database, len(late))
                    go_on()
                    assert old_process.wait(300) == 0
                    assert [answer.result().status_code for answer in late] == [200] * len(late)
                    for client in clients:
                        client.after(3)
                    for client in clients:
                        client.enough.set()
                    for one in asking:
                        one.result(300)
            finally:
                for client in clients:
                    client.enough.set()
                switch.close()

    answers = [answer for client in clients for answer in client.answers]
    assert {answer.status_code for answer in answers} == {200}
    asked = set.union(*(client.asked for client in clients))
    assert len({answer.json()["id"] for answer in answers}) == len(asked)
    assert sum(answer.json()["cost"]["charged"] for answer in answers) == len(asked)
    assert revision(database) == NEXT
    with database.connect() as connection:
        assert violations(connection) == []
        states = connection.execute(sa.text("SELECT state, count(*) FROM charges GROUP BY state")).all()
    made_at_signing = 1
    assert [tuple(row) for row in states] == [("released", len(asked) + len(late) + 1 + made_at_signing)]
    report = verify(AuditTrail(database).export(), recompute=False)
    assert report.problems == []
    database.dispose()


def until_charged(database: sa.Engine, number: int) -> None:
    """Wait until the key ``direct`` has so many charges; an answer leaves half a grain after its charge, or later."""
    query = sa.text(
        "SELECT count(*) FROM charges JOIN api_keys ON api_keys.id = charges.key_id WHERE api_keys.name = 'direct'"
    )
    deadline = time.monotonic() + 300
    while True:
        with database.connect() as connection:
            if connection.execute(query).scalar() == number:
                return
        assert time.monotonic() < deadline
        time.sleep(0.02)
