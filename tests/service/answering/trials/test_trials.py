"""Trials on public exemplars: what they draw, what they show, and what they cannot reach."""

import asyncio
import re
import time
from collections import Counter
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import grimp
import numpy as np
import pytest

import service
from accounting.plans.mechanisms import MECHANISMS
from accounting.plans.plan import CalibratedPlan, load_plan
from accounting.privacy.profiles import Gaussian
from exemplar_store import BadRowError, Exemplar
from service.answering.answering import BusyError
from service.answering.queries import InvalidQueryError
from service.answering.stages import Stages
from service.answering.trials.trials import MAX_EXEMPLARS, MAX_REPEATS, Trial, Trials, draw_slots
from service.engines.errors import EngineBusyError, EngineUnavailableError, UnanswerableQueryError
from tests.service.conftest import (
    EMBEDDER,
    PLAN,
    TEXT_PLAN,
    Embedding,
    MajorityEngine,
    embed,
    nearly_noiseless,
)

RED = [{"text": f"toy {i}", "label": "red"} for i in range(8)]
FIELDS = {"embedded_field": "text", "response_field": None, "asker": ""}


def text_plan(mechanism: str, epsilon: float = 80, answers: int = 2) -> CalibratedPlan:
    return nearly_noiseless(load_plan(TEXT_PLAN.format(mechanism=mechanism, epsilon=epsilon, answers=answers)))


def letters(texts):
    """Unit vectors that distinguish texts."""
    vectors = np.array([[1.0 + text.count(letter) for letter in "redblu"] for text in texts], np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def attempt(calibrated: CalibratedPlan, exemplars=RED, engine=None, *, embed=embed, query="a toy", **options) -> Trial:
    trials = options.pop("trials", None) or Trials(Stages(engine or MajorityEngine(), Embedding(embed), 60.0))
    (name,) = calibrated.plan.tasks
    return asyncio.run(trials.try_task(calibrated, name, query, exemplars, **FIELDS, **options))


def test_a_unanimous_trial_shows_the_consensus(calibrated: CalibratedPlan) -> None:
    trial = attempt(calibrated, repeats=40)
    assert trial.consensus.answer == {"label": "red"}
    assert trial.consensus.support == {"red": trial.answered, "blue": 0.0}
    assert (trial.supplied, trial.public_size, trial.expected, trial.slots) == (8, 60, 20, 10)
    assert trial.answer["label"] in ("red", "blue")
    assert 1 <= trial.agreeing <= trial.repeats == 40  # ten votes: σ would have to be a hundred for none in 40 to agree
    assert trial.fallbacks is None
    assert "8 exemplars stand in for 60" in trial.caution


def test_the_noise_is_the_plans(calibrated: CalibratedPlan) -> None:
    """The share that agrees is what the plan's own noise leaves of ten slots' lead; without noise it would be all."""

    def agreeing(z: float) -> int:
        noise = calibrated.noise["colour"].model_copy(update={"mechanism": Gaussian(noise_multiplier=z)})
        return attempt(calibrated.model_copy(update={"noise": {"colour": noise}}), repeats=100).agreeing

    assert agreeing(0.01) == 100
    assert 20 <= agreeing(1000.0) <= 80  # a fair coin leaves this once in a thousand million


def test_prompts_share_no_cache_with_private_ones(calibrated: CalibratedPlan) -> None:
    """An engine salts its caches with a name that no real knowledge base can have; repeats ask nothing again."""
    engine = MajorityEngine()
    engine.zero_shot = probe = Mock(wraps=engine.zero_shot)
    attempt(calibrated, engine=engine, repeats=100)
    (asked,), ((shown, _, slots),) = probe.call_args_list, engine.shown
    assert asked.args[0].knowledge_base == shown.knowledge_base == "trials of toys"
    assert len(slots) == 10


@pytest.mark.parametrize(
    ("mechanism", "expected"),
    [
        ("type: embedding_mean", {"text": "a red kite"}),
        ("type: keyword_joint_em, k: 1", {"keywords": ["red"]}),
        ("type: keyword_ptr, k_min: 1, k_max: 2", {"keywords": ["red"]}),
    ],
)
def test_words_and_texts_have_a_consensus_too(mechanism: str, expected: dict) -> None:
    embedded: Counter[str] = Counter()

    def counting(texts):
        embedded.update(texts)
        return letters(texts)

    engine = MajorityEngine()
    trial = attempt(text_plan(mechanism), engine=engine, embed=counting, repeats=30)
    assert trial.consensus.answer.items() >= expected.items()
    assert trial.repeats == 30
    assert 0 <= trial.agreeing <= 30
    assert (trial.fallbacks is None) == ("keyword_ptr" not in mechanism)
    assert all(count <= 2 for count in embedded.values())  # a candidate that slots name, too, is embedded as both
    assert len(engine.asked) <= 2  # a sentence for the answer and one for the consensus, none for the repeats
    best, *_ = trial.consensus.support
    assert best in (expected.get("text"), "red")


def test_it_counts_how_often_it_falls_back() -> None:
    """Five slots are too few for the test at this noise: it nearly always falls back, which the trial counts."""
    trial = attempt(
        text_plan("type: keyword_ptr, k_min: 1, k_max: 2", epsilon=0.5), engine=MajorityEngine(), repeats=50
    )
    assert trial.fallbacks is not None
    assert trial.fallbacks > 25
    assert trial.agreeing <= 50 - trial.fallbacks


def test_slots_have_productions_sizes_and_no_exemplar_twice() -> None:
    """Sizes follow Binomial(public size, q/N) cut at the cap, however few exemplars there are to fill them."""
    task = load_plan(PLAN).tasks["colour"].model_copy(update={"shots": 4, "max_exemplars": 12, "ensemble": 50})
    exemplars = [Exemplar({"text": str(i)}, None) for i in range(30)]
    drawn = [slot for _ in range(200) for slot in draw_slots(task, 0.2, 1000, exemplars)]
    assert len(drawn) == 200 * 50
    sizes = [len(slot) for slot in drawn]
    assert abs(np.mean(sizes) - 4) < 0.2  # ten standard errors
    assert abs(np.mean([size == 0 for size in sizes]) - np.exp(-4)) < 0.015
    assert max(sizes) <= 12
    for slot in drawn[:500]:
        assert len({id(exemplar) for exemplar in slot}) == len(slot)
    used = Counter(exemplar.fields["text"] for slot in drawn for exemplar in slot)
    assert len(used) == 30
    assert max(used.values()) < 1.3 * min(used.values())
    few = draw_slots(task, 0.2, 1000, exemplars[:2])
    assert max(len(slot) for slot in few) == 2


def test_blocks_are_drawn_as_blocks() -> None:
    task = load_plan(PLAN).tasks["colour"].model_copy(update={"shots": 4, "ensemble": 50, "sampling": "blocks"})
    exemplars = [Exemplar({"text": str(i)}, None) for i in range(30)]
    runs = [draw_slots(task, 0.2, 1000, exemplars) for _ in range(100)]
    assert abs(np.mean([len(slots) for slots in runs]) - 50) < 5
    assert len({len(slots) for slots in runs}) > 1
    assert abs(np.mean([len(slot) for slots in runs for slot in slots]) - 4) < 0.3


@pytest.mark.parametrize(
    "exemplar",
    [{"text": "x"}, {"text": "x", "label": " "}, *({"text": bad, "label": "red"} for bad in (3, "x\0", "x" * 20_001))],
    ids=["no label", "an empty one", "no text", "NUL", "too long"],
)
def test_exemplars_are_checked_like_an_upload(calibrated: CalibratedPlan, exemplar: dict) -> None:
    with pytest.raises(BadRowError):
        attempt(calibrated, [*RED, exemplar])
    assert attempt(calibrated, [{**one, "unit_id": "u", "": 7, "desk": None} for one in RED]).supplied == 8


@pytest.mark.parametrize(
    "options",
    [
        {"exemplars": []},
        {"exemplars": RED * MAX_EXEMPLARS},
        {"repeats": 0},
        {"repeats": MAX_REPEATS + 1},
        {"query": " "},
    ],
)
def test_what_cannot_be_tried_is_refused(calibrated: CalibratedPlan, options: dict) -> None:
    with pytest.raises(ValueError, match=r"public exemplars|repeats|empty"):
        attempt(calibrated, **options)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (EngineUnavailableError("down"), EngineUnavailableError),
        (EngineBusyError("full"), BusyError),
        (UnanswerableQueryError("too long"), InvalidQueryError),
        (OSError("a path that is nobody's business"), EngineUnavailableError),
    ],
)
def test_the_engines_refusals_are_reported(calibrated: CalibratedPlan, monkeypatch, failure, told) -> None:
    engine = MajorityEngine()
    monkeypatch.setattr(engine, "zero_shot", AsyncMock(side_effect=failure))
    with pytest.raises(told) as caught:
        attempt(calibrated, engine=engine)
    assert "path" not in str(caught.value)


async def test_only_a_few_are_tried_at_once_and_each_keeps_its_place_until_it_leaves(calibrated, padding) -> None:
    begun, over = padding
    trials = Trials(Stages(MajorityEngine(), EMBEDDER, 60.0))

    def trial():
        return asyncio.ensure_future(trials.try_task(calibrated, "colour", "a toy", RED, **FIELDS))

    two = [trial(), trial()]
    await begun.wait()
    for _ in range(2):
        with pytest.raises(BusyError):
            await trial()
    over.set()
    assert [type(one) for one in (*await asyncio.gather(*two), await trial())] == [Trial] * 3


async def test_latency_is_padded_to_the_grain(calibrated: CalibratedPlan) -> None:
    trials, begun = Trials(Stages(MajorityEngine(), EMBEDDER, 60.0), latency_grain_s=0.5), time.monotonic()
    await trials.try_task(calibrated, "colour", "a toy", RED, **FIELDS)
    assert time.monotonic() - begun >= 0.5


def test_code_that_answers_private_queries_cannot_reach_the_noiseless_answer() -> None:
    """No chain of imports within the service leads from the query pipeline to the noiseless consensus."""
    graph = grimp.build_graph("service", cache_dir=None)
    trials = "service.answering.trials"
    answering = {name for name in graph.find_descendants("service.answering") if not name.startswith(trials)}
    reached = set[str]().union(*map(graph.find_upstream_modules, answering))
    assert "service.engines.protocol" in reached
    assert not [name for name in reached if name.startswith(trials)]
    # Nor may anything there look it up by its name.
    looked_up = re.compile(r"resolve_name|import_module|__import__")
    files = list((Path(service.__file__).parent / "answering").rglob("*.py"))
    assert {f"{name}.py" for name in MECHANISMS} <= {file.name for file in files}
    assert not [file for file in files if looked_up.search(file.read_text())]
