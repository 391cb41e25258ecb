"""The operators' page, executed as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.test_docs import DOCS, blocks


def test_the_page_runs_as_written(tmp_path: Path) -> None:
    """Between its backup and its restore something happens, or there would be nothing to acknowledge."""
    commands = blocks(DOCS / "operations.md", "bash")
    assert len(commands) == 8
    [backup] = [i for i, block in enumerate(commands) if "ledger backup" in block]
    commands.insert(backup + 1, "dpicl keys create forgotten > forgotten.key\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DPICL_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    stop = "trap 'jobs -p | xargs -r kill; wait' EXIT\n"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-m", "-c", stop + "".join(commands)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "dpicl_ledger_restored 0.0" in done.stdout
    assert "refused\n" in done.stdout
    assert "something was lost" in done.stdout
    assert "key forgotten was made: make another" in done.stdout
    assert "the ledger answers again" in done.stdout
    assert "Retired " in done.stdout
    assert "chief-2027" in done.stdout
