"""The errors of `dpicl serve` where it cannot start: a port that is taken, a machine too busy for Ray."""

import errno
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from service.cli.serve import DEFAULT_CONFIG
from service.engines.configs import VllmConfig
from service.engines.factory import NotHereError, require_here
from service.serving.local_ray import NotStartedError, claimed, require_room
from tests.service.shell import Shell

pytestmark = pytest.mark.slow

SHARED = "/dev/shm"  # noqa: S108
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
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
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


@pytest.mark.parametrize("port", [0, 65536])
def test_a_port_that_a_config_cannot_have_is_refused(port: int, dpicl: Shell, tmp_path: Path):
    config = tmp_path / "serve.yaml"
    config.write_text(DEFAULT_CONFIG.read_text().replace("port: 8080", f"port: {port}"))
    assert f"port {port} cannot be listened at" in dpicl.fails("serve", "--config", config)


def test_an_address_of_ip_6_may_have_brackets(dpicl: Shell):
    with listening("::1") as port:
        assert f"port {port} of ::1 is taken" in dpicl.fails("serve", "--host", "[::1]", "--port", port)


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


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "a" * 300])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(NotStartedError, match=r"is not an address of this machine.*--host"), claimed(host, 9):
        pytest.fail("claimed")


def test_a_port_that_this_process_may_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: socket.socket, _address: object) -> None:  # the tests may run as root
        raise PermissionError(errno.EACCES, "Permission denied")

    class Restricted(socket.socket):
        bind = refuse

    monkeypatch.setattr(socket, "socket", Restricted)
    with pytest.raises(NotStartedError, match=r"port 80 needs rights.*--port"), claimed("127.0.0.1", 80):
        pytest.fail("claimed")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a short path, which Ray is to use."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="r") as folder:
        monkeypatch.delenv("TMPDIR", raising=False)
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield Path(folder)


def test_a_machine_with_room_is_taken(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_room()
    (short / "ray").mkdir()
    require_room()
    monkeypatch.delenv("RAY_TMPDIR")
    require_room()


@pytest.mark.parametrize("variable", ["RAY_TMPDIR", "TMPDIR"])
@pytest.mark.parametrize("letter", ["x", "\N{LATIN SMALL LETTER E WITH ACUTE}"])
def test_a_folder_too_long_for_rays_sockets_is_refused(short: Path, monkeypatch, variable: str, letter: str) -> None:
    """As long as Ray itself takes it: the name of its longest socket is checked by Ray's own function."""
    socket_name = f"/ray/session_2026-01-01_00-00-00_000000_{os.getpid()}/sockets/plasma_store"
    room = 107 - len(socket_name) - len(f"{short}/")
    monkeypatch.delenv("RAY_TMPDIR")
    for length in (room, room + 1):
        folder = short / (letter * (length // len(letter.encode()))).ljust(length - length // 2 * (letter != "x"), "x")
        assert len(os.fsencode(folder)) == len(f"{short}/") + length
        folder.mkdir()
        monkeypatch.setenv(variable, f"{folder}/")
        if length == room:
            require_room()
        else:
            with pytest.raises(NotStartedError, match=f"^{variable}=.* bytes.*RAY_TMPDIR to another folder"):
                require_room()


def test_a_folder_that_cannot_be_used_is_refused(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for where, reason in {
        "ray": "is not an absolute path",
        "": "is not an absolute path",
        f"{short}/none": "is not a folder that exists",
        "/dev/null": "is not a folder that exists",
        "/proc": "cannot be written to",
    }.items():
        monkeypatch.setenv("RAY_TMPDIR", where)
        with pytest.raises(NotStartedError, match=f"^RAY_TMPDIR={where} {reason}"):
            require_room()
    (short / "ray").touch()
    monkeypatch.setenv("RAY_TMPDIR", str(short))
    with pytest.raises(NotStartedError, match=r"cannot be written to .Not a directory"):
        require_room()


def test_too_little_room_is_refused(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotStartedError, match=r"none has less than 256 MiB free.*--shm-size"):
        require_room(short / "none")
    usage = shutil.disk_usage
    for full, reason in ((SHARED, f"{SHARED} has less than 256 MiB"), (str(short), "128 MiB free: make room, or set")):
        monkeypatch.setattr(
            shutil, "disk_usage", lambda path, full=full: usage(path)._replace(free=1 if str(path) == full else 1 << 40)
        )
        with pytest.raises(NotStartedError, match=reason):
            require_room()


def test_serve_refuses_a_long_folder_before_anything_starts(dpicl: Shell, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("x" * 100)))
    assert dpicl.fails("serve", "--synthetic").startswith("error: RAY_TMPDIR=")
    assert not list(tmp_path.iterdir())


def test_a_folder_too_long_for_vllms_sockets_is_refused(tmp_path: Path, monkeypatch) -> None:
    model = VllmConfig(name="vllm", model=str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    require_here(model)
    monkeypatch.setattr(tempfile, "tempdir", "/" + "x" * 70)
    with pytest.raises(NotHereError, match="TMPDIR"):
        require_here(model)
