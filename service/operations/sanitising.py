"""Texts sanitised, so that they may leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, StringConstraints, field_validator, model_validator

from sanitization.mechanisms import CORRECTED, RESPONSES, MechanismName
from sanitization.response import LARGEST_EPSILON
from sanitization.text import TextSanitizer
from sanitization.tokens import Keepable
from sanitization.whole import NAME as WHOLE
from sanitization.whole import WholeName, kept
from service.answering.answering import Answering
from service.engines.embedding.sanitizers import EpsilonNotAttainableError, Sanitizers
from service.operations.command import command
from service.operations.fields import ABSENT, Printable, inputs
from service.operations.roles import Actor, Right
from service.records.text_ledger import TextLedger

T = TypeVar("T")

MOST_TEXTS = 256
OFFERED = (*RESPONSES, *CORRECTED, WHOLE)
STEP = 0.5
"""Unit of ε: callers' ε is rounded down to a multiple of it, which limits the number of tables that they can cause."""
_EXAMPLE: dict[str, Any] = {"texts": ["My landlord in Boston keeps the deposit of 1,250 dollars."], "epsilon": 8}


class TextsToSanitize(BaseModel):
    """Texts to sanitise, with options."""

    model_config = inputs(**_EXAMPLE)

    texts: list[str] = Field(min_length=1, max_length=MOST_TEXTS)
    mechanism: Literal[MechanismName, WholeName] = Field(
        default="medoid_rr",
        description="`whole_rr` replaces each text by one of the operator's public texts. A published mechanism is "
        "corrected, so that its ε is finite and audited.",
    )
    epsilon: float = Field(
        default=8.0,
        gt=0,
        description=f"Largest ε of a word, or with `whole_rr` of a text; in steps of {STEP:g}.",
    )
    keep: list[Keepable] | None = Field(
        default=None,
        description="Tokens released unchanged; by default stopwords and punctuation, and with `whole_rr` none.",
    )
    conversation: Annotated[Printable, StringConstraints(max_length=200)] | None = Field(
        default=None, description="Name under which the cost is counted, too."
    )

    @field_validator("mechanism", mode="before")
    @classmethod
    def _is_private(cls, name: Any) -> Any:
        if isinstance(name, str) and name not in OFFERED:
            raise ValueError(
                f"one of {', '.join(OFFERED)} expected: those whose true ε is at most the one asked for. Mechanisms as "
                "published, with an infinite or unproven ε, are for `dpicl sanitize audit` and `attack` alone"
            )
        return name

    @model_validator(mode="after")
    def _keeps_what_it_can(self) -> TextsToSanitize:
        kept(self.mechanism, self.keep)
        return self


class SanitizedView(BaseModel):
    """A text that may leave."""

    text: str
    tokens: int = Field(description="Number of tokens; with `whole_rr` one.")
    epsilon_token: float
    epsilon_text: float = Field(description="The sum of ε over its words. Kept tokens and numbers cost nothing.")


class TextLedgerView(BaseModel):
    """Cost of your key's texts. Texts sanitised before are free."""

    charged: float = Field(description="ε of those of these texts that are new.")
    epsilon: float = Field(description="ε of all your key's texts so far.")
    conversation_epsilon: float | None = Field(**ABSENT, description="ε of this conversation's texts so far.")
    cap: float | None = Field(description="Largest `epsilon` allowed; null: any.")


class SanitizedTexts(BaseModel):
    """Texts that may leave, with their guarantee. The changed words are not marked."""

    items: list[SanitizedView]
    guarantee: str
    released_as_public: list[str]
    artifact: dict[str, Any] = Field(description="All that the outputs' law depends on, by SHA-256; its audit.")
    ledger: TextLedgerView


@command(Right.ASK)
async def sanitize(
    actor: Actor, answering: Answering, sanitizers: Sanitizers, texts: TextLedger, wanted: TextsToSanitize
) -> SanitizedTexts:
    """Sanitise texts, all or none: the same text of the same actor always becomes the same, and is charged once.

    Raises:
        service.operations.roles.OutOfScopeError: the actor may only ask some tasks.
        service.answering.answering.BusyError: a word must be embedded, and too many questions are being answered.
    """
    actor.require_no_scope("sanitises and restores no other texts")
    if not STEP <= wanted.epsilon <= LARGEST_EPSILON:
        raise EpsilonNotAttainableError(wanted.epsilon, STEP)
    epsilon = STEP * (wanted.epsilon // STEP)
    sanitizer = await asyncio.to_thread(sanitizers.open, wanted.mechanism, epsilon, wanted.keep)
    return await beside_answers(
        answering, sanitizer, wanted.texts, partial(_sanitized, actor, sanitizer, texts, wanted)
    )


async def beside_answers(
    answering: Answering, sanitizer: TextSanitizer, texts: Sequence[str], work: Callable[[], T]
) -> T:
    """Result of work on these texts, done beside the event loop; in a turn if it takes embeddings.

    Raises:
        service.answering.answering.BusyError: it takes embeddings, and too many questions are being answered.
    """
    if not await asyncio.to_thread(sanitizer.embeds, texts):
        return await asyncio.to_thread(work)
    async with answering.free_call():
        return await asyncio.to_thread(work)


def _sanitized(actor: Actor, sanitizer: TextSanitizer, texts: TextLedger, wanted: TextsToSanitize) -> SanitizedTexts:
    done, cost = texts.sanitize(sanitizer, wanted.texts, owner=actor.id, conversation=wanted.conversation or "")
    conversation = None if wanted.conversation is None else texts.cost(actor.id, wanted.conversation).epsilon
    return SanitizedTexts(
        items=[SanitizedView(**sanitised.document()) for sanitised in done],
        **sanitizer.document(),
        ledger=TextLedgerView(
            charged=cost.epsilon, epsilon=texts.cost(actor.id).epsilon, conversation_epsilon=conversation, cap=texts.cap
        ),
    )
