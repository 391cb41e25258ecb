"""Free text through the whole pipeline: a real ledger, store, mechanisms and embeddings."""

import asyncio
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest
import yaml

from accounting.plans.plan import PlanError, calibrate_plan, load_plan
from service.answering.plans.preview import preview
from service.answering.plans.signing import check_engine, sign
from service.answering.queries import InvalidQueryError
from service.engines.embedding.embedder import Embed
from service.engines.errors import EngineUnavailableError
from service.engines.protocol import EngineInfo
from service.engines.task import ZeroShot
from service.operations.services import Services, open_services
from service.records.engine_record import note_engine
from tests.service.conftest import TEXT_PLAN, Embedding, MajorityEngine, make_records, nearly_noiseless, states

MECHANISMS = {
    "embedding_mean": "type: embedding_mean",
    "embedding_mean, centred": "type: embedding_mean, radius: 0.7, centred: true",
    "keyword_joint_em": "type: keyword_joint_em, k: 1",
    "keyword_ptr": "type: keyword_ptr, k_min: 1, k_max: 2",
}


def bag_of_letters(texts) -> np.ndarray:
    """Unit vectors that distinguish red from blue."""
    vectors = np.array([[text.count("r") + 0.1, text.count("u") + 0.1] for text in texts], np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def make_services(
    folder: Path,
    mechanism: str,
    *,
    epsilon: float = 40,
    embed: Embed = bag_of_letters,
    answers: int = 3,
    delta="1.0e-4",
    **changed: object,
) -> Services:
    """All but 2 of the 60 exemplars are red; at an ε of 40 the slots' consensus is at least 10σ away from the noise."""
    records = make_records(folder, epsilon=epsilon, blue=2)
    text = TEXT_PLAN.format(mechanism=MECHANISMS.get(mechanism, mechanism), answers=answers, epsilon=epsilon)
    written = yaml.safe_load(text.replace("delta: 1.0e-4", f"delta: {delta}"))
    written["tasks"]["story"] |= changed
    plan = load_plan(yaml.safe_dump(written, sort_keys=False))
    sign(records, nearly_noiseless(plan), "test")
    return open_services(records, MajorityEngine(), Embedding(embed))


def ask(services: Services, query: str = "which toy?"):
    return asyncio.run(services.answering.answer("toys.story", query, key_id="k"))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_output_of_most_slots_is_released(tmp_path: Path, mechanism: str) -> None:
    services = make_services(tmp_path, mechanism)
    answer = ask(services)
    assert states(services) == {"released": 1}
    released = answer.release.answer
    if mechanism.startswith("embedding_mean"):
        assert released["text"] == "a red kite"
        assert released.keys() == {"text", "method", "zero_shot"}
    else:
        assert (released["keywords"], released["text"]) == (["red"], "about red")
        assert services.engine.engine.asked == [(("red",), mechanism == "keyword_joint_em")]
        assert released.get("fallback") == (False if mechanism == "keyword_ptr" else None)
    again = ask(services)
    assert (again.release.answer, again.charged) == (released, False)


@pytest.mark.parametrize("mechanism", ["keyword_joint_em", "keyword_ptr"])
@pytest.mark.parametrize(
    ("public", "text", "asked"),
    [
        (["a blue boat", "an old red kite", "a red kite"], "a red kite", 0),
        (["a blue boat", "an old kite"], "about red", 1),
    ],
)
def test_released_words_choose_among_public_candidates(
    tmp_path: Path, mechanism: str, public: list[str], text: str, asked: int
) -> None:
    """The one with the word and the fewest others; where none has it, the engine writes."""
    services = make_services(tmp_path, mechanism, sentence="chosen", public_answers=public)
    released = ask(services, "which red toy?").release.answer
    assert (released["keywords"], released["text"]) == (["red"], text)
    assert ("covers the released" in released["method"]) == (not asked)
    assert len(services.engine.engine.asked) == asked
    assert released["zero_shot"] == "a blue boat"


def test_without_a_consensus_the_zero_shot_answer_is_released_and_flagged(tmp_path: Path) -> None:
    services = make_services(tmp_path, "keyword_ptr", epsilon=0.1, delta="1.0e-9")
    for number in range(3):  # each passes with a probability below 1e-9
        answer = ask(services, f"toy {number}")
        said = answer.release.answer
        assert (answer.charged, said["fallback"], said["text"], said["keywords"]) == (True, True, "a red kite", [])
    assert services.engine.engine.asked == []


@pytest.mark.parametrize("mechanism", [m for name, m in MECHANISMS.items() if name != "embedding_mean, centred"])
@pytest.mark.parametrize(
    ("is_llm", "changed", "signed"),
    [
        (False, {"public_answers": []}, False),
        (False, {}, True),
        (False, {"public_answers": [], "document_field": "text"}, True),
        (False, {"public_answers": [], "public_exemplars": [{"text": "a toy", "label": "a red kite"}]}, True),
        (True, {"public_answers": []}, True),
    ],
)
def test_a_plan_without_a_text_to_choose_is_not_signed(
    tmp_path: Path, mechanism: str, is_llm: bool, changed: dict[str, object], signed: bool
) -> None:
    """An engine that does not write needs one; the preview states it whatever the engine."""
    records = make_records(tmp_path)
    note_engine(records.database, EngineInfo("nearest_exemplar", "alone", is_llm, "for tests"))
    written = yaml.safe_load(TEXT_PLAN.format(epsilon=1, answers=3, mechanism=mechanism))
    written["tasks"]["story"] |= changed
    plan = load_plan(yaml.safe_dump(written, sort_keys=False))
    named = "public_answers" in preview(calibrate_plan(plan, 1000)).tasks["story"].gives
    assert named == (changed == {"public_answers": []})
    if signed:
        check_engine(records, plan)
        return
    with pytest.raises(PlanError) as refused:
        check_engine(records, plan)
    assert [problem.key for problem in refused.value.problems] == ["tasks.story.public_answers"]


@pytest.mark.parametrize(("model_tokens", "signed"), [(0, True), (3000, True), (2000, False)])
def test_public_exemplars_that_fill_a_prompt_are_not_signed(tmp_path: Path, model_tokens: int, signed: bool) -> None:
    """1,004 tokens of them, and 1,024 of a slot's own; an engine that counts none has no limit that is known."""
    records = make_records(tmp_path)
    engine = EngineInfo("vllm", "alone", is_llm=True, notice="for tests", model_tokens=model_tokens)
    note_engine(records.database, engine)
    written = yaml.safe_load(TEXT_PLAN.format(epsilon=1, answers=3, mechanism="type: embedding_mean"))
    written["tasks"]["story"]["public_exemplars"] = [{"text": "kite " * 800, "label": "a red kite"}]
    plan = load_plan(yaml.safe_dump(written, sort_keys=False))
    if signed:
        check_engine(records, plan)
        return
    with pytest.raises(PlanError, match="a prompt of vllm has 2000 at most") as refused:
        check_engine(records, plan)
    assert [problem.key for problem in refused.value.problems] == ["tasks.story.public_exemplars"]
    quoting = plan.model_copy(
        update={"tasks": {"story": plan.tasks["story"].model_copy(update={"slots": "quote", "order": "nearest"})}}
    )
    check_engine(records, quoting)  # no prompt shows a slot's own


def test_no_candidates_is_a_refusal_that_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = make_services(tmp_path, "embedding_mean")
    monkeypatch.setattr(services.engine, "zero_shot", AsyncMock(return_value=ZeroShot(texts=(" ", ""))))
    with pytest.raises(InvalidQueryError, match="public_answers"):
        ask(services)
    assert states(services) == {"voided": 1}
    monkeypatch.undo()
    assert ask(services).answers_left == 2


def test_more_words_than_the_domain_has_is_a_refusal_that_costs_nothing(tmp_path: Path) -> None:
    services = make_services(tmp_path, "type: keyword_joint_em, k: 7")
    with pytest.raises(InvalidQueryError, match=r"6 .* 7"):
        ask(services, "small toy")
    assert states(services) == {"voided": 1}
    answer = ask(services, "small wooden toy")
    assert len(set(answer.release.answer["keywords"])) == 7
    assert answer.answers_left == 2


def test_candidates_that_cannot_be_embedded_void_the_charge(tmp_path: Path) -> None:
    broken = Mock(side_effect=RuntimeError("no embedder"))
    services = make_services(tmp_path, "embedding_mean", embed=bag_of_letters)
    services.answering.stages = replace(services.answering.stages, embedder=Embedding(broken))
    with pytest.raises(EngineUnavailableError):
        ask(services)
    assert states(services) == {"voided": 1}


def test_an_output_that_cannot_be_embedded_silences_its_own_slot_alone(tmp_path: Path) -> None:
    embedded: list[list[str]] = []

    def choosy(texts):
        embedded.append(list(texts))
        if "blue" in texts:
            raise RuntimeError("cannot embed blue")
        return bag_of_letters(texts)

    services = make_services(tmp_path, "embedding_mean")
    services.answering.stages = replace(services.answering.stages, embedder=Embedding(choosy))
    assert ask(services).release.answer["text"] == "a red kite"
    assert embedded[0] == ["a red kite", "a blue boat"]  # the candidates
    assert len(embedded[1]) == 20  # one for every slot of the plan, with or without an output
    if "blue" in embedded[1]:
        assert embedded[2:] == [[text] for text in embedded[1]]


@pytest.mark.slow
def test_without_a_sentence_the_words_are_released_as_they_are(tmp_path: Path) -> None:
    services = make_services(tmp_path, "keyword_joint_em")
    services.engine.engine.mute = 2
    assert ask(services, "toy 1").release.answer["text"] == "about red"
    services.engine.engine.mute = 3
    released = ask(services, "toy 2").release.answer
    assert (released["text"], released["keywords"]) == ("red", ["red"])
    assert released["method"] == "the released words as they are"
    assert states(services) == {"released": 2}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_unusable_outputs_abstain(tmp_path: Path, mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    services = make_services(tmp_path, mechanism, answers=7)
    for number, garbage in enumerate((np.ones(3), 7, "", "   ", b"red", ["red"], {"red"})):
        monkeypatch.setattr(services.engine, "contributions", AsyncMock(return_value=[garbage] * 20))
        released = ask(services, f"toy {number}").release.answer
        assert released["text"]
        assert released.get("fallback", True) is True
