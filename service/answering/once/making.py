"""A one-time release: charged, made of all units of its cohorts, stored, and never made again.

    embed public texts, make the engine ready → charge, durable and witnessed → read every unit → add noise
    → where a part of the units is left out: read these, count right answers, add noise → wait
    → settle and store, in one transaction

The charge is the only one that the task's plan allows. So whatever happens after it, no second release is made: if the
process dies before it has stored the release, the charge is spent and the release lost, and another takes another plan.
What failed before the charge, or voided it since it could not be witnessed, may be tried again.

The time of the work depends on the number of exemplars. It ends after a whole number of grains, which depend on the
public size, on how long a release of no units takes, and where slots write texts, on how many there are and how long
one takes with made-up slots.
"""

import asyncio
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np

from accounting.ledger.budgets import SignedTask
from accounting.ledger.charges import AnswersExhaustedError, ChargeStateError, InFlight, Ledger, Release
from accounting.ledger.errors import LedgerError
from accounting.ledger.quotas import NO_KEY
from exemplar_store import Exemplar, ExemplarStore, KnowledgeBase, Part, Slot
from service.answering.latency import Work
from service.answering.measured_grains import largest_work
from service.answering.mechanisms.adapter import MEASURED, Answer, OnceAdapter, Write, once_adapter_of
from service.answering.queries import described_spec
from service.answering.stages import Ready, Stages
from service.answering.turns import turn
from service.engines.embedding.embedder import Embed
from service.engines.errors import EngineUnavailableError
from service.engines.private_threads import on_the_loop
from service.problem_kinds import ProblemKind, RefusalError
from service.records.database import UNAVAILABLE
from service.records.signed import read_signed, read_task

ONE_RELEASE = hashlib.sha256(b"the one release of a task").digest()
"""In place of a query's digest, under which the charge and the release are stored."""

NAME_AN_ENGINE = "name the engine's config (--engine-config), or sign in the dashboard or over HTTP"
"""Advice where the texts of a release are to be written."""

_SHORTEST_GRAIN_S = 1.0
_GRAIN_S_PER_EXEMPLAR = 0.0005
_SETTLE_ATTEMPTS = 10


class NotMadeError(RefusalError, LedgerError):
    """A one-time release is not there; the message names what an admin can do."""

    kind = ProblemKind.RELEASE_NOT_MADE


def grain_s(public_size: int) -> float:
    """Seconds that the time of making a release is rounded up to a multiple of.

    Args:
        public_size: the knowledge base's public number of exemplars.
    """
    return max(_SHORTEST_GRAIN_S, _GRAIN_S_PER_EXEMPLAR * public_size)


def make(
    ledger: Ledger,
    store: ExemplarStore,
    signed: SignedTask,
    embed: Embed,
    stages: Stages | None = None,
    *,
    padded: bool = True,
) -> Release:
    """Make a signed task's one release, or return the one that is stored. Blocks a thread without a loop for seconds.

    Args:
        ledger: ledger that charges and stores the release.
        store: exemplar store with the exemplars.
        signed: a task with ``release: once``.
        embed: embeds its public texts as the exemplars were.
        stages: ask the engine, where slots write the texts; then this must be called in a private thread.
        padded: whether it ends after a whole number of grains.

    Raises:
        NotMadeError: it is being made elsewhere, or it was charged and lost; or there is nothing to make it of yet, or
            its public texts cannot be embedded, or no engine can write its texts, and nothing is charged.
        accounting.ledger.witness.LedgerRestoredError: the ledger lacks what was witnessed; nothing is charged.
        accounting.ledger.witness.WitnessUnavailableError: the witness does not answer; nothing is charged.
        exemplar_store.ExemplarStoreError: the knowledge base cannot be opened; nothing is charged.
    """
    if (stored := ledger.stored_release(signed, ONE_RELEASE)) is not None:
        return stored
    dimension = check_readable(store, signed.knowledge_base)
    adapter = once_adapter_of(*read_task(signed))
    described = store.get(signed.knowledge_base)  # before the charge, so that who is read was witnessed with it
    public = _embedded(adapter.public_texts(described.embedded_field), dimension, embed)
    write, writing_s = (
        _writer(signed, stages, described, measured=padded) if adapter.writing else (_no_slots_write, 0.0)
    )
    public_size = read_signed(signed.document).public_size
    grain = grain_s(public_size) + writing_s
    if padded and not adapter.writing:  # what it takes without units, such as noise, is public
        began = time.monotonic()
        _released(adapter, lambda _left_out: (), public, write, public_size)
        grain += 2 * (time.monotonic() - began)
    charge = charge_once(ledger, signed, takes_s=grain)
    if isinstance(charge, Release):
        return charge
    begun = time.monotonic()
    share = adapter.written.left_out

    def units(left_out: bool) -> Iterable[Sequence[Exemplar]]:
        part = Part(signed.address, share, left_out) if share else None
        return store.every_unit(described.name, signed.plan.cohorts, arrived=described.arrived, part=part)

    answer = _released(adapter, units, public, write, public_size)
    if padded:
        time.sleep(max(0.0, begun + grain * math.ceil((time.monotonic() - begun) / grain) - time.monotonic()))
    return asyncio.run(settle(ledger, signed, ONE_RELEASE, charge, answer))


def _released(
    adapter: OnceAdapter[Any, Any],
    units: Callable[[bool], Iterable[Sequence[Exemplar]]],
    public: np.ndarray,
    write: Write,
    public_size: int,
) -> Answer:
    """The release, and its accuracy where it is measured.

    Args:
        adapter: adapter of the mechanism.
        units: function that reads the units that the release is made of, or if True, those that are left out.
        public: see :meth:`.OnceAdapter.make`.
        write: likewise.
        public_size: likewise.
    """
    made = adapter.make(units(False), public, write, public_size)
    if not adapter.written.left_out:
        return made
    return {**made, MEASURED: asdict(adapter.measure(made, units(True)))}


def _writer(
    signed: SignedTask, stages: Stages | None, described: KnowledgeBase, *, measured: bool
) -> tuple[Write, float]:
    """The function that writes a task's texts, and the seconds of all with the largest slots, if that is measured.

    Raises:
        NotMadeError: nothing can write them; nothing is charged.
    """
    if stages is None:
        raise NotMadeError(f"an engine writes {signed.address}: {NAME_AN_ENGINE}")
    try:
        return on_the_loop(writer(stages, signed, described, measured=measured))
    except Exception as error:  # no exemplar was seen
        raise NotMadeError(f"the engine cannot write the texts, and nothing was charged: {error}") from error


async def writer(
    stages: Stages, signed: SignedTask, described: KnowledgeBase, *, measured: bool
) -> tuple[Write, float]:
    """Make an engine ready to write a task's texts; it sees no exemplar.

    Args:
        stages: stages that answer queries, too.
        signed: the task.
        described: knowledge base of the task.
        measured: whether to find out how long the largest slots take.

    Returns:
        What writes, in a private thread: the zero-shot answer where nothing is written. And the seconds of all texts
        with the largest slots; 0 if that was not measured.

    Raises:
        EngineUnavailableError: it cannot write, or does not answer, or may not be shown the exemplars.
        service.answering.measured_grains.NotMeasuredError: not all of the largest slots could write.
        service.engines.errors.UnanswerableQueryError: a topic's prompt is too long for it.
        TimeoutError: it took too long.
    """
    engine = await stages.engine.describe()
    if not engine.writes_together:
        raise EngineUnavailableError(f"{engine.name} cannot write texts together; `vllm` can")
    if engine.remote and not described.remote_engine:
        raise EngineUnavailableError(f"{described.name} does not allow its exemplars to leave")
    task: Any
    task, noise = read_task(signed)
    each = task.one_text
    unshared = f"texts {os.urandom(8).hex()} of {described.name}"  # no cache is shared with queries
    spec = described_spec(signed.address, each, described, asker="", cached_for=unshared)
    field, topics = task.topic_field, task.mechanism.topics
    async with turn(stages.turns):
        ready = {topic: await stages.probe(each, noise, spec, {field: topic}) for topic in topics}
        work = await largest_work(stages, each, noise, spec, described) if measured else Work()

    async def one(asked: Ready, slots: Sequence[Slot]) -> Answer:
        async with turn(stages.turns, about_s=work.work_s) as taken:
            with suppress(EngineUnavailableError):  # charged already: what cannot be written is the zero-shot answer
                asked = await asked.in_turn(work.work_s, patient=True)
            await taken.end(work.work_s)
        ends = asyncio.get_running_loop().time() + work.work_s
        answer = await asked.answer(slots)
        await asyncio.sleep(ends - asyncio.get_running_loop().time())  # when the next text begins is public
        return answer

    def write(query: Mapping[str, str], slots: Sequence[Slot]) -> str:
        return str(on_the_loop(one(ready[query[field]], slots))["text"])

    return write, work.work_s * len(topics) * task.mechanism.texts


def _no_slots_write(*_asked: object) -> str:
    raise TypeError("this release has no slots that write")


def charge_once(ledger: Ledger, signed: SignedTask, *, takes_s: float = 0.0) -> str | Release:
    """Charge a task's one release: the charge's id, or the release if it is stored.

    Args:
        ledger: ledger that is charged.
        signed: a task with ``release: once``.
        takes_s: seconds that making it is expected to take; after twice as long it is shown as lost.

    Raises:
        NotMadeError: it is being made elsewhere, or it was charged and lost.
        accounting.ledger.witness.LedgerRestoredError: the ledger lacks what was witnessed; nothing is charged.
        accounting.ledger.witness.WitnessUnavailableError: the witness does not answer; nothing is charged.
    """
    try:
        charge = ledger.charge(signed, ONE_RELEASE, key_id=NO_KEY, lease_s=2 * takes_s)
    except AnswersExhaustedError:
        raise NotMadeError(
            f"the one release of {signed.address} was charged and lost: what made it ended before it was stored. Its "
            "charge stays spent, since it is unknown what was seen; another release takes another plan"
        ) from None
    if isinstance(charge, InFlight):
        raise NotMadeError(f"the one release of {signed.address} is being made; if that fails it is lost, and stays so")
    return charge if isinstance(charge, Release) else charge.id


def check_readable(store: ExemplarStore, knowledge_base: str) -> int:
    """Whether a release can be made of a knowledge base: the dimension of its embeddings.

    Raises:
        NotMadeError: nothing was uploaded yet, or without embeddings.
    """
    dimension = store.get(knowledge_base).embedding_dimension
    if not dimension:
        raise NotMadeError(
            f"a one-time release is made of the exemplars that {knowledge_base} has when its plan is signed, "
            "and it has none with embeddings yet: upload them first"
        )
    return dimension


def _embedded(texts: Sequence[str], dimension: int, embed: Embed) -> np.ndarray:
    if not texts:
        return np.empty((0, dimension), np.float32)
    try:
        vectors = embed(texts)
    except Exception as error:
        raise NotMadeError(f"the plan's texts cannot be embedded, and nothing was charged: {error}") from error
    if vectors.shape != (len(texts), dimension):
        raise NotMadeError("the exemplars were embedded by another model: upload them again")
    return vectors


async def settle(ledger: Ledger, signed: SignedTask, digest: bytes, charge_id: str, answer: Answer) -> Release:
    """Store a release, patiently: it is paid for, and must not be lost because the database is busy."""
    for attempt in range(_SETTLE_ATTEMPTS):
        try:
            return await asyncio.to_thread(ledger.release, charge_id, answer)
        except UNAVAILABLE:
            await asyncio.sleep(min(2.0**attempt / 10, 5.0))
        except ChargeStateError:
            # An attempt before this one was committed though its confirmation was lost: the release is there.
            if attempt and (stored := await asyncio.to_thread(ledger.stored_release, signed, digest)) is not None:
                return stored
            raise
    return await asyncio.to_thread(ledger.release, charge_id, answer)
