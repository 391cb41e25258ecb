"""The check of docstrings, comments, names, errors, option help and pages."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "english.py"

spec = importlib.util.spec_from_file_location("english", SCRIPT)
english = importlib.util.module_from_spec(spec)
spec.loader.exec_module(english)

METHOD = '''
class Store:
    def get(self, name):
        """The item of this name.

        Args:
            name: {description}
        """
'''


def found(folder: Path, text: str, suffix: str = ".md") -> list[str]:
    """The findings in a file with this text, without its path."""
    file = folder / f"page{suffix}"
    file.write_text(text)
    return [finding.removeprefix(f"{file}:") for finding in english.findings(file)]


@pytest.mark.parametrize(
    "text",
    [
        "The answer is no private value.",
        "The rest are none of these.",
        "Nobody reads it.",
        "It stays there for ever.",
        "It does not work any more.",
        "So many are drawn.",
        "The page says so.",
        "**Nobody** reads it.",
        "A release made once.",
    ],
)
def test_a_phrase_is_found_on_its_line(tmp_path: Path, text: str) -> None:
    (finding,) = found(tmp_path, f"# Page\n\n{text}\n")
    assert finding.startswith("3: ")


@pytest.mark.parametrize(
    "text",
    [
        "There is no such value, and there is none to come.",
        "It is no longer there, and no more than 3.",
        "So many as are drawn.",
        'It is None, or `is no`, or *for ever*, or "nobody".',
        "```\nnobody says so\n```",
    ],
)
def test_other_uses_and_code_pass(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []


@pytest.mark.parametrize(
    "code",
    [
        "value = 1  # nobody reads it",
        "def nobody_reads_it(): ...",
        "class NobodyReads: ...",
        'raise ValueError(f"{value} is no number")',
        'Column("name", comment="kept for ever")',
        'Option(help="so many answers")',
    ],
)
def test_it_is_found_wherever_code_holds_prose(tmp_path: Path, code: str) -> None:
    (finding,) = found(tmp_path, f"import this\n\n{code}\n", ".py")
    assert finding.startswith("3: ")


def test_strings_that_are_data_pass(tmp_path: Path) -> None:
    assert found(tmp_path, 'ask("Nobody answers, said the caller")\n', ".py") == []


def test_only_comments_of_configurations_are_checked(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, "text: nobody\nuser: nobody  # nobody else\n", ".yaml")
    assert finding.startswith("2: ")


def test_a_name_that_is_described_is_code(tmp_path: Path) -> None:
    assert found(tmp_path, METHOD.format(description="item.\n            says: sentence of the item."), ".py") == []


@pytest.mark.parametrize(
    ("description", "findings"),
    [
        ("name of the item.", 0),
        ("text that names it.", 0),
        ("of the item.", 1),
        ("how it is called.", 1),
        ("what to read.", 1),
    ],
)
def test_a_description_begins_with_a_noun(tmp_path: Path, description: str, findings: int) -> None:
    assert len(found(tmp_path, METHOD.format(description=description), ".py")) == findings


def test_a_docstring_only_points_elsewhere(tmp_path: Path) -> None:
    assert found(tmp_path, 'def get():\n    """See :class:`Store`."""\n', ".py")
    assert not found(tmp_path, 'def get():\n    """The first item. See :class:`Store`."""\n', ".py")


def test_help_of_options_is_read(tmp_path: Path) -> None:
    assert found(tmp_path, 'option("--show", help="only so many of them")\n', ".py")
