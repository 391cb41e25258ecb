"""Sentences that many slots share, through the whole pipeline: quoted, and written by an engine."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from accounting.plans.plan import CalibratedPlan, PlanError, TaskNoise, calibrate_plan, load_plan
from accounting.plans.tasks import GenerateTask
from accounting.privacy.profiles import Gaussian, GaussianThreshold
from service.answering.mechanisms.adapter import Public, answer_adapter_of
from service.answering.mechanisms.common_sentences import CommonSentencesAdapter, SharedSentences
from service.answering.plans.preview import preview
from service.answering.plans.signing import sign
from service.answering.trials.consensus import consensus
from service.engines.task import Sentence, ZeroShot
from service.operations.services import open_services
from tests.service.conftest import TEXT_PLAN, Embedding, MajorityEngine, make_records, nearly_noiseless, states

VAN = "The green van comes at noon."
HABITS = ["Thank you for writing.", VAN, "We wish you well."]
WRITTEN = "type: common_sentences"


def of_words(texts) -> np.ndarray:
    """Unit vectors by the first word: what begins alike means the same."""
    vectors = np.zeros((len(texts), 64), np.float32)
    for row, text in zip(vectors, texts, strict=True):
        row[sum((text or " ").split(" ")[0].encode()) % 64] = 1
    return vectors


def written(mechanism: str = WRITTEN, **task) -> str:
    plan = yaml.safe_load(TEXT_PLAN.format(epsilon=90, answers=3, mechanism=mechanism))
    plan["tasks"]["story"] |= {"shots": 1, "order": "nearest", "drawn": 2, "ensemble": 30, "slots": "quote", **task}
    return yaml.safe_dump(plan, sort_keys=False)


def services(folder: Path, plan: str, replies: list[str], engine=None):
    toys = [(f"u{number}", f"a toy {number}", reply) for number, reply in enumerate(replies)]
    records = make_records(folder, epsilon=1000, embed=of_words, toys=toys)
    sign(records, nearly_noiseless(load_plan(plan)), "test")
    return open_services(records, engine or MajorityEngine(), Embedding(of_words))


def asked(of, query: str = "when does the green van come?"):
    return asyncio.run(of.answering.answer("toys.story", query, key_id="k")).release.answer


def test_quoted_sentences_leave_as_they_were_written(tmp_path: Path) -> None:
    replies = [f"Customer {number}:\n {HABITS[0]} The  green van comes at noon. It is late." for number in range(60)]
    of = services(tmp_path, written(), replies)
    released = asked(of)
    assert sorted(released["sentences"]) == sorted([VAN, HABITS[0]])
    assert (released["text"], released["fallback"]) == (" ".join(released["sentences"]), False)
    assert released["method"] == "sentences that many slots share, as they were written"
    assert asked(of) == released  # free
    assert states(of) == {"released": 1}


def test_public_sentences_are_left_out_and_few_are_shown(tmp_path: Path) -> None:
    replies = [" ".join(HABITS)] * 60
    plan = written(f"{WRITTEN}, sentences: 3, show: 1, leave_out: ['THANK you  for writing.', {HABITS[2]}]")
    assert asked(services(tmp_path, plan, replies))["sentences"] == [VAN]


def test_a_sentence_of_one_person_does_not_leave(tmp_path: Path) -> None:
    """Nor do names and numbers that differ: then the zero-shot answer is given, and flagged."""
    of = services(tmp_path, written(), [f"Your number {number} is due today." for number in range(60)])
    released = asked(of)
    assert (released["text"], released["sentences"], released["fallback"]) == ("a red kite", [], True)


class Writes(MajorityEngine):
    """Each slot writes the sentence of its first exemplar."""

    async def contributions(self, task, query, slots, zero_shot):
        return [slot[0].fields["label"] if slot else None for slot in slots]


def test_slots_that_a_model_writes_share_sentences_too(tmp_path: Path) -> None:
    plan = written(slots="model")
    assert VAN in asked(services(tmp_path, plan, [f"{VAN} Yours, {number}." for number in range(60)], Writes()))["text"]


# --- What follows from a release --------------------------------------------------------------------------------------


def task_of(plan: str) -> GenerateTask:
    task = load_plan(plan).tasks["story"]
    assert isinstance(task, GenerateTask)
    return task


async def ready(mechanism: str = WRITTEN, noise: GaussianThreshold | None = None, embed=of_words, ensemble=60):
    noise = noise or GaussianThreshold(Gaussian(0.05), 1e-6)
    task = task_of(written(mechanism, ensemble=ensemble))
    adapter = answer_adapter_of(task, TaskNoise(sampling_probability=0.1, mechanism=noise))

    async def no_sentence(words, ordered) -> Sentence:
        raise AssertionError

    query = {"text": "When does the green van come?"}
    return await adapter.prepare(Public(query, ZeroShot(texts=("zero-shot",)), Embedding(embed), no_sentence))


async def test_of_sentences_that_mean_the_same_the_most_frequent_is_shown() -> None:
    aggregator = await ready()
    slots = ["It is at noon now."] * 30 + ["It is noon when it comes."] * 12 + [VAN] * 9
    assert (await aggregator.release(slots))["sentences"] == ["It is at noon now.", VAN]


async def test_an_embedder_that_fails_does_not_keep_the_answer_back() -> None:
    def fails(_texts):
        raise RuntimeError

    aggregator = await ready(f"{WRITTEN}, show: 2", embed=fails)
    slots = [*["It is at noon now."] * 30, *["It is noon when it comes."] * 20, *[VAN] * 10]
    assert (await aggregator.release(slots))["sentences"] == ["It is at noon now.", "It is noon when it comes."]


@pytest.mark.parametrize(
    "outputs", [[], [None] * 60, ["no."] * 60, [VAN] * 60], ids=["none", "abstain", "short", "all"]
)
async def test_the_work_is_the_same_whatever_is_released(outputs, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def noting(texts):
        sizes.append(len(texts))
        return of_words(texts)

    drawn = []
    release = SharedSentences.contributions
    monkeypatch.setattr(
        SharedSentences,
        "contributions",
        lambda self, given: drawn.append(len(release(self, given))) or release(self, given),
    )
    await (await ready(embed=noting)).release(outputs)
    assert (sizes, drawn) == ([12], [60])


async def test_a_slot_contributes_its_sentences_that_are_nearest_to_the_question() -> None:
    aggregator = await ready()
    assert isinstance(aggregator, SharedSentences)
    ((first, second), nothing, *_) = aggregator.contributions([" ".join(HABITS), None])
    assert (first, nothing) == (VAN, None)
    assert second in HABITS


async def test_the_consensus_is_what_several_slots_share() -> None:
    found = await consensus(await ready(), [VAN] * 5 + ["Only one says this."] + [None])
    assert (found.answer["text"], found.support, found.measure) == (VAN, {VAN: 5.0}, "slots")
    assert (await consensus(await ready(), ["Only one says this."])).answer["fallback"] is True


# --- Plans ------------------------------------------------------------------------------------------------------------


def test_the_preview_shows_how_many_slots_must_share_a_sentence() -> None:
    plan = (
        written(ensemble=300, drawn=6, answers=12).replace("epsilon: 90", "epsilon: 2.9").replace("0.0001", "0.00001")
    )
    calibrated = calibrate_plan(load_plan(plan), 9000)
    assert CalibratedPlan.model_validate_json(calibrated.model_dump_json()) == calibrated
    seen = preview(calibrated).tasks["story"]
    assert "A sentence that 20 of 300 slots share is released in 95 of 100 cases" in seen.gives
    assert "word for word" in seen.summary
    assert seen.llm_calls == 4  # candidates, and no slot


def test_delta0_is_paid_for_by_its_share_of_delta_for_all_answers() -> None:
    noise = calibrate_plan(load_plan(written(f"{WRITTEN}, delta_share: 0.4").replace("epsilon: 90", "epsilon: 2")), 600)
    task = noise.noise["story"]
    assert isinstance(task.mechanism, GaussianThreshold)
    assert 3 * task.sampling_probability * task.mechanism.delta0 == pytest.approx(0.4e-4, rel=1e-9)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ("sentences: 0", "sentences"),
        ("sentences: 11", "sentences"),
        ("show: 0", "show"),
        ("delta_share: 1", "delta_share"),
        ("leave_out: ['']", "leave_out"),
        ("words: 3", "words"),
    ],
)
def test_parameters_out_of_range_are_refused(wrong: str, field: str) -> None:
    with pytest.raises(PlanError, match=rf"tasks\.story\.mechanism.*{field}"):
        load_plan(written(f"{WRITTEN}, {wrong}"))


def test_it_is_offered_with_its_example() -> None:
    assert json.loads(CommonSentencesAdapter.example.model_dump_json(exclude_defaults=True)) == {
        "type": "common_sentences"
    }
