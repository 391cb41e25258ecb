"""Start a Kubernetes on this machine, put the service on it, break it, and print what was seen.

    python -m tests.cluster [CASE ...]

Needs root, Debian, Go, and about 40 GB of disk; the first run builds for half an hour. Everything runs in a network
namespace from which nothing leaves, and is stopped and deleted at the end, but for what was built.
"""

import argparse
import os
import signal
import subprocess
import sys

from tests.cluster import build
from tests.cluster.cases import CASES, table
from tests.cluster.control_plane import enter_namespace, leave_namespace, running
from tests.cluster.surroundings import databases, kinds, names_of_services, operator

FOLDER = build.ROOT / "build/cluster"


def main() -> None:
    """Build, then go on in the namespace."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all unless given")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if os.geteuid() != 0:
        parser.error("network namespaces, mounts and chroot need root")
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, _end)
    if options.inside:
        sys.exit(run(options.cases or list(CASES)))
    build.install()
    build.programs(FOLDER)
    build.Images(FOLDER).build()
    try:
        inside = enter_namespace(sys.executable, "-m", "tests.cluster", "--inside", *options.cases)
        sys.exit(_wait_for(subprocess.Popen(inside)))
    finally:
        leave_namespace()


def _end(number: int, _frame: object) -> None:
    """Stop everything that was started, which nothing else may interrupt."""
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)


def _wait_for(process: subprocess.Popen[bytes]) -> int:
    """The exit status of the process in the namespace, which stops its cluster whatever ends this one."""
    try:
        return process.wait()
    except SystemExit:
        process.terminate()
        process.wait()
        raise


def run(names: list[str]) -> int:
    """Run the cases on a cluster, and return the exit status."""
    results = []
    with running(FOLDER / "state", FOLDER / "bin") as cluster:
        for archive in sorted((FOLDER / "images").glob("*.tar")):
            cluster.load(archive)
        for surroundings in (names_of_services, databases, kinds, operator):
            surroundings(cluster)
        for name in names:
            print(f"{name} ...", flush=True)
            results += CASES[name](cluster)
    print(table(results))
    return 0 if all(one.kept for one in results) else 1


if __name__ == "__main__":
    main()
