"""What a command imports: an analyst's commands and the help are quick because they import little."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from service.cli import app
from service.cli.lazy import COMMANDS

HEAVY = {
    "alembic", "dp_accounting", "fastapi", "matplotlib", "numpy", "opendp", "pandas", "prv_accountant", "ray", "scipy",
    "sentence_transformers", "sklearn", "sqlalchemy", "torch", "transformers",
}  # fmt: skip
SCRIPT = """
import atexit, sys
atexit.register(lambda: print("imported", *sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr))
from service.cli import main
sys.argv = ["dpicl", *sys.argv[1:]]
main()
"""


def imported(*args: str) -> tuple[set[str], str]:
    """What a command imported, and what it printed."""
    nowhere = {"DPICL_API_KEY": "dpicl_none", "DPICL_URL": "http://127.0.0.1:9"}  # pragma: allowlist secret
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *args],
        env={**os.environ, **nowhere, "COLUMNS": "200"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    told, names = done.stderr.split("imported ")
    return set(names.split()), done.stdout + told


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--help"], "Change the encryption key"),
        (["--version"], "dpicl"),
        (["ask", "--help"], "Ask one question"),
        (["ask", "support.queue", "Where is it?"], "the service does not answer"),
        (["batch", "--help"], "Answer a file of questions"),
    ],
)
def test_an_analysts_commands_import_nothing_heavy(args, said):
    modules, printed = imported(*args)
    assert said in printed
    assert "typer" in modules
    assert not modules & HEAVY


@pytest.mark.slow
@pytest.mark.parametrize("group", ["kb", "keys", "plan", "ledger", "sanitize", "restore"])
def test_admin_commands_need_neither_ray_nor_torch(group):
    modules, printed = imported(group, "--help")
    assert "Usage" in printed
    assert not modules & {"ray", "torch", "sentence_transformers", "transformers", "matplotlib"}


def test_the_help_says_what_the_commands_say_of_themselves():
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    assert list(group.commands) == list(COMMANDS)
    for name in COMMANDS:
        first = group.get_command(typer.Context(group), name).help.split("\n\n")[0].replace("\n", " ")
        assert first == COMMANDS[name][1]
