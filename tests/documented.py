"""What the documentation shows, and running it as a reader would."""

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
SOURCES = DOCS.with_name("docs_src")
"""What pages show and tests execute: a folder for each page."""


def blocks(page: Path, language: str) -> list[str]:
    """A page's blocks of code in a language, without their fences."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def reader() -> dict[str, str]:
    """The environment of somebody who has installed the service and set nothing."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DPICL_")}
    return {**environment, "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}"}


def run(commands: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    """What a reader's commands print, in one shell in this folder. None may fail; what they left running is ended."""
    stop = "trap 'jobs -p | xargs -r kill; wait' EXIT\n"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-m", "-c", stop + commands],
        cwd=folder,
        env=environment or reader(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
