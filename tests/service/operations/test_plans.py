"""Signing and trying plans: budget is taken only on purpose, and a repeated request takes it once."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest.mock import Mock

import pytest
from pydantic import ValidationError

from accounting.ledger.errors import BudgetExceededError, PlansChangedError, SignedAlreadyError
from accounting.plans import plain_yaml
from accounting.plans.plan import CalibratedPlan, PlanError, load_plan
from service.answering.latency import Measured, smallest_grain_s
from service.answering.plans import signing
from service.answering.plans.expected_latency import LatencyEstimate
from service.answering.plans.signing import prepare
from service.answering.stages import Stages
from service.answering.trials.trials import Trials
from service.operations import plans, trials
from service.operations.command import Confirmation
from service.operations.fields import problems
from service.operations.roles import Actor
from service.operations.trials import TrialView, Trying
from service.records.records import Records
from tests.service.conftest import EMBEDDER, PLAN, MajorityEngine

ROOT = Actor("root", "root", "account", "admin")
WORSE = {Confirmation.WORSE_THAN_FREE}
SMALL = PLAN.replace("epsilon: 4", "epsilon: 2").replace("1.0e-4", "2.0e-5")


@pytest.fixture
def small(records: Records) -> CalibratedPlan:
    """A plan for half of the free budget, and hardly worth its price."""
    return prepare(records, load_plan(SMALL))


def versions(records: Records) -> list[int]:
    return [signed.version for signed in plans.list_(ROOT, records, "toys")]


def test_a_repeated_request_signs_once(records: Records, small: CalibratedPlan) -> None:
    with ThreadPoolExecutor(3) as threads:
        signed = [threads.submit(plans.sign, ROOT, records, small, WORSE, after_version=1) for _ in range(3)]
        assert [one.result().signed.version for one in signed] == [2, 2, 2]
    other = prepare(records, load_plan(SMALL.replace("epsilon: 2", "epsilon: 1")))
    with pytest.raises(PlansChangedError):
        plans.sign(ROOT, records, other, WORSE, after_version=1)
    assert versions(records) == [1, 2]


def test_a_plan_that_is_signed_takes_its_budget_again_only_if_its_version_is_named(
    records: Records, small: CalibratedPlan
) -> None:
    def sign(again: int | None = None, of: CalibratedPlan = small) -> int:
        return plans.sign(ROOT, records, of, WORSE, again=again).signed.version

    def outcomes(*given: object) -> list[str]:
        with ThreadPoolExecutor(3) as threads:
            attempts = [threads.submit(sign, *given) for _ in range(3)]
        return sorted("refused" if one.exception() else str(one.result()) for one in attempts)

    assert outcomes() == ["2", "refused", "refused"]
    assert sign(of=prepare(records, load_plan(SMALL.replace("epsilon: 2", "epsilon: 1")))) == 3
    for wrong in (None, 1, 3, 4):
        with pytest.raises(SignedAlreadyError) as refused:
            sign(wrong)
        assert refused.value.version == 2  # although it is not the newest plan
    smaller = prepare(records, load_plan(SMALL.replace("epsilon: 2", "epsilon: 0.5").replace("2.0e-5", "1.0e-5")))
    assert sign(of=smaller) == 4
    assert outcomes(4, smaller) == ["5", "refused", "refused"]
    assert versions(records) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [(("epsilon: 2", "epsilon: 5"), BudgetExceededError), (("[red, blue]", "[first label, blue]"), PlanError)],
)
def test_a_plan_that_cannot_be_signed_is_refused(
    records: Records, changed: tuple[str, str], refusal: type[Exception]
) -> None:
    calibrated = prepare(records, load_plan(SMALL.replace(*changed)))
    with pytest.raises(refusal):
        plans.sign(ROOT, records, calibrated, WORSE)
    assert versions(records) == [1]


@pytest.mark.parametrize(
    ("schema", "key"),
    [
        ("{const: 2020-01-01}", "const"),
        ("&s {anyOf: [*s]}", "anyOf.0"),
        ("{minimum: .nan}", "minimum"),
        ("{properties: {1: {}}}", "properties.1"),
    ],
)
def test_values_that_json_does_not_have_are_refused_by_their_keys(schema: str, key: str) -> None:
    written = PLAN[: PLAN.index("    labels")].replace("classify", "generate\n    response_field: label")
    written += f"    mechanism: {{type: token_ensemble, tokens: 5, json_schema: {schema}}}\n"
    with pytest.raises(PlanError) as refused:
        plans.read(written, "toys")
    assert f"tasks.colour.mechanism.json_schema.{key}" in [found.key for found in refused.value.problems]


def test_latency_is_estimated_from_a_comparable_task_that_was_measured(records: Records) -> None:
    def previewed(plan: str, measured: Measured) -> tuple[LatencyEstimate | None, int]:
        grains = Mock(report=[measured])
        shown = plans.preview(ROOT, records, prepare(records, load_plan(plan)), grains=grains)
        return (shown.latency or {}).get("colour"), shown.preview.tasks["colour"].llm_tokens

    measured = Measured("toys.colour@1", 25.0, work_s=12.0, typical_s=9.5)
    same, tokens = previewed(SMALL, measured)
    assert same == LatencyEstimate(like="toys.colour@1", typical_s=9.5, largest_s=12.0, grain_s=25.0)
    larger, more = previewed(SMALL.replace("ensemble: 10", "ensemble: 15"), replace(measured, chosen=True))
    times = more / tokens
    assert times > 1.3
    assert larger is not None
    assert (larger.typical_s, larger.largest_s) == pytest.approx((9.5 * times, 12 * times))
    assert larger.grain_s == smallest_grain_s(12 * times)
    repeats = replace(measured, repeats=0.8)
    assert previewed(SMALL, repeats)[0].repeats == 0.8
    assert previewed(SMALL.replace("shots: 2", "shots: 3"), repeats)[0].repeats is None  # it was shown fewer
    assert previewed(SMALL.replace("    shots:", "    own_reference: 0\n    shots:"), repeats)[0] is None
    for other in (
        replace(measured, typical_s=0.0),  # it asked no language model here
        replace(measured, problem="it could not be measured"),
        replace(measured, blocks=7, block_s=0.1),
    ):
        assert previewed(SMALL, other)[0] is None
    assert previewed(SMALL.replace("    shots:", "    sampling: blocks\n    shots:"), measured)[0] is None


def test_a_plan_is_for_the_knowledge_base_that_is_meant() -> None:
    assert plans.read(PLAN, "toys") == load_plan(PLAN)
    with pytest.raises(PlanError) as refused:
        plans.read(PLAN, "cars")
    assert [found.key for found in refused.value.problems] == ["knowledge_base"]


def test_only_auditors_see_names(records: Records) -> None:
    key, _ = records.keys.create("ana", "admin")
    for role, seen in (("analyst", {}), ("viewer", {}), ("auditor", {key.id: "ana"})):
        assert plans.names(Actor("x", "x", "key", role), records) == seen


def test_a_trial_of_an_account_names_no_asker(calibrated: CalibratedPlan) -> None:
    askers = []

    class Noting(MajorityEngine):
        async def zero_shot(self, task, query):
            askers.append(task.asker)
            return await super().zero_shot(task, query)

    trying = Trying(query="a toy", exemplars=[{"text": "a toy", "label": "red"}], repeats=4)
    for actor in (ROOT, Actor("k1", "ana", "key", "analyst")):
        opened = Trials(Stages(Noting(), EMBEDDER, 60.0))
        trial = asyncio.run(trials.try_(actor, opened, calibrated, "colour", trying, "text", None))
        view = TrialView.of("toys.colour", trial)
        assert (view.task, view.noiseless.label, view.repeats, view.exemplars.supplied) == ("toys.colour", "red", 4, 1)
        assert view.agreeing == trial.agreeing / 4
    assert set(askers) == {"", "k1"}


def test_a_wrong_field_of_a_trial_is_named() -> None:
    public = [{"text": "a toy", "label": "red"}]
    for wrong in ({"exemplars": []}, {"exemplars": public * 201}, {"repeats": 0}, {"repeats": 101}, {"query": 1}):
        with pytest.raises(ValidationError) as refused:
            Trying(**{"query": "a toy", "exemplars": public} | wrong)
        assert list(problems(refused.value, Trying)) == list(wrong)


OTHER_SPELLINGS = {
    "as it is": SMALL,
    "other order": "\n".join(
        [*SMALL.split("tasks:")[0].strip().splitlines()[::-1], "tasks:" + SMALL.split("tasks:")[1]]
    ),
    "labels in another order": SMALL.replace("[red, blue]", "[blue, red]"),
    "as JSON": json.dumps(plain_yaml.load(SMALL)),
    "what is the default, written": SMALL.replace("tasks:", "accountant: pld\ntasks:"),
    "another accountant": SMALL.replace("tasks:", "accountant: rdp\ntasks:"),
    "other figures of the same value": SMALL.replace("epsilon: 2,", "epsilon: 2.0,").replace("2.0e-5", "0.00002"),
    "another line break": SMALL.replace('"{text}:"', '"{text}: "'),
    "its cohorts, written": SMALL.replace("tasks:", "cohorts: [1]\ntasks:"),
}


@pytest.mark.parametrize("spelling", OTHER_SPELLINGS)
def test_a_plan_that_was_written_the_same_is_asked_about_after_a_cohort_was_opened(
    records: Records, small: CalibratedPlan, spelling: str
) -> None:
    assert plans.sign(ROOT, records, small, WORSE).signed.version == 2
    records.open_cohort("toys", epsilon=8, delta=2e-4, public_size=70, by="test")
    again = prepare(records, load_plan(OTHER_SPELLINGS[spelling]))
    assert signing.newest_alike(records, again) == 2
    with pytest.raises(SignedAlreadyError, match="--again 2"):
        plans.sign(ROOT, records, again, WORSE)
    assert versions(records) == [1, 2]
    assert plans.sign(ROOT, records, again, WORSE, again=2).signed.version == 3


@pytest.mark.parametrize("retain", ["cohorts: [2]", "retain: 1"])
def test_a_plan_for_the_next_cohort_is_another(records: Records, small: CalibratedPlan, retain: str) -> None:
    plans.sign(ROOT, records, small, WORSE)
    records.open_cohort("toys", epsilon=8, delta=2e-4, public_size=70, by="test")
    following = prepare(records, load_plan(SMALL.replace("tasks:", f"{retain}\ntasks:")))
    assert plans.sign(ROOT, records, following, WORSE).signed.version == 3
