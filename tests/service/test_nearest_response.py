"""Free text of the nearest-exemplar engine where the answer is in no document: responses and public answers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from exemplar_store import Exemplar
from service.embedding import Embedder
from service.engines import Engine, Prompt, TaskSpec
from service.engines.nearest_exemplar import NearestExemplarEngine

HELP = (
    "Our office opens at nine on weekdays.",
    "Reset your password on the sign-in page.",
    "Refunds arrive within a week.",
)
TASK = TaskSpec(
    "kb.help",
    (),
    Prompt("", "{text}\n{reply}", "{text}\n"),
    answer_field="reply",
    kind="generate",
    candidates=5,
    public_answers=HELP,
)
QUERY = {"text": "I forgot my password and cannot log in."}
TICKETS = [
    ("My password does not work any more.", "Use the reset link we have sent you."),
    ("When do I get my money back?", "We paid it back on Monday."),
    ("Are you open on Sundays?", "Only in December."),
    ("The parcel never came.", "We send another one today."),
]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return NearestExemplarEngine(Embedder())


@pytest.fixture(scope="module")
def exemplars(engine) -> list[Exemplar]:
    vectors = engine._embedder.embed([text for text, _ in TICKETS])
    return [Exemplar({"text": text, "reply": reply}, v) for (text, reply), v in zip(TICKETS, vectors, strict=True)]


@pytest.fixture(scope="module")
def zero_shot(engine):
    return asyncio.run(engine.zero_shot(TASK, QUERY))


def contributions(engine, slots, zero_shot):
    return asyncio.run(engine.contributions(TASK, QUERY, slots, zero_shot))


def test_candidates_are_the_public_answers_the_nearest_first(engine, zero_shot):
    assert zero_shot.probabilities is None
    assert zero_shot.texts[0] == "Reset your password on the sign-in page."
    assert sorted(zero_shot.texts) == sorted(HELP)
    assert asyncio.run(engine.zero_shot(replace(TASK, candidates=2), QUERY)).texts == zero_shot.texts[:2]
    money = asyncio.run(engine.zero_shot(TASK, {"text": "Where is my refund?"}))
    assert money.texts[0] == "Refunds arrive within a week."


def test_without_public_answers_there_is_no_candidate(engine):
    assert asyncio.run(engine.zero_shot(replace(TASK, public_answers=()), QUERY)).texts == ()


def test_two_tasks_do_not_share_their_public_answers(engine, zero_shot):
    other = asyncio.run(engine.zero_shot(replace(TASK, public_answers=("The password is on the box.",)), QUERY))
    assert other.texts == ("The password is on the box.",)
    assert asyncio.run(engine.zero_shot(TASK, QUERY)).texts == zero_shot.texts


def test_a_slot_says_what_its_nearest_exemplar_was_answered(engine, exemplars, zero_shot):
    outputs = contributions(engine, [tuple(exemplars), tuple(reversed(exemplars)), tuple(exemplars[1:2])], zero_shot)
    assert outputs == ["Use the reset link we have sent you."] * 2 + ["We paid it back on Monday."]


def test_equally_near_exemplars_are_taken_in_the_slots_order(engine, exemplars, zero_shot):
    twin = Exemplar({"text": "x", "reply": "Ask Ada."}, exemplars[0].embedding)
    assert contributions(engine, [(exemplars[0], twin), (twin, exemplars[0])], zero_shot) == [
        "Use the reset link we have sent you.",
        "Ask Ada.",
    ]


def test_unusable_exemplars_are_passed_over_and_never_raise(engine, exemplars, zero_shot):
    vector = exemplars[0].embedding
    useless = (
        Exemplar({"text": "x"}, vector),
        Exemplar({"text": "x", "reply": ""}, vector),
        Exemplar({"text": "x", "reply": " \n"}, vector),
        Exemplar({"text": "x", "reply": "no"}, None),
        Exemplar({"text": "x", "reply": "no"}, vector[:100]),
        Exemplar({"text": "x", "reply": "no"}, vector[None, :]),
        Exemplar({"text": "x", "reply": "no"}, np.full(384, np.nan, np.float32)),
    )
    outputs = contributions(engine, [(*useless, exemplars[3]), useless, (), (exemplars[0],)], zero_shot)
    assert outputs == ["We send another one today.", None, None, "Use the reset link we have sent you."]


def test_what_is_no_text_makes_its_own_slot_abstain(engine, exemplars, zero_shot):
    broken = Exemplar({"text": "x", "reply": 7}, exemplars[0].embedding)  # type: ignore[dict-item]
    outputs = contributions(engine, [(broken, exemplars[1]), (exemplars[1],)], zero_shot)
    assert outputs == [None, "We paid it back on Monday."]


def test_a_sentence_of_released_words_is_a_public_answer(engine, zero_shot):
    sentence = asyncio.run(engine.reconstruct(TASK, QUERY, ["refunds", "week"], True, zero_shot))
    assert sentence.text == "Refunds arrive within a week."
    assert "no language model" in sentence.method
