import copy
from typing import Any

import pytest
import yaml

from accounting.accountants import get_accountant
from accounting.plan import CalibratedPlan, PlanError, calibrate_plan, load_plan
from accounting.tasks import placeholders

PLAN = """
knowledge_base: agnews
budget: {epsilon: 3, delta: 1e-4}
accountant: pld
tasks:
  topic:
    kind: classify
    labels: [World, Sports, Business, Technology]
    prompt: {exemplar: "Article: {text}\\nAnswer: {label}", query: "Article: {text}\\nAnswer:"}
    shots: 4
    ensemble: 100
    answers: 1000
    sampling: units
    mechanism: {type: rnm_gaussian, vote: soft}
"""


def changed(**changes: Any) -> str:
    """The plan with dotted keys changed; None deletes."""
    document = copy.deepcopy(yaml.safe_load(PLAN))
    document["budget"]["delta"] = 1e-4
    for dotted, value in changes.items():
        *path, last = dotted.split("__")
        at = document
        for key in path:
            at = at[key]
        if value is None:
            del at[last]
        else:
            at[last] = value
    return yaml.safe_dump(document)


@pytest.fixture(scope="module")
def calibrated() -> CalibratedPlan:
    return calibrate_plan(load_plan(PLAN), public_size=8000)


def test_the_plan_of_the_documentation_loads() -> None:
    plan = load_plan(PLAN)
    assert plan.budget.delta == 1e-4
    task = plan.tasks["topic"]
    assert task.query_fields == ("text",)
    assert task.exemplar_fields == ("text", "label")
    assert task.slot_cap == 8


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1, 2]", "a plan is a mapping"),
        ("a: [", "not valid YAML"),
        ("? {a: b}\n: c", "not a plan"),
        ("a: 2020-05-40", "not a plan"),
        ("[" * 5000, "not a plan"),
        (PLAN + "\nbudget: {epsilon: 1, delta: 1e-5}", "repeated key 'budget'"),
        (changed(surprise=1), "surprise: unknown key"),
        (changed(budget=None), "budget: is missing"),
        (changed(knowledge_base="No Spaces"), "knowledge_base: names are up to 64 small letters"),
        (changed(budget__epsilon=0), "budget.epsilon: input should be greater than or equal to 0.001"),
        (changed(budget__epsilon="3"), "budget.epsilon: input should be a valid number"),
        (changed(budget__epsilon=float("inf")), "budget.epsilon: "),
        (changed(budget__delta=0.5), "budget.delta: "),
        (changed(budget__delta=1e-13), "budget.delta: "),
        (changed(accountant="magic"), "accountant: "),
        (changed(tasks={}), "tasks: "),
        (changed(tasks__topic__shots=0), "tasks.topic.shots: "),
        (changed(tasks__topic__shots=True), "tasks.topic.shots: "),
        (changed(tasks__topic__answers=0), "tasks.topic.answers: "),
        (changed(tasks__topic__labels=["World"]), "tasks.topic.labels: "),
        (changed(tasks__topic__labels=["World", "World"]), "each label may appear once"),
        (changed(tasks__topic__max_exemplars=3), "max_exemplars: must be at least shots"),
        (changed(tasks__topic__label_field="topic"), "needs the placeholder {topic}"),
        (changed(tasks__topic__label_descriptions={"Opera": "x"}), "Opera is not among the labels"),
        (changed(tasks__topic__prompt__query="Answer {label}:"), "must not show the answer"),
        (changed(tasks__topic__prompt__query="{title} {text}"), "prompt.exemplar: lacks title"),
        (changed(tasks__topic__prompt__query="no field"), "needs at least one {field} placeholder"),
        (changed(tasks__topic__prompt__exemplar="{text!r} {label}"), "not a plain {field} placeholder"),
        (changed(tasks__topic__prompt__exemplar="{text {label}"), "tasks.topic.prompt.exemplar: "),
        (changed(tasks__topic__mechanism__type="laplace"), "tasks.topic.mechanism.type: "),
        (changed(tasks__topic__mechanism__prior_weight=-1), "tasks.topic.mechanism.prior_weight: "),
        (changed(tasks__topic__sampling="shuffle"), "tasks.topic.sampling: "),
        (changed(tasks__topic__share=0), "tasks.topic.share: "),
    ],
)
def test_errors_name_the_key(text: str, problem: str) -> None:
    with pytest.raises(PlanError) as caught:
        load_plan(text)
    assert problem in str(caught.value)


def test_every_problem_is_reported_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        load_plan(changed(tasks__topic__shots=0, budget__epsilon=-1, surprise=1))
    assert len(caught.value.problems) == 3


def test_calibration_keeps_the_promise_by_every_accountant(calibrated: CalibratedPlan) -> None:
    assert calibrated.noise["topic"].sampling_probability == 400 / 8000
    assert set(calibrated.epsilon) == {"pld", "prv", "rdp"}
    assert 0.99 * 3 < calibrated.epsilon["pld"].upper <= 3
    assert calibrated.epsilon["prv"].upper == pytest.approx(3, rel=0.02)
    assert calibrated.epsilon["rdp"].upper > calibrated.epsilon["pld"].lower
    recomputed = get_accountant("pld").bounds(calibrated.events(), 1e-4)
    assert recomputed.upper == calibrated.epsilon["pld"].upper


def test_counts_used_cost_less_than_the_plan(calibrated: CalibratedPlan) -> None:
    assert calibrated.events({"topic": 0}) == []
    some = get_accountant("pld").bounds(calibrated.events({"topic": 100}), 1e-4).upper
    assert 0 < some < calibrated.epsilon["pld"].upper


def test_the_signed_document_reads_back_the_same(calibrated: CalibratedPlan) -> None:
    again = CalibratedPlan.model_validate_json(calibrated.model_dump_json())
    assert again == calibrated
    assert again.digest == calibrated.digest


def test_more_exemplars_than_there_are_is_refused() -> None:
    with pytest.raises(PlanError, match=r"tasks.topic: shots × ensemble = 400 exceeds .* public size of 399"):
        calibrate_plan(load_plan(PLAN), public_size=399)


def test_blocks_cost_more_than_units(calibrated: CalibratedPlan) -> None:
    blocks = calibrate_plan(load_plan(changed(tasks__topic__sampling="blocks")), public_size=8000)
    assert blocks.noise["topic"].mechanism.noise_multiplier > calibrated.noise["topic"].mechanism.noise_multiplier
    assert "prv" in blocks.unsupported


def test_a_larger_share_gets_less_noise() -> None:
    document = yaml.safe_load(changed())
    document["tasks"]["second"] = {**document["tasks"]["topic"], "share": 3}
    noise = calibrate_plan(load_plan(yaml.safe_dump(document)), public_size=8000).noise
    assert noise["second"].mechanism.noise_multiplier < noise["topic"].mechanism.noise_multiplier


def test_placeholders_are_listed_once_in_order() -> None:
    assert placeholders("{b} and {a}, {b}; {{not}}") == ("b", "a")
