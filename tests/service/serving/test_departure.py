"""A pod's departure waits for real processes that hold the node's lock, and for other nodes by Ray's own store."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.gateway.api.problems import Problem
from service.serving import departure
from service.serving.departure import WorkInHand, depart
from service.serving.doors import NodesDoors

_AT_WORK = """
import sys, time
from pathlib import Path
from service.serving.departure import WorkInHand
with WorkInHand(Path(sys.argv[1])).piece():
    print("begun", flush=True)
    sys.stdin.read()
"""


class Others:
    """Departures of other nodes; stands for Ray's store, which ``tests/cluster`` uses."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.gone = threading.Event()
        self.gone.set()

    def announce(self, within_s: float) -> None:
        self.events.append("announced")

    def end(self) -> None:
        self.events.append("ended")

    def any(self) -> bool:
        return not self.gone.is_set()


class Departing(threading.Thread):
    """A departure in a thread of its own."""

    def __init__(self, part: departure.Part, folder: Path, others: Others, most_s: float = 60.0) -> None:
        super().__init__()
        self._call = lambda: depart(part, folder, others, most_s=most_s)  # type: ignore[arg-type]
        self.start()

    def run(self) -> None:
        self._call()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departure, "LEAVES_SERVICE_WITHIN_S", 0.0)
    monkeypatch.setattr(departure, "_OTHERS_BEGIN_WITHIN_S", 0.0)


@contextmanager
def at_work(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process of the node, with work in hand."""
    with subprocess.Popen(
        [sys.executable, "-c", _AT_WORK, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process


def test_a_pod_at_rest_goes_at_once(tmp_path: Path) -> None:
    others = Others()
    depart("service", tmp_path, others)  # type: ignore[arg-type]
    assert others.events == ["announced", "ended"]


@pytest.mark.parametrize("part", ["service", "engine"])
@pytest.mark.parametrize("end", ["work done", "killed"])
def test_it_waits_for_the_work_of_other_processes(part: departure.Part, end: str, tmp_path: Path) -> None:
    with at_work(tmp_path) as process:
        departing = Departing(part, tmp_path, Others())
        departing.join(1.0)
        assert departing.is_alive()
        if end == "killed":
            process.kill()
        else:
            assert process.stdin is not None
            process.stdin.close()
        departing.join(30)
        assert not departing.is_alive()


def test_it_has_an_end_in_any_case(tmp_path: Path) -> None:
    with at_work(tmp_path) as process:
        depart("service", tmp_path, Others(), most_s=0.5)  # type: ignore[arg-type]
        assert process.poll() is None
        process.kill()


@pytest.mark.parametrize("part", ["engine", "head"])
def test_an_engine_and_the_head_go_after_the_service(part: departure.Part, tmp_path: Path) -> None:
    others = Others()
    others.gone.clear()
    departing = Departing(part, tmp_path, others)
    departing.join(1.0)
    assert departing.is_alive()
    others.gone.set()
    departing.join(30)
    assert not departing.is_alive()


def test_the_head_does_not_wait_for_work_of_its_node(tmp_path: Path) -> None:
    with at_work(tmp_path) as process:
        depart("head", tmp_path, Others())  # type: ignore[arg-type]
        process.kill()


def test_doors_close_when_the_node_is_about_to_go(tmp_path: Path) -> None:
    doors = NodesDoors(10, WorkInHand(tmp_path))
    with doors.enter("/v1/tasks"), doors.enter("/v1/tasks"):
        departing = Departing("service", tmp_path, Others())
        until = time.monotonic() + 30
        while not doors.closed:
            assert time.monotonic() < until
            time.sleep(0.01)
        with pytest.raises(Problem, match="about to stop"), doors.enter("/v1/tasks"):
            pass
        with doors.enter("/healthz"):
            pass
        departing.join(0.5)
        assert departing.is_alive()
    departing.join(30)
    assert not departing.is_alive()


def test_a_head_that_does_not_answer_does_not_end_a_departure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Dead(Others):
        def announce(self, within_s: float) -> None:
            raise ConnectionError("no route")

    with at_work(tmp_path) as process:
        departing = Departing("service", tmp_path, Dead())
        departing.join(1.0)
        assert departing.is_alive()
        process.kill()
        departing.join(30)
    assert "the head does not answer: no route" in capsys.readouterr().err


def test_other_parts_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "service.serving.departure", "door"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "service|engine|head" in done.stderr
