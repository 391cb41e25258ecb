"""``make demo``, as a newcomer sees it: one screen, on a real service, which KEEP=1 leaves running."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from tests.documented import reader

pytestmark = [pytest.mark.lengthy, pytest.mark.service]

ROOT = Path(__file__).parents[2]
ORDER = (
    "A private knowledge base",
    "A plan spends ε = 3",
    "The service on nearest_exemplar",
    "Which team answers a ticket?",
    "What do the staff reply?",
    "The same question again costs nothing",
    "One topic is used up while others go on",
    "What is left",
    "The service goes on running",
    "Stopped cleanly",
)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The demo's output with few of its tickets. While it is kept running, its key opens the dashboard."""
    log = tmp_path_factory.mktemp("demo") / "output.txt"
    command = [sys.executable, "-m", "examples.demo", "--tickets", "900", "--questions", "6", "--keep"]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, cwd=ROOT, env=reader(), stdout=sink, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 500
        while "dpicl ask support.team" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.5)
        printed = log.read_text()
        url = re.search(r"dashboard +(http://\S+)/admin/", printed).group(1)
        admin = re.search(r"its key +(\S+)", printed).group(1)
        assert httpx.get(f"{url}/admin/", follow_redirects=True, timeout=30).status_code == 200
        signed_in = {"Authorization": f"Bearer {admin}"}
        assert httpx.get(f"{url}/v1/keys", headers=signed_in, timeout=30).status_code == 200
        service = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 0, log.read_text()
        assert not any(child.is_running() for child in service)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=120)
    return log.read_text()


def test_it_is_one_screen(seen: str) -> None:
    lines = seen.splitlines()
    assert len(lines) <= 80  # eight of them because it is kept running
    assert max(map(len, lines)) <= 80
    assert not re.search(r"[{}│]|too noisy|Traceback", seen)
    first = next(number for number, line in enumerate(lines) if "with the tickets" in line)
    assert first < 30


def test_it_goes_from_what_it_is_to_what_is_left(seen: str) -> None:
    places = [seen.index(f"── {heading}") for heading in ORDER]
    assert places == sorted(places)


def test_what_it_counts_adds_up(seen: str) -> None:
    without, of = map(int, re.search(r"Right: (\d+) of (\d+) without the tickets; with them", seen).groups())
    assert of == 6
    assert 0 <= without <= of
    right = {by: int(count) for count, by in re.findall(r"(\d) of 6 by (the slots' votes|the one-time|both)", seen)}
    assert min(right["the one-time"], right["both"]) >= 4  # with a tenth of the tickets
    assert right.keys() == {"the slots' votes", "the one-time", "both"}
    assert re.search(r"40 slots are asked in parallel, in [\d.]+ s", seen)
    assert "(charged 0)" in seen
    assert re.search(r"team +[█░]{30}  24 of 30 answers", seen)
    assert re.search(r"reply +[█░]{30}  1 of 6 answers", seen)
    assert re.search(r"Moss Mini +answers exhausted\n", seen)
    assert re.search(r"by_product +[█░]{30}  2 of 4 answers", seen)
    assert re.search(r"ε +[█░]{30}  5 of 8 for further plans", seen)
