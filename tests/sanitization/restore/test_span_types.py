"""Types of spans by meaning, with the real MiniLM: what gets which type, what is found, and what it may not change."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from examples.restore.world import KNOWN, REPORTED
from sanitization.restore import encoder, mechanism
from sanitization.restore.encoder import EncoderMissingError
from sanitization.restore.span_types import Meaning, SpanTypes
from sanitization.restore.spans import normal_form, redact
from tests.laws import ALPHA, p_value
from tests.sanitization.restore.made_up import TYPES, published
from tests.sanitization.restore.test_client import Server, client

pytestmark = pytest.mark.model

MEANING = {"template": "I am suffering from {span}.", "threshold": 0.67}
SYMPTOMS = SpanTypes({normal_form(name): name for name in REPORTED}, Meaning())


def test_other_words_for_the_same_have_its_type() -> None:
    for wanted, others in {
        "fever": ("fever", "Fevers", "high fever", "elevated temperature", "feverish"),
        "vertigo": ("dizziness", "feeling dizzy"),
        "insomnia": ("sleeplessness", "cannot sleep"),
        "vomiting": ("vomited", "throwing up"),
    }.items():
        assert SYMPTOMS.of(others) == [wanted] * len(others)
    assert SYMPTOMS.of(["gout", "Monday", "Ann", "lawyer"]) == [None] * 4
    assert SpanTypes(SYMPTOMS.phrases).of(["fever", "fevers"]) == ["fever", None]


WORDINGS = {
    **dict.fromkeys(("fevers", "high fever", "elevated temperature", "raised temperature", "a temperature"), "fever"),
    **dict.fromkeys(("running a temperature", "feverish"), "fever"),
    **{
        "a rash": "rash",
        "very thirsty": "thirst",
        "muscle cramps": "cramps",
        "coughing": "cough",
        "dry cough": "cough",
    },
    **{"dizziness": "vertigo", "feeling dizzy": "vertigo", "nauseous": "nausea", "feeling sick": "nausea"},
    **{"tired": "fatigue", "exhaustion": "fatigue", "itchy": "itching", "headaches": "headache"},
    **{"migraine": "headache", "sleeplessness": "insomnia", "cannot sleep": "insomnia", "vomited": "vomiting"},
    **{"throwing up": "vomiting", "night sweats": "sweating", "passed out": "fainting", "yellow skin": "jaundice"},
    **{"pale face": "pallor", "racing heart": "palpitations", "bruises": "bruising", "swollen ankles": "swelling"},
    **{"numb fingers": "numbness", "shaking hands": "tremor"},
}
OTHERS = [
    "gout",
    "patient",
    "Ann",
    "Monday",
    "reports",
    "doctor",
    "diabetic",
    "pregnant",
    "cat",
    "car",
    "computer",
    "London",
    "week",
    "family",
    "work",
    "children",
    "happy",
    "vegetarian",
    "sailor",
    "allergic",
    "widowed",
    "retired",
    "tall",
    "anaemic",
    "athletic",
    "asthmatic",
    "broken leg",
    "prostate cancer",
    "HIV",
    "lawyer",
    "divorce",
]


def test_the_figures_that_the_docs_give() -> None:
    right = [found == name for found, name in zip(SYMPTOMS.of([*WORDINGS]), WORDINGS.values(), strict=True)]
    none = [found is None for found in SYMPTOMS.of(OTHERS)]
    assert (sum(right), len(right), sum(none), len(none)) == (30, 34, 28, 31)


def test_a_threshold_of_one_knows_phrases_only() -> None:
    strict = SpanTypes(SYMPTOMS.phrases, Meaning(threshold=1.0))
    assert strict.of(["fever", "high fever"]) == ["fever", None]


def test_spans_are_found_and_taken_out() -> None:
    text = "Ann, 40, has had high fevers and a skin rash since Monday. She has an elevated temperature; is a sailor."
    found = SYMPTOMS.find(text)
    assert found == ["high fevers", "skin rash", "elevated temperature"]
    left = redact(text, found).text
    assert left == "Ann, 40, has had ___ and a ___ since Monday. She has an ___; is a sailor."
    assert SYMPTOMS.find("") == SYMPTOMS.find("Nothing to report, and ...") == []
    assert SYMPTOMS.find(f"Known: {', '.join(KNOWN[:3])}.") == []


def test_known_phrases_are_found_without_a_meaning() -> None:
    types = SpanTypes({normal_form(name): name for name in ("fever", "jaw pain", "pain")})
    assert types.find("Jaw-pain, FEVERS, fever and pain") == ["Jaw-pain", "fever", "pain"]


def test_every_span_is_embedded_whether_its_phrase_is_known_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the time until a question leaves would show it, once for all by whether the model is loaded."""
    SYMPTOMS.of([])
    counts = []

    def counted(texts: list[str]) -> np.ndarray:
        counts.append(len(texts))
        return np.zeros((len(texts), 384))

    monkeypatch.setattr(encoder, "embed", counted)
    for spans in (["fever", "rash"], ["gout", "fevers"], ["fever"], []):
        SYMPTOMS.of(spans)
    assert counts == [2, 2, 1, 1]


def test_without_the_model_phrases_are_known_and_finding_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "available", lambda: False)
    encoder._minilm.cache_clear()
    one = SpanTypes(SYMPTOMS.phrases, Meaning())
    assert not one.by_meaning
    assert one.of(["fever", "fevers"]) == ["fever", None]
    with pytest.raises(EncoderMissingError, match="pip install"):
        one.find("has fevers")


def test_a_template_has_one_field() -> None:
    for template in ("no field", "{span} and {span}"):
        with pytest.raises(ValueError, match="once"):
            Meaning(template=template)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Texts are short, and other tests run beside these."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(published(tmp_path / "bundles", meaning=MEANING))


def test_meaning_changes_the_true_profile_and_no_byte_else(server: Server, tmp_path: Path, monkeypatch) -> None:
    truths = []

    def drawn(profile: int, k: int, epsilon: float) -> int:
        truths.append(profile)
        return 2

    monkeypatch.setattr(mechanism, "draw", drawn)
    asking = client(server, tmp_path, budget=1e9)
    spans = ("fever", "fevers", "elevated temperature", "extreme thirst", "gout", "Ann Nowak")
    for span in spans:
        asking.ask(f"has {span} now", [span])
    own = {name: server.bundle.book.nearest({name: 1.0}) for name in TYPES}
    assert truths == [own["fever"]] * 3 + [own["thirst"], 0, 0]
    assert len(set(server.bodies)) == 1
    assert set(json.loads(server.bodies[0])) == {"bundle", "bundle_sha256", "query", "profile", "mode", "free_text"}
    seen = asking.preview("fevers, gout", ["fevers", "gout"])
    assert (seen.types, seen.unknown) == ({"fevers": "fever"}, ("gout",))


def likeliest_guess(sent: np.ndarray, law: np.ndarray) -> bool:
    """The attack: whether numbers that were sent for one profile are too often its own for the promised law."""
    return p_value(np.bincount(sent, minlength=len(law)), len(sent), law) <= ALPHA


def test_an_attack_on_questions_with_types_by_meaning(server: Server, tmp_path: Path, monkeypatch) -> None:
    """The numbers follow randomised response of the type's profile; a client that does not draw is caught."""
    names = (f"case {number}: fevers" for number in itertools.count())
    profile = server.bundle.book.nearest({"fever": 1.0})
    law = mechanism.response(4, 1.0).rows(np.array([profile]))[0]
    asking = client(server, tmp_path, epsilon=1.0, budget=1e9)
    honest = np.array([asking.ask(next(names), ["fevers"]).profile for _ in range(60)])
    assert not likeliest_guess(honest, law)
    # The planted bug: a span whose type comes from its meaning, not from its phrase, sends its own profile.
    monkeypatch.setattr(mechanism, "draw", lambda profile, k, epsilon: profile)
    bad = np.array([asking.ask(next(names), ["fevers"]).profile for _ in range(60)])
    assert likeliest_guess(bad, law)
