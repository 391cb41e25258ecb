"""Attacks on the wired service: several answers of a signed plan, on neighbouring knowledge bases.

The database, the encrypted store, the ledger, the calibration, the stages and the mechanisms are real, opened by
:func:`service.operations.services.open_services`. Only the engine is a parrot: a slot repeats the canary where the
canary is drawn, else its own first exemplar.

Trial after trial, a plan is signed and all its answers are asked for. Some event over these answers is more likely with
the canary or without it; Clopper-Pearson intervals turn that into a lower bound on ε, at the plan's δ. Above the plan's
ε the promise is broken. A look at the first trials is enough where a leak is gross. Where the very first ones hardly
differ, the attacker gives up: a proof takes an event that is seen with one neighbour in 63 more of 85 trials than with
the other.

False alarms. A bound is wrong only if an interval is, with probability 1e-8 (:data:`tests.privacy.audit.ERROR`). Two
looks at up to two events and their complements, in both directions, are 16 bounds of two intervals each: a right plan
is caught with a probability below 4e-7. A bug escapes the second look with a probability below 2e-7 if its event
happens in at most 1 of 200 trials with one neighbour, and in all but 1 of 200 with the other; the attacker gives up on
it with a probability below 1e-14.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import numpy as np

from accounting.plans.plan import CalibratedPlan, calibrate_plan, load_plan
from accounting.replay.books import violations
from exemplar_store import ExemplarStore, Layout, Slot, load_key, read_json_lines
from exemplar_store.tables import knowledge_bases
from service.answering.once.making import ONE_RELEASE
from service.answering.plans.signing import sign
from service.engines.embedding.model import identity
from service.engines.lock_step import write
from service.engines.protocol import EngineInfo
from service.engines.task import Sentence, TaskSpec, ZeroShot
from service.operations.services import Services, open_services
from service.records.records import Records, open_records
from service.settings import Settings
from tests.privacy.audit import epsilon_lower_bound
from tests.service.engines.roomy import WRITES, Roomy

EPSILON, DELTA = 0.8, 1e-3
FIRST = 12
"""Trials for each of the neighbours after which the attacker gives up, unless an event is a third of them apart."""
LOOKS = (65, 85)
"""Trials after which the attacker looks."""

Answer = Mapping[str, Any]
Event = Callable[[Sequence[Answer]], bool]
Trials = tuple[list[list[Answer]], list[list[Answer]]]
"""The answers of each trial, without the canary and with it."""

PLAN = """
knowledge_base: wired
budget: {{epsilon: {epsilon}, delta: {delta}}}
tasks:
  task:
    prompt: {{exemplar: "{{text}} {{says}}", query: "{{text}}"}}
    {drawn}
    {task}
"""
DRAWN = """shots: {shots}
    ensemble: {ensemble}
    max_exemplars: {cap}
    sampling: {sampling}
    answers: {answers}"""
LABELS = ("kind: classify", "label_field: says", "labels: [red, blue]")
TEXT = ("kind: generate", "response_field: says")


class Noticed(AssertionError):  # noqa: N818  (a finding, not an error)
    """A check found a fault in the service."""


class Parrot(Roomy):
    """An engine that repeats exemplars: one number for each label, or a text.

    ``mute`` abstains, ``fail`` breaks the engine's whole call, ``compare`` votes by the exemplar's embedding.

    Attributes:
        prior: probabilities of the labels that the public probe returns.
        seen: slots of every call.
    """

    def __init__(self, prior: Sequence[float] = (0.0, 1.0), *, reads_embeddings: bool = False) -> None:
        self.prior = np.array(prior)
        self.reads_embeddings = reads_embeddings
        self.seen: list[Sequence[Slot]] = []

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        return ZeroShot(self.prior) if task.kind == "classify" else ZeroShot(texts=task.public_answers)

    async def contributions(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> list[np.ndarray | str | None]:
        self.seen.append(slots)
        return [self._output(task, slot) for slot in slots]

    def _output(self, task: TaskSpec, slot: Slot) -> np.ndarray | str | None:
        if not slot:
            return None
        told = next((exemplar for exemplar in slot if "canary" in exemplar.fields["text"]), slot[0])
        match says := told.fields["says"]:
            case "mute":
                return None
            case "fail":
                raise RuntimeError("cannot read this slot")
            case "compare":
                return np.eye(2)[int(told.embedding[0] < 0.05)]
        return np.array(says.split(), np.float64) if task.kind == "classify" else says

    async def write(self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot) -> str:
        """A sentence of ``a`` and ``b``, each as likely as its end without exemplars. A slot insists on its word."""
        self.seen.append(slots)
        voices = [_Insisting(self._output(task, slot)) for slot in slots if slot]
        said = await write(task.writing, _Indifferent(), voices, ends=[0], timeout_s=60)
        return " ".join(_WORDS[token] for token in said)

    async def reconstruct(
        self, task: TaskSpec, query: Mapping[str, str], keywords: Sequence[str], ordered: bool, zero_shot: ZeroShot
    ) -> Sentence:
        return Sentence(" ".join(keywords), "the words")

    async def describe(self) -> EngineInfo:
        return EngineInfo("parrot", "each slot by itself", False, "", reads_embeddings=self.reads_embeddings, **WRITES)

    async def health(self) -> None:
        pass


_WORDS = ("", "a", "b")


class _Indifferent:
    async def likeliest(self, read: Sequence[int], count: int) -> Mapping[int, float]:
        return dict.fromkeys(range(len(_WORDS)), -math.log(len(_WORDS)))


@dataclass(frozen=True)
class _Insisting:
    """A voice that insists on a word, whatever was written; ``end`` is the end, and ``mute`` fails."""

    said: Any

    async def opinion(self, read: Sequence[int], tokens: Sequence[int], voices: int) -> Sequence[float]:
        wanted = _WORDS.index("" if self.said == "end" else self.said)  # raises if it is mute
        return [0.0 if token == wanted else -1e4 for token in tokens]


class Compass:
    """An embedder in the plane: ``at 30 ...`` lies 30 degrees from the first axis, any other text at 90."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        found = [re.match(r"at (-?\d+)", text) for text in texts]
        angles = np.radians([float(match[1]) if match else 90.0 for match in found])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    embed_many = embed

    def embed_bounded(self, texts: Sequence[str | None]) -> np.ndarray:
        return self.embed([text or "" for text in texts])


@dataclass(frozen=True)
class Attack:
    """A plan, neighbours, and events that distinguish them if something is wrong.

    Attributes:
        task: lines of the task in the plan, beside the prompt and the draw.
        usual: outputs of the other units. Where blocks are drawn, unit i is alone in block i + 1.
        canary: output of the canary's exemplars, which may hold their ``{number}``. Where blocks are drawn, the canary
            is alone in block 0.
        events: events over the answers, at most two, fixed in advance.
        usual_text: text of another unit's exemplar, from the unit's number.
        exemplars: number of the canary's exemplars.
        cap: number of exemplars that a slot keeps.
        answers: number of the plan's answers, all of which are asked for.
        ensemble: number of slots.
        shots: number of exemplars that a slot expects.
        size: declared number of exemplars. Unless it is set, a unit is drawn with probability 9/10, a block always.
        reads_embeddings: whether the engine reads embeddings.
        once: whether the release is a one-time release, for which nothing is drawn.
    """

    sampling: Literal["units", "blocks"]
    task: Sequence[str]
    usual: Sequence[str]
    canary: str
    events: Mapping[str, Event]
    usual_text: Callable[[int], str] = "usual {}".format
    exemplars: int = 40
    cap: int = 70
    answers: int = 2
    ensemble: int = 54
    shots: int = 1
    size: int = 0
    reads_embeddings: bool = False
    once: bool = False

    @property
    def public_size(self) -> int:
        """The declared number of exemplars, on which the sampling probability rests."""
        drawn = self.shots * self.ensemble
        return self.size or (drawn if self.sampling == "blocks" else drawn * 10 // 9)

    @property
    def blocks(self) -> int:
        """The number of blocks, where blocks are drawn."""
        return self.public_size // self.shots

    def plan(self) -> CalibratedPlan:
        """The plan, which is signed again for each trial."""
        drawn = DRAWN.format(
            shots=self.shots, ensemble=self.ensemble, cap=self.cap, sampling=self.sampling, answers=self.answers
        )
        text = PLAN.format(
            epsilon=EPSILON, delta=DELTA, drawn="release: once" if self.once else drawn, task="\n    ".join(self.task)
        )
        return _calibrated(text, self.public_size)

    def bound(self) -> tuple[float, str]:
        """The largest lower bound on ε that the answers prove, and how; stops at the first look that breaks the plan.

        Raises:
            AssertionError: the ledger is not consistent.
        """
        calibrated = self.plan()
        engine = Parrot(reads_embeddings=self.reads_embeddings)
        both = [opened(records, engine) for records in neighbours(self)]
        trials: Trials = ([], [])
        best = (0.0, "no event")
        for look in (FIRST, *LOOKS):
            for services, had in zip(both, trials, strict=True):
                had += asyncio.run(ask(services, calibrated, len(had), look))
            if look == FIRST:
                if all(abs(zero - one) < FIRST / 3 for zero, one in self._hits(trials).values()):
                    break
                continue
            best = max(best, *self._bounds(trials))
            if best[0] > EPSILON:
                break
        for services in both:
            with services.records.database.connect() as connection:
                assert violations(connection) == []
        return best

    def __call__(self) -> None:
        """Check that the answers do not refute the plan."""
        bound, how = self.bound()
        if bound > EPSILON:
            raise Noticed(f"ε is at least {bound:.2f}, and the plan promises {EPSILON}: {how}")

    def _hits(self, trials: Trials) -> dict[str, tuple[int, int]]:
        """In how many trials each event happened, without the canary and with it."""
        without, with_canary = trials
        return {name: (sum(map(e, without)), sum(map(e, with_canary))) for name, e in self.events.items()}

    def _bounds(self, trials: Trials) -> list[tuple[float, str]]:
        number = len(trials[0])
        bounds = []
        for name, (without, with_canary) in self._hits(trials).items():
            how = f"{name!r} {without} times without the canary and {with_canary} with it, of {number}"
            for zero, one in itertools.permutations((without, with_canary)):
                bounds += [
                    (epsilon_lower_bound(zero, one, number, DELTA), how),
                    (epsilon_lower_bound(number - zero, number - one, number, DELTA), how),
                ]
        return bounds


@cache
def _calibrated(text: str, public_size: int) -> CalibratedPlan:
    return calibrate_plan(load_plan(text), public_size)


async def ask(services: Services, calibrated: CalibratedPlan, first: int, last: int) -> list[list[Answer]]:
    """All answers of one signed plan for each trial."""
    trials = []
    for trial in range(first, last):
        # In a thread, as in the service: an event loop of its own stores a one-time release.
        newest = services.records.ledger.budgets.newest_equal("wired", calibrated.model_dump_json())
        signing = partial(sign, services.records, calibrated, "attacker", embed=Compass().embed, again=newest)
        version = (await asyncio.to_thread(signing)).version
        if calibrated.plan.tasks["task"].once:  # its release is all that ever comes out of the exemplars
            signed = services.records.ledger.budgets.task(f"wired.task@{version}")
            trials.append([services.records.ledger.stored_release(signed, ONE_RELEASE).answer])
            continue
        queries = [f"query {trial} {number}" for number in range(calibrated.plan.tasks["task"].answers)]
        answers = [
            await services.answering.answer(f"wired.task@{version}", query, key_id="attacker") for query in queries
        ]
        assert [answer.answers_left for answer in answers] == list(range(len(answers)))[::-1]
        trials.append([answer.release.answer for answer in answers])
    return trials


def opened(records: Records, engine: Parrot) -> Services:
    return open_services(records, engine, Compass())


def neighbours(attack: Attack) -> tuple[Records, Records]:
    """Without the canary and with it, under the same keys, so that every other unit is in the same block in both."""
    without, copy = records(attack.public_size), records(attack.public_size)
    usual, canary = names(without, attack)
    exemplars = [
        {"unit_id": name, "text": attack.usual_text(number), "says": says}
        for number, (name, says) in enumerate(zip(usual, attack.usual, strict=True))
    ]
    ingest(without, exemplars)
    source, target = (each.database.raw_connection().driver_connection for each in (without, copy))
    source.backup(target)
    store = ExemplarStore(copy.database, load_key(None, None, development=True), identity(""))
    with_canary = replace(copy, store=store, digest_key=store.keyring.queries)
    secrets = [
        {"unit_id": canary, "text": f"at 180 canary {number}", "says": attack.canary.format(number=number)}
        for number in range(attack.exemplars)
    ]
    ingest(with_canary, secrets)
    return without, with_canary


def names(of: Records, attack: Attack) -> tuple[list[str], str]:
    """Unit ids of the others and of the canary; where blocks are drawn, each in a block of its own."""
    if attack.sampling == "units":
        return [f"u{number}" for number in range(len(attack.usual))], "canary"
    with of.database.connect() as connection:
        keys = of.store.keyring.of(connection.execute(knowledge_bases.select()).one())
    in_block: dict[int, str] = {}
    for name in map("u{}".format, itertools.count()):
        in_block.setdefault(int.from_bytes(keys.unit_tag(name)) * attack.blocks >> 128, name)
        if len(in_block) == attack.blocks:
            return [in_block[block + 1] for block in range(len(attack.usual))], in_block[0]
    raise AssertionError("unreachable")


def records(public_size: int) -> Records:
    """An empty knowledge base in a database of its own."""
    settings = Settings(database_url="sqlite://", witness_url="none", development=True, latency_unpadded=True)
    made = open_records(settings)
    made.create_knowledge_base(
        "wired", epsilon=1000, delta=0.9, public_size=public_size, fields=["text", "says"], embedded_field="text"
    )
    return made


def ingest(into: Records, exemplars: Sequence[Mapping[str, str]]) -> None:
    stream = io.BytesIO("".join(json.dumps(exemplar) + "\n" for exemplar in exemplars).encode())
    into.store.ingest("wired", read_json_lines(stream, Layout(("text", "says"))), Compass().embed)
