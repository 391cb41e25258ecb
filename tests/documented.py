"""The blocks that the documentation shows, and a way to run them as a reader would."""

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
SOURCES = DOCS.with_name("docs_src")
"""The files that pages show and tests execute, in a folder for each page."""


def blocks(page: Path, language: str) -> list[str]:
    """A page's blocks of code in a language, without their fences."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def reader() -> dict[str, str]:
    """The environment of a reader who has installed the service and set no variable."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DPICL_")}
    return {**environment, "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}"}


def run(commands: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    """Run a reader's commands in one shell in this folder, and return their output.

    No command may fail. Processes that the commands leave running are ended.
    """
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
