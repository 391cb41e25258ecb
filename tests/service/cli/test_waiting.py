"""The progress that commands show while a person waits: on a terminal, and nowhere else."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.service.conftest import PLAN

pytestmark = pytest.mark.slow

SCRIPT = "import sys; sys.argv[0] = 'dpicl'; from service.cli import main; main()"
SHOWN = "Calibrating the noise, and comparing accountants and better plans"


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "file"])
def test_a_preview_shows_what_takes_long_on_a_terminal_alone(tmp_path: Path, terminal: bool) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    command = ["plan", "preview", str(tmp_path / "plan.yaml"), "--public-size", "60"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "PYTHONPATH": os.pathsep.join(sys.path)}
    ours, theirs = pty.openpty() if terminal else os.pipe()
    with (tmp_path / "out").open("wb") as out:
        run = subprocess.Popen([sys.executable, "-c", SCRIPT, *command], stdout=out, stderr=theirs, env=environment)
    os.close(theirs)
    written = b""
    with suppress(OSError):  # reading a closed terminal raises it
        while part := os.read(ours, 4096):
            written += part
    os.close(ours)
    assert run.wait() == 0, written.decode()
    assert (SHOWN in written.decode()) is terminal
    assert terminal or written == b""
    assert b"\x1b" not in (tmp_path / "out").read_bytes()
