"""The errors of `dpicl serve` where it cannot start: a port that is taken, a machine too busy for Ray."""

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from service.serving.local_ray import NotStartedError, claimed
from tests.service.shell import Shell

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
from service.serving import local_ray
from service.cli import main
local_ray.START_WITHIN_S = 1.0
sys.argv = ["dpicl", "serve", "--port", sys.argv[1]]
main()
"""


@contextmanager
def listening(address: str) -> Iterator[int]:
    """A port where a server listens as Serve's proxy does: other servers may share it."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind((address, 0))
        server.listen()
        yield server.getsockname()[1]


def serve_without_raylet(port: int, folder: Path) -> tuple[int, str, list[psutil.Process]]:
    """Run `dpicl serve` where Ray has little time to start; return its exit status, errors and processes left over."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(port)],
        env={
            **os.environ,
            "DPICL_DATABASE_URL": f"sqlite:///{folder}/none.sqlite",
            "DPICL_DEVELOPMENT": "true",
            "TEST_MARK": mark,
        },
        cwd=Path(__file__).parents[3],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        raylets: list[psutil.Process] = []
        while not raylets and process.poll() is None:
            time.sleep(0.01)
            raylets = [child for child in psutil.Process(process.pid).children() if child.name() == "raylet"]
        for raylet in raylets:
            raylet.suspend()  # as on a machine that has no time for it
        _, said = process.communicate(timeout=90)
    finally:
        process.kill()
    return process.returncode, said, [process for process in psutil.process_iter() if _marked(process, mark)]


def _marked(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("TEST_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@pytest.mark.parametrize("theirs", ["127.0.0.1", "0.0.0.0"])  # noqa: S104
@pytest.mark.parametrize("ours", ["127.0.0.1", "0.0.0.0", "localhost"])  # noqa: S104
def test_a_port_where_a_server_listens_is_refused(theirs, ours):
    taken = r"port \d+ .* taken.*--port"
    with listening(theirs) as port, pytest.raises(NotStartedError, match=taken), claimed(ours, port):
        pytest.fail("claimed")
    with claimed(ours, port):
        pass


def test_connections_that_a_service_left_behind_take_no_port():
    with listening("127.0.0.1") as port:
        pass
    with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)) as client:
        connection, _ = server.accept()
        connection.close()  # the first to close keeps the port for a while
        client.recv(1)
    with socket.socket() as strict, pytest.raises(OSError, match="in use"):
        strict.bind(("127.0.0.1", port))
    with claimed("127.0.0.1", port):
        pass


def test_a_second_service_on_a_port_is_refused_before_anything_starts(dpicl: Shell, tmp_path: Path) -> None:
    with listening("127.0.0.1") as port:
        assert f"port {port} of 127.0.0.1 is taken" in dpicl.fails("serve", "--port", port)
    assert not list(tmp_path.iterdir())


def test_a_second_service_is_refused_while_the_first_does_not_listen_yet(dpicl: Shell, tmp_path: Path) -> None:
    with listening("127.0.0.1") as port:
        pass
    with claimed("127.0.0.1", port):
        assert f"port {port} of 127.0.0.1 is taken" in dpicl.fails("serve", "--port", port)
    assert not list(tmp_path.iterdir())


@pytest.mark.lengthy
def test_a_ray_that_does_not_start_is_reported_in_one_line(tmp_path):
    with listening("127.0.0.1") as port:
        pass
    status, said, left = serve_without_raylet(port, tmp_path)
    assert status == 1, said
    assert "Ray did not start" in " ".join(said.split())
    assert "Traceback" not in said
    for process in left:  # the kernel ends them with their parent
        process.wait(20)


@pytest.mark.parametrize(
    ("settings", "refused"),
    [({}, False), ({"RAY_SERVE_USE_GRPC_BY_DEFAULT": "1"}, True)],
    ids=["as Ray is", "with gRPC's own limit"],  # as set here is how services start in tests/e2e
)
def test_a_limit_on_messages_that_would_reveal_exemplars_is_refused(settings: dict[str, str], refused: bool) -> None:
    elsewhere = {name: value for name, value in os.environ.items() if not name.startswith("RAY_SERVE")}
    done = subprocess.run(
        [sys.executable, "-c", "from service.serving.local_ray import require_whole_messages as check; check()"],
        env=elsewhere | settings,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert bool(done.returncode) is refused, done.stderr
    if refused:
        assert f"set RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH={2**31 - 1} on every node" in done.stderr
