"""The service as it is wired stands attacks and checks; bugs planted by hand do not.

A bug is an :class:`Edit` of the code. Should the code change, so that an edit no longer applies, its test says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import pytest

from tests.privacy import checks, once_checks
from tests.privacy.attacks import ATTACKS
from tests.privacy.planting import Edit, plant
from tests.privacy.wired import Noticed

MAKING = "    answer = adapter.make(units, public, write)\n"

CHECKS: dict[str, Callable[[], None]] = {
    **ATTACKS,
    **{
        f"signed, {mechanism}, {drawn}": partial(checks.signed, mechanism, drawn)
        for mechanism in checks.SIGNED
        for drawn in ("units", "blocks")
    },
    **{f"drawn, {drawn}": partial(checks.drawn_as_accounted, drawn) for drawn in ("units", "blocks")},
    **{f"fresh noise, {kind}": partial(checks.noise_is_fresh, kind) for kind in ("hard votes", "embedding mean")},
    "cap": checks.slots_keep_no_more_than_signed,
    "order": checks.steps_in_their_order,
    "no way back": checks.nothing_is_given_back_after_the_sample,
    "silence": checks.nobody_is_told_of_a_slot,
    "one answer": checks.one_answer_for_one_query,
    **{f"one release, {mechanism}": partial(checks.one_release_for_one_charge, mechanism) for mechanism in checks.ONCE},
    **{f"its cohorts, {one}": partial(once_checks.made_of_its_cohorts, one) for one in checks.ONCE},
    "texts, once": once_checks.texts_cost_what_is_claimed,
    "no way back, once": once_checks.stays_charged_if_it_fails,
    "stored last, once": once_checks.private_work_ends_before_it_is_stored,
    "noise": checks.nothing_passes_by_the_noise,
    "same work": checks.the_same_is_embedded_whatever_is_said,
    "isolated slots": checks.slots_of_the_embedded_engine_are_isolated,
    "directions": checks.the_worse_direction_is_paid_for,
}


@cache
def noticed(name: str) -> str:
    """What a check says of the service as it is; nothing, if all is well."""
    try:
        CHECKS[name]()
    except Noticed as found:
        return str(found)
    return ""


@pytest.mark.parametrize("name", CHECKS)
def test_the_service_stands(name: str) -> None:
    assert noticed(name) == ""


@dataclass(frozen=True)
class Bug:
    """A mistake, and who must notice it.

    Attributes:
        check: of :data:`CHECKS`.
        says: a part of what the check says.
        edits: which make the mistake.
    """

    check: str
    says: str
    edits: tuple[Edit, ...]


def bug(check: str, says: str, where: str, passage: str, instead: str, *more: tuple[str, str, str]) -> Bug:
    return Bug(check, says, (Edit(where, passage, instead), *(Edit(*edit) for edit in more)))


SAMPLE = "await self._sample(question, None)"
RELEASED = "ready.answer(slots)"
AS_IF_DRAWN = ("accounting.plans.releases:Once.probability", "return 1.0", "return drawn / public_size")

BUGS = {
    # --- The answer path. ---
    "joint EM's domain has the slots' words, too": bug(
        "joint EM, units, secret words",
        "a secret leaves",
        "service.answering.mechanisms.keyword_joint_em:RankedKeywords.release",
        "map(words_of, outputs), self.domain)",
        "map(words_of, outputs), sorted({*self.domain, *(w for o in outputs for w in words_of(o) or ())}))",
    ),
    "all slots abstain if most do": bug(
        "hard votes, blocks, as many abstain as answer",
        "label is blue",
        "service.answering.stages:Ready.ask",
        "return outputs\n",
        "return outputs if 2 * sum(o is None for o in outputs) <= len(outputs) else [None] * len(outputs)\n",
    ),
    "one slot's failure silences all": bug(
        "hard votes, units, a slot that breaks the engine",
        "label is blue",
        "service.answering.stages:Ready.ask",
        "await asyncio.gather(*(self._ask_engine([slot]) for slot in slots))",
        "[None] * len(slots)",
    ),
    "a slot's failure is logged": bug(
        "silence",
        "slot_failed",
        "service.answering.stages:Stages.or_none",
        "except Exception:\n",
        "except Exception:\n        __import__('structlog').get_logger().warning('slot_failed')\n",
    ),
    "an answer tells how many slots spoke": bug(
        "signed, soft votes, blocks",
        "what an answer tells",
        "service.answering.mechanisms.rnm_gaussian:LabelVote.release",
        'return {"label":',
        'return {"spoke": sum(vote is not None for vote in votes), "label":',
    ),
    "the posterior is told how many slots vote": bug(
        "posterior, blocks, the only voice",
        "some answer is undecided",
        "service.answering.mechanisms.rnm_gaussian:LabelVote.release",
        "return scored(",
        "self = __import__('dataclasses').replace(self, posterior=LabelPosterior("
        "self.posterior.sigma, sum(vote is not None for vote in votes) or 1e-6, self.posterior.calibration))\n"
        "    return scored(",
    ),
    "probabilities of the votes without noise": bug(
        "noise",
        "reads contributions beside the noisy sum",
        "service.answering.mechanisms.rnm_gaussian:LabelVote.release",
        "self.mechanism.noisy_votes(votes)",
        "self.mechanism.noisy_votes(votes) * 0 + sum(vote for vote in votes if vote is not None)",
    ),
    "the fallback is the first slot's answer": bug(
        "PTR, units, a secret that nobody else says",
        "the secret leaves",
        "service.answering.mechanisms.keyword_ptr:TestedKeywords.release",
        '"text": self.fallback',
        '"text": next(filter(lambda o: isinstance(o, str), outputs), self.fallback)',
    ),
    "equal texts are embedded once": bug(
        "same work",
        "texts embedded for an answer",
        "service.answering.mechanisms.embedding_mean:NearestCandidate.embeddings",
        "list(await privately(lambda: embed(texts)))",
        "list(map(dict(zip(once := [*dict.fromkeys(texts)], await privately(lambda: embed(once)))).get, texts))",
    ),
    "a release that fails is given back": bug(
        "no way back",
        "voided",
        "service.answering.answering:Answering._spend",
        f"answer = await {RELEASED}",
        f"try:\n        answer = await {RELEASED}\n    except Exception:\n"
        "        await asyncio.to_thread(self.ledger.void, charge.id, 'release-failed')\n        raise",
    ),
    "a sample is drawn before the charge": bug(
        "order",
        "order of the steps",
        "service.answering.answering:Answering._charge",
        "outcome = await asyncio.to_thread(\n",
        f"{SAMPLE}; outcome = await asyncio.to_thread(\n",
    ),
    "the number of grains is fixed after the sample": bug(
        "order",
        "order of the steps",
        "service.answering.answering:Answering._spend",
        "    departure.fix(times)\n",
        "",
        (
            "service.answering.answering:Answering._spend",
            "    answer = await ready.answer",
            "    departure.fix(times)\n    answer = await ready.answer",
        ),
    ),
    "a release is stored before it may leave": bug(
        "order",
        "order of the steps",
        "service.answering.answering:Answering._spend",
        "late = await departure.wait()",
        "stored = await settle(self.ledger, question.signed, question.digest, charge.id, answer)\n"
        "    late = await departure.wait()",
        (
            "service.answering.answering:Answering._spend",
            "return await settle(self.ledger, question.signed, question.digest, charge.id, told)",
            "return stored",
        ),
    ),
    # --- What was signed. ---
    "PTR's test passes ten times as often": bug(
        "signed, PTR, units",
        "threshold",
        "service.answering.mechanisms.keyword_ptr:keyword_ptr",
        "noise.delta0",
        "10 * noise.delta0",
    ),
    "half the noise multiplier": bug(
        "signed, hard votes, units",
        "standard deviation of the noise",
        "service.answering.mechanisms.rnm_gaussian:RnmGaussianAdapter.mechanism",
        "self.noise.noise_multiplier",
        "0.5 * self.noise.noise_multiplier",
    ),
    "Gumbel noise of scale 2/ε": bug(
        "signed, PTR, blocks",
        "scale of the noise on k",
        "aggregation.keyword_ptr:KeywordPtr.gumbel_scale",
        "2 * GAP_SENSITIVITY",
        "GAP_SENSITIVITY",
    ),
    "twice the sampling probability": bug(
        "signed, soft votes, units",
        "number and probability of what is drawn",
        "service.answering.draw:draw_signed",
        "else noise.sampling_probability",
        "else min(1.0, 2 * noise.sampling_probability)",
    ),
    "blocks of one exemplar, whatever the shots": bug(
        "signed, soft votes, blocks",
        "number and probability of what is drawn",
        "service.answering.draw:draw",
        "public_size // task.shots",
        "public_size",
    ),
    "a larger cap than signed": bug(
        "signed, embedding mean, units",
        "slots, and exemplars that each keeps",
        "service.answering.draw:draw",
        "max_exemplars=task.slot_cap",
        "max_exemplars=2 * task.slot_cap",
    ),
    # --- The mechanisms. ---
    "the whole centre is added back for each slot that speaks": bug(
        "centred embedding mean, blocks, a far and only voice",
        "every answer is the centre's",
        "aggregation.embedding_mean:EmbeddingMean.release",
        "return self.select(from_fixed_point(noisy_sum), candidates)",
        "n = sum(is_embedding(c, candidates.shape[1]) for c in contributions)\n"
        "    target = from_fixed_point(noisy_sum) + n * self.centre(candidates)\n"
        "    return EmbeddingMean(self.noise_multiplier, self.radius).select(target, candidates)",
    ),
    "embeddings are not clipped": bug(
        "centred embedding mean, blocks, a far and only voice",
        "every answer is the canary's",
        "aggregation.embedding_mean:EmbeddingMean.sum",
        "offset * (limit / max(norm(offset), limit))",
        "offset",
    ),
    "the candidate nearest to the noiseless sum": bug(
        "embedding mean, units, the only voice",
        "some answer is the canary's",
        "aggregation.embedding_mean:EmbeddingMean.release",
        "self.select(from_fixed_point(noisy_sum), candidates)",
        "self.select(from_fixed_point(self.sum(contributions, self.centre(candidates))), candidates)",
    ),
    "soft votes of any size": bug(
        "soft votes, blocks, more than a vote",
        "label is blue",
        "aggregation.votes:_on_simplex",
        " & (mass <= 1 + _ROUNDING)",
        "",
        ("aggregation.votes:_on_simplex", " / np.maximum(mass[usable], 1.0)[:, None]", ""),
    ),
    "noise is drawn once": bug(
        "fresh noise, hard votes",
        "forty answers with the same noise",
        "aggregation.noise:add_gaussian_noise",
        "_measurement(sigma * ONE)(values.tolist())",
        "values + vars(add_gaussian_noise).setdefault('drawn', _measurement(sigma * ONE)([0] * values.size))",
    ),
    "joint EM takes the best sequence": bug(
        "joint EM, blocks, the only voice",
        "every word is the canary's",
        "aggregation.keyword_joint_em:JointExponentialMechanism.select",
        "reach[draw(self._weights(reach))]",
        "reach[0]",
    ),
    "PTR releases the most frequent word first": bug(
        "PTR, blocks, two words of which one leads",
        "alpha is first",
        "aggregation.keyword_ptr:KeywordPtr.release",
        "tuple(sorted(top_words(counts, k)))",
        "tuple(top_words(counts, k))",
    ),
    # --- The store. ---
    "embeddings are centred over all slots": bug(
        "hard votes, blocks, compared by embeddings",
        "label is blue",
        "exemplar_store.exemplar:unpack",
        "vectors /= np",
        "vectors -= vectors.mean(axis=0)\n    vectors /= np",
    ),
    "a unit's exemplars go to slots of their own": bug(
        "hard votes, units, many exemplars",
        "label is blue",
        "exemplar_store.store:ExemplarStore.sample_slots",
        "holder = slots[positions.searchsorted(listed.positions)]",
        "holder = sampling.below(ensemble, listed.positions.size)",
    ),
    "as many units as expected are drawn": bug(
        "drawn, units",
        "queries that draw half the units",
        "exemplar_store.sampling:poisson_sample",
        "return sample[: np.searchsorted(sample, positions)]",
        "return np.sort(np.argsort(words(positions))[: round(positions * probability)])",
    ),
    "twice the probability in the sampler": bug(
        "drawn, blocks",
        "units drawn",
        "exemplar_store.sampling:poisson_sample",
        "_stretch_law(probability)",
        "_stretch_law(min(1.0, 2 * probability))",
    ),
    "slots are cut from a shuffled sample": bug(
        "drawn, units",
        "six units in six different slots",
        "exemplar_store.store:ExemplarStore.sample_slots",
        "slots = sampling.below(ensemble, positions.size)",
        "slots = np.argsort(sampling.words(positions.size)) * ensemble // max(1, positions.size)",
    ),
    "blocks are cut by position": bug(
        "drawn, blocks",
        "a unit is in another unit's block",
        "exemplar_store.store:ExemplarStore.sample_blocks",
        "positions, slots = members(connection, row.id, spans(row, cohorts, arrived), drawn, blocks)",
        "positions = np.array([p for p in range(row.next_position) if p // 2 in drawn.tolist()], np.int64)\n"
        "        slots = np.searchsorted(drawn, positions // 2)",
    ),
    "slots keep everything": bug(
        "cap",
        "exemplars of the fullest slot",
        "exemplar_store.sampling:deal",
        "order[start : min(end, start + maximum)]",
        "order[start:end]",
    ),
    # --- Ledger, engine, accounting. ---
    "a repeated query is another query": bug(
        "one answer",
        "charge of a repeated query",
        "service.answering.answering:Answering._digest",
        "json.dumps(normalised, sort_keys=True).encode()",
        "json.dumps([normalised, time.time_ns()], sort_keys=True).encode()",
    ),
    "another task's release answers": bug(
        "one answer",
        "the same query of another task",
        "accounting.ledger.charges:_released",
        '_RELEASED, {"task": task_id, "digest": query_digest}',
        "RELEASES.where(releases.c.query_digest == query_digest)",
    ),
    "the counter does not rise": bug(
        "one answer",
        "answers given",
        "accounting.ledger.charges:Ledger._charge",
        '_SPEND, {"task": task.id}',
        "sa.select(tasks.c.answers - tasks.c.charged).where(tasks.c.id == task.id)",
    ),
    "the engine remembers slots by their size": bug(
        "isolated slots",
        "depends on another slot",
        "service.engines.embedded.nearest_exemplar:NearestExemplarEngine.contributions",
        "lambda: [_answer_or_abstain(answer, slot) for slot in slots]",
        "lambda known={}: [known.setdefault(len(slot), _answer_or_abstain(answer, slot)) for slot in slots]",
    ),
    "each exemplar counts for prototypes": bug(
        "prototypes, an exemplar of each label",
        "ε is at least",
        "service.answering.mechanisms.prototypes:PrototypesAdapter.make",
        "self.labelled(unit) for unit in units",
        "self.labelled([one]) for unit in units for one in unit",
    ),
    "prototypes with half the noise": bug(
        "one release, prototypes",
        "noise of a sensitivity of 1",
        "service.answering.mechanisms.prototypes:PrototypesAdapter.sums",
        "PrototypeSums(self.noise.noise_multiplier,",
        "PrototypeSums(self.noise.noise_multiplier / 2,",
    ),
    "each exemplar votes for a candidate": bug(
        "synthetic exemplars, an exemplar of each label",
        "ε is at least",
        "service.answering.mechanisms.synthetic_exemplars:SyntheticExemplarsAdapter.make",
        "self.labelled(unit) for unit in units",
        "self.labelled([one]) for unit in units for one in unit",
    ),
    "votes with half the noise": bug(
        "one release, synthetic exemplars",
        "noise of a sensitivity of 1",
        "service.answering.mechanisms.synthetic_exemplars:SyntheticExemplarsAdapter.votes",
        "ExemplarVotes(self.noise.noise_multiplier,",
        "ExemplarVotes(self.noise.noise_multiplier / 2,",
    ),
    "candidates are written from private texts": bug(
        "one release, synthetic exemplars",
        "read before the charge",
        "service.answering.once.making:make",
        "_embedded(adapter.public_texts(described.embedded_field), dimension, embed)",
        "_embedded([unit[0].fields['text'] for unit in store.every_unit('wired')][:2], dimension, embed)",
    ),
    "a release is made again after a crash": bug(
        "one release, prototypes",
        "noise drawn 2 times for one charge",
        "service.answering.once.making:make",
        "    charge = charge_once(ledger, signed, takes_s=grain)\n",
        "    try:\n"
        "        charge = charge_once(ledger, signed)\n"
        "    except NotMadeError:\n"
        "        units = store.every_unit(signed.knowledge_base, signed.plan.cohorts)\n"
        "        return Release('', '', '', adapter.make(units, public, write), 0)\n",
    ),
    # --- Releases that are made once. ---
    "a release that is made once is accounted as if drawn": bug(
        "its cohorts, prototypes",
        "probability to take part",
        *AS_IF_DRAWN,
    ),
    "texts are accounted as if drawn": bug("texts, once", "probability to take part", *AS_IF_DRAWN),
    "a unit has a say in every topic that it has exemplars of": bug(
        "texts, once",
        "the plan says",
        "service.answering.mechanisms.written_texts:WrittenTextsAdapter.make",
        "        topic = max(topics, key=said.count)  # what most of its exemplars are on; "
        "any, with none of them, if none is\n    ",
        "        for topic in topics:\n        ",
    ),
    "one text is paid for, and not all of them": bug(
        "texts, once",
        "the plan says",
        "accounting.plans.mechanisms:TokenEnsembleMechanism.paid",
        "self.tokens * (self.texts or 1)",
        "self.tokens",
    ),
    "units go to the slots of a topic in turn": bug(
        "texts, once",
        "the plan says",
        "service.answering.draw:deal",
        "sampling.below(task.ensemble, len(units))",
        "np.arange(len(units)) % task.ensemble",
    ),
    "a release that is made once is calibrated as if drawn": bug(
        "its cohorts, synthetic exemplars",
        "one Gaussian release at",
        "accounting.plans.plan:_granted",
        "task.sampling_probability(public_size))\n",
        "1 / public_size if task.once else task.sampling_probability(public_size))\n",
        ("accounting.plans.plan:_noise", "event.sampling.probability", "1.0"),
    ),
    "a release that is made once reads all cohorts": bug(
        "its cohorts, prototypes",
        "exemplars of the release",
        "service.answering.once.making:make",
        "signed.plan.cohorts",
        "range(1, 9)",
    ),
    "a release that fails once exemplars were read is given back": bug(
        "no way back, once",
        "the charge of a release",
        "service.answering.once.making:make",
        MAKING,
        f"    try:\n    {MAKING}    except Exception:\n        ledger.void(charge, 'failed')\n        raise\n",
    ),
    "a release that is made once is stored before the wait": bug(
        "stored last, once",
        "order of a release",
        "service.answering.once.making:make",
        "    if padded:",
        "    made = asyncio.run(settle(ledger, signed, ONE_RELEASE, charge, answer))\n    if padded:",
        (
            "service.answering.once.making:make",
            "return asyncio.run(settle(ledger, signed, ONE_RELEASE, charge, answer))",
            "return made",
        ),
    ),
    "removal alone is composed": bug(
        "directions",
        "adding a unit costs",
        "accounting.privacy.subsampling:amplify",
        "return (removal, removal.swapped())",
        "return (removal,)",
    ),
}


@pytest.mark.lengthy
@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a check that finds nothing on the service as it is."""
    planted = BUGS[name]
    assert noticed(planted.check) == ""
    for edit in planted.edits:
        plant(edit, monkeypatch)
    with pytest.raises(Noticed, match=re.escape(planted.says)):
        CHECKS[planted.check]()
