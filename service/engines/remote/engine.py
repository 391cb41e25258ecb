"""Any chat-completions endpoint: a vLLM server, OpenAI, Azure, Ollama. It sees exemplars in clear text.

A prompt is one user message. Labels are asked for in words and matched (:mod:`service.engines.remote.label_replies`),
so a slot votes for one label or abstains; texts are written with a seed that is a hash of the prompt. What a slot's
failure does is confined to that slot, and nothing about it is logged. Where the question alone, without exemplars, is
answered with nothing to use, the probe has failed: slots would be asked the same way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import numpy as np
import structlog
from typing_extensions import override

from service.engines.configs import OpenAiCompatibleConfig
from service.engines.errors import EngineBusyError, EngineUnavailableError, UnanswerableQueryError, UnusableReplyError
from service.engines.fan_out import Admission, all_in_time, candidate_texts, samples_wanted
from service.engines.prompts import CHARACTERS_PER_TOKEN, filled, fitting, own_words, render, render_keywords, rendered
from service.engines.protocol import Engine, EngineInfo
from service.engines.remote.chat_endpoint import ChatEndpoint
from service.engines.remote.completion import Failure, Reply, Unusable
from service.engines.remote.label_replies import label_schema, match_label, naming, read_label
from service.engines.remote.refusals import Reason, Refusal
from service.engines.task import Output, Prompt, SanitizedQuery, Sentence, TaskSpec, ZeroShot

if TYPE_CHECKING:
    from exemplar_store import Slot

log = structlog.get_logger()
T = TypeVar("T")

# A label needs no more tokens than it has bytes; these are for what comes around it.
_SPARE_TOKENS = 16
_SENT = {
    (False, "remote"): "Exemplars and questions are sent there in clear text.",
    (True, "remote"): "Exemplars are sent there in clear text, and sanitised questions.",
    (True, "local"): "Sanitised questions are sent there.",
}
"""Notices, by whether questions are sanitised, and where exemplars are shown."""
_ADVICE = {
    400: "the query is too long for the model, or the server does not take a parameter: see extra_body",
    401: "check DPICL_REMOTE_API_KEY",
    402: "check the credit of the account at the remote endpoint",
    403: "check DPICL_REMOTE_API_KEY",
    404: "check base_url and model",
}


_REMEDIES = {
    "max_tokens": "lower max_answer_tokens, or set extra_body: {max_tokens: null, max_completion_tokens: 1000}",
    "response_format": "set constrain_labels: false",
}
"""What to do about a parameter that a server does not take."""


class OpenAiCompatibleEngine(Engine):
    """The engine ``openai_compatible``.

    Args:
        config: address of the endpoint, and settings.

    Raises:
        service.engines.errors.EngineUnavailableError: ``DPICL_REMOTE_API_KEY`` cannot be a key.
    """

    def __init__(self, config: OpenAiCompatibleConfig):
        self._config = config
        self._endpoint = ChatEndpoint(config)
        self._admission = Admission(config.max_queued_prompts)
        host = urlsplit(config.base_url).hostname
        self._info = EngineInfo(
            name="openai_compatible",
            isolation="best effort: the service cannot know what the remote server's batches, caches and limits let "
            "one prompt do to another; the guarantee assumes that they let it do nothing",
            is_llm=True,
            notice=f"Answers come from the language model {config.model} at {host}, outside this deployment. "
            f"{_SENT[config.sanitize is not None, config.exemplars]}",
            remote=True,
        )

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        """See :meth:`service.engines.protocol.Engine.zero_shot`.

        Labels cost one prompt; texts one per candidate that is not a public answer. The first text is the likeliest
        one, the others are sampled at temperature 1.

        Raises:
            service.engines.errors.UnusableReplyError: no reply holds a label, or a text.
        """
        self._check_sanitized(query)
        prompt = render(_template(task), query)
        tokens = len(prompt) // CHARACTERS_PER_TOKEN
        with self._admission.probe(task):
            if task.kind == "classify":
                (label,) = await self._bounded(self._ask_label(task, prompt))
                if isinstance(label, Failure):
                    _check(task, label)
                    return ZeroShot(probabilities=np.full(len(task.labels), 1 / len(task.labels)), tokens=tokens)
                return ZeroShot(probabilities=_vote(task, label), tokens=tokens)
            write = partial(self._write, task, prompt)
            asked = [write(0.0), *(write(1.0, 1 + n) for n in range(samples_wanted(task)))]
            replies = await self._bounded(*asked)
            written = [reply for reply in replies if isinstance(reply, Reply)]
            texts = [reply.text for reply in written]
            for reply in replies:
                # One that holds nothing to use is one candidate less, as long as there is another.
                if isinstance(reply, Failure) and (reply.unusable is None or not texts):
                    _check(task, reply)
        likeliest, *sampled = texts or [""]
        cut = bool(written) and written[0].cut
        return ZeroShot(texts=candidate_texts(task, likeliest, sampled), tokens=tokens, cut=cut)

    async def contributions(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> Sequence[Output | None]:
        """See :meth:`service.engines.protocol.Engine.contributions`.

        An empty slot abstains without a prompt; so does one that is not answered in time, or not by one of the labels.
        """
        self._check_sanitized(query)
        if self._config.exemplars == "local":
            raise EngineUnavailableError("exemplars are not to leave")
        with self._admission.slots(task):
            work = [self._contribution(task, query, slot) for slot in slots]
            return await all_in_time(work, self._config.timeout_s)

    @override
    async def reconstruct(
        self, task: TaskSpec, query: Mapping[str, str], keywords: Sequence[str], ordered: bool, zero_shot: ZeroShot
    ) -> Sentence:
        self._check_sanitized(query)
        prompt = render_keywords(task.prompt, query, keywords, ordered)
        (reply,) = await self._bounded(self._write(task, prompt, 0.0))
        if isinstance(reply, Failure):
            raise EngineUnavailableError("the remote language model makes no sentence of these words")
        return Sentence(reply.text, "written by the remote language model from the released words alone")

    @override
    async def describe(self) -> EngineInfo:
        return self._info

    @override
    async def health(self) -> None:
        failure = await self._endpoint.check()
        if failure is not None:
            raise EngineUnavailableError(f"the remote endpoint {_in_words(failure)}")

    @override
    def close(self) -> None:
        self._endpoint.close()

    def _check_sanitized(self, query: Mapping[str, str]) -> None:
        """The last look before the wire, whatever calls."""
        if self._config.sanitize is not None and not isinstance(query, SanitizedQuery):
            raise EngineUnavailableError("the question is not sanitised, so it is not sent")

    async def _contribution(self, task: TaskSpec, query: Mapping[str, str], slot: Slot) -> Output | None:
        try:
            prompt = _slot_prompt(task, query, slot)
            if prompt is None:
                return None
            if task.kind == "classify":
                label = await self._ask_label(task, prompt)
                return None if isinstance(label, Failure) else _vote(task, label)
            reply = await self._write(task, prompt, self._config.temperature)
            return reply.text if isinstance(reply, Reply) else None
        except Exception:  # this slot's alone
            return None

    async def _ask_label(self, task: TaskSpec, prompt: str) -> int | Failure:
        """The number of the label that the model replies with."""
        constrained = self._config.constrain_labels
        reply = await self._endpoint.ask(
            prompt,
            temperature=0.0,
            max_tokens=max(len(json.dumps(label)) for label in task.labels) + _SPARE_TOKENS,
            response_format=label_schema(task.labels) if constrained else None,
        )
        if isinstance(reply, Failure):
            return reply
        label = read_label(reply.text, task.labels) if constrained else match_label(reply.text, task.labels, reply.cut)
        if label is not None:
            return label
        if reply.cut:
            return Failure(unusable=Unusable.CUT)
        return Failure(unusable=Unusable.OFF_SCHEMA if constrained else Unusable.NO_LABEL)

    async def _write(self, task: TaskSpec, prompt: str, temperature: float, number: int = 0) -> Reply | Failure:
        reply = await self._endpoint.ask(
            prompt, temperature=temperature, max_tokens=self._config.max_answer_tokens, number=number
        )
        if isinstance(reply, Failure):
            return reply
        text = own_words(task.prompt, reply.text)
        return replace(reply, text=text) if text else Failure(unusable=Unusable.EMPTY)

    async def _bounded(self, *asked: Coroutine[Any, Any, T | Failure]) -> list[T | Failure]:
        """Replies to prompts without exemplars; if they take too long, one failure."""
        try:
            async with asyncio.timeout(self._config.timeout_s):
                return await asyncio.gather(*asked)
        except TimeoutError:
            return [Failure()]


def _template(task: TaskSpec) -> Prompt:
    return naming(task.prompt, task.labels) if task.kind == "classify" else task.prompt


def _slot_prompt(task: TaskSpec, query: Mapping[str, str], slot: Slot) -> str | None:
    """A slot's prompt, with as many of its exemplars as fit; None if none does."""
    room = CHARACTERS_PER_TOKEN * task.slot_tokens
    lengths = [len(text) for text in rendered(task.prompt, slot)]
    if task.measuring:
        return filled(_template(task), query, slot, room) if sum(lengths) > room else None
    kept = fitting(slot, lengths, room) if room else slot
    return render(_template(task), query, kept) if kept else None


def _vote(task: TaskSpec, label: int) -> np.ndarray:
    """All of the probability on one label, float64 (L,)."""
    return np.eye(len(task.labels))[label]


def _check(task: TaskSpec, failure: Failure) -> None:
    """Refuse a question whose probe failed. The operator finds the reason and the advice in the log.

    It passes where the question is made up, and the model replies in order that it makes nothing of it.
    """
    unusable = failure.unusable
    if task.measuring and unusable in (Unusable.NO_LABEL, Unusable.EMPTY):
        return
    if failure.status == 429 and failure.refusal is None:
        raise EngineBusyError("the remote endpoint takes no more requests now")
    if unusable is not None:
        log.warning("remote_reply_unusable", task=task.name, reply=unusable.said, advice=unusable.advice)
    elif failure.refusal is not None:
        _refuse(task, failure.refusal, failure.status)
    else:
        log.warning("remote_endpoint_failed", status=failure.status, advice=_ADVICE.get(failure.status or 0))
    if unusable is Unusable.REFUSED:
        raise UnanswerableQueryError(f"the remote language model {unusable.said}: {unusable.advice}")
    if unusable is not None:
        raise UnusableReplyError(f"the remote language model {unusable.said}: {unusable.advice}")
    if failure.status in (400, 413, 422):
        raise UnanswerableQueryError(
            "the remote language model refuses this question, for a reason that it does not give: if it answers "
            "others, ask with a shorter text; if it answers none, an operator must correct the engine's settings"
        )
    raise EngineUnavailableError(f"the remote endpoint {_in_words(failure)}")


def _refuse(task: TaskSpec, refusal: Refusal, status: int | None) -> NoReturn:
    """Refuse a question for the server's reason, with what the caller or an operator can change."""
    name = refusal.parameter
    match refusal.reason:
        case Reason.LENGTH:
            said, advice = "finds this question too long", "ask with a shorter text"
        case Reason.CONTENT:
            said, advice = Unusable.REFUSED.said, Unusable.REFUSED.advice
        case Reason.MODEL:
            said, advice = "is not at the remote endpoint", "an operator must correct model, or base_url"
        case Reason.ACCOUNT:
            said = "is not open to this service's key or account, or has no credit left for it"
            advice = "an operator must check DPICL_REMOTE_API_KEY, and the account at the remote endpoint"
        case Reason.PARAMETER:
            said = (
                f"does not take the parameter {name} as it is sent"
                if name
                else "does not take requests as they are sent"
            )
            remedy = f"set extra_body: {{{name}: null}}, or another value there"
            others = "correct extra_body, base_url or the server's settings"
            advice = f"an operator must {_REMEDIES.get(name, remedy) if name else others}"
    log.warning(
        "remote_request_refused",
        task=task.name,
        status=status,
        reason=refusal.reason.name.lower(),
        parameter=name,
        advice=advice,
    )
    kind = UnanswerableQueryError if refusal.reason in (Reason.LENGTH, Reason.CONTENT) else UnusableReplyError
    raise kind(f"the remote language model {said}: {advice}")


def _in_words(failure: Failure) -> str:
    return f"answers with status {failure.status}" if failure.status else "does not answer"
