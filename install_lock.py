"""Install what a lock pins into the environment of this Python: `python install_lock.py requirements.lock`.

PyTorch has two builds. PyPI has CUDA's alone, which also runs without a GPU, but not without NVIDIA's libraries. Where
pip finds the CPU build, in an index or a folder of wheels that it is configured for, it takes the place of both. It has
a lock of its own: in hash mode pip prefers a file whose hash an index advertises to any other version, and the files of
a folder advertise none.
"""

import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

CUDA = re.compile(r"torch\b|cuda-|nvidia-")
CPU_BUILD = Path(__file__).with_name("requirements-torch-cpu.lock")
PIP = [sys.executable, "-m", "pip", "install", "-qq", "--root-user-action", "ignore", "--disable-pip-version-check"]
# The Makefile compiles on all cores, and leaves out what is hardly ever imported.
PIP += ["--no-compile", "--no-deps", "--require-hashes", "-r"]

# Measured with torch 2.13.0: the wheels, and what they unpack to.
FETCHING = "PyTorch and NVIDIA's libraries from PyPI: 2.3 GB to fetch, 3.7 GB on disk (pip finds no CPU build)"
FETCHED = "PyTorch's CPU build: 0.2 GB, and 0.7 GB on disk"


def main(lock: Path) -> None:
    """Install the pins of a lock, each file checked by its hash.

    Raises:
        SystemExit: pip failed, and has printed the reason.
    """
    pins = [line for line in lock.read_text().replace("\\\n", "").splitlines() if re.match("[a-z]", line)]
    if any(pin.startswith("torch==") for pin in pins) and cpu_build():
        pins = [pin for pin in pins if not CUDA.match(pin)]
    # pip installs one package after another.
    with tempfile.TemporaryDirectory() as folder:
        halves = [Path(folder, name) for name in ("first", "second")]
        for number, half in enumerate(halves):
            half.write_text("\n".join(pins[number::2]))
        processes = [subprocess.Popen([*PIP, half]) for half in halves]  # noqa: S603
        statuses = [process.wait() for process in processes]
    if any(statuses):
        sys.exit(1)


def cpu_build() -> bool:
    """Install the CPU build of PyTorch if pip finds it, and print which build is fetched.

    Raises:
        SystemExit: pip finds it and cannot install it.
    """
    installed = find_spec("torch")
    done = subprocess.run([*PIP, CPU_BUILD], stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if done.returncode and "No matching distribution found for torch==" not in done.stderr:
        sys.exit(done.stderr)
    if not installed:
        print(FETCHED if done.returncode == 0 else FETCHING, flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
