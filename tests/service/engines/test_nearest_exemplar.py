"""The nearest-exemplar engine on its real model: what it predicts, when it abstains, and that slots are isolated."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from exemplar_store import Exemplar
from service.engines.embedded.nearest_exemplar import (
    ALONE_NEARNESS,
    ALONE_STEP,
    PUBLIC_TEMPERATURE,
    STEP,
    TEMPERATURE,
    NearestExemplarEngine,
    label_sentences,
)
from service.engines.embedding.embedder import Embedder
from service.engines.task import Prompt, TaskSpec
from tests.service.engines.contract import QUERY, TICKETS, Case, DownContract, EngineContract, Running

pytestmark = pytest.mark.model

LABELS = ("Sports", "Business", "Gardening")
TASK = TaskSpec("kb.topic", LABELS, Prompt("", "Text: {text}\nAnswer: {label}", "Text: {text}\nAnswer:"), ensemble=100)


@pytest.fixture(scope="module")
def exemplars(embedder) -> list[Exemplar]:
    vectors = embedder.embed([text for text, _ in TICKETS])
    return [Exemplar({"text": text, "label": label}, v) for (text, label), v in zip(TICKETS, vectors, strict=True)]


@pytest.fixture(scope="module")
def zero_shot(engine):
    """The public answer, as Ray carries it between replicas."""
    return pickle.loads(pickle.dumps(asyncio.run(engine.zero_shot(TASK, QUERY))))  # noqa: S301


@pytest.mark.filterwarnings("ignore:invalid value")
class TestContract(EngineContract, DownContract):
    @pytest.fixture
    def case(self, exemplars: list[Exemplar]) -> Case:
        """Some of the embeddings are pure noise."""
        noise = [np.random.default_rng(i).normal(0, 0.05, 384).astype(np.float32) for i in range(3)]
        return Case(TASK, QUERY, [*exemplars, *(Exemplar({"text": "?", "label": "Sports"}, one) for one in noise)])

    @pytest.fixture
    def down(self) -> Iterator[Running]:
        embedder = Embedder()
        embedder._whole.to("meta")  # without weights every forward pass fails
        embedder._bounded._model.to("meta")
        with asyncio.Runner() as runner:
            yield Running(NearestExemplarEngine(embedder), runner.run)


def contributions(engine, slots, zero_shot, task=TASK):
    return asyncio.run(engine.contributions(task, QUERY, slots, zero_shot))


def as_bytes(outputs):
    return [None if output is None else output.tobytes() for output in outputs]


def test_zero_shot_reads_the_label_sentences(zero_shot):
    assert zero_shot.probabilities.sum() == pytest.approx(1)
    assert LABELS[zero_shot.probabilities.argmax()] == "Sports"


def test_public_exemplars_are_a_slot_of_the_zero_shot_answer_and_their_scores_the_start_of_others(
    engine, exemplars, zero_shot
):
    public = tuple(exemplar.fields for exemplar in exemplars[2:4])
    task = replace(TASK, public_exemplars=(*public, {"text": "?", "label": "Poetry"}))
    shown = asyncio.run(engine.zero_shot(task, QUERY))
    alone = contributions(engine, [tuple(exemplars[2:4])], zero_shot, replace(TASK, ensemble=1))
    assert shown.probabilities == pytest.approx(alone[0], abs=1e-12)
    assert shown.probabilities != pytest.approx(zero_shot.probabilities, abs=1e-3)
    slots = [tuple(exemplars[:2]), tuple(exemplars[4:])]
    before = [np.log(output) for output in contributions(engine, slots, zero_shot)]
    after = [np.log(output) for output in contributions(engine, slots, shown, task)]
    moved = (np.log(shown.probabilities) - np.log(zero_shot.probabilities)) * PUBLIC_TEMPERATURE / TEMPERATURE
    for old, new in zip(before, after, strict=True):
        difference = new - old - moved
        assert difference == pytest.approx(np.full(3, difference[0]), abs=1e-9)


def softmax(s, temperature=TEMPERATURE):
    return np.exp(s / temperature) / np.exp(s / temperature).sum()


def test_contributions_follow_the_formulas_of_the_module(engine, embedder, exemplars, zero_shot):
    q = embedder.embed([QUERY["text"]])[0]
    labels = []
    for label in LABELS:
        mean = embedder.embed(label_sentences(TASK, label)).sum(axis=0)
        labels.append(mean / np.linalg.norm(mean))
    scores = np.stack(labels) @ q
    assert zero_shot.probabilities == pytest.approx(softmax(scores, PUBLIC_TEMPERATURE), rel=1e-4)
    slot = tuple(exemplars[:4])
    near = np.array([q @ exemplar.embedding for exemplar in slot])
    surprise = np.array(
        [
            np.eye(3)[LABELS.index(exemplar.fields["label"])] - softmax(np.stack(labels) @ exemplar.embedding)
            for exemplar in slot
        ]
    )
    (output,) = contributions(engine, [slot], zero_shot)
    assert output == pytest.approx(softmax(scores + STEP * np.maximum(near, 0) ** 3 @ surprise), rel=1e-3)
    (alone,) = contributions(engine, [slot], zero_shot, replace(TASK, ensemble=1))
    expected = softmax(scores + ALONE_STEP * softmax(near, ALONE_NEARNESS) @ surprise, PUBLIC_TEMPERATURE)
    assert alone == pytest.approx(expected, rel=1e-3)
    assert output.sum() == pytest.approx(1) == alone.sum()


def test_an_exemplar_can_overrule_the_label_sentence(engine, exemplars, zero_shot):
    renamed = Exemplar({"text": "x", "label": "Gardening"}, exemplars[0].embedding)
    output, untouched = contributions(engine, [(renamed,) * 4, (exemplars[1],)], zero_shot)
    assert LABELS[output.argmax()] == "Gardening"
    assert LABELS[untouched.argmax()] == "Sports"


@pytest.mark.parametrize("spelt", ["gardening", "Gardening ", "\ufeffGARDENING\xa0", "Ｇardening"])
def test_a_label_counts_however_it_is_spelt(engine, exemplars, zero_shot, spelt):
    slots = [(Exemplar({"text": "x", "label": label}, exemplars[0].embedding),) for label in ("Gardening", spelt)]
    one, other = as_bytes(contributions(engine, slots, zero_shot))
    assert one == other is not None


def test_descriptions_replace_the_context_sentence(engine):
    odd = TaskSpec("kb.odd", ("Red", "Blue"), TASK.prompt, label_descriptions={"Red": "Football and other sports."})
    assert label_sentences(odd, "Red") == ("Red", "Football and other sports.")
    described = asyncio.run(engine.zero_shot(odd, QUERY))
    plain = asyncio.run(engine.zero_shot(TaskSpec("kb.odd", ("Red", "Blue"), TASK.prompt), QUERY))
    assert described.probabilities[0] > plain.probabilities[0] + 0.1


def test_unusable_exemplars_are_passed_over_and_never_raise(engine, exemplars, zero_shot):
    good, fields = exemplars[0], {"text": "x", "label": "Sports"}
    useless = [
        *(Exemplar(fields, vector) for vector in (None, good.embedding[:100], good.embedding[None, :])),
        *(Exemplar(other, good.embedding) for other in ({"text": "x", "label": "Weather"}, {"text": "x"})),
    ]
    with_company = contributions(engine, [(good,), (good, *useless)], zero_shot)
    assert with_company[0].tobytes() == with_company[1].tobytes()
    assert contributions(engine, [(), tuple(useless)], zero_shot) == [None, None]


def test_the_input_and_label_fields_are_the_tasks(engine, exemplars):
    task = TaskSpec("kb.t", LABELS, TASK.prompt, answer_field="queue", input_field="body")
    probe = asyncio.run(engine.zero_shot(task, {"body": QUERY["text"]}))
    assert contributions(engine, [tuple(exemplars)], probe, task) == [None]
    renamed = Exemplar({"queue": "Business"}, exemplars[1].embedding)
    assert contributions(engine, [(renamed,)], probe, task)[0] is not None
    with pytest.raises(ValueError, match="'body'"):
        asyncio.run(engine.zero_shot(task, QUERY))
