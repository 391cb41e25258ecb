"""The engine that `make demo` takes on this machine: prints `vllm`, or `nearest_exemplar` and the reason.

It runs before anything is installed, so it needs the standard library alone.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

GIB = 2**30
MEMORY_GIB = 6
"""Memory of the service with SmolLM2, Ray and the cache of 2 GiB."""
FLAGS = ("avx2", "fma", "f16c")
"""Flags of the processor that the smallest kernels of vLLM's CPU build need."""
GLIBC = (2, 28)
"""Version that the CPU build of PyTorch needs."""


def obstacle(root: Path = Path("/")) -> str:
    """The reason why vLLM's CPU build cannot run here; empty if it can.

    Args:
        root: folder that holds ``proc`` and ``sys``.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"its CPU build is for Linux on x86-64, not {sys.platform} on {platform.machine()}"
    library, version = _libc()
    if library != "glibc" or version < GLIBC:
        return "its CPU build needs glibc {}.{}".format(*GLIBC)
    known = _first_line(root / "proc/cpuinfo", "flags").split()
    if missing := [flag for flag in FLAGS if flag not in known]:
        return f"the processor lacks {', '.join(missing)}"
    if (memory := _memory(root)) < MEMORY_GIB * GIB:
        return f"it needs {MEMORY_GIB} GiB of free memory, and {memory / GIB:.1f} are"
    return ""


def _libc() -> tuple[str, tuple[int, ...]]:
    try:
        library, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (OSError, ValueError):  # another C library knows no such name
        return "", ()
    return library, tuple(map(int, version.split(".")))


def _memory(root: Path) -> int:
    """Bytes that are free, or that the container may take where that is less."""
    free = 1024 * int(_first_line(root / "proc/meminfo", "MemAvailable").split()[0])
    for file in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = (root / file).read_text().strip() if (root / file).is_file() else "max"
        free = min(free, int(limit) if limit != "max" else free)
    return free


def _first_line(file: Path, name: str) -> str:
    """The value after a name and a colon in a file of ``/proc``."""
    with file.open() as lines:
        return next((line.partition(":")[2] for line in lines if line.partition(":")[0].strip() == name), "0")


if __name__ == "__main__":
    if why := obstacle():
        print(f"No language model here, since vLLM cannot run: {why}. ENGINE=vllm tries it anyway.", file=sys.stderr)
    print("nearest_exemplar" if why else "vllm")
