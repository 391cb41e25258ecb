"""Plans whose slots write texts once, on public topics."""

import re

import pytest
import yaml

from accounting.plans.plan import CalibratedPlan, PlanError, calibrate_plan, load_plan
from accounting.privacy.accountants import get_accountant
from accounting.privacy.events import Event, Sampling
from accounting.privacy.profiles import BoundedRange

DELTA = 1e-5
MECHANISM = {"type": "token_ensemble", "tokens": 10, "texts": 4, "topics": ["kettle", "lamp"]}
PROMPT = {
    "exemplar": "Product: {product}\nReview: {review}",
    "query": "Product: {product}\nReview:",
    "written": "{written}\n\nAbout {product}: {question}\nAnswer:",
}


def texts(*, without: tuple[str, ...] = (), mechanism: dict | None = None, prompt: dict | None = None, **task) -> str:
    """A plan's text."""
    written = {
        "kind": "generate",
        "release": "once",
        "response_field": "review",
        "shots": 4,
        "ensemble": 40,
        "prompt": {key: said for key, said in {**PROMPT, **(prompt or {})}.items() if said},
        "mechanism": {key: said for key, said in {**MECHANISM, **(mechanism or {})}.items() if said},
        **task,
    }
    kept = {key: said for key, said in written.items() if key not in without}
    return yaml.safe_dump(
        {"knowledge_base": "shop", "budget": {"epsilon": 1.0, "delta": DELTA}, "tasks": {"reviews": kept}}
    )


def test_all_texts_on_a_topic_are_paid_for() -> None:
    signed = calibrate_plan(load_plan(texts()), 1000)
    assert CalibratedPlan.model_validate_json(signed.model_dump_json()) == signed
    noise = signed.noise["reviews"]
    assert (noise.sampling_probability, noise.mechanism.tokens) == (1.0, 40)
    (event,) = signed.events()
    assert event.count == 1
    pld = get_accountant("pld")
    alone = pld.upper([Event(BoundedRange(noise.mechanism.epsilon), Sampling("units", 1.0), 40)], DELTA)
    assert pld.upper([event], DELTA) == pytest.approx(alone)
    assert 0.99 <= alone <= 1.0


def test_what_the_model_writes_alone_is_not_paid_for() -> None:
    paid, longer = (calibrate_plan(load_plan(texts(mechanism=more)), 1000) for more in ({}, {"max_tokens": 50}))
    assert paid.noise == longer.noise
    assert paid.events() == longer.events()


@pytest.mark.slow
def test_a_release_of_every_unit_may_cost_more_than_an_answer_of_a_sample() -> None:
    large = texts(mechanism={"weight": 10, "tokens": 40}, ensemble=2).replace("epsilon: 1.0", "epsilon: 12.0")
    assert calibrate_plan(load_plan(large), 1000).noise["reviews"].mechanism.mu > 1


def test_a_question_brings_the_fields_of_the_template_that_shows_the_texts() -> None:
    task = load_plan(texts()).tasks["reviews"]
    assert (task.query_fields, task.topic_field, task.exemplar_fields) == (
        ("product", "question"),
        "product",
        ("product", "review"),
    )
    assert {"shots", "ensemble", "answers"} & set(task.releases.unset) == {"answers"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"mechanism": {"topics": None}}, "mechanism: topics: "),
        ({"mechanism": {"topics": None, "texts": None}}, "release: token_ensemble is released"),
        ({"mechanism": {"topics": ["a", "a"]}}, "topics: each"),
        ({"mechanism": {"topics": [" a"]}}, "topics: ' a' "),
        ({"mechanism": {"topics": ["cafe\u0301"]}}, "topics: 'cafe\u0301' "),
        ({"mechanism": {"texts": 33}}, "texts: texts × tokens is 330"),
        ({"release": "each", "answers": 5}, "write `release: once`"),
        ({"mechanism": {"after": {"type": "keyword_ptr", "k_min": 1, "k_max": 2}}}, "after: no words"),
        ({"without": ("ensemble",)}, "ensemble: needs"),
        ({"answers": 5}, "answers: "),
        ({"sampling": "blocks"}, "sampling: "),
        ({"prompt": {"written": None}}, "written: is missing"),
        ({"prompt": {"written": "{question}"}}, "tasks.reviews.prompt.written: needs"),
        ({"prompt": {"written": "{written}"}}, "tasks.reviews.prompt.written: needs"),
        (
            {"prompt": {"query": "{product} {maker}", "exemplar": "{product} {maker} {review}"}},
            "prompt.query: must have",
        ),
        ({"prompt": {"exemplar": "{product} {maker} {review}"}}, "prompt.exemplar: must show"),
        ({"prompt": {"query": "{written}", "exemplar": "{written} {review}"}}, "prompt.exemplar: a field"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict, problem: str) -> None:
    with pytest.raises(PlanError, match=re.escape(problem)):
        load_plan(texts(**changes))


def test_the_template_is_for_one_time_releases() -> None:
    each = texts(release="each", answers=5, mechanism={"topics": None, "texts": None})
    with pytest.raises(PlanError, match=r"prompt\.written: "):
        load_plan(each)
    other = texts(mechanism={"type": "keyword_joint_em", "k": 3, "topics": None, "texts": None, "tokens": None})
    with pytest.raises(PlanError, match="keyword_joint_em"):
        load_plan(other)
