"""The page of limits states the limits of the code."""

import importlib
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from service.settings import Settings

PAGE = (Path(__file__).parents[1] / "docs" / "limits.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| [^|]+ \| ([\d,]+) ?(KiB|MiB|days)?[^|]* \| (.+) \|$", PAGE, re.MULTILINE)
UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "days": 1}


def value(where: str) -> Any:
    if setting := re.fullmatch(r"`DPICL_(\w+)`", where):
        return Settings.model_fields[setting[1].lower()].default
    name, file = re.fullmatch(r"\[`(\w+)`\]\(\.\./(.+)\.py\)", where).groups()
    return getattr(importlib.import_module(file.replace("/", ".")), name)


@pytest.mark.parametrize(("number", "unit", "where"), ROWS, ids=[row[2] for row in ROWS])
def test_a_limit_is_the_codes(number: str, unit: str, where: str) -> None:
    found = value(where)
    found = found.days if isinstance(found, timedelta) else found
    assert found == int(number.replace(",", "")) * UNITS[unit]


def test_every_row_is_read() -> None:
    assert len(ROWS) == len(re.findall(r"^\| (?!what|-)", PAGE, re.MULTILINE)) > 20
