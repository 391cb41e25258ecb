"""A remote engine that never sees a question as it was asked.

Of each question there is one sanitised text, drawn when the public probe begins, stored, and only then sent: the same
bytes for zero-shot answers, candidates, slots and retries. The same question of the same key has the same text for
ever. Whatever fails on the way, nothing is sent; and the remote engine itself takes no other queries than these.

Private exemplars may stay here, too: a local engine then answers slots, from the question as it was asked.

A question without a caller (made up, or an exemplar of a knowledge base that lets its own leave) is sanitised as those
of callers are, so that what is measured is what they get; but nothing of it is stored or charged.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from typing_extensions import override

from sanitization.text import TextError, TextSanitizer
from sanitization.whole import NAME as WHOLE
from sanitization.whole import kept
from service.engines.configs import SanitizeConfig
from service.engines.embedding.sanitizers import Sanitizers
from service.engines.errors import EngineUnavailableError, UnanswerableQueryError
from service.engines.passing_on import Method, PassesOn
from service.engines.private_threads import privately
from service.engines.protocol import Engine, EngineInfo
from service.engines.task import SanitizedQuery, Sentence, TaskSpec, ZeroShot
from service.records.text_ledger import TextBudgetExhaustedError, TextLedger


class _Seen(NamedTuple):
    """A question and the answer to it without exemplars, as one of the two engines has them."""

    query: Mapping[str, str]
    zero_shot: ZeroShot


class _Context(NamedTuple):
    """The state that the probe hands on: what the remote engine has seen, and the engine that answers slots."""

    remote: _Seen
    slots: _Seen


@dataclass(eq=False, repr=False)
class SanitizingEngine(PassesOn):
    """An engine, behind its own protocol.

    Attributes:
        remote: engine that sees sanitised questions.
        config: settings of the sanitiser.
        sanitizers: opens what does it.
        texts: remembers them, and what they cost those who ask.
        local: answers slots; None: the remote engine does, and sees exemplars in clear text.
    """

    remote: Engine
    config: SanitizeConfig
    sanitizers: Sanitizers
    texts: TextLedger
    local: Engine | None = None

    @property
    def slots(self) -> Engine:
        """The engine that answers slots."""
        return self.local or self.remote

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        """See :meth:`service.engines.protocol.Engine.zero_shot`.

        Raises:
            service.records.text_ledger.TextBudgetExhaustedError: the texts of who asks would cost too much.
        """
        work = partial(self._sanitize, task, query)
        sanitized = await (asyncio.to_thread(work) if task.asker else privately(work))
        here = _Seen(query, await self.local.zero_shot(task, query)) if self.local else None
        remote = _Seen(sanitized, await self.remote.zero_shot(task, sanitized))
        slots = here or remote
        its = slots.zero_shot
        return replace(
            remote.zero_shot,
            embedded=its.embedded,
            repeats=its.repeats,
            question=here and here.zero_shot.question,  # the other engine has seen another question
            context=_Context(remote, slots),
        )

    async def pass_on(self, method: Method, arguments: Mapping[str, Any]) -> Any:
        """Ask what answers slots, about the question as it has seen it."""
        if "query" in arguments:
            seen: _Seen = arguments["zero_shot"].context.slots
            arguments = {**arguments, "query": seen.query, "zero_shot": seen.zero_shot}
        return await method.ask(self.slots, arguments)

    async def reconstruct(
        self, task: TaskSpec, query: Mapping[str, str], keywords: Sequence[str], ordered: bool, zero_shot: ZeroShot
    ) -> Sentence:
        """See :meth:`service.engines.protocol.Engine.reconstruct`. The remote engine does it."""
        seen: _Seen = zero_shot.context.remote
        return await self.remote.reconstruct(task, seen.query, keywords, ordered, seen.zero_shot)

    @override
    async def describe(self) -> EngineInfo:
        remote = await self.remote.describe()
        notice = f"{remote.notice} Before that {_replaced(self.config)} That protects who asks, not the exemplars."
        if self.local is None:
            return replace(remote, notice=notice)
        local = await self.local.describe()
        return replace(
            remote,
            notice=f"{notice} Slots are answered within this deployment by {local.name}: exemplars do not leave it.",
            isolation=local.isolation,
            remote=local.remote,
            reads_embeddings=local.reads_embeddings,
            writes_together=local.writes_together,
            writing_slots=local.writing_slots,
            cache_tokens=local.cache_tokens,
            model_tokens=local.model_tokens,
        )

    async def health(self) -> None:
        """See :meth:`service.engines.protocol.Engine.health`. The sanitiser is opened before the first question."""
        await asyncio.to_thread(self._open)
        await self.remote.health()
        if self.local:
            await self.local.health()

    @override
    def close(self) -> None:
        self.remote.close()
        if self.local:
            self.local.close()

    def _open(self) -> TextSanitizer:
        try:
            return self.sanitizers.open(self.config.mechanism, self.config.epsilon, self.config.keep)
        except Exception as error:
            raise EngineUnavailableError(f"questions cannot be sanitised: {error}") from error

    def _sanitize(self, task: TaskSpec, query: Mapping[str, str]) -> SanitizedQuery:
        sanitizer, texts = self._open(), list(query.values())
        try:
            if task.asker:
                done, _ = self.texts.sanitize(sanitizer, texts, owner=task.asker, conversation=task.name)
            else:
                done = sanitizer.sanitize_all(texts)
        except TextError as error:
            raise UnanswerableQueryError(str(error)) from error
        except TextBudgetExhaustedError:
            raise
        except Exception as error:
            raise EngineUnavailableError("the question cannot be sanitised, so it is not sent") from error
        return SanitizedQuery(zip(query, (drawn.text for drawn in done), strict=True))


def _replaced(config: SanitizeConfig) -> str:
    """The treatment of a question, for people."""
    if config.mechanism == WHOLE:
        return (
            f"each field of a question becomes one of the operator's public texts, at random by {WHOLE}: ε is at most "
            f"{config.epsilon:g} for the field as a whole."
        )
    names = ", ".join(sorted(kept(config.mechanism, config.keep))) or "nothing"
    return (
        f"the words of questions are replaced at random by {config.mechanism}: ε is at most {config.epsilon:g} for "
        f"each word; the sum over all words for a question. Kept as they are: {names}."
    )
