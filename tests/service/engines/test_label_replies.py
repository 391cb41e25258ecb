"""What a written reply means."""

from __future__ import annotations

import json

import pytest

from service.engines.protocol import Prompt
from service.engines.remote.label_replies import label_schema, match_label, naming, read_label

LABELS = ("Billing", "Billing dispute", "Technical", "C", "C++", "Élan", "-1", "1")


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ("Billing", "Billing"),
        ("  billing.\n", "Billing"),
        ("**BILLING**", "Billing"),
        ('"Billing"', "Billing"),
        ("(Technical)", "Technical"),
        ("`Technical`", "Technical"),
        ("Technical: the app crashes, it is no billing matter", "Technical"),
        ("Technical\n\nTicket: I was charged", "Technical"),
        ("Technical</answer>", "Technical"),
        ("Billing dispute", "Billing dispute"),
        ("billing dispute, since the customer", "Billing dispute"),
        ("Billing disputes", "Billing"),
        ("e\u0301lan", "Élan"),
        ("ÉLAN!", "Élan"),
        ("C", "C"),
        ("C++", "C++"),
        ("-1", "-1"),
        ("1", "1"),
    ],
)
def test_a_reply_that_begins_with_a_label(reply: str, label: str) -> None:
    assert match_label(reply, LABELS) == LABELS.index(label)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        " \n",
        "**",
        "The answer is Billing",
        "Billings",
        "Billing-related",
        "1.5",
        "C#",
        "Billing/Technical",
        "Billing, Technical",
        "Billing or technical.",
        "Billing\nTechnical",
        "Tech",
        "\ud800",
    ],
)
def test_a_reply_that_means_no_label(reply: str) -> None:
    assert match_label(reply, LABELS) is None


def test_labels_that_differ_by_nothing_that_counts_mean_nothing() -> None:
    assert match_label("us", ("US", "us", "them")) is None
    assert match_label("them", ("US", "us", "them")) == 2


def test_a_label_may_hold_what_a_pattern_would() -> None:
    assert match_label("a.b (c)*", ("a.b (c)*", "aab")) == 0
    assert match_label("aab", ("a.b (c)*", "aab")) == 1


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        ('{"label": "Technical"}', 2),
        (' {"label":"C++"}\n', 4),
        ('{"label": "technical"}', None),
        ('{"label": "Tech', None),
        ('{"label": 7}', None),
        ('{"label": ["Billing"]}', None),
        ("{}", None),
        ("null", None),
        ("Technical", None),
        ("[" * 100_000, None),
    ],
)
def test_a_reply_by_the_schema(reply: str, number: int | None) -> None:
    assert read_label(reply, LABELS) == number


def test_the_schema_holds_the_labels_in_order() -> None:
    schema = json.loads(json.dumps(label_schema(LABELS)))["json_schema"]["schema"]
    assert schema["properties"]["label"]["enum"] == list(LABELS)


def test_labels_are_named_unless_they_are() -> None:
    prompt = Prompt("Which colour?", "{text}: {label}", "{text}:")
    assert naming(prompt, ("red", "blue")).instruction == "Which colour?\nAnswer with one of: red, blue."
    assert naming(Prompt("", "{text}: {label}", "{text}:"), ("red",)).instruction == "Answer with one of: red."
    named = Prompt("Is it Red or BLUE?", "{text}: {label}", "{text}:")
    assert naming(named, ("red", "blue")) is named
    assert naming(Prompt("Say redder or blue.", "{text}: {label}", "{text}:"), ("red", "blue")).instruction != (
        "Say redder or blue."
    )
