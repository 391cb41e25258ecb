"""Reading, redacting and splitting the data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from research.restore.data import TrainConfig, read

pytestmark = pytest.mark.model

SETTINGS: dict[str, Any] = {
    "name": "clinic",
    "model": "model",
    "data": "rows.jsonl",
    "declared": "public",
    "declared_by": "test",
    "prompt": "{text} Illness:",
    "options": ["flu", "gout"],
    "fewest": 2,
}


def row(number: int, **other: Any) -> dict[str, Any]:
    spans = ["fever"] if number % 2 else ["pain", "jaw pain"]
    text = "has fever" if number % 2 else "has jaw pain and pain"
    return {"text": text, "spans": spans, "answer": "flu", "group": f"p{number // 3}", **other}


def config(folder: Path, rows: list[dict[str, Any]], **other: Any) -> TrainConfig:
    (folder / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (folder / "train.yaml").write_text(json.dumps({**SETTINGS, **other}))
    return TrainConfig.read(folder / "train.yaml")


def test_people_are_on_one_side_only(tmp_path: Path) -> None:
    """E6: the paper's code has the two halves of one pair on either side of the split."""
    split = read(config(tmp_path, [row(number) for number in range(300)]))
    parts = [set(part.groups) for part in (split.train, split.choose, split.test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 100
    assert [len(part) for part in parts] == [70, 15, 15]


def test_types_and_weights(tmp_path: Path) -> None:
    rows = [row(number) for number in range(60)]
    rows[0] = row(0, text="has jaw pain and a rare cramp", spans=["jaw pain", "cramp"])
    split = read(config(tmp_path, rows))
    assert list(split.types) == ["fever", "jaw pain", "pain"]  # the cramp is too rare to be a type
    for part in (split.train, split.choose, split.test):
        for text, weights in zip(part.redacted, part.weights, strict=True):
            assert "pain" not in text
            assert "fever" not in text
            assert tuple(weights) in {(1, 0, 0), (0, 1, 1), (0, 1, 0)}
    named = read(config(tmp_path, rows, types={"aches": ["Pain", "jaw  pain"], "heat": ["fever"]}))
    assert {tuple(weights) for weights in named.train.weights} <= {(2, 0), (0, 1), (1, 0)}


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (row(0, spans=["gout"]), "field 'spans': one does not occur"),
        (row(0, answer="cold"), "field 'answer': is not one of the options"),
        (row(0, group=None), "field 'group': is empty"),
        (row(0, spans=[[17, 21]]), "field 'spans': one occurs in the text once more"),
    ],
)
def test_rows_that_cannot_be_used(bad: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"row 1, {why}") as caught:
        read(config(tmp_path, [bad]))
    assert not any(value in str(caught.value) for value in ("gout", "cold", "jaw")), "no value is repeated"


def test_further_columns_do_not_matter(tmp_path: Path) -> None:
    rows = [row(number, note=number, since=float("nan")) for number in range(90)]
    assert len(read(config(tmp_path, rows)).train)


def test_settings_are_checked(tmp_path: Path) -> None:
    for wrong in (
        {"prompt": "no text"},
        {"prompt": "{text} {more}"},
        {"prompt": "{text} "},
        {"options": ["a", "a"]},
        {"epsilon": 21},
        {"unknown": 1},
        {"declared": "ours"},
    ):
        with pytest.raises(ValidationError):
            config(tmp_path, [row(0)], **wrong)
    with pytest.raises(ValueError, match="too few"):
        read(config(tmp_path, [row(number, group="one") for number in range(9)]))
    with pytest.raises(ValueError, match="no span"):
        read(config(tmp_path, [row(number) for number in range(9)], fewest=99))


def test_data_decide_the_digest(tmp_path: Path) -> None:
    one = config(tmp_path, [row(0)]).digest
    assert one == config(tmp_path, [row(0)]).digest
    assert one != config(tmp_path, [row(1)]).digest
    assert one != config(tmp_path, [row(0)], steps=7).digest


def test_weights_by_attention(tmp_path: Path) -> None:
    split = read(config(tmp_path, [row(number) for number in range(24)], weights="attention"))
    weights = split.train.weights
    assert ((weights > 0).sum(axis=1) == np.where(weights[:, 0] > 0, 1, 2)).all()
    assert weights.max() < 1
