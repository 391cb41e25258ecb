"""A small data set of purchases, for the kitchen or the workshop."""

import json
from pathlib import Path

import pytest

from tests.service.conftest import PLAN

FOOD = ["soup", "bread", "cheese", "apples", "noodles", "rice", "honey", "olives", "beans", "cake"]
TOOLS = ["hammer", "saw", "drill", "pliers", "chisel", "wrench", "screws", "ladder", "file", "clamp"]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    rows = [
        {"unit_id": f"{label}{i}{j}", "text": f"I bought {word} for {use}.", "label": label}
        for label, words in (("kitchen", FOOD), ("workshop", TOOLS))
        for i, word in enumerate(words)
        for j, use in enumerate(("my sister", "the weekend", "tomorrow"))
    ]
    (tmp_path / "train.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows if not row["unit_id"].endswith("2"))
    )
    (tmp_path / "test.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows if row["unit_id"].endswith("2"))
    )
    return tmp_path


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN.replace("[red, blue]", "[kitchen, workshop]"))
    return file
