"""The reference of the command line, as Typer writes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def page() -> str:
    """Every command with its options."""
    command = [sys.executable, "-m", "typer", "service.cli", "utils", "docs", "--name=dpicl", "--title=Command line"]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S603
