"""docs/privacy/papers.md: every command of its table runs as written, in a clone of the repository."""

import re
import shlex
from pathlib import Path

import pytest

from tests.documented import DOCS, blocks, run
from tests.service.shell import Shell

ROOT = DOCS.parent
PAGE = DOCS / "privacy" / "papers.md"
COLUMNS = ["paper", "element", "where", "faithful or corrected, and why", "how to run it"]
PAPERS = {"DP-ICL", "InferDPT", "DYNTEXT", "Cape", "PrivacyRestore"}


def cells(line: str) -> list[str]:
    """The cells of a line of a table, in which ``\\|`` is a character."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def table() -> list[list[str]]:
    lines = PAGE.read_text().partition("## What is where")[2].splitlines()
    header, _, *rows = [cells(line) for line in lines if line.startswith("|")]
    assert header == COLUMNS
    return rows


ROWS = table()
COMMANDS = sorted({command for row in ROWS for command in re.findall(r"`([^`]+)`", row[-1])})


def test_every_paper_has_rows_and_every_row_a_command() -> None:
    assert {row[0] for row in ROWS} == PAPERS
    for row in ROWS:
        assert len(row) == len(COLUMNS)
        assert re.match("faithful|corrected|both", row[3]), row[3]
        assert re.findall(r"`((?:dpicl|make|python) [^`]+)`", row[4]), row
        assert re.findall(r"\]\(([^)]+\.py)\)", row[2]), row


def test_tests_that_the_page_names_exist() -> None:
    everything = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    names = re.findall(r"`((?:test_|Test)\w+)`", PAGE.read_text())
    assert len(names) > 20
    for name in names:
        assert re.search(rf"(?:def|class) {name}\b", everything), name


NEEDS_MORE = ("dpicl restore ", "dpicl sanitize ask ")
"""Commands that need a service with a bundle, or a model elsewhere: other tests run them."""


@pytest.mark.parametrize("command", [command for command in COMMANDS if not command.startswith("dpicl ")])
def test_targets_and_studies_exist(command: str) -> None:
    """They take minutes and hours: what they do is tested elsewhere."""
    program, *arguments = shlex.split(command)
    if program == "make":
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return
    assert program == "python"
    path = f"{arguments[1].replace('.', '/')}.py" if arguments[0] == "-m" else arguments[0]
    options = [argument for argument in arguments if argument.startswith("--")]
    assert all(option in (ROOT / path).read_text() for option in options)


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith(NEEDS_MORE)])
def test_commands_that_need_more_have_these_options(command: str, dpicl: Shell) -> None:
    arguments = shlex.split(command)[1:]
    shown = dpicl.ok(*arguments[:2], "--help")
    assert all(argument in shown for argument in arguments if argument.startswith("--"))


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize(
    "command", [one for one in COMMANDS if one.startswith("dpicl ") and not one.startswith(NEEDS_MORE)]
)
def test_commands_run(command: str, dpicl: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    run("".join(blocks(PAGE, "sh")), tmp_path)
    monkeypatch.chdir(tmp_path)
    assert dpicl.ok(*shlex.split(command)[1:])
