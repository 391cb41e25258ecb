"""Other ways to spend a task's budget, compared with what signing each of them would give."""

import pytest

from accounting.plans.plan import Plan, PlanError, TaskNoise, calibrate_plan, least_noise, load_plan
from service.answering.plans.alternatives import alternatives
from service.answering.plans.preview import preview
from tests.service.conftest import PLAN, TEXT_PLAN

LATER = "".join(PLAN.partition("  colour:")[1:]).replace("colour", "shade").replace("answers: 20", "answers: 40")


@pytest.mark.slow
def test_each_is_what_it_would_be_if_it_were_signed() -> None:
    fewer, planned, more = PLAN.replace("answers: 20", "answers: 2"), PLAN, PLAN.replace("answers: 20", "answers: 200")
    once = f"{PLAN[: PLAN.index('    shots')]}    release: once\n    mechanism: {{type: prototypes}}"
    regressed = once.replace("prototypes", "softmax_regression")
    *seen, voted = alternatives(load_plan(PLAN), 60)["colour"]
    for one, text in zip(seen, (planned, fewer, more, once, regressed), strict=True):
        signed = preview(calibrate_plan(load_plan(text), 60)).tasks["colour"]
        assert one.answers == signed.answers
        assert one.noise == pytest.approx(signed.noise, rel=0.003)
        assert one.warning == signed.warning
    assert [bool(one.warning) for one in seen] == [False, False, True, False, False]
    assert (voted.mechanism, voted.answers) == ("synthetic_exemplars", None)
    assert (voted.llm_calls, seen[-1].llm_calls, seen[-1].llm_tokens) == (2, 0, 0)
    assert 0 < voted.llm_tokens < seen[0].llm_tokens
    assert voted.noise["noise_multiplier"] == seen[-1].noise["noise_multiplier"]  # the noise multiplier of prototypes


@pytest.mark.slow
def test_tasks_that_rely_on_each_other_are_seen_alone() -> None:
    once = "".join(PLAN.partition("  colour:")[1:]).replace("colour", "for-ever")
    once = f"{once[: once.index('    shots')]}    release: once\n    mechanism: {{type: prototypes}}"
    seen = alternatives(load_plan(PLAN.replace("answers: 20", "answers: 20\n    when_spent: for-ever") + once), 60)
    assert [one.answers for one in seen["colour"]] == [20, 2, 200, None, None, None]
    assert [(one.mechanism, one.answers) for one in seen["for-ever"]] == [("prototypes", None)]


@pytest.mark.slow
def test_a_task_has_its_share_to_itself() -> None:
    plan = load_plan(PLAN + LATER.replace("shots: 2", "shots: 2\n    share: 3"))
    alone = PLAN.replace("epsilon: 4", "epsilon: 1").replace("1.0e-4", "2.5e-5")
    colour = preview(calibrate_plan(load_plan(alone), 60)).tasks["colour"]
    seen = alternatives(plan, 60)
    assert seen["colour"][0].noise["noise_votes"] == pytest.approx(colour.noise["noise_votes"], rel=0.003)
    assert [one.answers for one in seen["shade"]] == [40, 4, 400, None, None, None]


@pytest.mark.slow
def test_texts_are_compared_by_every_mechanism() -> None:
    plan = load_plan(TEXT_PLAN.format(epsilon=8, answers=5, mechanism="type: keyword_ptr, k_min: 1, k_max: 3"))
    seen = alternatives(plan, 200)["story"]
    assert [(one.mechanism, one.answers) for one in seen] == [
        ("keyword_ptr", 5),
        ("keyword_ptr", 50),
        ("embedding_mean", 5),
        ("keyword_joint_em", 5),
        ("common_sentences", 5),
    ]
    # The accountant that needs less noise is found, as at signing.
    joint = load_plan(TEXT_PLAN.format(epsilon=8, answers=5, mechanism="type: keyword_joint_em, k: 5"))
    signed = preview(calibrate_plan(joint, 200)).tasks["story"]
    assert seen[3].noise["epsilon"] == pytest.approx(signed.noise["epsilon"], rel=0.003)


def test_what_cannot_be_calibrated_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(plan: Plan, public_size: int) -> dict[str, TaskNoise]:
        if plan.tasks["colour"].answers == 200:
            raise PlanError(("budget", "no noise keeps the promise"))
        return least_noise(plan, public_size)

    monkeypatch.setattr("service.answering.plans.alternatives.least_noise", refuse)
    assert [one.answers for one in alternatives(load_plan(PLAN), 60)["colour"]] == [20, 2, None, None, None]
