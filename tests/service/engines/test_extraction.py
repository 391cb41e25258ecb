"""Answers taken from the query's document: units, candidates, what a slot teaches, and that slots are isolated."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from exemplar_store import Exemplar
from service.engines.embedded.extraction import MOST_UNITS, candidates, split
from service.engines.task import Embedded, Prompt, TaskSpec
from tests.service.engines.contract import Case, EngineContract

pytestmark = pytest.mark.model

TASK = TaskSpec(
    "kb.bills",
    (),
    Prompt("", "{document}\n{question}\n{answer}", "{document}\n{question}\n"),
    answer_field="answer",
    input_field="question",
    kind="generate",
    candidates=6,
    document_field="document",
)
TOTAL, DATE, SHOP = "What is the total?", "On which day was it bought?", "Which shop wrote the bill?"


def bill(shop, day, goods, total):
    lines = [shop, "Phone 555-0100", f"Date {day}", *goods, "Sum due", total, "Paid in cash", "Come again soon"]
    return "\n".join(lines)


BILLS = [
    (bill("Ada's Garden Shop", "04-03-2021", ["2 Spade", "31.00", "Seeds", "2.50"], "33.50"), "33.50", "04-03-2021"),
    (bill("Berger and Sons", "17-11-2022", ["Hammer", "12.00", "Nails", "4.20", "Saw", "9.90"], "26.10"),
     "26.10", "17-11-2022"),
    (bill("Corner Bakery", "29-08-2020", ["Rye loaf", "3.80"], "3.80"), "3.80", "29-08-2020"),
]  # fmt: skip
QUERY = {
    "question": TOTAL,
    "document": bill("Dunes Book Store", "12-12-2023", ["Atlas", "48.00", "Pencil", "0.90"], "48.90"),
}


@pytest.fixture(scope="module")
def vectors(engine):
    return dict(zip((TOTAL, DATE, SHOP), engine._embedder.embed([TOTAL, DATE, SHOP]), strict=True))


@pytest.fixture(scope="module")
def exemplars(vectors) -> list[Exemplar]:
    """Three questions on each bill."""
    return [
        Exemplar({"question": question, "document": document, "answer": answer}, vectors[question])
        for document, total, day in BILLS
        for question, answer in ((TOTAL, total), (DATE, day), (SHOP, document.splitlines()[0]))
    ]


@pytest.fixture(scope="module")
def zero_shot(engine):
    return asyncio.run(engine.zero_shot(TASK, QUERY))


class TestContract(EngineContract):
    @pytest.fixture
    def case(self, exemplars: list[Exemplar]) -> Case:
        rng = np.random.default_rng(0)
        noise = [replace(exemplar, embedding=rng.normal(0, 0.05, 384).astype(np.float32)) for exemplar in exemplars]
        return Case(TASK, QUERY, [*exemplars, *noise])


def contributions(engine, slots, zero_shot, query=QUERY, task=TASK):
    said = asyncio.run(engine.contributions(task, query, slots, zero_shot))
    for one in said:
        if one is not None:
            assert isinstance(one, Embedded)
            assert np.linalg.norm(one.embedding) == pytest.approx(1, abs=1e-6)
    return [None if one is None else one.text for one in said]


def test_an_output_is_embedded_by_its_public_lines(engine, exemplars, zero_shot):
    (said,) = asyncio.run(engine.contributions(TASK, QUERY, [tuple(exemplars)], zero_shot))
    assert zero_shot.embedded
    chosen = [unit for unit in split(QUERY["document"]) if unit in said.text]
    total = engine._embedder.embed(chosen).astype(np.float64).sum(axis=0)
    assert np.allclose(said.embedding, total / np.linalg.norm(total), atol=1e-6)


def test_units_are_lines_or_sentences_where_lines_are_few():
    assert split(" one \n\n two\r\n three. Four.") == ("one", "two", "three. Four.")
    sentences = ("It rained.", "Did it?", "Yes!", "Ada paid 3.50 then.")
    assert split("It rained. Did it?  Yes!\nAda paid 3.50 then.") == sentences
    assert split(" \n\n") == split("") == ()


def test_a_document_is_read_up_to_a_public_limit():
    assert split("\n".join(map(str, range(1000)))) == tuple(map(str, range(MOST_UNITS)))
    assert len(split("So it goes. " * 1000)) == MOST_UNITS


def test_candidates_are_different_runs_of_the_document_the_nearest_first(engine, zero_shot):
    units = split(QUERY["document"])
    embeddings = engine._embedder.embed(units).astype(np.float64)
    q = engine._embedder.embed([TOTAL])[0].astype(np.float64)
    cosines = {}
    for length in range(1, 5):
        for start in range(len(units) - length + 1):
            total = embeddings[start : start + length].sum(axis=0)
            cosines[" ".join(units[start : start + length])] = total @ q / np.linalg.norm(total)
    assert list(zero_shot.texts) == sorted(cosines, key=cosines.get, reverse=True)[:6]
    assert "Sum due" in zero_shot.texts[0]


def test_equal_runs_are_one_candidate():
    assert candidates(np.ones(1), ("so", "so", "so"), np.ones((3, 1)), 9) == ("so", "so so", "so so so")


def test_public_answers_are_candidates_behind_the_documents_own(engine, zero_shot):
    task = replace(TASK, public_answers=("It is not on the bill.", zero_shot.texts[0]))
    texts = asyncio.run(engine.zero_shot(task, QUERY)).texts
    assert texts == (*zero_shot.texts[: TASK.candidates - 2], "It is not on the bill.")


def test_what_public_exemplars_teach_is_the_zero_shot_answer(engine, exemplars, zero_shot):
    """The passages that resemble the question come next, and slots learn from private exemplars only."""
    task = replace(TASK, public_exemplars=tuple(exemplar.fields for exemplar in exemplars))
    shown = asyncio.run(engine.zero_shot(task, QUERY))
    assert shown.texts[0] == "48.90" != zero_shot.texts[0]
    assert shown.texts[1:] == zero_shot.texts[: TASK.candidates - 1]
    slots = [tuple(exemplars[:4]), (), tuple(exemplars[3:])]
    assert contributions(engine, slots, shown, task=task) == contributions(engine, slots, zero_shot)


def test_an_empty_document_has_no_candidates_and_no_answers(engine, exemplars):
    empty = {"question": TOTAL, "document": " \n "}
    probed = asyncio.run(engine.zero_shot(TASK, empty))
    assert probed.texts == ()
    assert contributions(engine, [tuple(exemplars)], probed, empty) == [None]


def test_a_query_without_its_document_or_question_is_refused(engine):
    with pytest.raises(ValueError, match="'document'"):
        asyncio.run(engine.zero_shot(TASK, {"question": TOTAL}))
    with pytest.raises(ValueError, match="'question'"):
        asyncio.run(engine.zero_shot(TASK, {"document": "x"}))


@pytest.mark.parametrize(
    ("question", "answer"), [(TOTAL, "48.90"), (DATE, "Date 12-12-2023"), (SHOP, "Dunes Book Store")]
)
def test_a_slot_teaches_which_line_answers_such_a_question(engine, exemplars, question, answer):
    """The zero-shot answer is another each time; the line was seen in no exemplar."""
    query = {**QUERY, "question": question}
    probed = asyncio.run(engine.zero_shot(TASK, query))
    assert contributions(engine, [tuple(exemplars)], probed, query) == [answer]
    assert probed.texts[0] != answer


def test_answers_are_as_long_as_the_responses_and_in_the_documents_order(engine, vectors, zero_shot):
    document = QUERY["document"]

    def slot(answer):
        return (Exemplar({"document": document, "answer": answer}, vectors[TOTAL]),)

    lines = ["Dunes Book Store", "Come again soon"]
    outputs = contributions(engine, [slot(" ".join(lines)), slot(document), slot("Paid")], zero_shot)
    assert outputs == ["Dunes Book Store Come again soon", " ".join(document.splitlines()), "Paid in cash"]


def test_near_exemplars_outweigh_far_ones(engine, vectors, zero_shot):
    """The same two exemplars, their embeddings exchanged: the one with the query's own question decides."""
    document = QUERY["document"]
    shop, cash = ({"document": document, "answer": answer} for answer in ("Dunes Book Store", "Paid in cash"))
    near, far = vectors[TOTAL], vectors[SHOP]
    slots = [(Exemplar(shop, near), Exemplar(cash, far)), (Exemplar(shop, far), Exemplar(cash, near))]
    assert contributions(engine, slots, zero_shot) == ["Dunes Book Store", "Paid in cash"]


def test_lines_that_are_all_alike_teach_nothing(engine, vectors, zero_shot):
    """What is learnt is how an answer's lines differ from the others of its document."""
    slot = (Exemplar({"document": "Spade\nSpade\nSpade\nSpade", "answer": "Spade"}, vectors[TOTAL]),)
    nearest = split(QUERY["document"])[zero_shot.context.similarity.argmax()]
    assert contributions(engine, [slot], zero_shot) == [nearest]


@pytest.mark.filterwarnings("ignore:invalid value")
def test_unusable_exemplars_are_passed_over(engine, exemplars, zero_shot):
    """What makes no sense makes its own slot abstain."""
    good = exemplars[0]
    fields, vector = good.fields, good.embedding
    useless = (
        *(replace(good, embedding=bad) for bad in (None, vector[:100], -vector)),
        *(Exemplar({**fields, field: text}, vector) for field in ("document", "answer") for text in ("", " \n")),
        *(Exemplar({field: fields[field]}, vector) for field in ("document", "answer")),
    )
    no_number = replace(good, embedding=np.full(384, np.nan, np.float32))
    no_text = Exemplar({"document": 7, "answer": "x"}, vector)  # type: ignore[dict-item]
    slots = [(good,), (*useless, good), useless, (), (no_number, good), (no_text, good), (good,)]
    assert contributions(engine, slots, zero_shot) == ["48.90", "48.90", None, None, None, None, "48.90"]


PROGRAM = """
import numpy as np
import service.engines.embedded.extraction as extraction
from exemplar_store import Exemplar
from tests.service.engines.test_extraction import BILLS, QUERY

extraction._choose = lambda probe, scores, length: print(scores.tobytes().hex())
units = extraction.split(QUERY["document"])
probe = extraction.probe(np.ones(1), units, np.linspace(0, 1, len(units))[:, None])
extraction.extract([Exemplar({"d": d, "r": total}, np.full(1, 0.7)) for d, total, _ in BILLS], "d", "r", probe)
"""


def test_scores_do_not_depend_on_the_processs_hash_seed():
    """Two replicas give bit-identical scores: no sum runs in the order of a set."""

    def shown(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PROGRAM]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    first, *others = map(shown, "123")
    assert len(first) > 100
    assert others == [first] * 2


def test_sentences_of_a_story_are_extracted_too(engine):
    """A document without lines, compared by itself."""
    task = replace(TASK, input_field="document", answer_field="summary")
    story = "Mona: shall we cook tonight? Ravi: no, we order pizza at eight. Mona: good. Ravi: bring the drinks."
    query = {"document": story}
    probed = asyncio.run(engine.zero_shot(task, query))
    assert all(text in story for text in probed.texts)
    vector = engine._embedder.embed([story])[0]
    slot = (Exemplar({"document": story, "summary": "Ravi and Mona order pizza at eight."}, vector),)
    assert contributions(engine, [slot], probed, query, task) == ["Ravi: no, we order pizza at eight."]


def test_released_words_become_a_passage_of_the_document(engine, zero_shot):
    sentence = asyncio.run(engine.reconstruct(TASK, QUERY, ["48.90", "sum"], True, zero_shot))
    assert sentence.text in zero_shot.texts
    assert "48.90" in sentence.text
