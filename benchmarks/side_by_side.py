"""Is the service faster than it was? This runs an earlier commit beside this one, and prints the ratios.

    python benchmarks/side_by_side.py [NAME ...] [--before COMMIT] [--rounds N] [--quick]

Each file of ``benchmarks/measured/`` measures one thing, with nothing but what both commits have, and prints one JSON
object: figures by name, in seconds or bytes. Here it runs in turns on a copy of the earlier commit and on this
checkout, in processes of their own. A ratio is the earlier median divided by the present one, and stands beside the
target that the file names (``TARGETS``).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CASES = sorted((ROOT / "benchmarks" / "measured").glob("*.py"))
BEFORE = "081669d2"
"""The commit that the targets refer to."""
Figures = dict[str, list[float]]


@contextlib.contextmanager
def copy_of(commit: str) -> Iterator[Path]:
    """A working tree of an earlier commit, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="before-") as folder:
        tree = Path(folder, "tree")
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def targets(case: Path) -> dict[str, float]:
    """The ratio that each figure of a case should reach; without one, a figure is only shown."""
    for statement in ast.parse(case.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "TARGETS":
            found: dict[str, float] = ast.literal_eval(statement.value)
            return found
    return {}


def measure(case: Path, tree: Path, *, quick: bool) -> dict[str, float]:
    """Run a case on a tree, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    command = [sys.executable, str(case), *(["--quick"] if quick else [])]
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Print a table for each case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *(case.stem for case in CASES)], help="cases, all by default")
    parser.add_argument("--before", default=BEFORE)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of the smallest sizes, to see that all run")
    chosen = parser.parse_args()
    with copy_of(chosen.before) as tree:
        for case in CASES:
            if chosen.names and case.stem not in chosen.names:
                continue
            before, now = defaultdict(list), defaultdict(list)
            for _ in range(1 if chosen.quick else chosen.rounds):
                for figures, where in ((before, tree), (now, ROOT)):
                    for name, value in measure(case, where, quick=chosen.quick).items():
                        figures[name].append(value)
            show(case, before, now)


def show(case: Path, before: Figures, now: Figures) -> None:
    """One line for each figure."""
    wanted = targets(case)
    print(f"\n{case.stem:<44}{'before':>12}{'now':>12}{'ratio':>8}{'target':>8}")
    for name in before:
        one, other = statistics.median(before[name]), statistics.median(now[name])
        target = f"{wanted[name]:.1f}" if name in wanted else ""
        print(f"{name:<44}{one:>12.5g}{other:>12.5g}{one / other:>8.2f}{target:>8}", flush=True)


if __name__ == "__main__":
    main()
