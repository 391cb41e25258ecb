"""Answers from a release that was made once: they read nothing private and cost nothing, however many they are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from accounting.ledger.budgets import SignedTask
from accounting.ledger.charges import Ledger, Release
from exemplar_store import ExemplarStore
from service.embedding.embedder import TextEmbedder
from service.engines.protocol import EngineUnavailableError
from service.pipeline.making import ONE_RELEASE, NotMadeError
from service.pipeline.mechanisms.adapter import Reader, once_adapter_of
from service.pipeline.queries import task_spec
from service.records.signed import read_signed


@dataclass(frozen=True)
class _Read:
    """A release, what answers from it, and the field of a question that it compares."""

    release: Release
    reader: Reader
    field: str


class MadeOnce:
    """Reads releases that were made once.

    Args:
        ledger: where they are stored.
        store: knows by which field questions are compared.
        embedder: of questions and of public sentences.
    """

    def __init__(self, ledger: Ledger, store: ExemplarStore, embedder: TextEmbedder) -> None:
        self._ledger = ledger
        self._store = store
        self._embedder = embedder
        self._read: dict[tuple[int, str], _Read] = {}

    async def answer(self, signed: SignedTask, query: Mapping[str, str]) -> Release:
        """Answer a question from a task's one release.

        Args:
            signed: a task with ``release: once``.
            query: its fields, checked.

        Returns:
            The release, with the answer to the question in place of its own.

        Raises:
            NotMadeError: it was not made, or lost.
            service.engines.protocol.EngineUnavailableError: the embedder does not answer.
        """
        try:
            return await asyncio.to_thread(self._answer, signed, query)
        except RuntimeError as error:
            raise EngineUnavailableError(f"the question cannot be embedded: {error}") from error

    def _answer(self, signed: SignedTask, query: Mapping[str, str]) -> Release:
        which = signed.id, signed.plan.digest  # a restore may give a task's number to another plan's
        if which not in self._read:
            self._read[which] = self._open(signed)
        read = self._read[which]
        embedding = self._embedder.embed([query[read.field]])[0]
        return replace(read.release, answer=read.reader.answer(embedding))

    def _open(self, signed: SignedTask) -> _Read:
        stored = self._ledger.stored_release(signed, ONE_RELEASE)
        if stored is None:
            raise NotMadeError(
                f"{signed.address} answers from a release that is made once, and it is not there: "
                f"`dpicl plan release {signed.address}` makes it, or says why that cannot be"
            )
        field = self._store.get(signed.knowledge_base).embedded_field
        plan = read_signed(signed.document)
        task = plan.plan.tasks[signed.name]
        spec = task_spec(signed.address, task, signed.knowledge_base, field, response_field=None)
        reader = once_adapter_of(task, plan.noise[signed.name]).open(stored.answer, spec, self._embedder)
        return _Read(stored, reader, field)
