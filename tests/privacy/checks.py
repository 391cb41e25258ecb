"""Checks that attacks on answers cannot replace: does the service do what was signed, as accounted, in the right order?

Each check observes the service while it answers, and raises :class:`tests.privacy.wired.Noticed`. Where a check counts
random events, each interval is wrong with a probability of 2e-8 (Clopper-Pearson, both ends), and no check has more
than three.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, NoReturn
from unittest.mock import Mock

import numpy as np
import pytest
import sqlalchemy as sa
from scipy import special, stats
from structlog.testing import capture_logs

import aggregation.keyword_joint_em
import aggregation.keyword_ptr
import aggregation.noise
from accounting.ledger.charges import AnswersExhaustedError, Ledger
from accounting.ledger.tables import charges, tasks
from accounting.plans.plan import CalibratedPlan, load_plan
from accounting.privacy.events import Event, Sampling
from accounting.privacy.pld import PldAccountant
from accounting.privacy.profiles import SymmetricProfile
from accounting.replay.books import violations
from aggregation.common_sentences import CommonSentences
from aggregation.embedding_mean import EmbeddingMean
from aggregation.keyword_joint_em import JointExponentialMechanism
from aggregation.keyword_ptr import KeywordPtr
from aggregation.keywords import keywords
from aggregation.noise import ONE
from aggregation.posterior import LabelPosterior, PosteriorParameters
from aggregation.rnm_gaussian import RnmGaussian
from aggregation.softmax_regression import CLIP, STEPS
from exemplar_store import Exemplar, ExemplarStore, Slot, sampling
from service.answering.latency import Departure
from service.answering.mechanisms.rnm_gaussian import LabelVote
from service.answering.once.making import NotMadeError, make
from service.answering.plans.signing import sign
from service.answering.queries import InvalidQueryError
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.engines.errors import EngineBusyError, EngineUnavailableError, NotKeptError, UnanswerableQueryError
from service.engines.task import Prompt, TaskSpec
from service.operations.services import Services
from service.records.records import Records
from tests.privacy.attacks import texts, weighed
from tests.privacy.audit import ERROR
from tests.privacy.wired import LABELS, Answer, Attack, Compass, Noticed, Parrot, ask, neighbours, opened
from tests.service.conftest import PLAN

RED, BLUE = "1 0", "0 1"


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Noticed(what)


def require_equal(ran: object, signed: object, what: str) -> None:
    require(ran == signed, f"{what}: ran with {ran}, signed for {signed}")


def require_probability(hits: int, trials: int, probability: float, what: str) -> None:
    low = stats.beta.ppf(ERROR, hits, trials - hits + 1) if hits else 0.0
    high = stats.beta.ppf(1 - ERROR, hits + 1, trials - hits) if hits < trials else 1.0
    require(low <= probability <= high, f"{what}: {hits} of {trials}, expected with probability {probability:.3f}")


def noting(patch: pytest.MonkeyPatch, owner: Any, name: str, note: Callable[..., object]) -> None:
    """Pass a function's arguments to ``note`` whenever it is called."""
    original = getattr(owner, name)

    def noted(*args: Any, **options: Any) -> Any:
        note(*args, **options)
        return original(*args, **options)

    patch.setattr(owner, name, noted)


@contextmanager
def drawing() -> Iterator[list[float]]:
    """The standard deviations of the noise that is drawn until the block ends."""
    drawn: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        noting(patch, aggregation.noise, "_measurement", lambda lattice_sigma: drawn.append(lattice_sigma / ONE))
        yield drawn


def states(of: Records) -> list[str]:
    """The states of all charges."""
    with of.database.connect() as connection:
        return list(connection.execute(sa.select(charges.c.state)).scalars())


def fail(*_args: object) -> NoReturn:
    raise RuntimeError("what was read cannot be counted")


# --- What ran is what was signed. -------------------------------------------------------------------------------------


@dataclass
class Ran:
    """The arguments that the innermost functions got while answers were made."""

    drawn: list[tuple[int, float]] = field(default_factory=list)
    dealt: list[tuple[int, int]] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    gumbel: list[tuple[float, int]] = field(default_factory=list)
    mechanisms: list[Any] = field(default_factory=list)
    given: list[tuple[Any, ...]] = field(default_factory=list)
    votes: list[RnmGaussian] = field(default_factory=list)

    @contextmanager
    def watching(self) -> Iterator[None]:
        exponential_mechanism = aggregation.keyword_ptr._exponential_mechanism

        def choose(scale: float) -> Callable[[Sequence[int]], int]:
            def chosen(gaps: Sequence[int]) -> int:
                self.gumbel.append((scale, len(gaps)))
                return int(exponential_mechanism(scale)(gaps))

            return chosen

        def release(mechanism: Any, _heard: Any, *given: Any) -> None:
            self.mechanisms.append(mechanism)
            self.given.append(given)

        with pytest.MonkeyPatch.context() as patch, drawing() as self.noise:
            patch.setattr(aggregation.keyword_ptr, "_exponential_mechanism", choose)
            for owner, name, note in [
                (sampling, "poisson_sample", lambda *drawn: self.drawn.append(drawn)),
                (sampling, "deal", lambda _slots, _priorities, *kept: self.dealt.append(kept)),
                (aggregation.keyword_joint_em, "exponentials", lambda rate, _count: self.rates.append(rate)),
                (RnmGaussian, "noisy_votes", lambda votes, _contributions: self.votes.append(votes)),
                (RnmGaussian, "select", release),
                (LabelPosterior, "probabilities", release),
                (EmbeddingMean, "release", release),
                (JointExponentialMechanism, "release", release),
                (KeywordPtr, "release", release),
                (CommonSentences, "release", release),
            ]:
                noting(patch, owner, name, note)
            yield


PUBLIC = ["at 0 apple", "at 120 pear", "at 240 plum"]
SIGNED: Mapping[str, Sequence[str]] = {
    "hard votes": [*LABELS, "mechanism: {type: rnm_gaussian, vote: hard, decide: argmax}"],
    "soft votes": [*LABELS, "mechanism: {type: rnm_gaussian, vote: soft, prior_weight: 2.5}"],
    "posterior of hard votes": weighed("hard", "prior: 0.5, decisiveness: 3, lead: 0.2, echo: 0.9"),
    "posterior of soft votes": weighed("soft"),
    "embedding mean": texts(PUBLIC, "type: embedding_mean"),
    "centred embedding mean": texts(PUBLIC, "type: embedding_mean, radius: 0.7, centred: true"),
    "joint EM": texts(PUBLIC, "type: keyword_joint_em, k: 2"),
    "PTR": texts(PUBLIC, "type: keyword_ptr, k_min: 2, k_max: 4, choice_share: 0.3, delta_share: 0.7"),
    "common sentences": texts(PUBLIC, "type: common_sentences, sentences: 2, delta_share: 0.4"),
}
ENSEMBLE, ANSWERS = 9, 3


def signed(kind: str, how_drawn: Literal["units", "blocks"]) -> None:
    """Check every parameter of the sampler and of the mechanism at the innermost place where it is used."""
    says = BLUE if "votes" in kind else "at 0 apple secret"
    usual = [says] * (30 if how_drawn == "units" else 5)
    sizes = {"answers": ANSWERS, "shots": 2, "ensemble": ENSEMBLE, "size": 24, "exemplars": 9, "cap": 5}
    attack = Attack(how_drawn, SIGNED[kind], usual, says, {}, **sizes)
    calibrated = attack.plan()
    noise = calibrated.noise["task"]
    (_, records), ran, engine = neighbours(attack), Ran(), Parrot((0.25, 0.75))
    services = opened(records, engine)
    with ran.watching():
        (answers,) = asyncio.run(ask(services, calibrated, 0, 1))
    for answer in answers:
        _public(kind, answer)
    with records.database.connect() as connection:
        require_equal(connection.execute(sa.select(tasks.c.answers)).scalar_one(), ANSWERS, "answers")
    document = records.ledger.budgets.task("wired.task").document
    require_equal(CalibratedPlan.model_validate_json(document), calibrated, "the stored plan")
    among, q = (31 if how_drawn == "units" else 12), 18 / 24
    require_equal(noise.sampling_probability, q, "sampling probability")
    require_equal(ran.drawn, [(among, q)] * ANSWERS, "number and probability of what is drawn")
    asked = [len(slots) for slots in engine.seen]
    require_equal(ran.dealt, [(slots, 5) for slots in asked], "slots, and exemplars that each keeps")
    if how_drawn == "units":
        require_equal(asked, [ENSEMBLE] * ANSWERS, "slots asked")
    _mechanism(kind, noise.mechanism, ran)


def _mechanism(kind: str, given: Any, ran: Ran) -> None:
    def every(seen: Sequence[object], expected: object, what: str) -> None:
        require_equal(list(seen), [expected] * ANSWERS, what)

    candidates = Compass().embed(PUBLIC)
    match kind:
        case "hard votes" | "soft votes" | "posterior of hard votes" | "posterior of soft votes":
            hard, sigma = "hard" in kind, math.sqrt(2) * given.noise_multiplier
            votes = RnmGaussian(given.noise_multiplier, 2, "hard" if hard else "soft", 2.5 * (kind == "soft votes"))
            every(ran.noise, sigma, "standard deviation of the noise")
            every([prior.tolist() for (prior,) in ran.given], [0.25, 0.75], "prior")
            every(ran.votes, votes, "votes")
            model = (
                PosteriorParameters(0.5, 3, 0.2, 0.9) if hard else PosteriorParameters(1, 17 / math.sqrt(2), 0.14, 1)
            )
            made = LabelPosterior(sigma, ENSEMBLE, model) if "posterior" in kind else votes
        case "embedding mean" | "centred embedding mean":
            radius, centred = (0.7, True) if "centred" in kind else (1.0, False)
            made = EmbeddingMean(given.noise_multiplier, radius, centred, ENSEMBLE)
            every(ran.noise, 2 * radius * given.noise_multiplier, "standard deviation of the noise")
            close = all(np.allclose(vectors, candidates, atol=1e-6) for (vectors,) in ran.given)
            require(close, "candidates that are not the public answers")
        case "joint EM":
            made = JointExponentialMechanism(given.epsilon, 2)
            require_equal(set(ran.rates), {given.epsilon / 4}, "rate of the joint exponential mechanism")
            public = sorted(word for text in PUBLIC for word in keywords(text))
            for number, (domain,) in enumerate(ran.given):
                expected = sorted({*public, *keywords(f"query 0 {number}")})
                require_equal(sorted(domain), expected, "domain")
        case "PTR":
            made = KeywordPtr(given.epsilon, given.noise_multiplier, given.delta0, 2, 4)
            every(ran.noise, 2 * given.noise_multiplier, "standard deviation of the noise")
            every(ran.gumbel, (math.nextafter(4 / given.epsilon, math.inf), 3), "scale of the noise on k, and choices")
            threshold = 2 - 2 * given.noise_multiplier * special.ndtri(given.delta0)
            every([mechanism.threshold for mechanism in ran.mechanisms], threshold, "threshold")
        case "common sentences":
            made = CommonSentences(given.gaussian.noise_multiplier, given.delta0, 2)
            sigma = math.nextafter(2.0, math.inf) * given.gaussian.noise_multiplier
            every(ran.noise, sigma, "standard deviation of the noise")
            threshold = 1 - sigma * special.ndtri(-math.expm1(math.log1p(-given.delta0) / 2))
            every([mechanism.threshold for mechanism in ran.mechanisms], threshold, "threshold")
    every(ran.mechanisms, made, "mechanism")


TEXT = {"text", "method", "zero_shot"}
FIELDS = {
    "votes": {"label", "votes", "zero_shot"},
    "mean": TEXT,
    "EM": {*TEXT, "keywords"},
    "sentences": {*TEXT, "sentences", "fallback"},
}


def _public(kind: str, answer: Answer) -> None:
    """Check that an answer shows a choice from a public domain, and nothing else."""
    told = FIELDS.get(kind.split()[-1], {*TEXT, "keywords", "fallback"})
    if "posterior" in kind:
        told = {"label", "score", "scores", "votes", "zero_shot"}
    require_equal(answer.keys(), told, "what an answer tells")
    if kind.endswith("votes"):
        require({answer["label"], answer["zero_shot"]} <= {"red", "blue"}, f"an unknown label: {answer}")
    if kind.endswith("mean"):
        require(answer["text"] in PUBLIC, f"an unknown candidate: {answer}")


# --- What is drawn, as the engine sees it. ----------------------------------------------------------------------------

QUERIES = 120


def drawn_as_accounted(how_drawn: Literal["units", "blocks"]) -> None:
    """Draw twelve units, each independently with probability 1/2 and into a slot at random; or draw twelve blocks."""
    sizes = {"answers": QUERIES, "ensemble": 6, "size": 12, "exemplars": 20}
    attack = Attack(how_drawn, SIGNED["joint EM"], [RED] * 11, BLUE, {}, **sizes)
    (_, records), engine = neighbours(attack), Parrot()
    asyncio.run(ask(opened(records, engine), attack.plan(), 0, 1))
    queries = [[_units(slot) for slot in slots] for slots in engine.seen]
    for units in queries:
        often = Counter(itertools.chain(*units))
        require(max(often.values(), default=1) == 1, "a unit's exemplars are in several slots")
        if how_drawn == "blocks":
            require(all(len(slot) <= 1 for slot in units), "a unit is in another unit's block")
    sizes = [sum(map(len, units)) for units in queries]
    require_probability(sum(sizes), 12 * QUERIES, 1 / 2, "units drawn")
    half = float(stats.binom.pmf(6, 12, 1 / 2))
    require_probability(sizes.count(6), QUERIES, half, "queries that draw half the units")
    if how_drawn == "units":
        spread = [max(map(len, units)) == 1 for units, size in zip(queries, sizes, strict=True) if size == 6]
        apart = math.factorial(6) / 6**6
        require_probability(sum(spread), len(spread), apart, "six units in six different slots")


def _units(slot: Slot) -> set[str]:
    found = (exemplar.fields["text"] for exemplar in slot)
    return {"canary" if "canary" in text else text for text in found}


def slots_keep_no_more_than_signed() -> None:
    """A slot keeps five of the canary's forty exemplars."""
    attack = Attack("blocks", [*LABELS, "mechanism: {type: rnm_gaussian}"], [RED] * 2, BLUE, {}, ensemble=3, cap=5)
    (_, records), engine = neighbours(attack), Parrot()
    asyncio.run(ask(opened(records, engine), attack.plan(), 0, 1))
    fullest = [max(map(len, slots)) for slots in engine.seen]
    require_equal(fullest, [5] * attack.answers, "exemplars of the fullest slot")


# --- Order, charges, and what is stored. ------------------------------------------------------------------------------

ORDER = ["charge", "probe", "fix", "sample", "ask", "aggregate", "wait", "release"]


def quiet(engine: Parrot) -> tuple[Services, CalibratedPlan]:
    """A service, and a plan with three answers for it."""
    attack = Attack("blocks", SIGNED["hard votes"], [RED] * 5, BLUE, {}, ensemble=6, answers=3)
    return opened(neighbours(attack)[1], engine), attack.plan()


def signed_again(services: Services, calibrated: CalibratedPlan) -> str:
    """The address of another version of the plan."""
    newest = services.records.ledger.budgets.newest_equal("wired", calibrated.model_dump_json())
    return f"wired.task@{sign(services.records, calibrated, 'checker', again=newest).version}"


def steps_in_their_order() -> None:
    """The charge precedes private reads, the number of grains is fixed before the sample, and storing comes last."""
    engine, order = Parrot(), []
    services, calibrated = quiet(engine)
    address, ledger, exemplars = signed_again(services, calibrated), services.records.ledger, services.records.store
    charged: list[str] = []

    def reached(step: str, *_args: Any, **_options: Any) -> None:
        order.append(step)
        if step == "sample":
            charged.extend(states(services.records))

    with pytest.MonkeyPatch.context() as patch:
        for owner, name, step in [
            (ledger, "charge", "charge"),
            (engine, "zero_shot", "probe"),
            (Departure, "fix", "fix"),
            (exemplars, "sample_blocks", "sample"),
            (engine, "contributions", "ask"),
            (RnmGaussian, "noisy_votes", "aggregate"),
            (Departure, "wait", "wait"),
            (ledger, "release", "release"),
        ]:
            noting(patch, owner, name, partial(reached, step))
        asyncio.run(services.answering.answer(address, "query", key_id="k"))
    require_equal(order, ORDER, "order of the steps")
    require_equal(charged, ["charged"], "charges at the time of the sample")


def nothing_is_given_back_after_the_sample() -> None:
    """However an answer fails after its sample is drawn, its charge stays spent; in most cases it is still released."""
    labels = {
        "the sample cannot be read": (ExemplarStore, "sample_blocks", OSError("disk")),
        "no unit is drawn": (ExemplarStore, "sample_blocks", [()] * 6),
        "no block is drawn": (ExemplarStore, "sample_blocks", []),
        **{
            f"the engine raises {type(error).__name__}": (Parrot, "contributions", _raising(error))
            for error in (
                EngineUnavailableError("down"),
                EngineBusyError("busy"),
                UnanswerableQueryError("too long"),
                NotKeptError("anew"),
                InvalidQueryError("too few words"),
                TimeoutError(),
                asyncio.CancelledError(),
            )
        },
        "no slot answers": (Parrot, "contributions", _returning([None] * 6)),
        "too few answer": (Parrot, "contributions", _returning([])),
        "it comes late": (Departure, "wait", _returning(3)),
        "it cannot be counted": (RnmGaussian, "noisy_votes", RuntimeError("cannot be counted")),
        "the engine is down when it is counted": (RnmGaussian, "noisy_votes", EngineUnavailableError("down")),
        "it cannot be stored": (Ledger, "release", RuntimeError("no space")),
    }
    text = texts(["nothing"], "type: token_ensemble, tokens: 4, clip: 20, weight: 10")
    written = {
        "the sample cannot be read": labels["the sample cannot be read"],
        **{
            f"writing ends with {type(error).__name__}": (Parrot, "write", _raising(error))
            for error in (EngineUnavailableError("down"), EngineBusyError("busy"), asyncio.CancelledError())
        },
        "nothing is written": (Parrot, "write", _returning("")),
    }
    for task, failures, says in ((SIGNED["hard votes"], labels, RED), (text, written, "a")):
        attack = Attack("blocks", task, [says] * 5, says, {}, ensemble=6, answers=len(failures))
        services = opened(neighbours(attack)[1], Parrot())
        address, ledger = signed_again(services, attack.plan()), services.records.ledger
        for spent, (name, (owner, function, does)) in enumerate(failures.items(), 1):
            with pytest.MonkeyPatch.context() as patch:
                replacement = does if callable(does) else Mock(**_result(does))
                patch.setattr(owner, function, replacement)
                with suppress(RuntimeError):
                    asyncio.run(services.answering.answer(address, f"query {spent}", key_id="k"))
            lost = "charged" if "counted" in name or "stored" in name else "released"
            require_equal(states(services.records)[-1], lost, f"the charge of an answer of which {name}")
            left = ledger.answers_left(ledger.budgets.task(address))
            require_equal(left, len(failures) - spent, f"answers left after one of which {name}")


def _raising(error: BaseException) -> Callable[..., Any]:
    async def raising(*_given: object) -> NoReturn:
        raise error

    return raising


def _returning(value: object) -> Callable[..., Any]:
    async def returning(*_given: object) -> object:
        return value

    return returning


def _result(does: object) -> dict[str, object]:
    return {"side_effect": does} if isinstance(does, Exception) else {"return_value": does}


def failed_slots_are_not_reported() -> None:
    """A slot that breaks the engine shows neither in the log nor in the fields of an answer."""
    attack = Attack("blocks", SIGNED["hard votes"], [RED] * 5, "fail", {}, ensemble=6, answers=3)
    both = neighbours(attack)
    with capture_logs() as logged:
        for services in (opened(records, Parrot()) for records in both):
            address = signed_again(services, attack.plan())
            answer = asyncio.run(services.answering.answer(address, "query", key_id="k"))
            require_equal(answer.release.answer.keys(), {"label", "votes", "zero_shot"}, "what an answer tells")
    require_equal(logged, [], "log of an answer")


def one_answer_for_one_query() -> None:
    """A repeated query gets the stored release, but not another task's. After the last answer there is no release."""
    services, calibrated = quiet(Parrot())
    first, other = signed_again(services, calibrated), signed_again(services, calibrated)

    def ask_for(address: str, query: str, **options: Any) -> Any:
        return asyncio.run(services.answering.answer(address, query, key_id="k", **options))

    answer, again = ask_for(first, "query"), [ask_for(first, " query ")]
    require_equal(again[0].charged, False, "charge of a repeated query")
    again += [ask_for(first, "query", idempotency_key="once") for _ in range(2)]
    require_equal([(one.release, one.charged) for one in again], [(answer.release, False)] * 3, "repeated answers")
    elsewhere = ask_for(other, "query")
    require_equal((elsewhere.charged, elsewhere.release.task), (True, other), "the same query of another task")
    given = 1
    for number in range(5):
        with suppress(AnswersExhaustedError):
            given += ask_for(first, f"another {number}").charged
    require_equal(given, 3, "answers given")
    with services.records.database.connect() as connection:
        require_equal(violations(connection), [], "what is wrong with the ledger")


VOTED = "{type: synthetic_exemplars, per_label: 1, candidates: [{text: a, says: red}, {text: a, says: blue}]}"
ONCE = {
    "prototypes": "{type: prototypes}",
    "softmax regression": "{type: softmax_regression}",
    "synthetic exemplars": VOTED,
}
"""Mechanisms with a one-time release, for two labels."""


def noise_of_one_release(mechanism: str, multiplier: float) -> list[float]:
    """The standard deviations of the noise that it draws: once for a sensitivity of 1, or in every step."""
    return [multiplier * math.sqrt(STEPS) * CLIP] * STEPS if mechanism == "softmax regression" else [multiplier * 1.0]


def one_release_for_one_charge(mechanism: str) -> None:
    """A one-time release is charged before anything is read. If its process dies, no other process makes it again."""
    task = ["kind: classify", "label_field: says", "labels: [red, blue]", f"mechanism: {ONCE[mechanism]}"]
    attack = Attack("units", task, ["red"] * 5, "blue", {}, once=True, exemplars=1)
    records = neighbours(attack)[1]
    read: list[list[str]] = []

    def die(*_args: object) -> NoReturn:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, drawing() as drawn:
        noting(patch, records.store, "every_unit", lambda *_args, **_more: read.append(states(records)))
        with pytest.MonkeyPatch.context() as dying:
            dying.setattr(records.ledger, "release", die)
            with suppress(KeyboardInterrupt):
                sign(records, attack.plan(), "attacker", embed=Compass().embed)
        require(all(read), "the exemplars were read before the charge")
        dead = Ledger(records.database, lease_s=60, clock=lambda: datetime.now(UTC) + timedelta(hours=1))
        with suppress(NotMadeError):
            make(dead, records.store, records.ledger.budgets.task("wired.task"), Compass().embed, padded=False)
    expected = noise_of_one_release(mechanism, attack.plan().noise["task"].mechanism.noise_multiplier)
    require(len(drawn) == len(expected), f"noise drawn {len(drawn)} times for one charge")
    require_equal(drawn, expected, "noise of the release")


# --- The noise. -------------------------------------------------------------------------------------------------------


def noise_is_fresh(kind: str) -> None:
    """Where no slot votes, the noise decides. All forty answers are the same with a probability below 2e-12."""
    public = {"embedding mean": texts(["at 0", "at 180"], "type: embedding_mean")}
    attack = Attack("blocks", {**SIGNED, **public}[kind], ["mute"] * 3, "mute", {}, ensemble=4, answers=40, exemplars=1)
    (_, records) = neighbours(attack)
    services = opened(records, Parrot((0.5, 0.5)))
    (answers,) = asyncio.run(ask(services, attack.plan(), 0, 1))
    require(len({json.dumps(answer) for answer in answers}) > 1, "forty answers with the same noise")


def _probability(votes: RnmGaussian, contributions: Sequence[Any]) -> object:
    """The answer that a posterior gives."""
    posterior = LabelPosterior(votes.sigma, 9, PosteriorParameters(1, 5, 0.14, 1))
    belief = LabelVote(votes, load_plan(PLAN).tasks["colour"], np.array([0.5, 0.5]), posterior)
    return json.dumps(asyncio.run(belief.release(contributions)))


def nothing_bypasses_the_noise() -> None:
    """Once the noisy sum is replaced by a fixed one, the release does not depend on the contributions."""
    candidates = Compass().embed(["at 0", "at 0", "at 120", "at 240"]).astype(np.float64)
    voices = list(Compass().embed(["at 0", "at 180", "at 70"]).astype(np.float64))
    centre = candidates.mean(axis=0)
    mechanisms: list[tuple[partial[Any], Sequence[np.ndarray], Sequence[np.ndarray]]] = [
        (
            partial(EmbeddingMean(1.0, radius, True, 9).release, candidates=candidates),
            voices,
            [(half / 2 - 9) * min(1.0, radius) * centre for half in range(-1, 20)],
        )
        for radius in (0.1, 1.0)
    ]
    undecided = np.zeros(2)  # all candidates are equally near
    plain = partial(EmbeddingMean(1.0).release, candidates=candidates)
    mechanisms.append((plain, voices, [centre, -centre, undecided]))
    for vote in ("hard", "soft"):
        release = partial(RnmGaussian(1.0, 2, vote, 1.0).release, prior=np.array([0.5, 0.5]))  # type: ignore[arg-type]
        even, nearly = np.array([1.5, 1.5]), np.array([1.5, 1.5 + 1e-9])  # a tie, and a lead that is too small to show
        heard = [np.array([1.0, 2.0]), np.array([2.0, 1.0]), even, nearly]
        mechanisms.append((release, [np.eye(2)[0], np.eye(2)[1]], heard))
        believed = partial(_probability, RnmGaussian(1.0, 2, vote))  # type: ignore[arg-type]
        mechanisms.append((believed, [np.eye(2)[0], np.eye(2)[1]], heard))
    for release, given, noisy in mechanisms:
        for fixed in noisy:
            with pytest.MonkeyPatch.context() as patch:
                for module in ("rnm_gaussian", "embedding_mean"):
                    replacement = lambda _sum, _sigma, fixed=fixed: (fixed * ONE).astype(np.int64)  # noqa: E731
                    patch.setattr(f"aggregation.{module}.add_gaussian_noise", replacement)
                had = {release([*[voice] * n, *[None] * (9 - n)]) for voice in given for n in range(10)}
            require(len(had) == 1, f"the release reads contributions beside the noisy sum: {release.func}")


# --- Work, isolation, accounting. -------------------------------------------------------------------------------------


def the_number_of_embedded_texts_is_fixed() -> None:
    """An answer embeds as many texts as there are slots, whether they are mute, alike or all different."""
    embedded: list[int] = []

    class Counting(Compass):
        def embed_bounded(self, given: Sequence[str | None]) -> np.ndarray:
            embedded.append(len(given))
            return super().embed_bounded(given)

    for usual in (["mute"] * 5, ["at 0"] * 5, [f"at {number}" for number in range(5)]):
        attack = Attack("blocks", SIGNED["embedding mean"], usual, "mute", {}, ensemble=6, answers=1)
        (records, _) = neighbours(attack)
        services = opened(records, Parrot())
        services.answering.stages = replace(services.answering.stages, embedder=Counting())
        asyncio.run(ask(services, attack.plan(), 0, 1))
    require_equal(embedded, [6] * 3, "texts embedded for an answer")


def slots_of_the_embedded_engine_are_isolated() -> None:
    """A slot's output stays the same, to the bit, when another slot's exemplars change."""
    engine, query = NearestExemplarEngine(Compass()), {"text": "at 40"}
    label = TaskSpec("t", ("red", "blue"), Prompt("", "{text}: {says}", "{text}:"), answer_field="says")
    text = replace(label, kind="generate", labels=(), candidates=5, public_answers=("at 10", "at 200"))

    def exemplar(angle: int, says: str) -> Exemplar:
        place = f"at {angle}"
        return Exemplar({"text": place, "says": says}, Compass().embed([place])[0])

    usual: list[Slot] = [(exemplar(30 * n, "red"), exemplar(35 * n, "blue"), exemplar(9 * n, "red")) for n in range(8)]
    others: list[Slot] = [(), (exemplar(41, "blue"),) * 3, (exemplar(220, "red"),) * 50]

    async def outputs(spec: TaskSpec, slots: Sequence[Slot]) -> list[str]:
        zero_shot = await engine.zero_shot(spec, query)
        found = await engine.contributions(spec, query, slots, zero_shot)
        return [repr(one.tolist() if isinstance(one, np.ndarray) else one) for one in found]

    for spec in (label, text):
        alone = [asyncio.run(outputs(spec, [slot]))[0] for slot in usual]
        for other in others:
            beside = asyncio.run(outputs(spec, [other, *usual]))[1:]
            require(beside == alone, "a slot's output depends on another slot")


@dataclass(frozen=True)
class RandomisedResponse(SymmetricProfile):
    """A bit, flipped with some probability. For two sampled answers, adding a unit costs more than removing it."""

    flipped: float

    def upper_delta(self, epsilon: np.ndarray) -> np.ndarray:
        return np.maximum(1 - self.flipped - np.exp(epsilon) * self.flipped, 0.0)


def the_worse_direction_is_paid_for() -> None:
    """The charge covers two sampled answers by randomised response, whose divergences are known in both directions."""
    flipped, q, loss = 0.1, 0.7, 1.0
    absent = np.array([1 - flipped, flipped])
    sampled = (1 - q) * absent + q * absent[::-1]
    twice = [np.multiply.outer(answer, answer) for answer in (sampled, absent)]
    remove, add = (float(np.maximum(p - math.exp(loss) * r, 0).sum()) for p, r in (twice, twice[::-1]))
    assert add > remove + 0.08
    events = [Event(RandomisedResponse(flipped), Sampling("units", q), 2)]  # type: ignore[arg-type]
    claimed = PldAccountant().delta(events, loss)
    require(claimed >= add, f"δ = {claimed:.4f} is claimed, and adding a unit costs {add:.4f}")
    assert claimed < add + 0.02
