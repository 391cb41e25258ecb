import copy
import re
from typing import Any

import pytest
import yaml

from accounting.plans.mechanisms import LARGEST_DELTA0, Calibration, RnmGaussianMechanism
from accounting.plans.plan import Budget, CalibratedPlan, Plan, PlanError, calibrate_plan, load_plan
from accounting.plans.tasks import GenerateTask, placeholders
from accounting.privacy.accountants import get_accountant
from accounting.privacy.profiles import BoundedRange, Gaussian, ProposeTestRelease
from accounting.privacy.prv import MOST_DIFFERENT

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

TEXTS = """
knowledge_base: help
budget: {epsilon: 3, delta: 1.0e-4}
tasks:
  reply:
    kind: generate
    prompt: {exemplar: "Q: {text}\\nA: {response}", query: "Q: {text}\\nA:"}
    shots: 4
    ensemble: 50
    answers: 200
    mechanism: {type: embedding_mean}
  words: {mechanism: {type: keyword_joint_em, k: 5}}
  tested: {mechanism: {type: keyword_ptr, k_min: 3, k_max: 8}}
"""


def texts() -> dict[str, Any]:
    """A plan of one text task per mechanism; the later two take what they do not state from the first."""
    document = yaml.safe_load(TEXTS)
    reply = document["tasks"]["reply"]
    document["tasks"] = {name: copy.deepcopy({**reply, **task}) for name, task in document["tasks"].items()}
    return document


def changed(_document: Any = None, /, **changes: Any) -> str:
    """A plan with dotted keys changed; None deletes."""
    document = copy.deepcopy(_document or {**yaml.safe_load(PLAN), "budget": {"epsilon": 3, "delta": 1e-4}})
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


def voting(**mechanism: Any) -> str:
    return changed(tasks__topic__mechanism={"type": "rnm_gaussian", **mechanism})


def alone(name: str, **changes: Any) -> dict[str, Any]:
    """The plan of texts with one of its tasks, changed."""
    document = texts()
    return {**document, "tasks": {name: {**document["tasks"][name], **changes}}}


def signed(document: dict[str, Any], public_size: int = 4000) -> CalibratedPlan:
    return calibrate_plan(load_plan(yaml.safe_dump(document)), public_size)


@pytest.fixture(scope="module")
def calibrated() -> CalibratedPlan:
    return calibrate_plan(load_plan(PLAN), public_size=8000)


def test_a_list_is_not_called_short_for_its_wrong_members() -> None:
    with pytest.raises(PlanError) as refused:
        load_plan(changed(tasks__topic__labels=[True, False]))
    assert [problem.key for problem in refused.value.problems] == ["tasks.topic.labels.0", "tasks.topic.labels.1"]


def test_the_plan_of_the_documentation_loads() -> None:
    plan = load_plan(PLAN)
    assert plan.budget.delta == 1e-4
    task = plan.tasks["topic"]
    assert (task.query_fields, task.exemplar_fields) == (("text",), ("text", "label"))
    assert task.slot_cap == 8


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1, 2]", "mapping"),
        ("a: [", "not valid YAML"),
        ("a: 2020-05-40", "a: 2020-05-40 is a date"),
        (PLAN + "\nbudget: {epsilon: 1, delta: 1e-5}", 'duplicate key "budget"'),
        (changed(tasks__topic__labels=[True, False]), "tasks.topic.labels.0: true"),
        (changed(tasks__topic__labels=[1, None]), "tasks.topic.labels.1: null"),
        (changed(tasks__topic__labels="red, blue"), "tasks.topic.labels: must be a list"),
        (changed(surprise=1), "surprise: unknown key"),
        (changed(budgets=1), "budgets: unknown key; did you mean 'budget'?"),
        (changed(tasks__topic__ensamble=3), "tasks.topic.ensamble: unknown key; did you mean 'ensemble'?"),
        (changed(tasks__topic__mechanism__prior_weigth=1), "prior_weigth: unknown key; did you mean 'prior_weight'?"),
        (changed(surprise={"\ud800": 1}), "surprise.\ufffd: contains a NUL"),
        (changed(tasks__topic__prompt__instruction="Wr\ud800te"), "tasks.topic.prompt.instruction: contains a NUL"),
        (changed(tasks__topic__labels=["World", "Sp\0rts"]), "tasks.topic.labels.1: contains a NUL"),
        (changed(budget=None), "budget: is missing"),
        (changed(knowledge_base="No Spaces"), "knowledge_base: "),
        (changed(budget__epsilon=0), "budget.epsilon: "),
        (changed(budget__epsilon="3"), "budget.epsilon: "),
        (changed(budget__delta=0.5), "budget.delta: "),
        (changed(accountant="magic"), "accountant: "),
        (changed(tasks={}), "tasks: "),
        (changed(tasks__topic__shots=0), "tasks.topic.shots: "),
        (changed(tasks__topic__answers=0), "tasks.topic.answers: "),
        (changed(tasks__topic__labels=["World"]), "tasks.topic.labels: "),
        (changed(tasks__topic__labels=["World", "World"]), "may appear once"),
        (changed(tasks__topic__max_exemplars=3), "max_exemplars: must be at least"),
        (changed(tasks__topic__label_field="topic"), "placeholder {topic}"),
        (changed(tasks__topic__label_descriptions={"Opera": "x"}), "Opera is not"),
        (changed(tasks__topic__prompt__query="Answer {label}:"), "show the answer"),
        (changed(tasks__topic__prompt__query="{title} {text}"), "prompt.exemplar: lacks title"),
        (changed(tasks__topic__prompt__query="no field"), "at least one {field}"),
        (changed(tasks__topic__prompt__exemplar="{text!r} {label}"), "plain {field}"),
        (changed(tasks__topic__prompt__exemplar="{text {label}"), "tasks.topic.prompt.exemplar: "),
        (changed(tasks__topic__mechanism__type="laplace"), "tasks.topic.mechanism.type: "),
        (changed(tasks__topic__mechanism={"type": "keyword_joint_em", "k": 5}), "tasks.topic.mechanism.type: "),
        (changed(tasks__topic__mechanism__prior_weight=-1), "tasks.topic.mechanism.prior_weight: "),
        (changed(tasks__topic__mechanism__decide="vote"), "tasks.topic.mechanism.decide: "),
        (changed(tasks__topic__mechanism__calibration={"echo": 3}), "tasks.topic.mechanism.calibration.echo: "),
        (changed(tasks__topic__mechanism__calibration={"bias": 1}), "mechanism.calibration.bias: unknown key"),
        (changed(tasks__topic__mechanism__calibration={"ecko": 1}), "ecko: unknown key; did you mean 'echo'?"),
        (changed(tasks__topic__mechanism__calibration={"label_weights": {"Opera": 2}}), "label_weights: Opera is not"),
        (changed(tasks__topic__mechanism__calibration={"label_weights": {"World": 0}}), "label_weights.World: "),
        (voting(decide="posterior", prior_weight=0), "tasks.topic.mechanism: prior_weight: "),
        (voting(decide="argmax", calibration={}), "tasks.topic.mechanism: calibration: "),
        (changed(tasks__topic__abstain_below=1.5), "tasks.topic.abstain_below: "),
        (changed(tasks__topic__abstain_below=0.5, tasks__topic__mechanism__decide="argmax"), "gives no score"),
        (
            changed(tasks__topic__mechanism__calibration={"fitted_to": 7}),
            "tasks.topic.mechanism.calibration.fitted_to: ",
        ),
        (
            changed(tasks__topic__prior_from="once", tasks__topic__mechanism__calibration={"fitted_to": 300}),
            "tasks.topic: prior_from: ",
        ),
        (changed(tasks__topic__sampling="shuffle"), "tasks.topic.sampling: "),
        (changed(tasks__topic__share=0), "tasks.topic.share: "),
    ],
)
def test_errors_name_the_key(text: str, problem: str) -> None:
    with pytest.raises(PlanError) as caught:
        load_plan(text)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("written", "signed"),
    [
        ({"vote": "soft"}, '"vote":"soft","decide":"posterior","calibration":{"prior":1.0,"lead":0.14}'),
        (
            {"calibration": {"decisiveness": 3}},
            '"vote":"hard","decide":"posterior","calibration":{"prior":1.0,"decisiveness":3.0,"lead":0.14}',
        ),
        (
            {"calibration": {"label_weights": {"World": 0.5}}},
            '"vote":"hard","decide":"posterior","calibration":{"prior":1.0,"lead":0.14,"label_weights":{"World":0.5}}',
        ),
        ({"decide": "argmax"}, '"vote":"hard","prior_weight":0.0'),
        ({"prior_weight": 2.5}, '"vote":"hard","prior_weight":2.5'),
    ],
)
def test_how_a_label_is_decided_is_signed(written: dict, signed: str) -> None:
    """``argmax`` is signed without ``decide``, as when it was the only rule, so the digests of its plans stay."""
    mechanism = RnmGaussianMechanism.model_validate({"type": "rnm_gaussian", **written})
    document = f'{{"type":"rnm_gaussian",{signed}}}'
    assert mechanism.model_dump_json() == document
    assert RnmGaussianMechanism.model_validate_json(document) == mechanism


def test_decisiveness_is_the_votes_own_unless_written() -> None:
    hard, soft = (RnmGaussianMechanism(type="rnm_gaussian", vote=vote) for vote in ("hard", "soft"))
    assert [vote.decisiveness(labels) for vote in (hard, soft) for labels in (4, 16)] == [4, 2, 8.5, 4.25]
    assert RnmGaussianMechanism(type="rnm_gaussian", calibration=Calibration(decisiveness=3.0)).decisiveness(9) == 3.0


def test_a_threshold_is_signed_where_there_is_one() -> None:
    assert load_plan(changed(tasks__topic__abstain_below=0.6)).tasks["topic"].abstain_below == 0.6
    assert "abstain_below" not in load_plan(PLAN).model_dump_json()


def test_what_label_scores_are_divided_by_is_signed_where_it_is_chosen() -> None:
    plain = load_plan(PLAN).tasks["topic"]
    assert [query["text"] for query in plain.calibration_queries] == ["N/A", "", "[MASK]"]
    assert "calibrate" not in load_plan(PLAN).model_dump_json()
    questions = [f"question {number}" for number in range(8)]
    listed = load_plan(changed(tasks__topic__public_texts=questions)).tasks["topic"]
    assert [query["text"] for query in listed.calibration_queries] == questions
    assert load_plan(changed(tasks__topic__calibrate="none")).tasks["topic"].calibration_queries == ()
    assert plain.own_share == 1
    assert load_plan(changed(tasks__topic__order="nearest")).tasks["topic"].own_share == 0
    assert "own_reference" not in load_plan(PLAN).model_dump_json()
    assert load_plan(changed(tasks__topic__own_reference=0.25)).tasks["topic"].own_share == 0.25
    for changes, problem in (
        ({"public_texts": questions[:7]}, r"public_texts: .* 8"),
        ({"calibrate": "public_texts"}, r"public_texts: .* 8"),
        ({"own_reference": 1.5}, "tasks.topic.own_reference: "),
        ({"own_reference": 0.5, "calibrate": "none"}, "own_reference: `calibrate: none`"),
        ({"public_texts": [*questions, {"page": "x"}]}, "public_texts: each"),
        ({"public_texts": [*questions * 5]}, "tasks.topic.public_texts: "),
    ):
        with pytest.raises(PlanError, match=problem):
            load_plan(changed(**{f"tasks__topic__{key}": value for key, value in changes.items()}))


PUBLIC = [{"text": "A team won.", "label": "Sports"}, {"text": "A bank failed.", "label": "business "}]


def test_public_exemplars_are_signed_where_they_are_written() -> None:
    """They have the fields that the prompt shows, and labels of the task, however these are spelt."""
    assert "public_exemplars" not in load_plan(PLAN).model_dump_json()
    plan = load_plan(changed(tasks__topic__public_exemplars=PUBLIC))
    assert list(plan.tasks["topic"].public_exemplars) == PUBLIC
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


@pytest.mark.parametrize(
    ("public", "problem"),
    [
        ([{"text": "A team won."}], "tasks.topic: public_exemplars.0: must have the fields .* text, label"),
        ([{**PUBLIC[0], "page": "3"}], "tasks.topic: public_exemplars.0: must have the fields .* text, label"),
        ([PUBLIC[0], {"text": " \u200b", "label": "World"}], "tasks.topic: public_exemplars.1.text: is empty"),
        ([{"text": "", "label": "World"}], "tasks.topic.public_exemplars.0.text: "),
        ([{"text": "x" * 5001, "label": "World"}], "tasks.topic.public_exemplars.0.text: "),
        ([{"text": 3, "label": "World"}], "tasks.topic.public_exemplars.0.text: 3 is not a text"),
        ([{"text": "A team won.", "label": "Sport"}], "tasks.topic: public_exemplars.0.label: 'Sport' is not among"),
        ([*PUBLIC, {"text": "a  TEAM won.", "label": "sports"}], "tasks.topic: public_exemplars.2: .* number 0"),
        ([{"text": f"Number {n}", "label": "World"} for n in range(33)], "tasks.topic.public_exemplars: "),
        ("A team won.", "tasks.topic.public_exemplars: must be a list"),
    ],
)
def test_bad_public_exemplars_are_explained(public: object, problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        load_plan(changed(tasks__topic__public_exemplars=public))


@pytest.mark.parametrize(
    ("changes", "chooses"),
    [
        ({}, False),
        ({"public_exemplars": [{"text": "Where?", "response": "Here."}]}, True),
        ({"sentence": "chosen"}, True),
        ({"public_exemplars": [{"text": "Where?", "response": "Here."}], "sentence": "written"}, False),
    ],
)
def test_released_words_choose_where_it_is_written_or_there_are_public_exemplars(
    changes: dict[str, Any], chooses: bool
) -> None:
    plan = load_plan(changed(texts(), **{f"tasks__words__{key}": value for key, value in changes.items()}))
    task = plan.tasks["words"]
    assert isinstance(task, GenerateTask)
    assert task.chooses == chooses
    assert ("sentence" in plan.model_dump_json()) == ("sentence" in changes)


@pytest.mark.parametrize("mechanism", ["prototypes", "softmax_regression"])
def test_public_exemplars_that_nothing_would_show_are_refused(mechanism: str) -> None:
    task = {**yaml.safe_load(PLAN)["tasks"]["topic"], "public_exemplars": PUBLIC}
    voted = load_plan(changed(tasks={"topic": task})).tasks["topic"]
    once = {key: value for key, value in task.items() if key not in ("shots", "ensemble", "answers", "sampling")}
    once |= {"release": "once", "mechanism": {"type": mechanism}}
    with pytest.raises(PlanError, match=f"tasks.topic: public_exemplars: {mechanism} shows no exemplars"):
        load_plan(changed(tasks={"topic": once}))
    released = load_plan(changed(tasks={"topic": {**once, "public_exemplars": []}})).tasks["topic"]
    assert voted.by(released.mechanism).public_exemplars == ()
    assert released.by(voted.mechanism).public_exemplars == ()
    assert voted.by(voted.mechanism).public_exemplars == voted.public_exemplars


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"public_texts": [1]}, "public_texts.0"),
        ({"public_texts": [["a"]]}, "public_texts.0"),
        ({"public_texts": [{"text": 1}]}, "public_texts.0.text"),
        ({"topics": 3}, "topics"),
        ({"mechanism": 3}, "mechanism"),
    ],
)
def test_a_value_of_another_type_is_named_once_by_its_key(changes: dict[str, object], key: str) -> None:
    with pytest.raises(PlanError) as refused:
        load_plan(changed(**{f"tasks__topic__{name}": value for name, value in changes.items()}))
    (problem,) = refused.value.problems
    assert problem.key == f"tasks.topic.{key}"
    assert "valid" not in problem.message


JOINT, PTR = {"type": "keyword_joint_em", "k": 5}, {"type": "keyword_ptr", "k_min": 3, "k_max": 8}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"kind": None}, "tasks.reply.kind: is missing"),
        ({"kind": "classify"}, "tasks.reply.labels: is missing"),
        ({"mechanism": None}, "tasks.reply.mechanism: is missing"),
        ({"mechanism": {}}, "tasks.reply.mechanism.type: is missing"),
        ({"mechanism": {"type": "rnm_gaussian"}}, "tasks.reply.mechanism.type: must be one of embedding_mean"),
        ({"labels": ["a", "b"]}, "tasks.reply.labels: unknown key"),
        ({"response_field": "reply"}, "tasks.reply: prompt.exemplar: "),
        ({"document_field": "page"}, "tasks.reply: document_field: "),
        ({"candidates": 0}, "tasks.reply.candidates: "),
        ({"sentence": "chosen"}, "tasks.reply: sentence: embedding_mean releases no words"),
        ({"sentence": "drawn"}, "tasks.reply.sentence: "),
        ({"public_answers": ["Yes.", "Yes."]}, "tasks.reply: public_answers: each"),
        ({"public_answers": [" "]}, "tasks.reply: public_answers: an answer"),
        ({"public_answers": ["x" * 5001]}, "tasks.reply.public_answers.0: "),
        ({"typical_exemplar_tokens": 0}, "tasks.reply.typical_exemplar_tokens: "),
        ({"prompt__keywords": "Make a sentence."}, "tasks.reply.prompt.keywords: needs"),
        ({"prompt__keywords": "{keywords} {page}"}, "tasks.reply: prompt.keywords: "),
        ({"prompt__keywords": "{keywords"}, "tasks.reply.prompt.keywords: "),
        ({"prompt__exemplar": "{text} {keywords} {response}"}, "called keywords"),
        ({"mechanism": {"type": "embedding_mean", "radius": 2.1}}, "tasks.reply.mechanism.radius: "),
        ({"mechanism": {"type": "embedding_mean", "centred": 1}}, "tasks.reply.mechanism.centred: "),
        ({"mechanism": {"type": "embedding_mean", "k": 3}}, "tasks.reply.mechanism.k: unknown key"),
        ({"mechanism": {"type": "keyword_joint_em"}}, "tasks.reply.mechanism.k: is missing"),
        ({"mechanism": {**JOINT, "k": 0}}, "tasks.reply.mechanism.k: "),
        ({"mechanism": {**JOINT, "typical_domain": 4}}, "typical_domain: 5 words"),
        ({"mechanism": {**PTR, "k_min": 9}}, "tasks.reply.mechanism: k_min: "),
        ({"mechanism": {**PTR, "k_max": 101}}, "tasks.reply.mechanism.k_max: "),
        ({"mechanism": {**PTR, "choice_share": 1}}, "tasks.reply.mechanism.choice_share: "),
        ({"mechanism": {**PTR, "delta_share": 0}}, "tasks.reply.mechanism.delta_share: "),
    ],
)
def test_errors_in_text_tasks_name_the_key(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(PlanError) as caught:
        load_plan(changed(texts(), **{f"tasks__reply__{key}": value for key, value in changes.items()}))
    assert problem in str(caught.value)


def test_a_text_task_has_defaults_and_may_state_everything() -> None:
    plain = load_plan(yaml.safe_dump(texts())).tasks["reply"]
    fields = plain.answer_field, plain.query_fields, plain.exemplar_fields
    assert fields == ("response", ("text",), ("text", "response"))
    assert (plain.candidates, plain.public_answers, plain.document_field) == (20, (), None)
    assert (plain.mechanism.radius, plain.mechanism.centred) == (1, False)
    prompt = {"exemplar": "{page} {text} {answer}", "query": "{page} {text}", "keywords": "{text}: with {keywords}"}
    written = {"response_field": "answer", "document_field": "page", "prompt": prompt}
    full = load_plan(yaml.safe_dump(alone("reply", **written, public_answers=["Ask the desk."]))).tasks["reply"]
    assert (full.answer_field, full.query_fields) == ("answer", ("page", "text"))
    assert full.public_answers == ("Ask the desk.",)


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


@pytest.mark.slow
@pytest.mark.parametrize("of", ["calibrated", "calibrated_texts"])
def test_the_signed_document_reads_back_the_same(of: str, request: pytest.FixtureRequest) -> None:
    before = request.getfixturevalue(of)
    again = CalibratedPlan.model_validate_json(before.model_dump_json())
    assert (again, again.digest, again.events()) == (before, before.digest, before.events())


def test_more_exemplars_than_there_are_is_refused() -> None:
    with pytest.raises(PlanError, match=r"tasks.topic: .* 400 .* 399"):
        calibrate_plan(load_plan(PLAN), public_size=399)


def test_blocks_cost_less_than_units(calibrated: CalibratedPlan) -> None:
    blocks = calibrate_plan(load_plan(changed(tasks__topic__sampling="blocks")), public_size=8000)
    assert blocks.noise["topic"].mechanism.noise_multiplier < calibrated.noise["topic"].mechanism.noise_multiplier
    assert "prv" in blocks.unsupported


def test_noise_is_accounted_for_by_what_slots_contribute(calibrated: CalibratedPlan) -> None:
    """Votes taken for any vectors of a ball would promise too little where blocks are drawn."""
    reply = signed(alone("reply", sampling="blocks"))
    contributions = {
        name: noise.mechanism.contributions for plan in (calibrated, reply) for name, noise in plan.noise.items()
    }
    assert contributions == {"topic": "votes", "reply": "ball"}
    assert CalibratedPlan.model_validate_json(reply.model_dump_json()) == reply


@pytest.fixture(scope="module")
def calibrated_texts() -> CalibratedPlan:
    return signed(texts())


@pytest.mark.slow
def test_every_text_mechanism_is_calibrated_by_its_own_parameters(calibrated_texts: CalibratedPlan) -> None:
    noise = {name: noise.mechanism for name, noise in calibrated_texts.noise.items()}
    assert {name: type(mechanism) for name, mechanism in noise.items()} == {
        "reply": Gaussian,
        "words": BoundedRange,
        "tested": ProposeTestRelease,
    }
    assert {one.sampling_probability for one in calibrated_texts.noise.values()} == {200 / 4000}
    assert noise["tested"].epsilon < noise["words"].epsilon  # it has half of the cost to choose k with
    assert noise["tested"].noise_multiplier > noise["reply"].noise_multiplier


@pytest.mark.slow
def test_text_tasks_keep_the_promise_by_every_accountant_there_is_for_them(calibrated_texts: CalibratedPlan) -> None:
    assert set(calibrated_texts.epsilon) == {"pld", "rdp"}
    assert 0.99 * 3 < calibrated_texts.epsilon["pld"].upper <= 3
    assert calibrated_texts.epsilon["rdp"].upper > calibrated_texts.epsilon["pld"].lower
    assert list(calibrated_texts.unsupported) == ["prv"]
    assert "Gaussian" in calibrated_texts.unsupported["prv"]


def test_the_error_of_a_plan_that_prv_cannot_bound_names_the_accountant() -> None:
    document = {**yaml.safe_load(PLAN), "accountant": "prv"}
    task = document["tasks"]["topic"]
    document["tasks"] = {f"t{i}": {**task, "ensemble": 50 + i} for i in range(MOST_DIFFERENT + 1)}
    with pytest.raises(PlanError, match="pld") as refused:
        signed(document, 100_000)
    assert [problem.key for problem in refused.value.problems] == ["accountant"]


def test_an_embedding_mean_is_a_gaussian_to_prv_too() -> None:
    calibrated = signed(alone("reply"))
    assert calibrated.unsupported == {}
    assert calibrated.epsilon["prv"].upper == pytest.approx(3, rel=0.02)


def test_a_plan_of_words_cannot_rest_on_prv() -> None:
    with pytest.raises(PlanError, match="Gaussian") as refused:
        calibrate_plan(load_plan(changed(texts(), accountant="prv")), public_size=4000)
    assert [problem.key for problem in refused.value.problems] == ["accountant"]


@pytest.mark.slow
def test_without_an_accountant_the_smaller_bound_of_two_is_taken() -> None:
    document = alone("tested", answers=10_000)
    document["budget"]["epsilon"] = 8
    calibrated = signed(document, 7000)
    assert (load_plan(yaml.safe_dump(document)).accountant, calibrated.plan.accountant) == ("pld", "rdp")
    assert calibrated.epsilon["rdp"].upper <= 8 < calibrated.epsilon["pld"].upper
    told = signed({**document, "accountant": "pld"}, 7000)
    assert told.plan.accountant == "pld"
    assert told.noise["tested"].mechanism.noise_multiplier > calibrated.noise["tested"].mechanism.noise_multiplier
    assert CalibratedPlan.model_validate_json(calibrated.model_dump_json()) == calibrated


@pytest.mark.slow
def test_a_share_is_of_noise_and_of_delta() -> None:
    """The test takes delta_share of a task's part of δ, over answers·q draws of a unit."""
    document = texts()
    tested = document["tasks"]["tested"]
    document["tasks"]["wide"] = {**tested, "share": 3, "answers": 50, "mechanism": {**PTR, "delta_share": 0.2}}
    document["tasks"]["louder"] = {**document["tasks"]["reply"], "share": 3}
    noise = {name: noise.mechanism for name, noise in signed(document).noise.items()}
    q, shares = 200 / 4000, 1 + 1 + 1 + 3 + 3
    assert noise["tested"].delta0 == pytest.approx(0.5 * 1e-4 * (1 / shares) / (200 * q), rel=1e-12)
    assert noise["wide"].delta0 == pytest.approx(0.2 * 1e-4 * (3 / shares) / (50 * q), rel=1e-12)
    assert noise["louder"].noise_multiplier < noise["reply"].noise_multiplier


@pytest.mark.slow
def test_delta0_never_makes_the_test_a_formality() -> None:
    document = alone("tested", answers=1)
    document["budget"]["delta"] = 0.01
    assert signed(document, 10_000).noise["tested"].mechanism.delta0 == LARGEST_DELTA0


@pytest.mark.slow
def test_choice_share_moves_the_cost_from_the_test_to_the_choice() -> None:
    eager, careful = (
        signed(alone("tested", mechanism={**PTR, "choice_share": share})).noise["tested"].mechanism
        for share in (0.9, 0.1)
    )
    assert eager.epsilon > careful.epsilon
    assert eager.noise_multiplier > careful.noise_multiplier


VOTED = {
    "type": "synthetic_exemplars",
    "per_label": 1,
    "candidates": [{"text": f"Of {label}", "label": label} for label in ("World", "Sports")],
}


def voted(**changes: object) -> str:
    document = yaml.safe_load(PLAN)
    document["tasks"]["topic"] |= {"labels": ["World", "Sports"], "release": "once", "mechanism": {**VOTED, **changes}}
    for key in ("shots", "ensemble", "answers"):
        del document["tasks"]["topic"][key]
    return yaml.safe_dump(document)


def test_candidates_are_signed_with_the_plan() -> None:
    plan = load_plan(voted())
    calibrated = calibrate_plan(plan, 8000)
    assert CalibratedPlan.model_validate_json(calibrated.model_dump_json()) == calibrated
    other = [*VOTED["candidates"], {"text": "Of the world", "label": "World"}]
    assert calibrate_plan(load_plan(voted(candidates=other)), 8000).digest != calibrated.digest


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"candidates": VOTED["candidates"][:1]}, "mechanism.candidates: Sports: "),
        ({"per_label": 2}, "mechanism.candidates: World, Sports: "),
        ({"candidates": [{"text": "a"}]}, "mechanism.candidates.0: must have"),
        ({"candidates": [{"text": "a", "label": "Opera"}]}, "mechanism.candidates.0: 'Opera'"),
        ({"candidates": [{"text": " ", "label": "World"}]}, "mechanism.candidates.0: a field"),
        ({"candidates": VOTED["candidates"] * 2}, "mechanism.candidates.2: each"),
        ({"candidates": [{"text": 1, "label": "World"}]}, "tasks.topic.mechanism.candidates.0.text: "),
        ({"candidates": [{"text": "\ud800"}]}, "tasks.topic.mechanism.candidates.0.text: contains a NUL"),
        ({"per_label": 0}, "tasks.topic.mechanism.per_label: "),
    ],
)
def test_candidates_must_fit_the_task(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(PlanError, match=re.escape(problem)):
        load_plan(voted(**changes))


def test_placeholders_are_listed_once_in_order() -> None:
    assert placeholders("{b} and {a}, {b}; {{not}}") == ("b", "a")


def test_an_epsilon_beyond_what_the_samplers_are_exact_for_is_refused() -> None:
    plan = load_plan(PLAN)
    large = plan.model_copy(update={"budget": Budget(epsilon=25.1, delta=plan.budget.delta)})
    with pytest.raises(PlanError, match=r"budget\.epsilon: .* 25"):
        calibrate_plan(large, 8000)
