"""``dp_sanitize`` in the real anonymizer, and the real analyzer before it and before a conversation."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
from presidio_analyzer import AnalyzerEngine
from presidio_analyzer.nlp_engine import SpacyNlpEngine
from presidio_anonymizer import AnonymizerEngine
from presidio_anonymizer.entities import InvalidParamError, OperatorConfig, RecognizerResult
from scipy.stats import binomtest

from examples.sanitising.with_presidio import DpSanitize
from sanitization.conversation import Conversation
from sanitization.text import open_sanitizer
from tests.sanitization.made_up import letter_words

pytestmark = pytest.mark.model

CARD, MAIL = "4012 8888 8888 1881", "ann.smith@example.org"
CITIES = ["Boston", "Chicago", "Paris", "Lyon", "Tokyo"]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "presidio"))


@pytest.fixture(scope="module")
def analyzer(tmp_path_factory: pytest.TempPathFactory) -> AnalyzerEngine:
    """An analyzer with all its patterns. A rule of spaCy's finds names, as a model would have to be downloaded."""
    pipeline, folder = spacy.blank("en"), tmp_path_factory.mktemp("spacy")
    pipeline.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Alice"}])
    pipeline.to_disk(folder)
    return AnalyzerEngine(nlp_engine=SpacyNlpEngine([{"lang_code": "en", "model_name": str(folder)}]))


def anonymized(text: str, found: list[str], **params: Any) -> str:
    engine = AnonymizerEngine()
    engine.add_anonymizer(DpSanitize)
    results = [RecognizerResult("CITY", text.index(one), text.index(one) + len(one), 0.9) for one in found]
    return engine.anonymize(text, results, {"CITY": OperatorConfig("dp_sanitize", params)}).text


def test_one_value_for_all_that_was_found() -> None:
    text = anonymized("From New York City and Boston by 7.", ["New York City", "Boston"], values=CITIES)
    assert text in {f"From {a} and {b} by 7." for a in CITIES for b in CITIES}


def test_the_law_keeps_epsilon() -> None:
    """A value is kept with odds e^ε, whatever is found; the check errs with probability 1e-9."""
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
        ({}, "two public strings"),
        ({"values": "Boston"}, "a list"),
        ({"values": ["Boston", "Boston"]}, "two public strings"),
        ({"values": CITIES, "epsilon": 26}, "not 26"),
        ({"values": CITIES, "epsilon": "8"}, "dp_sanitize"),
        ({"values": CITIES, "mechanism": "rot13"}, "'rot13'"),
    ],
)
def test_refusals(params: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParamError, match=said):
        anonymized("Boston", ["Boston"], **params)


def test_what_the_analyzer_finds_becomes_public_values(analyzer: AnalyzerEngine) -> None:
    """Each kind has its own values, Presidio replaces kinds without an operator, and all other text stays."""
    engine = AnonymizerEngine()
    engine.add_anonymizer(DpSanitize)
    names, mails = ["Bea", "Cem", "Dora"], ["a@example.com", "b@example.com"]
    operators = {
        "PERSON": OperatorConfig("dp_sanitize", {"values": names, "epsilon": 1, "remembered": {}}),
        "EMAIL_ADDRESS": OperatorConfig("dp_sanitize", {"values": mails, "epsilon": 1}),
    }
    text = f"Alice pays by {CARD}, says {MAIL}. So Alice pays."
    changed = engine.anonymize(text, analyzer.analyze(text, language="en"), operators).text
    said = {f"{name} pays by <CREDIT_CARD>, says {mail}. So {name} pays." for name in names for mail in mails}
    assert changed in said


def test_what_the_analyzer_finds_becomes_placeholders(analyzer: AnalyzerEngine, tmp_path: Path) -> None:
    """Placeholders are stable throughout a conversation and restored in its answers; other words are drawn."""
    sanitizer = open_sanitizer(
        "medoid_rr", letter_words(60), 2, tmp_path, keep=["stopwords", "punctuation", "placeholders"]
    )
    talk = Conversation(sanitizer, lambda text: analyzer.analyze(text, language="en"))
    first = talk.sanitize(f"Alice pays by {CARD} and not by {MAIL}.").text
    assert re.fullmatch(r"<PERSON_1> [a-z]{3} by <CREDIT_CARD_1> and not by <EMAIL_ADDRESS_1>\.", first)
    second = talk.sanitize(f"Is {MAIL} by Alice, or by 192.168.10.77?").text
    assert second == "Is <EMAIL_ADDRESS_1> by <PERSON_1>, or by <IP_ADDRESS_1>?"
    assert talk.restore("<PERSON_1>: <CREDIT_CARD_1>, <EMAIL_ADDRESS_1>") == f"Alice: {CARD}, {MAIL}"
    assert talk.epsilon == pytest.approx(sanitizer.epsilon)
