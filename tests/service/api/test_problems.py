"""Every kind of problem is explained on the page that its type leads to, and nothing else is."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.api import problems
from service.api.problems import TYPE_BASE, Problem

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "problems.md").read_text()
ENTRIES = dict(re.findall(r"^### (\S+)\n\*\*(.+?)\*\*(?= )", PAGE, re.MULTILINE))
_IMPORTS_IT = re.compile(r"service\.api\.problems import (\([^)]*|[^\n]*)\bProblem\b")


def raised() -> Iterator[tuple[str, str]]:
    """(slug, status) wherever the code makes a problem: each must be written out, so that it can be found."""
    yield from ((slug, str(status)) for status, slug in problems._STATUS_OF.values())
    yield from ((slug, str(status)) for status, slug in problems._SLUG_OF_STATUS.items())
    for module in (ROOT / "service").rglob("*.py"):
        if module.name != "problems.py" and not _IMPORTS_IT.search(module.read_text()):
            continue  # what is called Problem there is something else
        for call in ast.walk(ast.parse(module.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) == "Problem":
                status, slug = call.args[:2]
                if isinstance(slug, ast.Constant):
                    assert isinstance(status, ast.Constant), f"{module}, line {call.lineno}: write the status out"
                    yield slug.value, str(status.value)
                else:
                    assert module.name == "problems.py", f"{module}, line {call.lineno}: write the slug out"


def test_every_problem_has_its_heading_and_every_heading_its_problem() -> None:
    documented = {(slug, status.rstrip(".")) for slug, status in ENTRIES.items()}
    assert documented == set(raised()) | {("http-error", "Any other status of HTTP")}


@pytest.mark.parametrize("slug", ENTRIES)
def test_an_entry_says_whether_anything_was_charged_or_changed(slug: str) -> None:
    entry = PAGE.partition(f"### {slug}\n")[2].partition("\n#")[0].replace("\n", " ")
    assert re.search(r"\*(Nothing was (charged|changed|stored|promised|created)|Perhaps charged)\b.*?\*", entry)


def test_the_page_shows_a_real_type() -> None:
    document = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL).group(1))
    assert document["type"] == TYPE_BASE + "answers-exhausted"
    response = json.loads(Problem(402, "answers-exhausted", "d").response().body)
    assert response.keys() == document.keys()
    assert response["error"].keys() == document["error"].keys()
    assert (response["type"], response["title"]) == (document["type"], document["title"])


@pytest.mark.parametrize(
    ("problem", "headers"),
    [
        (Problem(402, "answers-exhausted", ""), {"x-should-retry": "false"}),
        (Problem(429, "busy", "", retry_after_s=0.2), {"retry-after": "1"}),
        (Problem(503, "wrong-encryption-key", ""), {"x-should-retry": "false"}),
        (Problem(404, "unknown-task", ""), {}),
    ],
    ids=lambda value: getattr(value, "slug", ""),
)
def test_clients_are_told_whether_to_retry(problem: Problem, headers: dict[str, str]) -> None:
    told = {name: value for name, value in problem.response().headers.items() if "retry" in name}
    assert told == headers
