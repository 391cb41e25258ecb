"""Topics in a plan: what may be written, what a unit pays, and what the ledger counts."""

import pytest

from accounting.plans.plan import CalibratedPlan, PlanError, calibrate_plan, load_plan
from accounting.privacy.accountants import get_accountant
from accounting.privacy.events import Event, Sampling

PLAN = """
knowledge_base: kb
budget: {epsilon: 2, delta: 1.0e-5}
tasks:
  reply:
    kind: classify
    labels: [a, b]
    prompt: {exemplar: "T: {text} {label}", query: "T: {text}"}
    shots: 2
    ensemble: 10
    answers: 20
    mechanism: {type: rnm_gaussian}
    TOPICS
"""
BY_FIELD = "{by: field, field: product, names: [kettle, lamp, U.S. radio], sizes: {kettle: 50, lamp: 4}}"


def written(topics: str) -> str:
    return PLAN.replace("TOPICS", f"topics: {topics}" if topics else "share: 1")


@pytest.fixture(scope="module")
def calibrated() -> CalibratedPlan:
    return calibrate_plan(load_plan(written(BY_FIELD)), 900)


@pytest.mark.parametrize(
    ("topics", "key", "says"),
    [
        ("{by: field, field: product, names: [kettle, Kettle ]}", "tasks.reply.topics", "are one"),
        ("{by: field, field: product, names: [kettle]}", "tasks.reply.topics.names", "at least 2"),
        ("{by: field, field: label, names: [a, b]}", "tasks.reply", "its answer"),
        ("{by: field, names: [a, b]}", "tasks.reply.topics.field", "missing"),
        ("{by: guess}", "tasks.reply.topics.by", "field, similarity, public_texts"),
        ("{names: [a, b]}", "tasks.reply.topics.by", "is missing"),
        ("{by: similarity, names: {a: refunds, 'b@c': plants}}", "tasks.reply.topics.names.b@c", "no @"),
        ("{by: similarity, names: {a: refunds, b: plants}, sizes: {c: 4}}", "tasks.reply.topics", "not among"),
        ("{by: similarity, names: {a: refunds, b: plants}, sizes: {a: 0}}", "tasks.reply.topics.sizes.a", "1"),
        ("{by: public_texts, number: 3, texts: [a, a, b]}", "tasks.reply.topics", "at least 3"),
    ],
)
def test_invalid_topics_are_refused_by_their_key(topics: str, key: str, says: str) -> None:
    with pytest.raises(PlanError) as refused:
        load_plan(written(topics))
    (problem,) = refused.value.problems
    assert problem.key == key
    assert says in problem.message


@pytest.mark.parametrize("otherwise", ["sampling: blocks", "release: once"])
def test_only_units_that_are_drawn_have_topics(otherwise: str) -> None:
    with pytest.raises(PlanError, match=r"topics|release|answers"):
        load_plan(written(BY_FIELD).replace("answers: 20", f"answers: 20\n    {otherwise}"))


def test_a_question_brings_the_field_of_its_topic(calibrated: CalibratedPlan) -> None:
    task = calibrated.plan.tasks["reply"]
    assert (task.query_fields, task.exemplar_fields) == (("text", "product"), ("text", "label", "product"))


def test_the_chance_to_be_drawn_rests_on_public_sizes_and_is_at_most_one(calibrated: CalibratedPlan) -> None:
    noise = calibrated.noise["reply"]
    assert noise.topics == {"kettle": 20 / 50, "lamp": 1.0, "U.S. radio": 20 / 300}
    assert noise.sampling_probability == 1.0
    assert noise.on("kettle").sampling_probability == 20 / 50
    assert noise.on("kettle").mechanism == noise.mechanism


def test_a_unit_pays_for_the_answers_on_one_topic() -> None:
    """It pays at the largest sampling probability of the topics, whatever their number."""
    few, many = (
        calibrate_plan(load_plan(written(f"{{by: field, field: product, names: {names}, sizes: {sizes}}}")), 9000)
        for names, sizes in (
            (["a", "b"], {"a": 100, "b": 400}),
            ([f"t{n}" for n in range(50)], {"t7": 100, **{f"t{n}": 400 for n in range(50) if n != 7}}),
        )
    )
    alone = calibrate_plan(load_plan(written("")), 100)
    assert few.noise["reply"].mechanism == many.noise["reply"].mechanism == alone.noise["reply"].mechanism
    assert few.events() == many.events() == alone.events()
    assert len(many.plan.counters()) == 50


def test_no_topic_costs_more_than_the_dearest(calibrated: CalibratedPlan) -> None:
    noise = calibrated.noise["reply"]
    pld = get_accountant("pld")
    costs = [pld.upper([Event(noise.mechanism, Sampling("units", q), 20)], 1e-5) for q in noise.topics.values()]
    assert max(costs) <= calibrated.plan.budget.epsilon
    (event,) = calibrated.events()
    assert (event.sampling.probability, event.count) == (1.0, 20)


def test_spent_so_far_is_what_a_unit_on_the_busiest_topic_has_paid(calibrated: CalibratedPlan) -> None:
    (event,) = calibrated.events({"reply#kettle": 3, "reply#lamp": 7})
    assert event.count == 7
    assert calibrated.events({"reply#kettle": 0}) == []


def test_a_signed_plan_draws_no_topic_more_often_than_it_pays_for(calibrated: CalibratedPlan) -> None:
    signed = calibrated.model_dump_json()
    assert '"sampling_probability":1.0' in signed
    with pytest.raises(ValueError, match="larger probability"):
        CalibratedPlan.model_validate_json(signed.replace('"sampling_probability":1.0', '"sampling_probability":0.5'))


def test_the_ledger_counts_each_topic(calibrated: CalibratedPlan) -> None:
    assert calibrated.plan.counters() == [("reply#kettle", 20), ("reply#lamp", 20), ("reply#U.S. radio", 20)]
    assert type(calibrated).model_validate_json(calibrated.model_dump_json()) == calibrated
