"""Texts that slots write together for a release that is made once: all of it that is public, before the charge."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accounting.ledger.budgets import SignedTask
from exemplar_store import KnowledgeBase, Slot
from service.engines.protocol import EngineUnavailableError, TaskSpec, ZeroShot
from service.pipeline.measured_grains import Work, largest_work
from service.pipeline.mechanisms.adapter import Aggregator, Author
from service.pipeline.queries import task_spec
from service.pipeline.stages import Stages
from service.private_threads import on_the_loop
from service.records.signed import read_signed


@dataclass(frozen=True)
class Writer:
    """What writes.

    Attributes:
        all_s: seconds of all texts with the largest slots; 0 if that was not measured.
    """

    all_s: float
    _stages: Stages
    _spec: TaskSpec
    _field: str
    _topics: Mapping[str, tuple[ZeroShot, Aggregator | Author]]

    def __call__(self, query: Mapping[str, str], slots: Sequence[Slot]) -> str:
        """See :data:`.mechanisms.adapter.Write`: the zero-shot answer where nothing is written. In a private thread."""
        zero_shot, author = self._topics[query[self._field]]
        answer: Mapping[str, Any] = on_the_loop(self._stages.answer(author, self._spec, query, slots, zero_shot))
        return str(answer["text"])


async def writer(stages: Stages, signed: SignedTask, described: KnowledgeBase, *, measured: bool) -> Writer:
    """Make an engine ready to write a task's texts; it sees no exemplar.

    Args:
        stages: those that answer queries, too.
        signed: the task.
        described: its knowledge base.
        measured: whether to find out how long the largest slots take.

    Raises:
        EngineUnavailableError: it cannot write, or does not answer, or may not be shown the exemplars.
        service.pipeline.measured_grains.NotMeasuredError: not all of the largest slots could write.
        service.engines.protocol.UnanswerableQueryError: a topic's prompt is too long for it.
        TimeoutError: it took too long.
    """
    engine = await stages.engine.describe()
    if not engine.writes_together:
        raise EngineUnavailableError(f"{engine.name} cannot write texts together; `vllm` can")
    if engine.remote and not described.remote_engine:
        raise EngineUnavailableError(f"{described.name} does not allow its exemplars to leave")
    plan = read_signed(signed.document)
    task: Any = plan.plan.tasks[signed.name]
    each, noise = task.model_copy(update={"release": "each"}), plan.noise[signed.name]  # a text is written as an answer
    spec = task_spec(
        signed.address,
        each,
        f"texts {os.urandom(8).hex()} of {described.name}",  # no cache is shared with queries
        described.embedded_field,
        response_field=described.response_field,
        asker="",
    )
    field, topics = task.topic_field, task.mechanism.topics
    ready = {topic: await stages.probe(each, noise, spec, {field: topic}) for topic in topics}
    work = await largest_work(stages, each, noise, spec, described) if measured else Work()
    return Writer(work.work_s * len(topics) * task.mechanism.texts, stages, spec, field, ready)
