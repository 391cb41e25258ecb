"""Prompts, character by character."""

from __future__ import annotations

import pytest

from exemplar_store import Exemplar
from service.engines.prompts import filled, render, render_keywords, rendered
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
