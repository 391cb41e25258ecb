"""``make demo`` finds an engine that runs here before it installs anything."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples import engine_here

GIB_KB = 1024 * 1024
ROOT = Path(__file__).parents[2]


def machine(root: Path, *, flags: str = "sse2 avx2 fma f16c", free_gib: float = 16, limit: str | None = None) -> Path:
    """The files that describe a machine."""
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(f"processor\t: 0\nmodel name\t: a processor\nflags\t\t: {flags}\n")
    memory = f"MemTotal: {64 * GIB_KB} kB\nMemAvailable:   {round(free_gib * GIB_KB)} kB\n"
    (root / "proc/meminfo").write_text(memory)
    if limit is not None:
        (root / "sys/fs/cgroup").mkdir(parents=True)
        (root / "sys/fs/cgroup/memory.max").write_text(f"{limit}\n")
    return root


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({}, ""),
        ({"limit": "max"}, ""),
        ({"limit": str(8 * 2**30)}, ""),
        ({"flags": "sse2 avx2 fma f16c avx512f amx_bf16"}, ""),
        ({"flags": "sse2 avx fma"}, "lacks avx2, f16c"),
        ({"flags": "avx2_like fma f16c"}, "lacks avx2"),
        ({"free_gib": 4.5}, "4.5 are"),
        ({"limit": str(2 * 2**30)}, "2.0 are"),
    ],
)
def test_what_a_machine_lacks_is_named(made: dict[str, str], why: str, tmp_path: Path) -> None:
    found = engine_here.obstacle(machine(tmp_path, **made))
    assert (bool(found), found.endswith(why)) == (bool(why), True)


def test_other_platforms_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert "not linux on aarch64" in engine_here.obstacle(machine(tmp_path))


@pytest.mark.parametrize("library", ["glibc 2.17", "musl", None])
def test_other_c_libraries_are_named(library: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.confstr", lambda _: library)
    assert "glibc 2.28" in engine_here.obstacle(machine(tmp_path))


def test_it_needs_nothing_but_the_standard_library() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", engine_here.__file__], capture_output=True, text=True, check=True
    )
    assert done.stdout in ("vllm\n", "nearest_exemplar\n")
    assert (done.stdout == "vllm\n") == (done.stderr == "")


@pytest.mark.parametrize(
    ("machine_says", "chosen", "runs"),
    [
        ("vllm", (), "--engine vllm"),
        ("nearest_exemplar", (), "--engine nearest_exemplar"),
        ("", ("ENGINE=vllm", "MODEL=some/model"), "--engine vllm --started [0-9]+ --model some/model"),
        ("", ("MODEL=some/model",), "--engine vllm --started [0-9]+ --model some/model"),
        ("", ("ENGINE=nearest_exemplar",), "--engine nearest_exemplar"),
    ],
)
def test_the_demo_takes_the_engine_that_runs_here_by_default(
    machine_says: str, chosen: tuple[str, ...], runs: str, tmp_path: Path
) -> None:
    """Make runs nothing but the script that examines the machine, here replaced by one that prints the engine."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {machine_says}\n")
    python.chmod(0o755)
    make = ["make", "-n", "demo", f"PYTHON={python}", *chosen]
    told = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.search(f"examples.demo {runs}", told), told
