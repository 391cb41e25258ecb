"""Answers from a one-time release: any number of them reads nothing private and costs nothing.

The question is embedded, or the engine asked, in a turn (:mod:`service.answering.turns`), so that nothing private is
computed meanwhile; and the answer leaves after a whole number of grains.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from accounting.ledger.budgets import SignedTask
from accounting.ledger.charges import Ledger, Release
from exemplar_store import ExemplarStore
from service.answering.mechanisms.adapter import MEASURED, Reader, once_adapter_of
from service.answering.once.making import ONE_RELEASE, NotMadeError
from service.answering.queries import described_spec
from service.answering.stages import Stages
from service.engines.errors import EngineUnavailableError
from service.records.signed import identity, read_task
from service.records.text_ledger import TextBudgetExhaustedError


@dataclass(eq=False, repr=False)
class FromOneRelease:
    """Answers from one-time releases.

    Attributes:
        ledger: ledger that stores the releases.
        store: exemplar store, which knows by which field questions are compared.
        stages: stages that answer private queries, too.
        grain_s: an answer leaves after a whole number of these seconds; 0 does not wait.
    """

    ledger: Ledger
    store: ExemplarStore
    stages: Stages
    grain_s: float
    _read: dict[tuple[int, str, str], tuple[Release, Reader]] = field(default_factory=dict, init=False)

    async def answer(self, signed: SignedTask, query: Mapping[str, str], asker: str) -> Release:
        """Answer a question from a task's one release.

        Args:
            signed: a task with ``release: once``.
            query: fields of the query, checked.
            asker: the id of the key that asks.

        Returns:
            The release, with the answer to the question in place of its own.

        Raises:
            NotMadeError: it was not made, or lost.
            service.engines.errors.EngineUnavailableError: the embedder or the engine does not answer.
            service.engines.errors.UnanswerableQueryError: the engine can never answer this query.
            TimeoutError: the engine took too long.
        """
        try:
            async with self.stages.free_call(self.grain_s):
                release, reader = await asyncio.to_thread(self._opened, signed)
                answer = await reader.answer(query, asker)
                measured = {MEASURED: release.answer[MEASURED]} if MEASURED in release.answer else {}
                return replace(release, answer={**answer, **measured})
        except (EngineUnavailableError, TextBudgetExhaustedError):
            raise
        except RuntimeError as error:
            raise EngineUnavailableError(f"the question cannot be embedded: {error}") from error

    def _opened(self, signed: SignedTask) -> tuple[Release, Reader]:
        which = identity(signed)
        if which in self._read:
            return self._read[which]
        stored = self.ledger.stored_release(signed, ONE_RELEASE)
        if stored is None:
            raise NotMadeError(
                f"{signed.address} answers from a one-time release, and it is not there: "
                f"`dpicl plan release {signed.address}` makes it, or reports why it cannot"
            )
        # The reader of the release names the asker, question by question.
        task, noise = read_task(signed)
        described = self.store.get(signed.knowledge_base)
        spec = described_spec(signed.address, task, described, asker="", latency_grain_s=self.grain_s)
        reader = once_adapter_of(task, noise).open(stored.answer, spec, self.stages.embedder, self.stages.show)
        self._read[which] = stored, reader
        return stored, reader
