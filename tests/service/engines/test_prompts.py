"""Prompts, character by character."""

from __future__ import annotations

import pytest

from exemplar_store import Exemplar
from service.engines.prompts import (
    RANKED,
    UNRANKED,
    cues,
    filled,
    own_words,
    render,
    render_keywords,
    rendered,
    showing,
)
from service.engines.task import Prompt

PROMPT = Prompt("Answer in a few words.", "Q: {question}\nA: {reply}", "Q: {question}\nA:")
QUERY = {"question": "Who pays?"}
SLOT = (
    Exemplar({"question": "Who calls?", "reply": "Ada"}, None),
    Exemplar({"question": "Who {sings}?", "reply": "{question}"}, None),
)


def test_a_prompt_is_instruction_exemplars_and_query():
    assert render(PROMPT, QUERY, SLOT) == (
        "Answer in a few words.\n\nQ: Who calls?\nA: Ada\n\nQ: Who {sings}?\nA: {question}\n\nQ: Who pays?\nA:"
    )


def test_a_prompt_shows_labels_as_the_plan_spells_them():
    prompt = Prompt("", "{text}: {team}.", "{text}:", labels=("Billing", "Keys"), label_field="team")
    slot = [Exemplar({"text": "billing", "team": team}, None) for team in ("billing", "BILLING\xa0", "keyz", "Keys")]
    asked = {"text": "billing"}
    assert render(prompt, asked, tuple(slot)) == (
        "billing: Billing.\n\nbilling: Billing.\n\nbilling: keyz.\n\nbilling: Keys.\n\nbilling:"
    )
    assert rendered(prompt, tuple(slot[:1])) == ["billing: Billing.\n\n"]
    assert filled(prompt, asked, tuple(slot[:1]), 10) == "billing: B\n\nbilling:"


def test_public_exemplars_come_before_a_slots_own_in_every_prompt():
    """Their labels are spelt as the plan spells them, and what is cut to fit does not include them."""
    public = [{"question": "Who {cooks}?", "reply": "Bo"}, {"question": "Who drives?", "reply": "Cy"}]
    prompt, first = (
        showing(PROMPT, public),
        "Answer in a few words.\n\nQ: Who {cooks}?\nA: Bo\n\nQ: Who drives?\nA: Cy\n\n",
    )
    assert render(prompt, QUERY) == f"{first}Q: Who pays?\nA:"
    assert render(prompt, QUERY, SLOT[:1]) == f"{first}Q: Who calls?\nA: Ada\n\nQ: Who pays?\nA:"
    assert render_keywords(prompt, QUERY, ["bob"], ordered=False) == f"{first}Q: Who pays?\nWord suggestions: bob\nA:"
    assert filled(prompt, QUERY, SLOT[:1], 6) == f"{first}Q: Who\n\nQ: Who pays?\nA:"
    assert rendered(prompt, SLOT[:1]) == rendered(PROMPT, SLOT[:1])
    labels = Prompt("", "{text}: {team}.", "{text}:", labels=("Billing", "Keys"), label_field="team")
    assert showing(labels, [{"text": "a bill", "team": "BILLING\xa0"}]).public == ("a bill: Billing.",)


def test_without_exemplars_or_instruction_nothing_is_left_in_their_place():
    assert render(PROMPT, QUERY) == "Answer in a few words.\n\nQ: Who pays?\nA:"
    assert render(Prompt("", PROMPT.exemplar, PROMPT.query), QUERY) == "Q: Who pays?\nA:"


def test_what_fields_hold_is_not_a_template():
    braces = {"question": "Is {reply} or {} or {{x}} a template?"}
    assert render(PROMPT, braces).endswith("Q: Is {reply} or {} or {{x}} a template?\nA:")
    assert "Q: Is {reply} or {} or {{x}} a template?\n" in render_keywords(PROMPT, braces, ["no"], ordered=False)


@pytest.mark.parametrize(
    ("ordered", "line"),
    [
        (True, "Word suggestions, ranked by their frequency from high to low: bob, friday"),
        (False, "Word suggestions: bob, friday"),
    ],
)
def test_words_are_put_before_the_answer_begins(ordered, line):
    assert render_keywords(PROMPT, QUERY, ["bob", "friday"], ordered) == (
        f"Answer in a few words.\n\nQ: Who pays?\n{line}\nA:"
    )


def test_a_query_of_one_line_comes_behind_the_words():
    prompt = Prompt("", "{question} {reply}", "{question}")
    assert render_keywords(prompt, QUERY, ["bob"], ordered=False) == "Word suggestions: bob\nWho pays?"


def test_a_task_can_ask_for_the_words_its_own_way():
    prompt = Prompt("", PROMPT.exemplar, PROMPT.query, keywords="{question} Use: {keywords}.")
    assert render_keywords(prompt, QUERY, ["bob", "friday"], ordered=True) == "Who pays? Use: bob, friday."


WORDS = {line.removesuffix(" {keywords}") for line in (RANKED, UNRANKED)}
"""Cues that every prompt may have, as a sentence may be asked for."""


@pytest.mark.parametrize(
    ("exemplar", "query", "expected"),
    [
        (PROMPT.exemplar, PROMPT.query, {"Q:", "A:"}),
        ("Ticket: {question}\nReply: {reply}", "Ticket: {question}\nNow reply", {"Ticket:", "Reply:", "Now reply"}),
        ("### Q\n{question}\n### A\n{reply}", "### Q\n{question}\n### A", {"### A"}),
        ("{question} {reply}", "{question}", set()),
        ("- {question}\n- {reply}", "- {question}\n-", set()),  # lists begin so, too
        ("{question}\nDear {name}: {reply}", "{question}. Say {{A}}:", {"Say {A}:"}),
    ],
)
def test_the_cues_of_a_prompt_are_what_its_lines_begin_with(exemplar, query, expected):
    assert {*cues(Prompt("Note: be brief.", exemplar, query))} - WORDS == expected
    assert {"Note:", *WORDS} & {*cues(Prompt("", exemplar, query, keywords="Note: {keywords}\nA:"))} >= {"Note:"}


@pytest.mark.parametrize(
    ("written", "own"),
    [
        (" Bob pays. ", "Bob pays."),
        ("A: Bob pays.", "Bob pays."),
        ("Bob pays.\nQ: Who calls?\nA: Ada", "Bob pays."),
        ("A: Bob pays.\nWord suggestions: bob\nA: Bob.", "Bob pays."),
        ("Bob\nand A: pay\n  A: both\nA", "Bob\nand A: pay\n  A: both\nA"),
        ("Word suggestions: bob\nA: Bob", ""),
        ("A:\nQ:", ""),
        ("", ""),
    ],
)
def test_a_text_ends_where_it_imitates_the_prompt(written, own):
    assert own_words(PROMPT, written) == own
