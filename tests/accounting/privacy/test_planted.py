"""Errors planted in one accountant: each would have a plan promise too little, and each is refused at signing."""

import dataclasses
import math

import pytest
import yaml

from accounting.plans.plan import PlanError, calibrate_plan, load_plan
from accounting.privacy import blocks, bounds, pairs, pld, prv, rdp
from accounting.privacy.accountants import AccountantsDisagreeError
from accounting.privacy.composing import Composition
from accounting.privacy.events import Sampling
from accounting.privacy.pld import PldAccountant
from accounting.privacy.profiles import Gaussian
from accounting.privacy.rdp import RdpAccountant

pytestmark = pytest.mark.slow

TASK = {"shots": 4, "ensemble": 50, "answers": 120, "sampling": "units"}
VOTE = {
    **TASK,
    "kind": "classify",
    "labels": ["World", "Sports"],
    "prompt": {"exemplar": "{text} {label}", "query": "{text}"},
    "mechanism": {"type": "rnm_gaussian"},
}
WORDS = {
    **TASK,
    "kind": "generate",
    "public_answers": ["yes", "no"],
    "prompt": {"exemplar": "{text} {response}", "query": "{text}"},
    "mechanism": {"type": "keyword_joint_em", "k": 5},
}
TASKS = {
    "votes": VOTE,
    "votes of blocks": {**VOTE, "sampling": "blocks"},
    "embeddings of blocks": {**WORDS, "sampling": "blocks", "mechanism": {"type": "embedding_mean"}},
    "words": WORDS,
    "words of blocks": {**WORDS, "sampling": "blocks"},
    "tested words": {**WORDS, "mechanism": {"type": "keyword_ptr", "k_min": 3, "k_max": 8}},
}
EVERY_TASK = pytest.mark.parametrize("task", TASKS)


@pytest.fixture(autouse=True)
def _nothing_is_remembered():
    """Forget the bounds that PLD found with or without an error."""
    pld._upper.cache_clear()
    yield
    pld._upper.cache_clear()


def sign(task, accountant):
    budget = {"epsilon": 2, "delta": 1e-4}
    plan = {"knowledge_base": "news", "budget": budget, "accountant": accountant, "tasks": {"task": TASKS[task]}}
    return calibrate_plan(load_plan(yaml.safe_dump(plan)), public_size=4000)


def refused(task, accountant):
    with pytest.raises((AccountantsDisagreeError, PlanError), match=r"do not use|confirm"):
        sign(task, accountant)


@EVERY_TASK
def test_without_an_error_they_are_signed(task):
    for accountant in ("pld", "rdp"):
        epsilon = sign(task, accountant).epsilon
        assert 0.8 * epsilon["pld"].upper <= epsilon["pld"].lower == epsilon["rdp"].lower <= 2


@EVERY_TASK
def test_a_quarter_of_rdp(task, monkeypatch):
    right = RdpAccountant.upper
    monkeypatch.setattr(RdpAccountant, "upper", lambda *arguments: right(*arguments) / 4)
    refused(task, "rdp")


@EVERY_TASK
def test_nine_tenths_of_pld(task, monkeypatch):
    right = PldAccountant.upper
    monkeypatch.setattr(PldAccountant, "upper", lambda *arguments: right(*arguments) * 0.9)
    refused(task, "pld")


class TestAWrongProbability:
    """A single accountant takes seven tenths of q."""

    @staticmethod
    def rarer(event, share=0.7):
        return dataclasses.replace(event, sampling=Sampling(event.sampling.kind, share * event.sampling.probability))

    @EVERY_TASK
    def test_in_pld(self, task, monkeypatch):
        right = pld._pairs
        monkeypatch.setattr(pld, "_pairs", lambda event, *rest: right(self.rarer(event), *rest))
        refused(task, "pld")

    @EVERY_TASK
    def test_in_rdp(self, task, monkeypatch):
        right = rdp._one_answer
        monkeypatch.setattr(rdp, "_one_answer", lambda event, *rest: right(self.rarer(event), *rest))
        refused(task, "rdp")

    def test_in_prv(self, monkeypatch):
        right = prv._Sampled
        monkeypatch.setattr(prv, "_Sampled", lambda q, z: right(0.7 * q, z))
        refused("votes", "prv")

    def test_in_prv_by_no_more_than_its_numerics_err(self, monkeypatch):
        """The bounds do not contradict each other, but PLD, which composes both directions, exceeds the budget."""
        right = prv._Sampled
        monkeypatch.setattr(prv, "_Sampled", lambda q, z: right(0.993 * q, z))
        with pytest.raises(PlanError, match="confirm"):
            sign("votes", "prv")

    def test_in_the_lower_bound(self, monkeypatch):
        right = pairs.lower_epsilon
        often = lambda events: [self.rarer(event, 1.5) for event in events]  # noqa: E731
        monkeypatch.setattr(bounds, "lower_epsilon", lambda events, delta: right(often(events), delta))
        refused("words", "pld")


class TestTheWrongWorstPair:
    """A single accountant takes a wrong worst pair of blocks."""

    @pytest.mark.parametrize("accountant", [pld, rdp])
    @pytest.mark.parametrize("kept", [0, 1], ids=["removal", "addition"])
    def test_one_direction_only(self, accountant, kept, monkeypatch):
        right = blocks.sampled
        monkeypatch.setattr(accountant, "sampled", lambda *arguments: right(*arguments)[kept : kept + 1])
        refused("votes of blocks", accountant.__name__.rpartition(".")[2])

    @pytest.mark.parametrize("accountant", [pld, rdp])
    @pytest.mark.parametrize(
        ("task", "pair"), [("embeddings of blocks", (2**0.5, "votes")), ("votes of blocks", (2**0.5, "ball"))]
    )
    def test_contributions_that_are_closer(self, accountant, task, pair, monkeypatch):
        """Embeddings of the same norm at a right angle; opposite votes of half the sensitivity's norm."""
        right, (scale, kind) = blocks.sampled, pair
        swapped = lambda of, sampling: right(Gaussian(scale * of.noise_multiplier, kind), sampling)  # noqa: E731
        monkeypatch.setattr(accountant, "sampled", swapped)
        refused(task, accountant.__name__.rpartition(".")[2])


class TestDelta0CountedOnce:
    """Delta0 is counted once for all answers together, as in the code released with the paper."""

    def test_in_pld(self, monkeypatch):
        class Once(Composition):
            def __init__(self, plds, counts):
                super().__init__(plds, counts)
                self.infinity = -math.expm1(sum(math.log1p(-p.infinity) for p in plds))

        monkeypatch.setattr(pld, "Composition", Once)
        refused("tested words", "pld")

    def test_in_rdp(self, monkeypatch):
        right = rdp._compose

        def once(events, *rest, **named):
            found, _ = right(events, *rest, **named)
            return found, -math.expm1(
                sum(math.log1p(-e.sampling.probability * e.mechanism.certain_loss) for e in events)
            )

        monkeypatch.setattr(rdp, "_compose", once)
        refused("tested words", "rdp")
