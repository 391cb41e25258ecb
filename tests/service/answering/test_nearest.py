"""Slots that show what is nearest to the question, and slots that quote it: in answers, trials and plans."""

import asyncio
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import yaml

from accounting.plans.plan import CalibratedPlan, PlanError, calibrate_plan, load_plan
from exemplar_store import Exemplar
from service.answering.plans.preview import preview
from service.answering.plans.signing import sign
from service.answering.quoting import quotes
from service.answering.trials.trials import Trials, draw_slots
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.engines.prompts import fitting
from service.engines.task import Prompt, TaskSpec
from service.operations.services import open_services
from service.settings import Settings
from tests.service.conftest import PLAN, TEXT_PLAN, MajorityEngine, make_records, nearly_noiseless

COLOURS = {"red": 0.0, "green": 0.5, "blue": 1.0}


class Hues:
    """Puts texts on a quarter of a circle, by the colour that they name."""

    def embed(self, texts):
        angles = [np.pi / 2 * next((at for name, at in COLOURS.items() if name in text), 0.2) for text in texts]
        return np.array([[np.cos(angle), np.sin(angle)] for angle in angles], np.float32)

    embed_bounded = embed


def plan(base: str = PLAN, **settings) -> CalibratedPlan:
    written = yaml.safe_load(base)
    (task,) = written["tasks"].values()
    task |= {"shots": 1, "order": "nearest", "answers": 3, **settings}
    written["budget"]["epsilon"] = 90
    return nearly_noiseless(load_plan(yaml.safe_dump(written, sort_keys=False)))


def services(folder: Path, calibrated: CalibratedPlan, engine, colours=COLOURS):
    """Services with the toys of sixty people, the same number for each colour, which is the toy's label."""
    toys = [(f"u{i}", f"toy {i}, a {colour} one", colour) for i, colour in zip(range(60), cycle(colours))]
    settings = Settings(database_url=f"sqlite:///{folder / 'service.sqlite'}", development=True, latency_unpadded=True)
    records = make_records(folder, epsilon=1000, settings=settings, embed=Hues().embed, toys=toys)
    sign(records, calibrated, "test")
    return open_services(records, engine, Hues())


def test_a_slot_shows_no_more_than_the_nearest_of_what_it_draws(tmp_path: Path) -> None:
    engine, colours = MajorityEngine(), ["red", "blue"]  # thirty people each: a slot lacks one with a chance of 4e-9
    of = services(tmp_path, plan(drawn=30, ensemble=2, labels=colours), engine, colours)
    for colour in colours:
        engine.shown.clear()
        answer = asyncio.run(of.answering.answer("toys.colour", f"a {colour} thing", key_id="k"))
        (slots,) = [slots for *_, slots in engine.shown]
        assert answer.release.answer["label"] == colour
        for slot in slots:
            assert [exemplar.fields["label"] for exemplar in slot] == [colour]


@pytest.mark.parametrize("engine", [MajorityEngine, NearestExemplarEngine])
def test_a_question_is_embedded_once(tmp_path: Path, engine: type) -> None:
    """The engine embeds it, or the service does."""
    asked, hues = [], Hues()

    class Noting(Hues):
        def embed(self, texts):
            asked.extend(texts)
            return hues.embed(texts)

    made = engine(Noting()) if engine is NearestExemplarEngine else engine()
    of = services(tmp_path, plan(drawn=30, ensemble=2, labels=["red", "blue"]), made, ["red", "blue"])
    of = open_services(of.records, made, Noting())
    for colour in ("red", "blue"):
        answer = asyncio.run(of.answering.answer("toys.colour", f"a {colour} thing", key_id="k"))
        assert answer.release.answer["label"] == colour
        assert asked.count(f"a {colour} thing") == 1


def test_slots_that_quote_ask_the_engine_for_nothing_private(tmp_path: Path) -> None:
    engine = MajorityEngine()
    of = services(tmp_path, plan(drawn=15, ensemble=4, slots="quote", labels=list(COLOURS)), engine)
    for colour in COLOURS:
        answer = asyncio.run(of.answering.answer("toys.colour", f"a {colour} thing", key_id="k"))
        assert answer.release.answer["label"] == colour
    assert engine.shown == []


@pytest.mark.parametrize(
    ("mechanism", "words"), [("type: keyword_ptr, k_min: 1, k_max: 1", ["blue"]), ("type: embedding_mean", None)]
)
def test_quoted_responses_are_released_as_a_models_are(tmp_path: Path, mechanism: str, words) -> None:
    engine = MajorityEngine()
    text = TEXT_PLAN.format(epsilon=90, answers=2, mechanism=mechanism)
    of = services(tmp_path, plan(text, drawn=3, ensemble=20, slots="quote"), engine, ["blue"])
    released = asyncio.run(of.answering.answer("toys.story", "a blue boat", key_id="k")).release.answer
    assert released["text"]
    assert released.get("keywords") == words
    assert engine.shown == []


def test_a_quote_that_is_not_a_label_is_an_abstention() -> None:
    task = TaskSpec("toys.colour@1", ("red", "blue"), Prompt("", "", ""), quotes=True)
    slots = [(Exemplar({"label": "red"}), Exemplar({"label": label})) for label in (" BLUE", "green")]
    vote, abstained, empty = quotes(task, [*slots, ()])
    assert vote.tolist() == [0.0, 1.0]
    assert (abstained, empty) == (None, None)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"order": "random", "drawn": 9}, "drawn"),
        ({"shots": 3, "drawn": 2}, "drawn"),
        ({"drawn": 9, "max_exemplars": 8}, "max_exemplars"),
        ({"sampling": "blocks"}, "order"),
        ({"order": "random", "slots": "quote"}, "slots"),
        ({"drawn": 7, "ensemble": 9}, "drawn × ensemble"),
    ],
)
def test_plans_that_cannot_be_meant_are_refused(settings, field) -> None:
    with pytest.raises((PlanError, ValueError), match=rf"tasks\.colour(\.|: ){field}|{field}"):
        plan(**settings)


def test_slots_that_write_a_sentence_cannot_quote() -> None:
    with pytest.raises(PlanError, match="slots"):
        plan(TEXT_PLAN.format(epsilon=30, answers=2, mechanism="type: token_ensemble, tokens: 5"), slots="quote")


def test_what_is_drawn_is_what_is_paid_for() -> None:
    def noise(**settings):
        written = yaml.safe_load(PLAN)
        written["tasks"]["colour"] |= {"ensemble": 10, **settings}
        return calibrate_plan(load_plan(yaml.safe_dump(written)), 600).noise["colour"]

    assert noise(shots=2, drawn=20, order="nearest") == noise(shots=20)
    assert noise(shots=2, order="nearest") == noise(shots=2)


def test_the_preview_names_what_is_drawn_and_what_is_shown() -> None:
    seen = preview(plan(drawn=5, ensemble=4)).tasks["colour"]
    assert "about 5 exemplars" in seen.summary
    assert preview(plan(drawn=5, ensemble=4, slots="quote")).tasks["colour"].llm_calls == 1


async def test_a_trial_ranks_public_exemplars(tmp_path: Path) -> None:
    calibrated = plan(drawn=15, ensemble=4, labels=list(COLOURS))
    of = services(tmp_path, calibrated, MajorityEngine())
    exemplars = [{"text": f"a {name} thing", "label": name} for name in COLOURS] * 9
    public = {"embedded_field": "text", "response_field": None, "asker": ""}
    for name in COLOURS:
        trial = await Trials(of.answering.stages).try_task(calibrated, "colour", f"a {name} kite", exemplars, **public)
        assert trial.answer["label"] == name
        assert trial.expected == 60


def test_a_trials_slots_show_what_is_nearest() -> None:
    task = load_plan(PLAN).tasks["colour"].model_copy(update={"drawn": 9, "shots": 2, "order": "nearest"})
    exemplars = [Exemplar({"text": str(n)}, np.array([np.cos(n), np.sin(n)])) for n in np.linspace(0, 1.5, 30)]
    question = np.array([0.0, 1.0])
    for slot in draw_slots(task, 0.9, 100, exemplars, question):
        assert len(slot) <= 2
        near = [float(one.embedding @ question) for one in slot]
        assert near == sorted(near)


def test_what_does_not_fit_is_left_out_from_the_farthest_on() -> None:
    slot = tuple(Exemplar({"text": str(number)}) for number in range(4))
    kept = fitting(slot, [1, 1, 5, 2], 4)
    assert [one.fields["text"] for one in kept] == ["0", "1", "3"]
    assert [one.fields["text"] for one in fitting(slot, [3, 3, 3, 3], 7)] == ["2", "3"]
