"""``dp_sanitize`` in the real anonymizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from presidio_anonymizer import AnonymizerEngine
from presidio_anonymizer.entities import InvalidParamError, OperatorConfig, RecognizerResult
from scipy.stats import binomtest

from service.adapters.presidio import DpSanitize

CITIES = ["Boston", "Chicago", "Paris", "Lyon", "Tokyo"]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "presidio"))


def anonymized(text: str, found: list[str], **params: Any) -> str:
    engine = AnonymizerEngine()
    engine.add_anonymizer(DpSanitize)
    results = [RecognizerResult("CITY", text.index(one), text.index(one) + len(one), 0.9) for one in found]
    return engine.anonymize(text, results, {"CITY": OperatorConfig("dp_sanitize", params)}).text


def test_one_value_for_all_that_was_found() -> None:
    text = anonymized("From New York City and Boston by 7.", ["New York City", "Boston"], values=CITIES)
    assert text in {f"From {a} and {b} by 7." for a in CITIES for b in CITIES}


def test_the_law_keeps_epsilon() -> None:
    """A value that is kept with odds e^ε, whatever is found; checked within an error of 1e-9."""
    runs = 300
    for found in ("Boston", "a farm in the hills"):
        drawn = [anonymized(found, [found], values=["Boston", "Paris"], epsilon=1) for _ in range(runs)]
        most = max(drawn.count(city) for city in ("Boston", "Paris"))
        assert binomtest(most, runs, float(np.e / (1 + np.e))).pvalue > 1e-9


def test_what_is_remembered_is_not_drawn_again() -> None:
    remembered: dict[Any, str] = {}
    texts = {anonymized("Lyon", ["Lyon"], values=CITIES, epsilon=0.1, remembered=remembered) for _ in range(40)}
    assert len(texts) == 1
    assert remembered == {("CITY", "Lyon"): texts.pop()}


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "at least two public strings"),
        ({"values": "Boston"}, "values must be a list"),
        ({"values": ["Boston", "Boston"]}, "at least two public strings"),
        ({"values": CITIES, "epsilon": 26}, "ε must be from 0.001 to 25, not 26"),
        ({"values": CITIES, "epsilon": "8"}, "dp_sanitize"),
        ({"values": CITIES, "mechanism": "rot13"}, "no mechanism 'rot13': nearest_rr"),
    ],
)
def test_refusals(params: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParamError, match=said):
        anonymized("Boston", ["Boston"], **params)
