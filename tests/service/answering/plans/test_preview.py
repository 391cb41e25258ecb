"""The preview of a plan that an admin sees, checked against the mechanisms themselves."""

import csv
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from accounting.plans.plan import CalibratedPlan, PlanError, TaskNoise, calibrate_plan, load_plan
from accounting.plans.tasks import GenerateTask
from accounting.privacy.profiles import BoundedRange, Gaussian, ProposeTestRelease
from aggregation import keyword_ptr
from aggregation.embedding_mean import EmbeddingMean
from aggregation.keyword_joint_em import JointExponentialMechanism
from aggregation.rnm_gaussian import probability_correct
from exemplar_store.sampling import below, deal, poisson_sample
from service.answering.mechanisms.adapter import adapter_of
from service.answering.mechanisms.outlook import Outlook
from service.answering.plans.calibrating import calibrate, least_noise
from service.answering.plans.preview import PlanPreview, describe, empty_share, epsilon_spent, plot, preview
from tests.documented import DOCS
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
    plan = load_plan(f"knowledge_base: x\nbudget: {{epsilon: 1, delta: 1e-4}}\ntasks:\n  t:{TEXT}{mechanism}")
    return plan.tasks["t"].model_copy(update=changes)


def words(mechanism: str, noise: object, **changes: object) -> str:
    task = text_task(mechanism, **changes)
    outlook = adapter_of(task, TaskNoise(sampling_probability=0.04, mechanism=noise)).outlook()
    return outlook.in_words(task.answers, task.ensemble)


@pytest.mark.slow
def test_every_mechanism_shows_its_own_numbers(described: PlanPreview, calibrated: CalibratedPlan) -> None:
    assert {name: list(task.noise) for name, task in described.tasks.items()} == {
        "topic": ["noise_multiplier", "noise_votes"],
        "reply": ["noise_multiplier", "sigma"],
        "words": ["epsilon"],
        "tested": ["epsilon", "noise_multiplier", "delta0", "threshold"],
    }
    tested, noise = described.tasks["tested"].noise, calibrated.noise["tested"].mechanism
    assert (tested["epsilon"], tested["delta0"]) == (noise.epsilon, noise.delta0)
    assert described.tasks["reply"].noise["sigma"] == 2 * calibrated.noise["reply"].mechanism.noise_multiplier
    assert {task.sampling_probability for task in described.tasks.values()} == {0.04}
    assert described.tasks["words"].expected_exemplars == pytest.approx(400)
    assert described.epsilon_by_accountant.keys() == {"pld", "rdp"}
    assert described.epsilon_by_accountant["pld"][1] <= described.epsilon == 6
    # The calls include those for zero-shot answers and for a sentence made of words.
    assert [task.llm_calls for task in described.tasks.values()] == [101, 130, 131, 131]
    assert described.tasks["words"].llm_tokens > described.tasks["reply"].llm_tokens > 100 * 4 * 60


@pytest.mark.parametrize(("drawn", "each", "percent"), [(1, 1, 37), (1, 4, 78), (4, 4, 37), (4, 1, 2)])
def test_the_share_of_empty_slots_is_that_of_the_dealing(drawn: int, each: int, percent: int) -> None:
    size, slots, empty = 20_000, 100, []
    for _ in range(60):
        units = poisson_sample(size // each, drawn * slots / size)
        dealt = deal(below(slots, len(units)), np.arange(len(units)), slots, 2 * drawn)
        empty.append(np.mean([not len(rows) for rows in dealt]))
    share = empty_share(drawn, size, each)
    assert round(100 * share) == percent
    assert np.mean(empty) == pytest.approx(share, abs=5 * np.std(empty) / math.sqrt(60) + 1e-3)


def test_it_warns_of_empty_slots_where_they_may_be_many(calibrated: CalibratedPlan) -> None:
    noise = calibrated.noise["topic"]
    task = calibrated.plan.tasks["topic"]
    few = describe(task.model_copy(update={"shots": 1}), noise, 10_000)
    for sentence in (few.gives, few.summary):
        assert "37 of 100 slots stay empty if each unit has one exemplar, and 78 if each has 4" in sentence
    assert "empty" not in describe(task.model_copy(update={"shots": 10}), noise, 10_000).gives


@pytest.mark.slow
def test_it_explains_the_number_beside_a_label(calibrated: CalibratedPlan) -> None:
    def described(mechanism: str) -> tuple[int | None, str]:
        plan = PLAN[: PLAN.index("  reply:")].replace("{type: rnm_gaussian}", mechanism)
        if "prototypes" in mechanism:
            once = re.sub(r"\n    (shots|ensemble|answers): \d+", "", plan)
            plan = once.replace("kind: classify", "kind: classify\n    release: once")
        told = preview(calibrate_plan(load_plan(plan), public_size=10_000)).tasks["topic"]
        return told.fitted_to, told.summary

    for unfitted in ("{type: rnm_gaussian}", "{type: prototypes}"):
        fitted_to, summary = described(unfitted)
        assert fitted_to is None
        assert "`dpicl eval --fit`" in summary
    for fitted in ("{type: rnm_gaussian, calibration: {fitted_to: 250}}", "{type: prototypes, fitted_to: 250}"):
        fitted_to, summary = described(fitted)
        assert fitted_to == 250
        assert "fitted to 250 public rows" in summary
        assert "score" not in summary
    counted = described("{type: rnm_gaussian, decide: argmax}")
    assert counted[0] is None
    assert not {"score", "probability"} & set(counted[1].split())


def test_the_slots_stated_make_the_release_good_in_95_of_100_cases(described: PlanPreview) -> None:
    """The mechanisms' own laws give this probability at the number of slots that the preview names."""
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


JOINT, TESTED = "{type: keyword_joint_em, k: 10}", "{type: keyword_ptr, k_min: 5, k_max: 5}"
FEW, MEAN = "{type: keyword_joint_em, k: 3, typical_domain: 40}", "{type: embedding_mean}"
OUT_OF_REACH = "Out of reach"


@pytest.mark.parametrize(
    ("mechanism", "noise", "said", "unsaid"),
    [
        (FEW, BoundedRange(2.0), ["With 25 of 100 slots"], "What helps"),
        (JOINT, BoundedRange(1.41), ["With 95 of 100 slots", "What helps: more ε", "a smaller k"], OUT_OF_REACH),
        (JOINT, BoundedRange(1.3), [OUT_OF_REACH, "only 88 of 100", "a smaller k"], "With"),
        (JOINT, BoundedRange(0.5), [OUT_OF_REACH, "fewer than 1 of 100"], "With"),
        ("{type: keyword_joint_em, k: 100, typical_domain: 1000000}", BoundedRange(5.0), [OUT_OF_REACH], "With"),
        (MEAN, Gaussian(10.0), [OUT_OF_REACH, "only 83 of 100", "fewer candidates"], "With"),
        (MEAN, Gaussian(2.0), ["a cosine of 0.5"], OUT_OF_REACH),
        (TESTED, ProposeTestRelease(1.0, 15.0, 1e-6), [OUT_OF_REACH, "only 6 of 100", "more ε"], "the one tried"),
    ],
)
def test_a_consensus_is_called_what_it_is(mechanism: str, noise: object, said: list[str], unsaid: str) -> None:
    described = words(mechanism, noise)
    assert all(part in described for part in said)
    assert unsaid not in described


@pytest.mark.slow
def test_what_is_out_of_reach_has_no_figure() -> None:
    plan = load_plan(PLAN.replace("epsilon: 6", "epsilon: 0.2"))
    tasks = preview(calibrate_plan(plan, public_size=10_000)).tasks.values()
    assert [task.slots_for_95_percent for task in tasks] == [None] * 4


def test_the_chance_of_falling_back_is_shown_for_several_leads() -> None:
    noise = ProposeTestRelease(1.0, 2.0, 1e-6)
    said = words("{type: keyword_ptr, k_min: 5, k_max: 15}", noise)
    mechanism = keyword_ptr.KeywordPtr(1.0, 2.0, 1e-6, 5, 15)
    fallbacks = [round(100 * (1 - mechanism.probability_passes(gap))) for gap in (10, 25, 50)]
    assert fallbacks[0] > fallbacks[1] > fallbacks[2] == 0
    assert f"10, 25 and 50 slots the zero-shot answer is given instead in {fallbacks[0]}, " in said
    # e^(ε·21/4) is 191, 19 times the ten other choices; e^(ε·20/4) is only 148.
    assert "95 of 100 cases if its lead is 21 slots" in said


def test_words_are_warned_of_if_a_usual_lead_mostly_falls_back() -> None:
    task = text_task(TESTED)
    warned = []
    for sigma in np.arange(2.0, 6.0, 0.1):
        noise = ProposeTestRelease(1.0, float(sigma), 1e-6)
        outlook = adapter_of(task, TaskNoise(sampling_probability=0.04, mechanism=noise)).outlook()
        falls_back = 1 - keyword_ptr.KeywordPtr(1.0, float(sigma), 1e-6, 5, 5).probability_passes(30)
        warning = outlook.warning(100)
        assert (warning is not None) == (falls_back > 0.5)
        if warning is not None:
            assert f"{100 * falls_back:.0f} of 100 answers fall back" in warning
        warned.append(warning is not None)
    assert set(warned) == {True, False}


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


def test_noise_of_another_mechanism_is_refused() -> None:
    with pytest.raises(TypeError):
        words("{type: embedding_mean}", BoundedRange(1.0))


def test_the_plot_has_a_curve_per_task_that_explains_itself(calibrated: CalibratedPlan, tmp_path: Path) -> None:
    figure = plot(calibrated)
    figure.savefig(tmp_path / "plan.png")
    for axes, (name, task) in zip(figure.axes, preview(calibrated).tasks.items(), strict=True):
        assert axes.get_title().startswith(f"{name} ({task.mechanism})\n")
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


@pytest.mark.lengthy
def test_the_details_fit_the_terminal(dpicl: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal has 100 columns here. A preview without details fits 80: see test_proposals.py."""
    (tmp_path / "plan.yaml").write_text(PLAN)
    monkeypatch.setenv("COLUMNS", "100")
    detailed = dpicl.ok("plan", "preview", tmp_path / "plan.yaml", "--public-size", "10000", "--details")
    assert max(map(len, detailed.splitlines())) <= 100
    assert "keyword_joint_em" in detailed
    assert "…" not in detailed


@pytest.mark.parametrize(("written", "answers", "noted"), [("rdp", 1, True), ("pld", 1, False), ("", 1, False)])
def test_a_looser_accountant_is_noted_where_it_is_named(written: str, answers: int, noted: bool) -> None:
    """For a single answer Rényi orders lose a fifth of ε and more. Unless rdp is named, it is taken where it wins."""
    task, _, _ = PLAN.partition("  reply:")
    plan = load_plan(
        task.replace("answers: 1000", f"answers: {answers}") + (f"accountant: {written}\n" * bool(written))
    )
    looser = preview(calibrate_plan(plan, public_size=10_000)).looser
    assert (looser is not None) == noted
    if looser:
        figures = re.search(r"rdp states ε = (\S+) for this noise, and pld (\S+): with `accountant: pld`", looser)
        assert figures is not None
        assert float(figures[1]) > 1.2 * float(figures[2])


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
    """How often the service's own aggregator releases the first label if all 100 slots vote, with this lead."""
    noise = TaskNoise(sampling_probability=0.04, mechanism=Gaussian(sigma / math.sqrt(2)))
    task = load_plan(PLAN.replace("{type: rnm_gaussian}", f"{{type: rnm_gaussian, decide: {decide}}}")).tasks["topic"]
    posterior = adapter_of(task, noise).posterior
    rng, votes = np.random.default_rng(2), np.array([lead, 0, 0]) + (100 - lead) / 3
    drawn = votes + sigma * rng.standard_normal((4000, 3))
    drawn += (100 - drawn.sum(axis=1, keepdims=True)) / 3  # as if it were known that all vote
    return float(np.mean([posterior.probabilities(one, np.array(zero_shot)).argmax() == 0 for one in drawn]))


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "decisiveness", "least"), [(4.0, 7, 0.9), (15.0, 7, 0.9), (15.0, "null", 0.87)])
def test_what_the_preview_states_of_the_posterior_holds(sigma: float, decisiveness: object, least: float) -> None:
    """The lead stated suffices if zero-shot is undecided; if zero-shot is contrary, the larger lead stated suffices."""
    decide = f"posterior, calibration: {{decisiveness: {decisiveness}}}"
    seen = topic(f"{{type: rnm_gaussian, decide: {decide}}}", sigma)
    error = 5 * math.sqrt(0.05 * 0.95 / 4000)
    assert "and zero-shot undecided" in seen.slots_mean
    assert released(decide, sigma, seen.needed, [1, 1, 1]) == pytest.approx(0.95, abs=error)
    (more,) = [int(word) for word in re.findall(r"the lead must be about (\d+) slots larger", seen.notes)]
    contrary = [1 / 9, 4 / 9, 4 / 9]
    assert released(decide, sigma, seen.needed, contrary) < 0.95 - error
    assert released(decide, sigma, seen.needed + more, contrary) >= least


@pytest.mark.parametrize(
    ("mechanism", "sigmas", "warning"),
    [
        ("{type: rnm_gaussian}", (10.0, 40.0), "Zero-shot mostly decides"),
        ("{type: rnm_gaussian, decide: argmax}", (20.0, 40.0), "Answers are expected"),
        (TESTED, (2.5, 20.0), "At a lead of 30 slots, which is usual"),
    ],
)
def test_a_plan_that_noise_drowns_is_warned_of(mechanism: str, sigmas: tuple[float, float], warning: str) -> None:
    task = text_task(mechanism) if mechanism == TESTED else None
    for sigma, warned in zip(sigmas, (False, True), strict=True):
        noise = TaskNoise(sampling_probability=0.04, mechanism=ProposeTestRelease(1.0, sigma, 1e-6))
        outlook = adapter_of(task, noise).outlook() if task else topic(mechanism, sigma)
        assert (outlook.warning(100) or "").startswith(warning) is warned


ONCE = """
knowledge_base: help
budget: {epsilon: 1, delta: 1.0e-4}
tasks:
  topic:
    kind: classify
    release: once
    labels: [billing, parcels, garden]
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    mechanism: {type: softmax_regression}
"""


def released_once(z: float) -> Outlook:
    noise = TaskNoise(sampling_probability=1.0, mechanism=Gaussian(z))
    return adapter_of(load_plan(ONCE).tasks["topic"], noise).outlook()


MEASURED = list(csv.DictReader((DOCS / "evaluation" / "released-labels.csv").read_text().splitlines()))
"""Releases of public data (research/studies/released_labels.py)."""


def test_what_noise_leaves_of_a_release_is_what_it_left_on_public_data() -> None:
    """Within twice the standard error, where exemplars without noise add at least ten points."""
    rows = [row for row in MEASURED if row["epsilon"] and row["mechanism"] == "softmax_regression"]
    assert {row["set"] for row in rows} == {"trec", "sst2", "agnews", "ddxplus"}
    for row in rows:
        same = ("set", "units", "mechanism")
        (exact,) = [one for one in MEASURED if not one["epsilon"] and all(one[key] == row[key] for key in same)]
        accuracy, zero_shot, kept = (float(row[key]) for key in ("accuracy", "zero_shot", "kept"))
        units, seen = round(float(row["z_units_a_label"]) * float(row["z"])), released_once(float(row["z"]))
        least, most = (float(figure) / 100 for figure in re.findall(r"(\d+) to (\d+) %", seen.gives(None, units))[0])
        assert (accuracy < zero_shot + 5) or seen.reach(units) != "out of reach", row
        if (added := float(exact["accuracy"]) - zero_shot) >= 10:
            error = 2 * math.sqrt(2) * float(row["error"]) / added
            assert least - error - 0.01 <= kept <= most + error + 0.01, row


def test_a_release_out_of_reach_is_one_whose_noise_leaves_next_to_nothing_anywhere() -> None:
    seen = released_once(100.0)
    assert (seen.reach(5), seen.reach(200), seen.reach(20_000)) == ("out of reach", "hard to reach", "in reach")
    assert [bool(seen.warning(units)) for units in (5, 200, 20_000)] == [True, False, False]
    assert "typically 6 %" in seen.gives(None, 200)
    assert "What helps: more ε" in seen.in_words(None, 200)
    assert "What helps" not in seen.in_words(None, 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("release", [False, True])
def test_labels_that_are_codes_are_noted_unless_they_are_described(release: bool) -> None:
    def advice(labels: str, more: str = "") -> str | None:
        written = PLAN[: PLAN.index("  reply:")].replace("[billing, parcels, garden]", f"[{labels}]{more}")
        if release:
            written = re.sub(r"\n    (shots|ensemble|answers): \d+", "", written)
            written = written.replace("{type: rnm_gaussian}", "{type: softmax_regression}\n    release: once")
        return preview(calibrate_plan(load_plan(written), public_size=10_000)).tasks["topic"].advice

    assert advice("billing, parcels") is None
    noted = advice("A12, E11.9")
    assert noted.startswith("A12, E11.9 read as codes")
    assert ("decide: argmax" in noted) is not release
    assert advice("A12, E11.9", "\n    label_descriptions: {A12: Fevers, E11.9: Diabetes}") is None


def test_noise_that_no_lattice_draws_is_refused() -> None:
    plan = load_plan(PLAN.replace("{type: embedding_mean}", "{type: embedding_mean, radius: 0.0001}"))
    for found in (calibrate, least_noise):
        with pytest.raises(PlanError, match=r"^tasks\.reply\.mechanism: "):
            found(plan, 10_000)


def test_public_exemplars_are_in_the_words_and_in_the_tokens_of_every_prompt(described: PlanPreview) -> None:
    public = [{"text": "lamp " * 400, "response": "Yes."}]
    exemplars = f"public_exemplars: {json.dumps(public)}\n    candidates: 30"
    plan = load_plan(PLAN.replace("candidates: 30", exemplars, 1))
    shown, before = preview(calibrate(plan, 10_000)).tasks["reply"], described.tasks["reply"]
    assert "Every prompt first shows 1 public exemplar, of about 502 tokens." in shown.gives
    assert "Every prompt first shows 1 public exemplar, of about 502 tokens." in shown.summary
    assert shown.llm_tokens - before.llm_tokens == 502 * before.llm_calls
    assert "public exemplar" not in before.gives


@pytest.mark.parametrize(
    ("slots", "drawn", "lead"),
    [
        ("quote", 4, "2 to 39 of 100"),
        ("quote", 20, "12 to 82 of 100"),
        ("quote", 100, None),  # leads of that many were not measured
        ("model", 16, None),
    ],
)
def test_quotes_have_a_typical_lead(slots: str, drawn: int, lead: str | None) -> None:
    task = load_plan(PLAN).tasks["topic"]
    changed = task.model_copy(update={"order": "nearest", "slots": slots, "shots": 1, "drawn": drawn})
    noise = TaskNoise(sampling_probability=0.04, mechanism=Gaussian(4.0))
    unknown = describe(changed, noise, 10_000).unknown
    assert unknown is not None
    assert ("In public data sets" in unknown) == (lead is not None)
    assert lead is None or lead in unknown
