"""Asks a server about a text without showing it the text's sensitive spans.

What leaves: the redacted text, and one number drawn by randomised response. What stays: spans, their number, types and
weights, ε, and the ledger of what was drawn.
"""

import base64
import unicodedata
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import httpx

from sanitization.restore import mechanism
from sanitization.restore.bundle import Bundle, BundleError, Signature
from sanitization.restore.ledger import RestoreLedger, digest
from sanitization.restore.spans import Redacted, Spans, redact
from sanitization.restore.weights import weights_of

BUDGET = 40.0
_TIMEOUT_S = 180.0

Mode = Literal["text", "steer"]


class RestoreRefusedError(ValueError):
    """The server refused; the reason is in its problem details."""


@dataclass(frozen=True)
class Preview:
    """The text that a question would send, and its cost.

    Attributes:
        redacted: the text that would leave.
        types: the type of each span that has one, by its phrase or its meaning. Stays here.
        unknown: spans of no type that the bundle knows: taken out, and not restored.
        profiles: k, number of profiles.
        truth: the probability that the true profile leaves.
        epsilon: ε that a new question costs.
        cost: ε that this question costs: 0 if it was asked before.
        spent: ε spent by all questions in the ledger.
        budget: ε that they may cost together.
    """

    redacted: str
    types: dict[str, str]
    unknown: tuple[str, ...]
    profiles: int
    truth: float
    epsilon: float
    cost: float
    spent: float
    budget: float


@dataclass(frozen=True)
class ReceivedAnswer:
    """An answer as it was received, and what was sent for it.

    Attributes:
        text: the answer.
        redacted: the text that left.
        profile: the number that left with it.
    """

    text: str
    redacted: str
    profile: int


class RestoreClient(AbstractContextManager["RestoreClient"]):
    """A client of one bundle.

    Args:
        url: URL of the service.
        key: API key of an analyst.
        bundle: ``name@version``.
        epsilon: ε of each new question; above 0, at most 20. A warning is given above 8.
        ledger: path of a :class:`sanitization.restore.ledger.RestoreLedger`.
        budget: ε that all questions in the ledger may cost together.
        mode: ``text`` puts a profile's spans back as text, ``steer`` steers the model.
        free_text: whether the model writes an answer, instead of choosing one of the bundle's options.
        http: HTTP client to use instead of one for ``url`` and ``key``, which uses no proxy.

    Raises:
        ValueError: ε is out of range.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        bundle: str,
        epsilon: float,
        ledger: str | Path,
        budget: float = BUDGET,
        mode: Mode = "text",
        free_text: bool = False,
        http: httpx.Client | None = None,
    ):
        mechanism.check_epsilon(epsilon)
        self._address, self._epsilon, self._budget = bundle, epsilon, budget
        self._mode, self._free_text = mode, free_text
        headers = {"Authorization": f"Bearer {key}"}
        # No proxy that the environment names: the text and its number go to the service alone.
        self._http = http or httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S, trust_env=False)
        self._ledger = RestoreLedger(Path(ledger))

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    @cached_property
    def bundle(self) -> Bundle:
        """The bundle, fetched once and checked.

        Raises:
            BundleError: it is damaged, or not signed by its publisher.
            sanitization.restore.ledger.ChangedBundleError: it is another one than at first use.
            RefusedError: the server does not have it.
        """
        got = _checked(self._http.get(f"/v1/restore/bundles/{self._address}"))
        try:
            signature = Signature(publisher=got["publisher"], signature=got["signature"])
            bundle = Bundle(got["manifest"].encode(), base64.b64decode(got["book"], validate=True), signature)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise error if isinstance(error, BundleError) else BundleError(f"no bundle: {error!r}") from error
        if bundle.address != self._address:
            raise BundleError(f"the server sent {bundle.address} for {self._address}")
        self._ledger.pin(self._address, bundle.sha256, signature.publisher)
        return bundle

    def find(self, text: str) -> list[str]:
        """Strings in a text that the bundle has a type for, to be taken out as spans. Sends nothing about the text.

        It misses what the bundle does not know: look at the :meth:`preview`.

        Raises:
            sanitization.restore.encoder.EncoderMissingError: the bundle compares meanings, and the model that does is
                not installed: mark the spans yourself.
        """
        return self.bundle.span_types.find(unicodedata.normalize("NFC", text))

    def preview(self, text: str, spans: Spans) -> Preview:
        """The text that a question would send, and its cost. Sends nothing about the text, draws nothing.

        Raises:
            SpanNotFoundError: a span is not in the text.
            SpanLeftInTextError: a span occurs once more.
        """
        redacted = self._redacted(text, spans)
        types = dict(zip(redacted.spans, self.bundle.span_types.of(redacted.spans), strict=True))
        question = self._question(redacted)
        return Preview(
            redacted=redacted.text,
            types={span: name for span, name in types.items() if name is not None},
            unknown=tuple(span for span, name in types.items() if name is None),
            profiles=self.bundle.book.k,
            truth=mechanism.truth(self.bundle.book.k, self._epsilon),
            epsilon=self._epsilon,
            cost=0.0 if self._ledger.stored(question) is not None else self._epsilon,
            spent=self._ledger.spent(),
            budget=self._budget,
        )

    def ask(self, text: str, spans: Spans) -> ReceivedAnswer:
        """Ask. The draw is on the disk before anything is sent; the same question always sends the same.

        Args:
            text: text of the question, with its spans.
            spans: offsets, strings, or a detector; none at all still costs ε, and sends a random number.

        Raises:
            SpanNotFoundError: a span is not in the text.
            SpanLeftInTextError: a span occurs once more.
            BudgetExhaustedError: a new question would cost more than is left.
            RefusedError: the server refused. What was drawn stays: asking again costs nothing more.
        """
        redacted = self._redacted(text, spans)
        book = self.bundle.book
        types = self.bundle.span_types.of(redacted.spans)
        profile = book.nearest(weights_of(redacted, types, self.bundle.manifest.weights))
        drawn = self._ledger.draw(
            self._question(redacted),
            self.bundle.sha256,
            self._epsilon,
            self._budget,
            lambda: mechanism.draw(profile, book.k, self._epsilon),
        )
        answer = _checked(self._http.post("/v1/restore/answers", json=self._body(redacted.text, drawn)))
        return ReceivedAnswer(str(answer["answer"]), redacted.text, drawn)

    def _body(self, redacted: str, drawn: int) -> dict[str, Any]:
        """All that leaves: a function of the redacted text and the number drawn."""
        return {
            "bundle": self._address,
            "bundle_sha256": self.bundle.sha256,
            "query": redacted,
            "profile": drawn,
            "mode": self._mode,
            "free_text": self._free_text,
        }

    def _redacted(self, text: str, spans: Spans) -> Redacted:
        manifest = self.bundle.manifest
        redacted = redact(text, spans, manifest.placeholder)
        if len(redacted.text) > manifest.longest_text:
            raise ValueError(f"the redacted text has {len(redacted.text)} characters, above {manifest.longest_text}")
        return redacted

    def _question(self, redacted: Redacted) -> str:
        return digest(self.bundle.sha256, self._epsilon, redacted.text, redacted.spans)


def _checked(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict) or response.is_redirect:
        raise RestoreRefusedError(
            f"{response.url} answered {response.status_code}, and not as this service does: is the URL right?"
        )
    if response.is_error:
        raise RestoreRefusedError(f"{body.get('title', 'refused')}: {body.get('detail', '')}")
    return body
