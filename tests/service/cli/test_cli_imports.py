"""The imports of commands: an analyst's commands and the help are quick because they import little."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from service.cli import app
from service.cli.lazy import EveryCommand

HEAVY = {
    "alembic", "dp_accounting", "fastapi", "markupsafe", "matplotlib", "numpy", "opendp", "pandas", "prv_accountant",
    "ray", "scipy", "sentence_transformers", "sklearn", "sqlalchemy", "torch", "transformers",
}  # fmt: skip
SCRIPT = """
import atexit, sys
atexit.register(lambda: print("imported", *sorted(sys.modules), file=sys.stderr))
from service.cli import main
for command in " ".join(sys.argv[1:]).split(";"):
    sys.argv = ["dpicl", *command.split()]
    try:
        main()
    except SystemExit:
        pass
"""


def imported(*commands: str) -> tuple[set[str], str]:
    """Run commands one after another in a process; return the modules they imported, and all they printed."""
    nowhere = {"DPICL_API_KEY": "dpicl_none", "DPICL_URL": "http://127.0.0.1:9"}  # pragma: allowlist secret
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, ";".join(commands)],
        env={**os.environ, **nowhere, "COLUMNS": "200"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    told, names = done.stderr.split("imported ")
    return set(names.split()), done.stdout + told


def test_an_analysts_commands_import_nothing_heavy():
    commands = {
        "--help": "encryption key",
        "--version": "dpicl",
        "ask --help": "Ask one question",
        "ask support.queue Where?": "does not answer",
        "batch --help": "Answer a file",
        "budget --url http://127.0.0.1:9": "does not answer",
    }
    modules, printed = imported(*commands)
    assert [said for said in commands.values() if said not in printed] == []
    assert "typer" in modules
    assert not modules & HEAVY


@pytest.mark.slow
def test_the_help_of_admin_commands_needs_no_engine_no_migration_and_no_accountant():
    groups = ("kb", "keys", "plan", "ledger", "sanitize", "restore")
    modules, printed = imported(*(f"{group} --help" for group in groups))
    assert printed.count("Usage") == len(groups)
    assert not modules & {"ray", "torch", "sentence_transformers", "transformers", "matplotlib"}
    assert "sqlalchemy" in modules
    assert not modules & {"alembic", "dp_accounting", "prv_accountant", "scipy.cluster", "scipy.stats"}


@pytest.mark.slow
def test_the_help_shows_the_first_sentence_of_each_command():
    group = typer.main.get_command(app)
    assert isinstance(group, EveryCommand)
    assert list(group.commands) == list(EveryCommand.lazy)
    lazy = [(group, name, place) for name, place in group.lazy.items()]
    for name in ("sanitize", "restore"):
        inner = group.get_command(typer.Context(group), name)
        lazy += [(inner, name, place) for name, place in inner.lazy.items()]
    assert len(lazy) == len(EveryCommand.lazy) + 5
    for holder, name, place in lazy:
        first = holder.get_command(typer.Context(holder), name).help.split("\n\n")[0].replace("\n", " ")
        assert first == place.sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "variables"),
    [("bash", {"COMP_WORDS": "dpicl plan pr", "COMP_CWORD": "2"}), ("zsh", {"_TYPER_COMPLETE_ARGS": "dpicl plan pr"})],
)
def test_a_shell_completes_commands_that_are_not_imported_yet(shell: str, variables: dict[str, str]) -> None:
    environment = {**os.environ, "_DPICL_COMPLETE": f"complete_{shell}", **variables}
    run = subprocess.run([sys.executable, "-c", SCRIPT, ""], capture_output=True, text=True, env=environment)
    assert (run.returncode, "preview" in run.stdout) == (0, True), run.stderr
    assert "kb" not in run.stdout
