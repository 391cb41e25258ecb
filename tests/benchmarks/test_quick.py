"""Benchmarks still run: ``--quick`` ends well, prints its figures, and leaves no process behind.

The figures themselves are not judged: that takes an idle machine and the whole benchmark.
"""

import ctypes
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
PR_SET_CHILD_SUBREAPER = 36
# Far more time than any benchmark takes on an idle machine.
PATIENCE_S = 900
N = r"([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)"
# The output of each benchmark; every group is a figure. A new benchmark needs an entry here.
PRINTS = {
    "adaptive_gain": [rf"^ *{N} +{N} +{N} +{N} +{N} \({N}%\) +{N} \({N}%\) +{N}$"],
    "arrivals": [
        rf"^ +12 +4 +2, 3, 4, 5 +{N} +{N} +{N} +{N} ± {N} %$",
        rf"{N} in all\nthe ledger: {N} answers charged$",
    ],
    "budget_comparison": [
        rf"keyword_joint_em:.*\n\n\| answers .*\n.*\n\| {N} \| {N} (?:\| {N} ){{5}}\| {N} \| {N} \| {N} \|$",
        rf"keyword_ptr:.*\n\n\| answers .*\n.*\n\| {N} \| {N} (?:\| {N}, {N} ){{5}}\| {N} \| {N} \| {N} \|$",
    ],
    "calibration": [rf"four mechanisms by pld: +{N} s, epsilon {N} of", rf"ratio of times: +{N}$"],
    "ingest": [
        rf"1 threads, one at a time: +{N} rows/s, +{N} ms .*, 1.00 times as fast$",
        rf"1 threads, in batches: +{N} rows/s, +{N} ms .*, {N} times as fast$",
        rf"bounded texts: {N} s of processor time; \d+ times no text: {N} s",
    ],
    "joint_em": [rf"^ *{N} +(?:select|release) +{N} +{N} +{N} +{N} +{N}$"],
    "overhead": [rf"^baseline: two durable commits +{N} +{N} +1\.00$", rf"^an answer, .* +{N} +{N} +{N}$"],
    "sampling": [rf"drawn, {kind}\n.*ratio\n.*\n *{N} +{N} +{N} +{N} +{N} +{N}$" for kind in ("warm", "cold")],
    "sanitizing": [
        rf"medoid_rr of {N} words: built in {N} s \({N} s of the processor\), {N} GB of memory, {N} MB$",
        rf"^cold start from what is kept: {N} s, the process {N} s of the processor in all$",
        rf"^medoid_rr +{N} +{N}$",
        *(rf"^{name} +{N} +{N} +{N} +{N}$" for name in ("santext", "custext", "rantext", "cape")),
    ],
}

BY_HAND = {
    "fan_out",
    "isolation",
    "latency_attack",
    "load",
    "million",
    "prefix_cache",
    "references",
    "routing",
    "scale_out",
    "side_by_side",
    "startup",
    "steering",
}
"""Not run here: even the quick run of each takes a minute or more of two idle cores (`make bench ARGS=--quick`)."""


@pytest.fixture
def left_behind() -> Iterator[set[psutil.Process]]:
    """Processes that outlive their parents, daemons too, become children of this one; yields the earlier children."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())
    before = set(psutil.Process().children(recursive=True))
    yield before
    for process in set(psutil.Process().children(recursive=True)) - before:
        process.kill()
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def survivors(before: set[psutil.Process]) -> list[str]:
    """Command lines of the processes that still run after half a minute."""
    _, alive = psutil.wait_procs(set(psutil.Process().children(recursive=True)) - before, timeout=30)
    return [" ".join(process.cmdline()) for process in alive]


def benchmarks() -> list[str]:
    scripts = sorted((ROOT / "benchmarks").glob("*.py"))
    return [script.stem for script in scripts if "__main__" in script.read_text(encoding="utf-8")]


@pytest.mark.lengthy
@pytest.mark.parametrize("name", PRINTS)
def test_a_quick_run_prints_its_figures(name: str, left_behind: set[psutil.Process], tmp_path: Path) -> None:
    output = tmp_path / "output"
    with output.open("wb") as file:
        command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), "--quick"]
        # The width and colours of a terminal are not tested.
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment, timeout=PATIENCE_S)
    text = output.read_text(encoding="utf-8")
    assert done.returncode == 0, text[-4000:]
    for pattern in PRINTS[name]:
        found = re.search(pattern, text, re.MULTILINE)
        assert found, f"{pattern}\nis not in\n{text[-4000:]}"
        assert all(math.isfinite(float(figure.replace(",", ""))) for figure in found.groups())
    assert not survivors(left_behind)


def test_every_benchmark_is_known() -> None:
    assert set(benchmarks()) == PRINTS.keys() | BY_HAND


def test_a_daemon_is_noticed(left_behind: set[psutil.Process]) -> None:
    """A grandchild in a session of its own, as Ray's and PostgreSQL's processes are."""
    sleep = "subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=subprocess.DEVNULL)"
    pid = int(subprocess.check_output([sys.executable, "-c", f"import subprocess; print({sleep}.pid)"]))
    assert {process.pid for process in set(psutil.Process().children(recursive=True)) - left_behind} == {pid}
