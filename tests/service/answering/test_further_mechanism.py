"""A further mechanism takes one file and one registration: this one has both, and everything works with it.

It is a vote among the public candidates: a slot votes for the first that contains the slot's output.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from accounting.plans import mechanisms
from accounting.plans.mechanisms import MECHANISMS, TextMechanism
from accounting.plans.plan import CalibratedPlan, calibrate_plan, load_plan
from accounting.plans.releases import Each
from accounting.privacy.calibration import GAUSSIAN, AnyFamily
from accounting.privacy.profiles import Gaussian
from aggregation.noise import from_fixed_point
from aggregation.rnm_gaussian import RnmGaussian, probability_correct, required_margin
from aggregation.votes import sum_votes
from research.evaluation.texts import compared
from service.answering.mechanisms.adapter import ADAPTERS, Answer, Outputs, Public, TextAdapter, register, text_of
from service.answering.mechanisms.keyword_ptr import KeywordPtrAdapter
from service.answering.mechanisms.outlook import RELIABLE, Outlook
from service.answering.trials.consensus import Consensus, consensus, most
from service.engines.private_threads import privately
from tests.research.evaluation.test_evaluation_texts import bills  # noqa: F401  (a fixture)
from tests.service.answering.test_text_answers import ask, make_services
from tests.service.answering.trials.test_trials import RED, attempt, text_plan
from tests.service.conftest import TEXT_PLAN, MajorityEngine, client_of, states
from tests.service.gateway.dashboard.dashboard_browser import Browser
from tests.service.shell import Shell

WRITTEN = "type: candidate_vote, fold: true"
STUDIO = "/knowledge-bases/toys/plan"


class CandidateVoteMechanism(TextMechanism):
    """The public candidate that contains the outputs of most slots, after Gaussian noise."""

    type: Literal["candidate_vote"]
    fold: bool = False
    """Whether case is ignored."""

    def family(self, delta: float, answers: int, probability: float, ensemble: int) -> AnyFamily:
        return GAUSSIAN


@dataclass(frozen=True)
class CandidateVote:
    mechanism: RnmGaussian
    texts: Sequence[str]
    fold: bool

    async def release(self, outputs: Outputs) -> Answer:
        votes = self.votes(outputs)
        return {"text": self.texts[await privately(lambda: self.mechanism.release(votes))], "method": "voted for"}

    def votes(self, outputs: Outputs) -> list[np.ndarray | None]:
        folded = [text.casefold() if self.fold else text for text in self.texts]
        first = [next((i for i, text in enumerate(folded) if (text_of(one) or "\0") in text), None) for one in outputs]
        return [None if i is None else np.eye(len(folded))[i] for i in first]


@consensus.register
async def most_voted(ready: CandidateVote, outputs: Outputs) -> Consensus:
    votes = from_fixed_point(sum_votes(ready.votes(outputs), len(ready.texts), "hard"))
    return Consensus({"text": ready.texts[int(np.argmax(votes))]}, most(zip(ready.texts, votes, strict=True)), "slots")


class CandidateVoteAdapter(TextAdapter[CandidateVoteMechanism, Gaussian]):
    schema = CandidateVoteMechanism
    profile = Gaussian
    example = CandidateVoteMechanism(type="candidate_vote")
    about = "The public candidate that most slots vote for."
    plainly = "Each slot votes for a public candidate. Random noise is added to the votes, and one candidate leaves."

    async def prepare(self, public: Public) -> CandidateVote:
        candidates = self.candidates(public.zero_shot)
        return CandidateVote(RnmGaussian(self.noise.noise_multiplier, len(candidates)), candidates, self.written.fold)

    def outlook(self) -> Outlook:
        sigma, candidates = RnmGaussian(self.noise.noise_multiplier, 2).sigma, self.task.candidates
        return Outlook(
            noise={"noise_multiplier": self.noise.noise_multiplier},
            noise_words=f"σ {sigma:.1f} slots",
            head="the candidates are voted for",
            needed=required_margin(sigma, candidates, RELIABLE),
            slots_mean="slots of lead of one candidate",
            outcome="this candidate is released",
            chance=lambda lead: probability_correct(lead, sigma, candidates),
            rule="a candidate is released if {needed} more of {all} slots vote for it than for any other",
        )


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register(CandidateVoteAdapter)
    yield
    del ADAPTERS[CandidateVoteMechanism, Each], MECHANISMS["candidate_vote"]


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    file = tmp_path / "vote.yaml"
    file.write_text(TEXT_PLAN.format(mechanism=WRITTEN, epsilon=2, answers=5))
    return file


def test_it_is_signed_charged_and_answered_and_its_release_is_read_again(tmp_path: Path) -> None:
    services = make_services(tmp_path, WRITTEN)
    (signed,) = services.records.ledger.budgets.plans("toys")
    calibrated = CalibratedPlan.model_validate_json(signed.document)
    assert calibrated.digest == signed.digest
    assert calibrated.plan.tasks["story"].mechanism == CandidateVoteMechanism(type="candidate_vote", fold=True)
    answer = ask(services)
    assert (answer.release.answer["text"], answer.release.answer["method"]) == ("a red kite", "voted for")
    assert states(services) == {"released": 1}
    assert ask(services).charged is False
    client = client_of(services)
    release = client.get(f"/v1/releases/{answer.release.id}").json()
    assert (release["text"], release["method"], release["task"]) == ("a red kite", "voted for", "toys.story@1")
    assert "CandidateVoteMechanism" in client.app.openapi()["components"]["schemas"]


def test_a_type_keeps_its_meaning() -> None:
    class Other(CandidateVoteMechanism):
        pass

    with pytest.raises(ValueError, match="candidate_vote"):
        mechanisms.register(Other)


@pytest.mark.slow
def test_its_preview_describes_it(dpicl: Shell, plan_file: Path) -> None:
    shown = json.loads(dpicl.ok("plan", "preview", plan_file, "--public-size", 60, "--json"))["preview"]["tasks"]
    assert (shown["story"]["mechanism"], shown["story"]["llm_calls"]) == ("candidate_vote", 20 + 4)
    assert "the candidates are voted for" in shown["story"]["summary"]


def test_it_is_tried() -> None:
    trial = attempt(text_plan(WRITTEN), engine=MajorityEngine(), repeats=30)
    assert trial.answer == {"text": "a red kite", "method": "voted for"}
    assert trial.consensus.answer == {"text": "a red kite"}
    assert trial.consensus.support["a red kite"] == trial.answered
    assert (trial.agreeing, trial.fallbacks) == (30, None)


@pytest.mark.slow
def test_it_is_evaluated(dpicl: Shell, bills: Path) -> None:  # noqa: F811
    options = ("--plan", bills / "plan.yaml", "--mechanism", f"{{{WRITTEN}}}", "--embedded-field", "question")
    rows = json.loads(dpicl.ok("eval", bills, *options, "--epsilon", 8, "--draws", 2, "--queries", 2, "--json"))
    assert [(row["method"], row["mechanism"]) for row in rows[2:]] == [
        ("aggregate, no noise", "candidate_vote, fold True"),
        ("private", "candidate_vote, fold True"),
    ]
    assert CandidateVoteAdapter.example in compared(KeywordPtrAdapter.example)


def test_the_plan_studio_offers_computes_and_tries_it(tmp_path: Path, plan_file: Path) -> None:
    browser = Browser(make_services(tmp_path, WRITTEN))
    browser.sign_in()
    begun = browser.get(f"{STUDIO}?kind=text").text
    assert "# The public candidate that most slots vote for.\n    # mechanism: {type: candidate_vote}\n" in begun
    form = {"text": plan_file.read_text()}
    assert "the candidates are voted for" in browser.post(STUDIO, form).text
    rows = "\n".join(json.dumps(row) for row in RED)
    tried = browser.post(f"{STUDIO}/try", form | {"trial_rows": rows, "trial_query": "a toy"}).text
    assert tried.count("a red kite") >= 2  # with noise and without


def test_it_composes_with_the_others(plan_file: Path) -> None:
    plan = load_plan(plan_file.read_text())
    words = plan.tasks["story"].model_copy(update={"mechanism": KeywordPtrAdapter.example})
    both = calibrate_plan(plan.model_copy(update={"tasks": {**plan.tasks, "words": words}}), 60)
    assert CalibratedPlan.model_validate_json(both.model_dump_json()) == both
    z, alone = (one.noise["story"].mechanism.noise_multiplier for one in (both, calibrate_plan(plan, 60)))
    assert z > alone
