"""The wheel has what the synthetic mode needs: its tickets and its plans."""

import tomllib
from pathlib import Path

import service.serving.synthetic


def test_the_wheel_has_its_tickets_and_plans() -> None:
    folder = Path(service.serving.synthetic.__file__).parent
    settings = tomllib.loads((folder.parents[2] / "pyproject.toml").read_text())["tool"]["setuptools"]
    shipped = {file for pattern in settings["package-data"]["service"] for file in folder.parents[1].glob(pattern)}
    assert {folder / "tickets.jsonl", folder / "plan.yaml", folder / "replies.yaml"} <= shipped
