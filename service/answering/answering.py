"""One query, front to back: the steps of the privacy contract in their order, readable in one place.

    stored release? → charge → zero-shot probe → sample → ask every slot → aggregate → wait → settle and store → answer

A conversation is rewritten as one question before (:mod:`service.answering.conversations`), if the task allows it.

A task with a one-time release (:mod:`service.answering.once.making`) takes none of these steps: its answers cost
nothing. A task that has none left and names such a task gives that one's answers, which cost nothing either.

A failure before the charge costs nothing. The zero-shot probe sees no exemplar, so its failure depends on no private
data and voids the charge; so does any other unusable public input, such as too few words to choose from. From the
moment the sample is drawn nothing fails: whatever goes wrong with a slot is that slot's abstention, which is not
reported (a log line would depend on private data), and an answer is released.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import hmac
import json
import math
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import sqlalchemy as sa
import structlog
from typing_extensions import override

from accounting.ledger.budgets import SignedTask, address
from accounting.ledger.charges import AnswersExhaustedError, Charged, InFlight, Ledger, Release
from accounting.ledger.holders import Watch
from accounting.ledger.quotas import QuotaExhaustedError
from accounting.plans.plan import TaskNoise
from accounting.plans.releases import REFUSE
from accounting.plans.tasks import ClassifyTask, GenerateTask
from accounting.plans.topics import TopicsByField
from exemplar_store import ExemplarStore, KnowledgeBase, Slot
from service.answering.conversations import Conversation, Rewriting
from service.answering.draw import draw_signed
from service.answering.kept_blocks import KeptBlocks
from service.answering.latency import Departure, Grains, Measured, calm
from service.answering.mechanisms.adapter import score_of, scores_of
from service.answering.once.made import FromOneRelease
from service.answering.once.making import NotMadeError, settle
from service.answering.queries import InvalidQueryError, check_query, check_threshold, described_spec
from service.answering.stages import Stages
from service.engines.errors import (
    EngineBusyError,
    EngineUnavailableError,
    NotKeptError,
    UnanswerableQueryError,
    UnusableReplyError,
)
from service.engines.private_threads import privately
from service.engines.prompts import render
from service.engines.protocol import EngineInfo
from service.engines.task import TaskSpec, ZeroShot
from service.problem_kinds import ProblemKind, RefusalError
from service.records.signed import read_signed, read_task
from service.records.text_ledger import TextBudgetExhaustedError
from service.records.topics import check_named, topic_of

log = structlog.get_logger()

_POLL_S = 0.02
_APART_S = 0.03  # twice the service's own work on a question: then half of a core is left for answers that are due
_DATABASE_S = 60.0  # that it may take to store an answer
_WRITES = "sign another mechanism, or the operator run the engine `vllm`"


Query = str | Mapping[str, str] | Conversation
"""A question: a text, the fields of the task's query template, or a conversation that becomes a text."""

Realign = Callable[[str, str], Awaitable[str | None]]
"""A question and a released text in; that text for this question out, or None."""


class StillAnsweringError(RefusalError, RuntimeError):
    """Another request with the same query has not finished; the same request sent again will cost nothing."""

    kind = ProblemKind.STILL_ANSWERING
    retry_after_s = 2


class BusyError(RefusalError, RuntimeError):
    """This replica or the engine is answering as many queries as it takes on; nothing was charged.

    Args:
        message: sentence about what is too much, without the time to come back at.
        retry_after_s: whole seconds after which the same query may be answered.
    """

    kind = ProblemKind.BUSY

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message, retry_after_s)
        self.retry_after_s = retry_after_s

    @override
    def __str__(self) -> str:
        wait = "a second" if self.retry_after_s == 1 else f"{self.retry_after_s} seconds"
        return f"{self.args[0]}; come back in {wait}"


class RemoteEngineForbiddenError(RefusalError, RuntimeError):
    """The engine is outside the deployment, which the exemplars may not leave; nothing was charged."""

    kind = ProblemKind.REMOTE_ENGINE_FORBIDDEN


@dataclass(frozen=True)
class Answer:
    """The answer that a caller gets: one public object.

    Attributes:
        release: the stored release.
        task: the address that names the task's version, such as ``support.queue@1``.
        charged: whether this very request was charged (False: a stored release was returned, free).
        answers_left: number of answers that the task may still give to all callers together, after this charge, or on
            this topic; None: any number, since it has a one-time release.
        abstained: whether it is to be shown as an abstention; None where no threshold was set.
        realigned: text of the release, fitted to the question by a model that may see it; for this caller only.
        source: mechanism of the one-time release that the answer comes from; None where it is the answer's own release.
        topic: topic that the answer was drawn from and charged to; None: the task has no topics.
        question: question that was asked in place of the caller's conversation; for this caller only.
    """

    release: Release
    task: str
    charged: bool
    answers_left: int | None
    abstained: bool | None = None
    realigned: str | None = None
    source: str | None = None
    topic: str | None = None
    question: str | None = None

    def shown(self, abstain_below: float | None) -> Answer:
        """As shown to a caller with this threshold; the release stays the same."""
        if abstain_below is None:
            return self
        return replace(self, abstained=score_of(self.release.answer) < abstain_below)


@dataclass(frozen=True)
class _Question:
    """A query that was checked, with what its answer needs.

    Attributes:
        signed: the task that it is charged to.
        task: the task as the plan defines it.
        noise: calibrated noise of the task.
        spec: the task as the engine sees it.
        fields: the query.
        digest: identifies the query in the ledger.
        embeddings: whether the engine reads those of exemplars.
        arrived: number of units before the charge. The events that record their arrival are witnessed with it.
        prior: label scores from a one-time release, to be used instead of zero-shot's probabilities; None: the latter.
        measured: the work of the task's largest slots, and its grain.
        vector: embedding of the query, if its topic was found by similarity.
        departure: set if the query was embedded: whatever becomes of it leaves on the grain then.
    """

    signed: SignedTask
    task: ClassifyTask | GenerateTask
    noise: TaskNoise
    spec: TaskSpec
    fields: Mapping[str, str]
    digest: bytes
    embeddings: bool
    arrived: int | None
    prior: np.ndarray | None
    measured: Measured
    vector: np.ndarray | None = None
    departure: Departure | None = None


@dataclass(eq=False, repr=False)
class Answering:
    """The query pipeline. Every stage is an object behind a small protocol; none of them needs Ray.

    Attributes:
        ledger: charges and releases.
        store: exemplar store that slots are sampled from.
        stages: stages that answer and aggregate; their limit on waiting for a slot also limits waiting for a twin.
        digest_key: secret under which queries are hashed, so that the ledger holds none in the clear.
        blocks: blocks that the engine has read ahead, if it keeps any.
        grains: latency grains: after a charge, everything leaves after a whole number of its task's
            (:mod:`service.answering.latency`).
        public_grain_s: grain of an engine's replies to public exemplars, in seconds: they leave after whole grains.
        max_in_flight: queries answered at once; more are refused before they are charged. A query counts until its
            answer leaves, even if its caller no longer waits.
        realign: fits a released text to the question, where the engine saw another one.
    """

    ledger: Ledger
    store: ExemplarStore
    stages: Stages
    digest_key: bytes = field(kw_only=True)
    grains: Grains = field(kw_only=True)
    blocks: KeptBlocks = field(kw_only=True)
    public_grain_s: float = field(default=0.0, kw_only=True)
    max_in_flight: int = field(default=32, kw_only=True)
    realign: Realign | None = field(default=None, kw_only=True)
    _in_flight: int = field(default=0, init=False)
    _next_in: float = field(default=0.0, init=False)
    _running: set[asyncio.Task[Answer | InFlight]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._made = FromOneRelease(self.ledger, self.store, self.stages, self.public_grain_s)
        self._rewriting = Rewriting(self.stages, self.public_grain_s)

    async def answer(
        self,
        address: str,
        query: Query,
        *,
        key_id: str,
        idempotency_key: str | None = None,
        abstain_below: float | None = None,
    ) -> Answer:
        """Answer one query.

        Args:
            address: ``knowledge_base.task``, with ``@version`` for a plan that is not the newest.
            query: a text, the fields of the task's query template, or a conversation.
            key_id: id of the caller's key.
            idempotency_key: the caller's name for this request.
            abstain_below: the least score, or probability, of a label that is shown; unless given, the task's.

        Raises:
            accounting.ledger.errors.UnknownTaskError: no such task.
            InvalidQueryError: the query does not fit the task, or such a threshold does not.
            service.answering.conversations.ContextNotSupportedError: the task or the engine takes no conversations.
            accounting.ledger.charges.AnswersExhaustedError: the task has no answers left.
            accounting.ledger.charges.IdempotencyConflictError: the idempotency key was used for another query.
            service.engines.errors.EngineUnavailableError: the engine is down; nothing was charged.
            service.engines.errors.UnusableReplyError: it replies with nothing to use; nothing was charged.
            StillAnsweringError: a concurrent twin of this query did not finish in time.
            BusyError: too many queries are being answered.
            RemoteEngineForbiddenError: the exemplars may not be shown to this engine.
            service.answering.latency.GrainTooSmallError: the latency grain hides less than this task's slots can take.
            service.records.text_ledger.TextBudgetExhaustedError: sanitised, the caller's questions would cost too much.
            service.answering.once.making.NotMadeError: the release that the task answers from is not there.
        """
        if self._in_flight >= self.max_in_flight:
            # Callers who are refused together come back apart: together they would hold up the answers that are due.
            raise BusyError(f"{self.max_in_flight} queries are being answered", 1 + secrets.randbelow(4))
        self._in_flight += 1
        try:
            await self._let_in()
            signed = await asyncio.to_thread(self.ledger.budgets.task, address)
            task, _ = read_task(signed)
            if signed.topic is not None:
                raise InvalidQueryError(f"a question's topic is found from the question: ask {signed.whole}")
            abstain_below = check_threshold(task, abstain_below)
            rewritten = None
            if isinstance(query, Conversation):
                query = rewritten = await self._rewritten(signed, query, key_id)
            fields = check_query(task, query)
            if task.once:
                answer = await self._from_one_release(signed, fields, key_id)
            else:
                question = await self._checked(signed, fields, key_id)
                async with _departing(question.departure):
                    answer = await self._answer(question, key_id, idempotency_key)
                answer = await self._realigned(question, answer)
            return replace(answer, question=rewritten).shown(abstain_below)
        except EngineUnavailableError as error:
            # Before the charge, or its charge is void: nothing that follows the sample raises this.
            raise type(error)(f"{error}; nothing was charged") from error
        finally:
            self._in_flight -= 1

    async def _let_in(self) -> None:
        """Begin some time after the question before: many that begin at once hold up an answer that is due."""
        if not self.public_grain_s:
            return
        now = asyncio.get_running_loop().time()
        self._next_in = max(now, self._next_in) + _APART_S
        await asyncio.sleep(self._next_in - _APART_S - now)

    async def _rewritten(self, signed: SignedTask, conversation: Conversation, key_id: str) -> str:
        task, _ = read_task(signed)

        async def check_left() -> None:
            if task.once or getattr(task, "when_spent", REFUSE) != REFUSE:
                return
            if await asyncio.to_thread(self.ledger.answers_left, signed) <= 0:
                await self._refused(signed, key_id, ProblemKind.ANSWERS_EXHAUSTED)
                raise AnswersExhaustedError(signed)

        try:
            return await self._rewriting.question(signed.address, task, conversation, asker=key_id, before=check_left)
        except (EngineBusyError, UnanswerableQueryError, TimeoutError) as error:
            raise refusal(error)[1] from error

    @asynccontextmanager
    async def free_call(self) -> AsyncIterator[None]:
        """A call of the engine or the embedder that is not a private answer (:func:`.turns.free_call`).

        Raises:
            BusyError: too many questions are being answered.
        """
        try:
            async with self.stages.free_call(self.public_grain_s):
                yield
        except EngineBusyError as error:
            raise refusal(error)[1] from error

    async def _realigned(self, question: _Question, answer: Answer) -> Answer:
        """After the release is stored, and from what its caller knows: the exemplars have no part in it."""
        text = answer.release.answer.get("text")
        if self.realign is None or text is None:
            return answer
        async with self.stages.free_call(self.public_grain_s):
            asked = replace(question.spec.prompt, public=())
            realigned = await self.realign(render(asked, question.fields), text)
        return replace(answer, realigned=realigned)

    async def _answer(self, question: _Question, key_id: str, idempotency_key: str | None) -> Answer:
        deadline = time.monotonic() + self.stages.timeout_s
        watch, gone = Watch(), None
        while True:
            # A caller who hangs up must not lose what was charged, nor the charge itself on its way back from the
            # database. So the work gets a task of its own, and a context of its own too: Ray Serve cancels the calls
            # made in the context of an abandoned request.
            charging = self._charge_and_answer(question, key_id, idempotency_key, gone)
            work = asyncio.create_task(charging, context=contextvars.Context())
            self._running.add(work)
            work.add_done_callback(self._done)
            try:
                answer = await asyncio.shield(work)
            except asyncio.CancelledError:
                if not work.done():  # the caller's place is free now; the work takes one of its own
                    self._in_flight += 1
                    work.add_done_callback(self._left)
                raise
            if isinstance(answer, Answer):
                return answer
            gone = answer.charge_id if watch.is_gone(answer) else None
            if time.monotonic() > deadline:
                raise StillAnsweringError("the same query is still being answered; ask again in a moment")
            await asyncio.sleep(_POLL_S)

    async def _from_one_release(self, signed: SignedTask, fields: Mapping[str, str], key_id: str) -> Answer:
        """An answer of a task with a one-time release: nothing private is read, and nothing charged."""
        try:
            release = await self._made.answer(signed, fields, key_id)
        except (EngineBusyError, UnanswerableQueryError, TimeoutError) as error:
            raise refusal(error)[1] from error
        task, _ = read_task(signed)
        return Answer(release, signed.address, charged=False, answers_left=None, source=task.mechanism.type)

    async def _beside(self, signed: SignedTask, name: str, fields: Mapping[str, str], key_id: str) -> Answer | None:
        """An answer of another task of the same plan, with a one-time release; None if that release is not there."""
        other = await asyncio.to_thread(self.ledger.budgets.task, address(signed.knowledge_base, name, signed.version))
        asked = read_task(other)[0].query_fields
        try:
            return await self._from_one_release(other, {name: fields[name] for name in asked}, key_id)
        except NotMadeError:  # which is public
            return None

    async def _instead(self, question: _Question, key_id: str) -> Answer | None:
        """The answer of a task that has no answers left; None if it refuses."""
        signed, task = question.signed, question.task
        if not isinstance(task, ClassifyTask) or task.when_spent == REFUSE:
            return None
        answer = await self._beside(signed, task.when_spent, question.fields, key_id)
        return answer and replace(answer, task=signed.whole, answers_left=0, topic=signed.topic)

    async def _prior(self, signed: SignedTask, fields: Mapping[str, str], key_id: str) -> np.ndarray | None:
        """The label scores of the release that the task takes its prior from; None for zero-shot's probabilities."""
        task, _ = read_task(signed)
        if not isinstance(task, ClassifyTask) or task.prior_from is None:
            return None
        answer = await self._beside(signed, task.prior_from, fields, key_id)
        if answer is None:
            return None
        scores = scores_of(answer.release.answer)
        return np.array([scores[label] for label in task.labels])

    async def _checked(self, signed: SignedTask, fields: Mapping[str, str], key_id: str) -> _Question:
        """The query as a question that may be charged. Whatever is wrong with it costs nothing."""
        task, noise = read_task(signed)
        # Public, and it fails where exemplars could not be read, for instance under another encryption key.
        knowledge_base = await asyncio.to_thread(self.store.get, signed.knowledge_base)
        engine = await self.stages.engine.describe()
        try:
            check_may_leave(engine, knowledge_base)
        except RemoteEngineForbiddenError as error:
            await self._refused(signed, key_id, error.kind)
            raise
        if task.kind == "generate" and task.mechanism.written_together and not engine.writes_together:
            raise EngineUnavailableError(
                f"{engine.name} cannot write {task.mechanism.type} answers: an admin must {_WRITES}"
            )
        measured = await self.grains.of(signed)
        if (too_long_s := await self.stages.turns.wait_s() - self.stages.timeout_s) > 0:
            raise BusyError("too many questions wait for the engine", math.ceil(too_long_s))
        spec = described_spec(signed.address, task, knowledge_base, asker=key_id, latency_grain_s=measured.grain_s)
        prior = await self._prior(signed, fields, key_id)
        embeddings, arrived = engine.reads_embeddings, knowledge_base.arrived
        digest = self._digest(fields)
        question = _Question(signed, task, noise, spec, fields, digest, embeddings, arrived, prior, measured)
        return question if task.topics is None else await self._on_topic(question)

    async def _on_topic(self, question: _Question) -> _Question:
        """The question, to be charged to its topic: a function of the question and of what was signed.

        One that was answered before has its topic from its release: only what may be charged is embedded, since that
        takes as long as others keep the machine busy.
        """
        signed, task, fields = question.signed, question.task, question.fields
        if isinstance(task.topics, TopicsByField):
            topic = self._topic(question, None)
            # Spelt otherwise, it is the same question.
            question = replace(question, fields={**fields, task.topics.field: topic})
            return await self._charged_to(question, topic)
        stored = await asyncio.to_thread(self.ledger.topic_of_stored, signed, question.digest)
        if stored is not None:
            return await self._charged_to(question, stored)
        departure = Departure(question.spec.latency_grain_s)
        try:
            async with self.stages.turn():
                vector = await self.stages.embed(question.spec, fields)
            embedded = replace(question, vector=vector, departure=departure)
            return await self._charged_to(embedded, self._topic(question, vector))
        except InvalidQueryError:
            await departure.wait_for_refusal()
            raise
        except Exception as error:
            await departure.wait_for_refusal()
            raise EngineUnavailableError("the question could not be embedded, to find its topic") from error

    def _topic(self, question: _Question, vector: np.ndarray | None) -> str:
        centres = read_signed(question.signed.document).centres.get(question.signed.name, ())
        try:
            return check_named(question.task, topic_of(question.task, centres, question.fields, vector))
        except LookupError as error:
            raise InvalidQueryError(f"{error}; nothing was charged") from None

    async def _charged_to(self, question: _Question, topic: str) -> _Question:
        return replace(
            question,
            signed=await asyncio.to_thread(self.ledger.budgets.on_topic, question.signed, topic),
            noise=question.noise.on(topic),
            digest=self._digest(question.fields),
        )

    async def _charge_and_answer(
        self, question: _Question, key_id: str, idempotency_key: str | None, gone: str | None
    ) -> Answer | InFlight:
        try:
            async with self.blocks.held(question.signed, question.measured) as held:
                if held.kept:
                    spec = replace(question.spec, kept=held.kept)
                    question = replace(question, spec=spec, arrived=held.arrived)
                return await self._charge(question, key_id, idempotency_key, gone)
        except EngineBusyError as error:
            raise BusyError(str(error), error.retry_after_s) from error

    async def _charge(
        self, question: _Question, key_id: str, idempotency_key: str | None, gone: str | None
    ) -> Answer | InFlight:
        signed = question.signed
        try:
            outcome = await asyncio.to_thread(
                self.ledger.charge,
                signed,
                question.digest,
                key_id=key_id,
                idempotency_key=idempotency_key,
                # The probe, two turns, the sample, the slots, perhaps each alone, and what they write together; then
                # the grains, and the database.
                lease_s=7 * (self.stages.timeout_s + question.spec.latency_grain_s) + _DATABASE_S,
                gone=gone,
            )
        except AnswersExhaustedError:
            if (answer := await self._instead(question, key_id)) is not None:
                return answer
            await self._refused(signed, key_id, ProblemKind.ANSWERS_EXHAUSTED)
            raise
        except QuotaExhaustedError:
            await self._refused(signed, key_id, ProblemKind.QUOTA_EXHAUSTED)
            raise
        match outcome:
            case Release():
                left = await asyncio.to_thread(self.ledger.answers_left, signed)
                return Answer(outcome, signed.whole, charged=False, answers_left=left, topic=signed.topic)
            case Charged():
                release = await self._spend(outcome, question)
                left = outcome.answers_left
                return Answer(release, signed.whole, charged=True, answers_left=left, topic=signed.topic)
            case InFlight():
                return outcome

    async def _spend(self, charge: Charged, question: _Question) -> Release:
        """From a durable charge to a stored release."""
        spec, fields, measured = question.spec, question.fields, question.measured
        departure = question.departure or Departure(spec.latency_grain_s)
        try:
            async with self.stages.turn(measured.turn_s) as turn:
                ready = await self.stages.probe(question.task, question.noise, spec, fields, prior=question.prior)
                vector = question.vector
                if vector is None and question.task.order == "nearest":
                    vector = await self.stages.embed(spec, fields, ready.zero_shot)
                times = measured.times(ready.zero_shot.tokens)
                ready = await ready.in_turn(times * measured.work_s)
                await calm(spec.latency_grain_s)
                await turn.end(times * measured.turn_s)
        except (Exception, asyncio.CancelledError) as error:
            # The probe may have waited for what other queries' samples keep busy, so this leaves on the grain, too;
            # unless not the engine's call is cancelled, but this query, since the service ends.
            departure.fix()
            this = asyncio.current_task()
            if this is None or not this.cancelling():
                await departure.wait()
            if isinstance(error, NotKeptError):
                self.blocks.lost(question.signed)
                self.grains.overran(question.signed)
            reason, refused = refusal(error)
            await asyncio.to_thread(self.ledger.void, charge.id, reason)
            if isinstance(refused, EngineUnavailableError):
                log.warning("probe_failed", task=spec.name, charge=charge.id, error=type(error).__name__)
            raise refused from error
        departure.fix(times)

        slots = await self._sample(question, vector)
        answer = await ready.answer(slots)
        # Before the release is stored: a twin, or a caller who asks again, must not see it any sooner.
        late = await departure.wait()
        if late:  # no more than the caller sees, and readers of the audit trail
            log.error("answer_overran", task=spec.name, grains=late, advice="it is measured again; see the runbook")
            self.grains.overran(question.signed)
        told = {**answer, **_without_exemplars(question.task, ready.zero_shot)}
        return await settle(self.ledger, question.signed, question.digest, charge.id, told)

    async def _sample(self, question: _Question, vector: np.ndarray | None) -> Sequence[Slot]:
        signed, arrived, embeddings = question.signed, question.arrived, question.embeddings
        sampling = privately(
            lambda: draw_signed(self.store, signed, arrived=arrived, embeddings=embeddings, question=vector)
        )
        try:
            return await asyncio.wait_for(sampling, self.stages.timeout_s)
        except Exception:
            return [()] * question.task.ensemble

    async def _refused(self, signed: SignedTask, key_id: str, reason: ProblemKind) -> None:
        """Count a refusal. It stands whether or not the database has time to count it."""
        try:
            await asyncio.to_thread(self.ledger.refuse, signed.address, key_id, reason.slug)
        except sa.exc.SQLAlchemyError as error:
            log.error("refusal_not_counted", task=signed.address, reason=reason.slug, error=type(error).__name__)

    def _digest(self, fields: Mapping[str, str]) -> bytes:
        """The identity of a query: its fields, whatever their white space."""
        normalised = {name: " ".join(text.split()) for name, text in fields.items()}
        return hmac.digest(self.digest_key, json.dumps(normalised, sort_keys=True).encode(), hashlib.sha256)

    def _done(self, work: asyncio.Task[Answer | InFlight]) -> None:
        self._running.discard(work)
        if not work.cancelled():
            work.exception()  # seen: else asyncio prints its traceback when the caller has hung up

    def _left(self, _work: object) -> None:
        self._in_flight -= 1

    async def drain(self) -> None:
        """Wait for the answers whose charge is spent (before shutting down)."""
        if self._running:
            await asyncio.wait(self._running)


def check_may_leave(engine: EngineInfo, knowledge_base: KnowledgeBase) -> None:
    """Whether an engine may be shown a knowledge base's exemplars.

    Args:
        engine: the engine to be shown them.
        knowledge_base: knowledge base with the exemplars.

    Raises:
        RemoteEngineForbiddenError: it is outside the service, and the knowledge base does not allow that.
    """
    if engine.remote and not knowledge_base.remote_engine:
        raise RemoteEngineForbiddenError(
            f"this service asks a language model outside it, and {knowledge_base.name} does not allow its exemplars "
            "to leave: an admin can allow it for this knowledge base"
        )


@asynccontextmanager
async def _departing(departure: Departure | None) -> AsyncIterator[None]:
    """Let everything leave on the grain, if the question was embedded: how long that took is not to be seen."""
    try:
        yield
    finally:
        if departure is not None:
            await departure.wait_for_refusal()


def _without_exemplars(task: ClassifyTask | GenerateTask, zero_shot: ZeroShot) -> dict[str, str]:
    """The part of zero-shot that an answer shows, which is public: the label, or the likeliest text."""
    if isinstance(task, ClassifyTask) and zero_shot.probabilities is not None:
        return {"zero_shot": task.labels[int(zero_shot.probabilities.argmax())]}
    return {"zero_shot": zero_shot.texts[0]} if zero_shot.texts else {}


def refusal(error: BaseException) -> tuple[str, Exception]:
    """Why a question is refused whose probe failed, for the audit trail and for the caller."""
    match error:
        case InvalidQueryError() | UnanswerableQueryError():
            return "unanswerable-query", InvalidQueryError(str(error))
        case TextBudgetExhaustedError() | UnusableReplyError():
            return error.kind.slug, error
        case EngineBusyError():
            return "engine-busy", BusyError("the engine has more work than it takes on", error.retry_after_s)
    return "engine-unavailable", EngineUnavailableError("the engine does not answer")
