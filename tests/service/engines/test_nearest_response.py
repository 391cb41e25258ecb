"""Free text of the nearest-exemplar engine where the answer is in no document: responses and public answers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from exemplar_store import Exemplar
from service.engines.task import Embedded, Prompt, TaskSpec
from tests.service.engines.contract import Case, EngineContract

pytestmark = pytest.mark.model

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
def exemplars(engine) -> list[Exemplar]:
    vectors = engine._embedder.embed([text for text, _ in TICKETS])
    return [Exemplar({"text": text, "reply": reply}, v) for (text, reply), v in zip(TICKETS, vectors, strict=True)]


@pytest.fixture(scope="module")
def zero_shot(engine):
    return asyncio.run(engine.zero_shot(TASK, QUERY))


def contributions(engine, slots, zero_shot, task=TASK):
    return asyncio.run(engine.contributions(task, QUERY, slots, zero_shot))


EMBEDDED = replace(TASK, responses_embedded=True)


@pytest.fixture(scope="module")
def with_responses(engine, exemplars) -> list[Exemplar]:
    vectors = engine._embedder.embed([reply for _, reply in TICKETS])
    return [replace(one, response_embedding=vector) for one, vector in zip(exemplars, vectors, strict=True)]


@pytest.fixture(scope="module")
def embedded(engine):
    return asyncio.run(engine.zero_shot(EMBEDDED, QUERY))


class TestContract(EngineContract):
    @pytest.fixture(params=["as text", "embedded"])
    def case(self, request: pytest.FixtureRequest, with_responses: list[Exemplar]) -> Case:
        return Case(TASK if request.param == "as text" else EMBEDDED, QUERY, with_responses)


def test_candidates_are_the_public_answers_the_nearest_first(engine, zero_shot):
    assert zero_shot.texts[0] == "Reset your password on the sign-in page."
    assert sorted(zero_shot.texts) == sorted(HELP)
    assert asyncio.run(engine.zero_shot(replace(TASK, candidates=2), QUERY)).texts == zero_shot.texts[:2]
    assert asyncio.run(engine.zero_shot(TASK, {"text": "Where is my refund?"})).texts[0] == HELP[2]
    assert asyncio.run(engine.zero_shot(replace(TASK, public_answers=()), QUERY)).texts == ()


def test_the_response_of_the_nearest_public_exemplar_is_the_zero_shot_answer(engine):
    """The others are candidates, too, and a slot repeats private responses only."""
    public = tuple({"text": text, "reply": reply} for text, reply in TICKETS[:2])
    task = replace(TASK, public_exemplars=public)
    texts = asyncio.run(engine.zero_shot(task, QUERY)).texts
    assert texts[0] == TICKETS[0][1]
    assert sorted(texts) == sorted([*HELP, *(reply for _, reply in TICKETS[:2])])
    assert asyncio.run(engine.zero_shot(task, {"text": "When is my refund paid?"})).texts[0] == TICKETS[1][1]


@pytest.mark.parametrize(
    ("words", "text", "how"),
    [(["password", "page"], HELP[1], "covers the released"), (["blue", "kettle"], "blue kettle", "as they are")],
)
def test_released_words_choose_a_candidate_or_stay_as_they_are(engine, zero_shot, words, text, how):
    sentence = asyncio.run(engine.reconstruct(TASK, QUERY, words, False, zero_shot))
    assert sentence.text == text
    assert how in sentence.method
    assert "no language model" in sentence.method


def test_two_tasks_do_not_share_their_public_answers(engine, zero_shot):
    other = asyncio.run(engine.zero_shot(replace(TASK, public_answers=("The password is on the box.",)), QUERY))
    assert other.texts == ("The password is on the box.",)
    assert asyncio.run(engine.zero_shot(TASK, QUERY)).texts == zero_shot.texts


def test_a_slot_repeats_the_response_of_its_nearest_exemplar(engine, exemplars, zero_shot):
    outputs = contributions(engine, [tuple(exemplars), tuple(reversed(exemplars)), tuple(exemplars[1:2])], zero_shot)
    assert outputs == ["Use the reset link we have sent you."] * 2 + ["We paid it back on Monday."]


def test_equally_near_exemplars_are_taken_in_the_slots_order(engine, exemplars, zero_shot):
    twin = Exemplar({"text": "x", "reply": "Ask Ada."}, exemplars[0].embedding)
    assert contributions(engine, [(exemplars[0], twin), (twin, exemplars[0])], zero_shot) == [
        "Use the reset link we have sent you.",
        "Ask Ada.",
    ]


def test_unusable_exemplars_are_passed_over_and_never_raise(engine, exemplars, with_responses, zero_shot, embedded):
    vector, (nearest, other) = exemplars[0].embedding, with_responses[:2]
    useless = [
        *(
            Exemplar(fields, vector)
            for fields in ({"text": "x"}, {"text": "x", "reply": ""}, {"text": "x", "reply": " \n"})
        ),
        *(
            Exemplar({"text": "x", "reply": "no"}, bad)
            for bad in (None, vector[:100], vector[None, :], np.full(384, np.nan, np.float32))
        ),
    ]
    slots = [(*useless, exemplars[3]), useless, (), (exemplars[0],)]
    assert contributions(engine, slots, zero_shot) == [TICKETS[3][1], None, None, TICKETS[0][1]]
    useless = [replace(nearest, response_embedding=bad) for bad in (None, vector[:100], vector[None, :])]
    outputs = contributions(engine, [(*useless, other), tuple(useless), (nearest, other)], embedded, EMBEDDED)
    assert [output and output.text for output in outputs] == [TICKETS[1][1], None, TICKETS[0][1]]
    no_text = Exemplar({"text": "x", "reply": 7}, vector)  # type: ignore[dict-item]
    slots = [(no_text, exemplars[1]), (exemplars[1],)]
    assert contributions(engine, slots, zero_shot) == [None, TICKETS[1][1]]  # its own slot abstains


def test_responses_come_with_their_stored_embeddings(engine, with_responses, zero_shot, embedded):
    """The embeddings are the same bit by bit, and the responses are the same as without them."""
    assert (zero_shot.embedded, embedded.embedded) == (False, True)
    slots = [tuple(with_responses), tuple(with_responses[1:2]), ()]
    first, second, nothing = contributions(engine, slots, embedded, EMBEDDED)
    for said, stored in ((first, with_responses[0]), (second, with_responses[1])):
        assert isinstance(said, Embedded)
        assert said.text == stored.fields["reply"]
        assert said.embedding.tobytes() == stored.response_embedding.tobytes()
    assert nothing is None
    assert contributions(engine, slots, zero_shot) == [first.text, second.text, None]


def test_lines_of_documents_need_no_responses_embedded(engine):
    task = replace(EMBEDDED, document_field="document", public_answers=())
    query = {**QUERY, "document": "One line.\nAnother line.\nA third one."}
    assert asyncio.run(engine.zero_shot(task, query)).embedded
    assert asyncio.run(engine.zero_shot(replace(task, responses_embedded=False), query)).embedded


def test_a_sentence_of_released_words_is_a_public_answer(engine, zero_shot):
    sentence = asyncio.run(engine.reconstruct(TASK, QUERY, ["refunds", "week"], True, zero_shot))
    assert sentence.text == "Refunds arrive within a week."
    assert "no language model" in sentence.method
