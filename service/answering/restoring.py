"""Answers to redacted texts: a profile's spans put back as text, or a model steered (:mod:`sanitization.restore`).

An answer is one of the bundle's options, or a text that the model writes. Either is post-processing of the redacted
text and the number drawn.

Nothing here is private: all that arrives has left its owner already, and no knowledge base is read. What is made of a
request depends on the request and the bundle alone; a profile beyond the bundle's is refused, not repaired.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from sanitization.restore import bundle as bundles
from sanitization.restore.bundle import Bundle, BundleError
from sanitization.restore.spans import put_back
from service.answering.answering import BusyError, refusal
from service.answering.queries import InvalidQueryError
from service.answering.turns import NoTurns, Turns, free_call
from service.engines.errors import EngineUnavailableError, UnanswerableQueryError, UnusableReplyError
from service.engines.protocol import Engine, Steerer
from service.engines.task import Prompt, TaskSpec
from service.problem_kinds import ProblemKind, RefusalError

Mode = Literal["text", "steer"]


class UnknownBundleError(RefusalError, LookupError):
    """No such bundle is served here."""

    kind = ProblemKind.UNKNOWN_BUNDLE


class BundleDiffersError(RefusalError, ValueError):
    """The caller has another bundle than this service under the same name."""

    kind = ProblemKind.BUNDLE_DIFFERS


class SteeringNotServedError(RefusalError, ValueError):
    """No engine here can be steered."""

    kind = ProblemKind.STEERING_NOT_SERVED


@dataclass(frozen=True)
class RedactedQuery:
    """A redacted text, and the profile that its owner's randomised response drew.

    Attributes:
        bundle: the address of the bundle it was redacted with.
        bundle_sha256: SHA-256 of that bundle.
        query: the text.
        profile: number of the profile in the bundle.
        mode: use of the profile, as text or by steering.
        free_text: whether the model is to write an answer, instead of choosing an option.
    """

    bundle: str
    bundle_sha256: str
    query: str
    profile: int
    mode: Mode = "text"
    free_text: bool = False


@dataclass(eq=False, repr=False)
class Restoring:
    """Answers with the bundles in a folder; new ones are served as they are published.

    Attributes:
        root: folder of :func:`sanitization.restore.bundle.publish`; None serves no bundles.
        engine: engine that answers.
        steerer: answers instead of the engine where it has the bundle.
        timeout_s: limit for an answer.
        max_in_flight: answers at once; more are refused.
        grain_s: latency grain: answers leave after a whole number of these, as private questions are answered beside
            them; 0 does not wait.
        turns: turns to ask an engine.
    """

    root: Path | None
    engine: Engine
    steerer: Steerer | None = None
    timeout_s: float = field(kw_only=True)
    max_in_flight: int = field(kw_only=True)
    grain_s: float = field(default=0.0, kw_only=True)
    turns: Turns = field(default_factory=NoTurns, kw_only=True)
    _known: dict[str, Bundle] = field(default_factory=dict, init=False)
    _in_flight: int = field(default=0, init=False)

    @property
    def wanted(self) -> bool:
        """Whether the settings name a folder of bundles."""
        return self.root is not None

    def addresses(self) -> list[str]:
        """All bundles, by name and version."""
        return bundles.addresses(self.root) if self.root is not None else []

    def bundle(self, address: str) -> Bundle:
        """A bundle, read and checked at its first use.

        Raises:
            UnknownBundleError: there is none, or it is damaged.
        """
        if address not in self._known:
            try:
                if self.root is None:
                    raise BundleError(f"no bundle {address}")
                bundle = bundles.load(bundles.folder_of(self.root, address))
                if bundle.address != address:
                    raise BundleError(f"no bundle {address}: its folder holds {bundle.address}")
            except BundleError as error:
                raise UnknownBundleError(f"{address} is not a bundle of this service") from error
            self._known[address] = bundle
        return self._known[address]

    async def answer(self, asked: RedactedQuery, key_id: str) -> str:
        """The option that the model finds most likely, or the text that it writes.

        Args:
            asked: the request as it arrived.
            key_id: id of the caller's key; prompts of different keys share no cache.

        Raises:
            UnknownBundleError: no such bundle.
            BundleDiffersError: it is another one than the client has.
            SteeringNotServedError: no engine here can be steered.
            service.answering.queries.InvalidQueryError: the text or the profile is out of range, or free text is asked
                of an engine that does not write.
            service.answering.answering.BusyError: too many answers at once.
            service.engines.errors.EngineUnavailableError: the engine does not answer.
        """
        bundle = await asyncio.to_thread(self.bundle, asked.bundle)
        _check(asked, bundle)
        if self._in_flight >= self.max_in_flight:
            raise BusyError(f"{self.max_in_flight} texts are being answered")
        self._in_flight += 1
        try:
            return await self._ask(bundle, asked, key_id)
        finally:
            self._in_flight -= 1

    async def _ask(self, bundle: Bundle, asked: RedactedQuery, key_id: str) -> str:
        spec = task_spec(bundle, key_id, free_text=asked.free_text)
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._answer(bundle, asked, spec)
        except (EngineUnavailableError, UnanswerableQueryError, TimeoutError) as error:
            raise refusal(error)[1] from error

    async def _answer(self, bundle: Bundle, asked: RedactedQuery, spec: TaskSpec) -> str:
        steerer = self.steerer
        if steerer is not None and bundle.sha256 not in await steerer.bundles():
            steerer = None
        if steerer is None and asked.mode == "steer":
            raise SteeringNotServedError("no engine here is steered by this bundle: ask with mode text")
        if steerer is None and asked.free_text and not (await self.engine.describe()).is_llm:
            raise InvalidQueryError("the engine here does not write free text: ask for one of the options")
        async with free_call(self.turns, self.grain_s, self.timeout_s):
            if steerer is None:
                said = await self.engine.zero_shot(spec, {"text": _filled(bundle, asked)})
                return _written("".join(said.texts[:1])) if asked.free_text else _chosen(spec, said.probabilities)
            text, profile = _filled(bundle, asked), None
            if asked.mode == "steer":
                # Where nothing was taken out there is nothing to restore: the number is chance alone.
                text, profile = asked.query, asked.profile if bundle.manifest.placeholder in asked.query else 0
            if asked.free_text:
                return _written(await steerer.restore_text(spec, text, bundle.sha256, profile))
            return _chosen(spec, await steerer.restore(spec, text, bundle.sha256, profile))


def _chosen(spec: TaskSpec, probabilities: np.ndarray | None) -> str:
    if probabilities is None or probabilities.shape != (len(spec.labels),):
        raise EngineUnavailableError("the engine answers something else than a label")
    return spec.labels[int(probabilities.argmax())]


def _written(text: str) -> str:
    if not text:
        raise UnusableReplyError("the model wrote nothing")
    return text


def _filled(bundle: Bundle, asked: RedactedQuery) -> str:
    return put_back(asked.query, bundle.book.medoids[asked.profile], bundle.manifest.placeholder)


def task_spec(bundle: Bundle, key_id: str, *, free_text: bool = False) -> TaskSpec:
    """A bundle as engines see it."""
    manifest = bundle.manifest
    prompt = (manifest.text_prompt or manifest.prompt) if free_text else manifest.prompt
    return TaskSpec(
        name=bundle.address,
        labels=() if free_text else tuple(manifest.options),
        kind="generate" if free_text else "classify",
        candidates=int(free_text),
        prompt=Prompt(instruction="", exemplar=f"{prompt} {{label}}", query=prompt),
        # No knowledge base can have this name. Engines salt their caches by it.
        knowledge_base=f"bundle {bundle.sha256} asked by {key_id}",
        asker=key_id,
    )


def _check(asked: RedactedQuery, bundle: Bundle) -> None:
    if asked.bundle_sha256 != bundle.sha256:
        raise BundleDiffersError(f"{asked.bundle} is another bundle here than where the text was redacted")
    longest = bundle.manifest.longest_text
    if len(asked.query) > longest:
        raise InvalidQueryError(f"the text has {len(asked.query)} characters, and may have {longest}")
    if not 0 <= asked.profile < bundle.book.k:
        raise InvalidQueryError(f"profile {asked.profile} is not one of the {bundle.book.k} of {asked.bundle}")
