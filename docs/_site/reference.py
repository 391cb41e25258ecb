"""The pages of reference, written from the code: ``make reference``.

They are committed, so that links to them work in the repository; a test compares them. Other generators would be longer
to use or show less: jsonschema2md rounds a limit of 1e-12 to 0; essentials-openapi makes 1.5 MB of the REST API, and
excludes Typer's rich; Swagger UI cannot be searched, nor read from a disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from _site import cli, metrics, plan, problems, rest, settings

FOLDER = Path(__file__).parents[1] / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "rest.md": rest.page,
    "openapi.json": rest.document,
    "cli.md": cli.page,
    "plan.md": plan.page,
    "problems.md": problems.page,
    "settings.md": settings.page,
    "metrics.md": metrics.page,
}
"""What writes each file of the folder."""


def content(name: str) -> str:
    """What a file must hold."""
    text = PAGES[name]().strip() + "\n"
    return f"{text}\n`make reference` writes this page from the code.\n" if name.endswith(".md") else text


if __name__ == "__main__":
    for name in PAGES:
        (FOLDER / name).write_text(content(name), encoding="utf-8")
