"""The label that a written reply means."""

from __future__ import annotations

import pytest

from service.engines.remote.label_replies import match_label, naming, read_label
from service.engines.task import Prompt

LABELS = ("Billing", "Billing dispute", "Technical", "C", "C++", "Élan", "-1", "1")


REPLIES = {
    "Billing": ["Billing", "  billing.\n", "**BILLING**", '"Billing"', "Billing disputes"],
    "Billing dispute": ["Billing dispute", "billing dispute, since the customer"],
    "Technical": [
        *("(Technical)", "`Technical`", "Technical: the app crashes, it is no billing matter"),
        *("Technical\n\nTicket: I was charged", "Technical</answer>"),
    ],
    "Élan": ["e\u0301lan", "ÉLAN!"],
    **{label: [label] for label in ("C", "C++", "-1", "1")},
    None: [
        *("", " \n", "**", "The answer is Billing", "Billings", "Billing-related", "1.5", "C#", "Billing/Technical"),
        *("Billing, Technical", "Billing or technical.", "Billing\nTechnical", "Tech", "\ud800"),
    ],
}


@pytest.mark.parametrize(("reply", "label"), [(reply, label) for label in REPLIES for reply in REPLIES[label]])
def test_a_reply_means_the_label_that_it_begins_with(reply: str, label: str | None) -> None:
    assert match_label(reply, LABELS) == (None if label is None else LABELS.index(label))


@pytest.mark.parametrize(
    ("reply", "labels", "number"),
    [
        *(("us", ("US", "us", "them"), None), ("them", ("US", "us", "them"), 2)),
        *(("a.b (c)*", ("a.b (c)*", "aab"), 0), ("aab", ("a.b (c)*", "aab"), 1)),  # what a pattern would hold
        *((reply, ("Can't log in", "Can"), 0) for reply in ("Can’t log in", "“can`t log in”.", "**Can't\xa0log in**")),
        *(
            (reply, ("(other)", "Billing"), 0)
            for reply in ("(other)", "(Other).", "other", "**(other)**", '"other", as')
        ),
        *((reply, ("[none]", "none given"), 0) for reply in ("[none]", "none", "`[none]`")),
        *(("none given", ("[none]", "none given"), 1), ("*", ("*", "Billing"), 0), ("*.", ("*", "Billing"), 0)),
        *(("**Billing**", ("*", "Billing"), 1), ("_misc", ("_misc", "misc"), 0), ("misc!", ("_misc", "misc"), 1)),
        *(("**misc** or so", ("_misc", "misc"), None), ("その他", ("「その他」", "請求"), 0)),
        *(("A*", ("A", "A*"), 1), ("**A**", ("A", "A*"), 0), ("(A*)", ("A", "A*"), 1), ("A", ("A", "A*"), 0)),
        *(("**A***", ("A", "A*"), 1), ("A, no doubt", ("A", "A*"), 0), ("A*, no doubt", ("A", "A*"), 1)),
    ],
)
def test_labels_that_are_alike_or_odd(reply: str, labels: tuple[str, ...], number: int | None) -> None:
    assert match_label(reply, labels) == number


@pytest.mark.parametrize(
    ("reply", "number"), [("Billing", None), ("Billing d", None), ("Billing dispute", 1), ("Billing.", 0), ("1", 7)]
)
def test_a_reply_that_was_cut_where_it_could_become_another_label_means_none(reply: str, number: int | None) -> None:
    assert match_label(reply, LABELS, cut=True) == number


OFF_THE_SCHEMA = ('{"label": "technically"}', '{"label": "Tech', '{"label": 7}', '{"label": ["Billing"]}', "{}", "null")


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        *(('{"label": "Technical"}', 2), (' {"label":"C++"}\n', 4), ('{"label": "E\\u0301lan"}', 5)),
        *((reply, None) for reply in (*OFF_THE_SCHEMA, "Technical", "[" * 100_000)),
    ],
)
def test_a_reply_by_the_schema(reply: str, number: int | None) -> None:
    assert read_label(reply, LABELS) == number


def test_labels_are_named_unless_they_are() -> None:
    prompt = Prompt("Which colour?", "{text}: {label}", "{text}:")
    assert naming(prompt, ("red", "blue")).instruction == "Which colour?\nAnswer with one of: red, blue."
    assert naming(Prompt("", "{text}: {label}", "{text}:"), ("red",)).instruction == "Answer with one of: red."
    named = Prompt("Is it Red or BLUE?", "{text}: {label}", "{text}:")
    assert naming(named, ("red", "blue")) is named
    assert naming(Prompt("Say redder or blue.", "{text}: {label}", "{text}:"), ("red", "blue")).instruction != (
        "Say redder or blue."
    )
