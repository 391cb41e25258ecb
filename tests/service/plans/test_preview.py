"""What an admin is told of a plan, against the mechanisms themselves."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from accounting.plan import CalibratedPlan, PlanError, TaskNoise, calibrate_plan, load_plan
from accounting.privacy.profiles import BoundedRange, Gaussian, ProposeTestRelease
from accounting.tasks import GenerateTask
from aggregation import keyword_ptr
from aggregation.embedding_mean import EmbeddingMean
from aggregation.keyword_joint_em import JointExponentialMechanism
from aggregation.rnm_gaussian import probability_correct
from service.pipeline.mechanisms.adapter import adapter_of
from service.pipeline.mechanisms.outlook import Outlook
from service.plans.calibrating import calibrate, least_noise
from service.plans.preview import PlanPreview, epsilon_spent, plot, preview
from tests.laws import probability_of_top_k
from tests.service.shell import Shell

TEXT = """
    kind: generate
    prompt: {exemplar: "Q: {text}\\nA: {response}", query: "Q: {text}\\nA:"}
    shots: 4
    ensemble: 100
    answers: 1000
    candidates: 30
    mechanism: """
PLAN = f"""
knowledge_base: help
budget: {{epsilon: 6, delta: 1.0e-4}}
tasks:
  topic:
    kind: classify
    labels: [billing, parcels, garden]
    prompt: {{exemplar: "{{text}}: {{label}}", query: "{{text}}:"}}
    shots: 4
    ensemble: 100
    answers: 1000
    mechanism: {{type: rnm_gaussian}}
  reply:{TEXT}{{type: embedding_mean}}
  words:{TEXT}{{type: keyword_joint_em, k: 4, typical_domain: 50}}
  tested:{TEXT}{{type: keyword_ptr, k_min: 3, k_max: 8}}
"""


@pytest.fixture(scope="module")
def calibrated() -> CalibratedPlan:
    return calibrate_plan(load_plan(PLAN), public_size=10_000)


@pytest.fixture(scope="module")
def described(calibrated: CalibratedPlan) -> PlanPreview:
    return preview(calibrated)


def text_task(mechanism: str, **changes: object) -> GenerateTask:
    task = load_plan(f"knowledge_base: x\nbudget: {{epsilon: 1, delta: 1e-4}}\ntasks:\n  t:{TEXT}{mechanism}").tasks[
        "t"
    ]
    assert isinstance(task, GenerateTask)
    return task.model_copy(update=changes)


def words(mechanism: str, noise: object, **changes: object) -> str:
    task = text_task(mechanism, **changes)
    outlook = adapter_of(task, TaskNoise(sampling_probability=0.04, mechanism=noise)).outlook()
    return outlook.in_words(task.answers, task.ensemble)


@pytest.mark.slow
def test_the_plan_is_described_by_every_accountant(described: PlanPreview) -> None:
    assert set(described.epsilon_by_accountant) == {"pld", "rdp"}
    assert described.epsilon_by_accountant["pld"][1] <= described.epsilon == 6
    assert "Gaussian releases only" in described.unsupported["prv"]


def test_every_mechanism_shows_its_own_numbers(described: PlanPreview, calibrated: CalibratedPlan) -> None:
    assert {name: (task.kind, task.mechanism, list(task.noise)) for name, task in described.tasks.items()} == {
        "topic": ("classify", "rnm_gaussian", ["noise_multiplier", "noise_votes"]),
        "reply": ("generate", "embedding_mean", ["noise_multiplier", "sigma"]),
        "words": ("generate", "keyword_joint_em", ["epsilon"]),
        "tested": ("generate", "keyword_ptr", ["epsilon", "noise_multiplier", "delta0", "threshold"]),
    }
    tested, noise = described.tasks["tested"].noise, calibrated.noise["tested"].mechanism
    assert (tested["epsilon"], tested["delta0"]) == (noise.epsilon, noise.delta0)
    assert described.tasks["reply"].noise["sigma"] == 2 * calibrated.noise["reply"].mechanism.noise_multiplier
    assert {task.sampling_probability for task in described.tasks.values()} == {0.04}
    assert described.tasks["words"].expected_exemplars == pytest.approx(400)


def test_the_slots_stated_make_the_release_good_in_95_of_100_cases(described: PlanPreview) -> None:
    """By the mechanisms' own laws, at the number of slots that the preview names."""
    slots = {name: task.slots_for_95_percent for name, task in described.tasks.items()}
    noise = {name: task.noise for name, task in described.tasks.items()}
    assert probability_correct(slots["topic"], noise["topic"]["noise_votes"], 3) == pytest.approx(0.95)
    reply = EmbeddingMean(noise["reply"]["noise_multiplier"])
    assert reply.probability_released(slots["reply"], 30) == pytest.approx(0.95)
    joint = JointExponentialMechanism(noise["words"]["epsilon"], 4)
    chances = [
        probability_of_top_k(joint, [c] * 4 + [0] * 46) for c in (math.floor(slots["words"]), math.ceil(slots["words"]))
    ]
    assert chances[0] < 0.95 <= chances[1]
    ptr = keyword_ptr.KeywordPtr(
        **{key: noise["tested"][key] for key in ("epsilon", "noise_multiplier", "delta0")}, k_min=3, k_max=8
    )
    assert ptr.probability_passes(slots["tested"] - 1) < 0.95 <= ptr.probability_passes(slots["tested"])


def test_the_curve_of_ranked_words_is_the_mechanisms(calibrated: CalibratedPlan) -> None:
    seen = adapter_of(calibrated.plan.tasks["words"], calibrated.noise["words"]).outlook()
    joint = JointExponentialMechanism(calibrated.noise["words"].mechanism.epsilon, 4)
    for slots in (1, 10, 40, 100):
        exact = probability_of_top_k(joint, [slots] * 4 + [0] * 46)
        assert seen.chance(slots) == pytest.approx(exact, rel=1e-9)


def test_engine_calls_count_zero_shot_answers_and_the_sentence_made_of_words(described: PlanPreview) -> None:
    calls = {name: task.llm_calls for name, task in described.tasks.items()}
    assert calls == {"topic": 101, "reply": 130, "words": 131, "tested": 131}
    assert described.tasks["words"].llm_tokens > described.tasks["reply"].llm_tokens > 100 * 4 * 60


def test_a_consensus_in_reach_is_stated() -> None:
    said = words("{type: keyword_joint_em, k: 3, typical_domain: 40}", BoundedRange(2.0))
    assert "With 25 of 100 slots naming each of 3 words and none of the others, these words and no others" in said
    assert "What helps" not in said


def test_a_consensus_that_takes_nearly_every_slot_is_called_one() -> None:
    said = words("{type: keyword_joint_em, k: 10}", BoundedRange(1.41))
    assert "With 95 of 100 slots naming each of 10 words" in said
    assert "Few questions bring so many together. What helps: more ε" in said
    assert "a smaller k" in said


@pytest.mark.parametrize(
    ("mechanism", "noise", "only", "helps"),
    [
        ("{type: keyword_joint_em, k: 10}", BoundedRange(0.5), "fewer than 1 of 100", "a smaller k"),
        ("{type: keyword_joint_em, k: 10}", BoundedRange(1.3), "only 88 of 100", "a smaller k"),
        ("{type: embedding_mean}", Gaussian(10.0), "only 83 of 100", "fewer candidates"),
        ("{type: keyword_ptr, k_min: 5, k_max: 5}", ProposeTestRelease(1.0, 15.0, 1e-6), "only 6 of 100", "more ε"),
    ],
)
def test_a_consensus_out_of_reach_is_called_that(mechanism: str, noise: object, only: str, helps: str) -> None:
    said = words(mechanism, noise)
    assert "Out of reach: even with all 100 slots" in said
    assert f" in {only} cases." in said
    assert helps in said.split("What helps: ")[1]


@pytest.mark.slow
def test_what_is_out_of_reach_has_no_figure() -> None:
    plan = load_plan(PLAN.replace("epsilon: 6", "epsilon: 0.2"))
    tasks = preview(calibrate_plan(plan, public_size=10_000)).tasks.values()
    assert [task.slots_for_95_percent for task in tasks] == [None] * 4
    assert all("Out of reach" in task.summary for task in tasks)


def test_the_chance_of_falling_back_is_told_by_the_lead() -> None:
    noise = ProposeTestRelease(1.0, 2.0, 1e-6)
    said = words("{type: keyword_ptr, k_min: 5, k_max: 15}", noise)
    mechanism = keyword_ptr.KeywordPtr(1.0, 2.0, 1e-6, 5, 15)
    fallbacks = [round(100 * (1 - mechanism.probability_passes(gap))) for gap in (10, 25, 50)]
    assert fallbacks[0] > fallbacks[1] > fallbacks[2] == 0
    assert f"At a lead of 10, 25 and 50 slots the zero-shot answer is given instead in {fallbacks[0]}, " in said
    # e^(ε·21/4) is 191, 19 times the ten other choices; e^(ε·20/4) is only 148.
    assert "Of 5 to 15, that k is the one tried in 95 of 100 cases if its lead is 21 slots" in said


def test_a_fixed_k_is_not_chosen() -> None:
    said = words("{type: keyword_ptr, k_min: 5, k_max: 5}", ProposeTestRelease(1.0, 2.0, 1e-6))
    assert "the one tried" not in said


def test_embedding_means_say_what_they_assume() -> None:
    assert "no other candidate is closer to it than a cosine of 0.5" in words("{type: embedding_mean}", Gaussian(2.0))
    centred = words("{type: embedding_mean, radius: 0.4, centred: true}", Gaussian(2.0))
    assert "every two candidates have a cosine of 0.5" in centred


def test_a_domain_of_no_choice_and_a_single_candidate_need_no_slot() -> None:
    for mechanism, noise, changes in [
        ("{type: keyword_joint_em, k: 10, typical_domain: 10}", BoundedRange(0.1), {}),
        ("{type: embedding_mean}", Gaussian(50.0), {"candidates": 1}),
    ]:
        seen = adapter_of(
            text_task(mechanism, **changes), TaskNoise(sampling_probability=0.1, mechanism=noise)
        ).outlook()
        assert seen.needed == 0
        assert seen.chance(0) == 1


def test_a_domain_beyond_all_floats_is_described() -> None:
    said = words("{type: keyword_joint_em, k: 100, typical_domain: 1000000}", BoundedRange(5.0))
    assert "Out of reach" in said


def test_noise_of_another_mechanism_is_refused() -> None:
    with pytest.raises(TypeError, match="embedding_mean is not released with BoundedRange"):
        words("{type: embedding_mean}", BoundedRange(1.0))


def test_the_plot_has_a_curve_per_task_that_explains_itself(calibrated: CalibratedPlan, tmp_path: Path) -> None:
    figure = plot(calibrated)
    figure.savefig(tmp_path / "plan.png")
    titles = [axes.get_title() for axes in figure.axes]
    assert [title.split("\n")[0] for title in titles] == [
        "topic (rnm_gaussian)",
        "reply (embedding_mean)",
        "words (keyword_joint_em)",
        "tested (keyword_ptr)",
    ]
    assert all("chance that" in title for title in titles)
    described = preview(calibrated).tasks.values()
    for axes, task in zip(figure.axes, described, strict=True):
        assert axes.get_xlabel() == f"{task.slots_mean} (of 100)"
        curve = axes.get_lines()[0]
        slots, chance = np.asarray(curve.get_xdata()), np.asarray(curve.get_ydata())
        assert (slots[0], slots[-1]) == (0, 100)
        assert (np.diff(chance) >= 0).all()
        assert slots[chance >= 0.95][0] == math.ceil(task.slots_for_95_percent)


@pytest.mark.slow
def test_the_epsilon_spent_grows_with_charges_of_any_kind(calibrated: CalibratedPlan) -> None:
    document = calibrated.model_dump_json()
    assert epsilon_spent(document, {"words": 0}) == 0
    some = epsilon_spent(document, {"words": 30, "tested": 10})
    assert 0 < some < epsilon_spent(document, {"words": 300, "tested": 100}) < 6
    assert epsilon_spent(document, dict.fromkeys(calibrated.plan.tasks, 1000)) == pytest.approx(6, rel=0.01)


@pytest.mark.slow
def test_the_command_line_fits_a_hundred_columns(dpicl: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    shown = dpicl.ok("plan", "preview", file, "--public-size", "10000")
    assert max(map(len, shown.splitlines())) <= 100
    for whole in ("embedding_mean", "keyword_joint_em", "keyword_ptr", "slots for 95 %", " to "):
        assert whole in shown
    assert "…" not in shown


def test_the_calls_for_a_prior_are_counted() -> None:
    task = "kind: classify, labels: [red, blue], prompt: {exemplar: '{text} {label}', query: '{text}'}"
    drawn = f"{task}, shots: 2, ensemble: 10, answers: 5, mechanism: {{type: rnm_gaussian}}"
    listed = ", ".join(f"{{text: a {label} toy, label: {label}}}" for label in ("red", "blue"))
    chosen = f"mechanism: {{type: synthetic_exemplars, per_label: 1, candidates: [{listed}]}}"
    plan = load_plan(
        f"""
        knowledge_base: toys
        budget: {{epsilon: 3, delta: 1.0e-4}}
        tasks:
          alone: {{{drawn}}}
          informed: {{{drawn}, prior_from: shown}}
          shown: {{{task}, release: once, {chosen}}}
        """
    )
    seen = preview(calibrate_plan(plan, 1000)).tasks
    assert [seen[name].llm_calls for name in ("alone", "informed", "shown")] == [11, 13, 2]
    assert seen["informed"].llm_tokens == seen["alone"].llm_tokens + seen["shown"].llm_tokens > 0


def topic(mechanism: str, sigma: float) -> Outlook:
    written = PLAN.replace("{type: rnm_gaussian}", mechanism)
    noise = TaskNoise(sampling_probability=0.04, mechanism=Gaussian(sigma / math.sqrt(2)))
    return adapter_of(load_plan(written).tasks["topic"], noise).outlook()


def released(decide: str, sigma: float, lead: float, zero_shot: list[float]) -> float:
    """How often the service's own aggregator releases the first label, all 100 slots voting, with a lead of so many."""
    noise = TaskNoise(sampling_probability=0.04, mechanism=Gaussian(sigma / math.sqrt(2)))
    task = load_plan(PLAN.replace("{type: rnm_gaussian}", f"{{type: rnm_gaussian, decide: {decide}}}")).tasks["topic"]
    posterior = adapter_of(task, noise).posterior
    rng, votes = np.random.default_rng(2), np.array([lead, 0, 0]) + (100 - lead) / 3
    drawn = votes + sigma * rng.standard_normal((4000, 3))
    drawn += (100 - drawn.sum(axis=1, keepdims=True)) / 3  # as if it were known that all vote
    return float(np.mean([posterior.probabilities(one, np.array(zero_shot)).argmax() == 0 for one in drawn]))


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [4.0, 15.0])
def test_what_is_said_of_the_posterior_holds_for_it(sigma: float) -> None:
    """With zero-shot undecided the lead stated suffices; against a contrary one about as much more suffices."""
    seen = topic("{type: rnm_gaussian}", sigma)
    error = 5 * math.sqrt(0.05 * 0.95 / 4000)
    assert "and zero-shot undecided" in seen.slots_mean
    assert released("posterior", sigma, seen.needed, [1, 1, 1]) == pytest.approx(0.95, abs=error)
    (more,) = [int(word) for word in re.findall(r"the lead must be about (\d+) slots larger", seen.notes)]
    contrary = [1 / 9, 4 / 9, 4 / 9]
    assert released("posterior", sigma, seen.needed, contrary) < 0.95 - error
    assert released("posterior", sigma, seen.needed + more, contrary) >= 0.9


@pytest.mark.parametrize(
    ("mechanism", "sigma", "warning"),
    [
        ("{type: rnm_gaussian}", 10.0, None),
        ("{type: rnm_gaussian}", 40.0, "Zero-shot mostly decides"),
        ("{type: rnm_gaussian, decide: argmax}", 20.0, None),
        ("{type: rnm_gaussian, decide: argmax}", 40.0, "Answers are expected to be worse"),
    ],
)
def test_a_plan_that_noise_drowns_is_warned_of(mechanism: str, sigma: float, warning: str | None) -> None:
    said = topic(mechanism, sigma).warning(100)
    assert (said is None) if warning is None else said.startswith(warning)


def test_tested_words_that_hardly_stand_out_are_warned_of() -> None:
    task = text_task("{type: keyword_ptr, k_min: 5, k_max: 5}")
    for sigma, warned in ((3.0, False), (20.0, True)):
        noise = TaskNoise(sampling_probability=0.04, mechanism=ProposeTestRelease(1.0, sigma, 1e-6))
        said = adapter_of(task, noise).outlook().warning(task.ensemble)
        assert bool(said and said.startswith("Most answers are expected to fall back")) == warned


def test_noise_that_no_lattice_draws_is_refused() -> None:
    plan = load_plan(PLAN.replace("{type: embedding_mean}", "{type: embedding_mean, radius: 0.0001}"))
    for found in (calibrate, least_noise):
        with pytest.raises(PlanError, match=r"tasks\.reply\.mechanism: 2 · radius · noise_multiplier must be"):
            found(plan, 10_000)
