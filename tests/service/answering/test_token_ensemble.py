"""Rules that answers keep to, and words that are released before them: at signing and at answering."""

import asyncio
import re
import subprocess
import sys

import pytest
import yaml

from accounting.plans.plan import PlanError, TaskNoise, calibrate_plan, load_plan
from accounting.privacy.guided_tokens import GuidedTokens
from accounting.privacy.profiles import ProposeTestRelease
from accounting.privacy.token_ensemble import TokenEnsembleProfile
from service.answering.mechanisms.outlook import DEMANDING
from service.answering.mechanisms.token_ensemble import TokenEnsembleAdapter, Written
from service.answering.plans.signing import check_engine
from service.answering.queries import task_spec
from service.answering.stages import Stages
from service.engines import grammar_check
from service.engines.grammar_check import grammar_problem
from service.engines.prompts import render
from service.engines.task import ZeroShot
from service.records.records import Records
from tests.service.conftest import TEXT_PLAN
from tests.service.engines.roomy import Roomy

MECHANISM = "type: token_ensemble, tokens: 30"
AFTER = {"type": "keyword_ptr", "k_min": 1, "k_max": 1}
SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}


def plan(**rules):
    written = yaml.safe_load(TEXT_PLAN.format(epsilon=1, answers=10, mechanism=MECHANISM))
    written["tasks"]["story"]["mechanism"] |= rules
    return load_plan(yaml.safe_dump(written, sort_keys=False))


def writing(**rules):
    task = plan(**rules).tasks["story"]
    noise = TaskNoise(mechanism=TokenEnsembleProfile(0.2, 30), sampling_probability=0.1)
    return TokenEnsembleAdapter(task, noise).writing


def test_the_slots_influence_only_the_tokens_that_are_paid_for():
    assert (writing().tokens, writing().longest) == (30, 30)
    assert (writing(max_tokens=90).tokens, writing(max_tokens=90).longest) == (30, 90)


@pytest.mark.parametrize("after", [None, AFTER], ids=["alone", "after words"])
def test_the_tokens_that_the_model_writes_alone_cost_nothing(after):
    """The noise is that of the paid tokens, whether or not an answer is longer."""
    rules = {} if after is None else {"after": after}
    short, long = (calibrate_plan(plan(**rules, **more), 600) for more in ({}, {"max_tokens": 90}))
    assert short.noise == long.noise
    assert short.noise["story"].mechanism.tokens == 30
    assert short.events() == long.events()


def test_rules_reach_the_engine():
    rules = writing(banned=["Straße"], json_schema=SCHEMA)
    assert (rules.banned, rules.regex) == (("strasse",), "")
    assert list(yaml.safe_load(rules.json_schema)["properties"]) == ["b", "a"]
    assert writing(regex="yes|no").regex == "yes|no"


@pytest.mark.parametrize(
    ("rules", "text"),
    [({}, "No way"), ({"banned": ["never"]}, "No way"), ({"banned": ["no"]}, ""), ({"regex": "yes"}, "")],
)
def test_where_nothing_was_written_a_rule_may_forbid_the_zero_shot_answer(rules, text):
    answer = Written(writing(**rules), "No way").answer("", ())
    assert (answer["text"], answer["fallback"]) == (text, True)


@pytest.mark.model
def test_a_plan_whose_grammar_cannot_be_kept_to_is_not_signed(records: Records):
    pytest.importorskip("xgrammar")
    check_engine(records, plan(regex="(yes|no), [0-9]{2}"))
    check_engine(records, plan(json_schema=SCHEMA))
    for field, wrong in (("regex", "(yes"), ("json_schema", {"type": "text"})):
        with pytest.raises(PlanError, match=rf"tasks\.story\.mechanism\.{field}: "):
            check_engine(records, plan(**{field: wrong}))


@pytest.mark.model
def test_a_grammar_is_read_in_a_process_of_its_own_within_bounds(monkeypatch):
    pytest.importorskip("xgrammar")
    code = "import sys, service.engines.grammar_check as check; print(check.grammar_problem('regex', '(a+)+$'), "
    code += "{'torch', 'xgrammar'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
    monkeypatch.setattr(grammar_check, "_WITHIN_S", 0.0)
    assert "simpler" in grammar_problem("regex", "(a+)+b$")
    with pytest.raises(PlanError, match="json_schema: "):
        plan(json_schema={"enum": ["x" * 20_000]})


def test_a_grammar_is_not_judged_where_nothing_can_read_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgrammar", None)
    assert grammar_problem("regex", "(yes") == ""


class Writes(Roomy):
    """Slots name one word, and write nothing that matters; what they are asked is noted."""

    def __init__(self, *words):
        self.words, self.shown, self.asked = words, [], None

    async def zero_shot(self, task, query):
        return ZeroShot(texts=("an answer of nobody",))

    async def contributions(self, task, query, slots, zero_shot):
        self.shown.append(slots)
        return list(self.words)

    async def write(self, task, query, slots, zero_shot):
        self.shown.append(slots)
        self.asked = render(task.prompt, query)
        return "written"


NOISE = TaskNoise(mechanism=GuidedTokens(0.2, 30, ProposeTestRelease(1.0, 1.0, 1e-6)), sampling_probability=0.1)


def answered(engine, after, noise=NOISE):
    task = plan(after=after).tasks["story"]
    spec = task_spec("toys.story@1", task, "toys", "text", response_field="label", asker="")
    stages, slots = Stages(engine, None, 10.0), [()] * 40

    async def answer():
        return await (await stages.probe(task, noise, spec, {"text": "a boat"})).answer(slots)

    return asyncio.run(answer()), slots


@pytest.mark.parametrize(
    ("said", "words"), [(["It is a kite"] * 40, ["kite"]), ([f"kite{number}" for number in range(40)], [])]
)
def test_words_that_stand_out_are_shown_to_all_slots_that_write(said, words):
    """Both releases are of the same sample."""
    engine = Writes(*said)
    answer, slots = answered(engine, AFTER)
    assert len(engine.shown) == 2
    assert all(shown is slots for shown in engine.shown)
    assert (answer["text"], answer["keywords"], answer["fallback"]) == ("written", words, False)
    assert engine.asked == ("Word suggestions: kite\na boat:" if words else "a boat:")


def test_without_them_slots_are_asked_once():
    engine = Writes()
    noise = TaskNoise(mechanism=TokenEnsembleProfile(0.2, 30), sampling_probability=0.1)
    answer, slots = answered(engine, None, noise)
    assert engine.shown == [slots]
    assert "keywords" not in answer


def test_slots_are_asked_again_for_the_words_before():
    task = plan(after=AFTER).tasks["story"]
    with_words, alone = (TokenEnsembleAdapter(each, NOISE) for each in (task, plan().tasks["story"]))
    assert with_words.calls == 2 * task.ensemble + 2
    assert alone.calls == task.ensemble + 2
    assert with_words.exemplars == 2 * alone.exemplars
    assert "words before it" in with_words.outlook().notes


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 0.5])
def test_a_suggested_number_of_tokens_or_slots_fits_the_same_budget(epsilon):
    """They fit as closely as "about" promises: slots of such sizes are heard if as many of them agree as often do."""

    def missing(**sizes):
        written = yaml.safe_load(TEXT_PLAN.format(epsilon=epsilon, answers=20, mechanism="type: token_ensemble"))
        task = written["tasks"]["story"]
        task |= {"ensemble": 20, "shots": 8} | sizes
        task["mechanism"]["tokens"] = task.pop("tokens", 32)
        calibrated = calibrate_plan(load_plan(yaml.safe_dump(written)), 4000)
        adapter = TokenEnsembleAdapter(calibrated.plan.tasks["story"], calibrated.noise["story"])
        outlook = adapter.outlook()
        return outlook.needed / (DEMANDING * task["ensemble"]), outlook.remedies

    share, remedies = missing()
    assert share > 1
    tokens, slots, shots = map(int, re.findall(r"about (\d+).*about (\d+) of (\d+) shots", remedies)[0])
    assert 0.9 < missing(tokens=tokens)[0] < 1.05
    assert missing(ensemble=slots, shots=shots)[0] < 1.05


def test_the_signed_noise_of_words_and_tokens_is_read_again():
    calibrated = calibrate_plan(plan(after=AFTER, after_share=0.4), 3200)
    noise = calibrated.noise["story"].mechanism
    assert isinstance(noise, GuidedTokens)
    assert noise.words.delta0 > 0
    again = type(calibrated).model_validate_json(calibrated.model_dump_json())
    assert again.noise["story"].mechanism == noise
