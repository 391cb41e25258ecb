"""Texts in, texts that may leave out. The texts come in clear: they have to trust this service, and the way to it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from sanitization.response import LARGEST_EPSILON
from sanitization.tokens import Keepable
from sanitization.whole import WholeName, kept
from service.api.dependencies import AnalystKey, TheServices
from service.embedding.sanitizers import EpsilonNotAttainableError

router = APIRouter(prefix="/v1", tags=["sanitising"])

MOST_TEXTS = 256
STEP = 0.5
"""Callers' ε is rounded down to a multiple of it, or each caller could have tables made without end."""
_EXAMPLE: dict[str, Any] = {"texts": ["My landlord in Boston keeps the deposit of 1,250 dollars."], "epsilon": 8}


class TextsToSanitize(BaseModel):
    """What to sanitise, and how."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [_EXAMPLE]})

    texts: list[str] = Field(min_length=1, max_length=MOST_TEXTS)
    mechanism: Literal["medoid_rr", "nearest_rr", WholeName] = Field(
        default="medoid_rr", description="`whole_rr` makes of each text one of the operator's public texts."
    )
    epsilon: float = Field(
        default=8.0,
        gt=0,
        description=f"The most that ε of a word may be, or with `whole_rr` of a text; in steps of {STEP:g}.",
    )
    keep: list[Keepable] | None = Field(
        default=None,
        description="What is released as it is: unless given, stopwords and punctuation, and with `whole_rr` nothing.",
    )
    conversation: Annotated[str, StringConstraints(pattern=r"^\P{C}{1,200}$")] | None = Field(
        default=None, description="A name under which the cost is counted, too."
    )

    @model_validator(mode="after")
    def _keeps_what_it_can(self) -> TextsToSanitize:
        kept(self.mechanism, self.keep)
        return self


class SanitizedView(BaseModel):
    """A text that may leave."""

    text: str
    tokens: int = Field(description="With `whole_rr` one.")
    epsilon_token: float
    epsilon_text: float = Field(description="The sum of ε over its words. Kept tokens and numbers cost nothing.")


class TextLedgerView(BaseModel):
    """What your key's texts cost. Texts sanitised before are free."""

    charged: float = Field(description="ε of those of these texts that are new.")
    epsilon: float = Field(description="ε of all your key's texts so far.")
    conversation_epsilon: float | None = Field(
        default=None, exclude_if=lambda value: value is None, description="ε of this conversation's texts so far."
    )
    cap: float | None = Field(description="The most that `epsilon` may be.")


class SanitizedTexts(BaseModel):
    """Texts that may leave, with what is promised. Nothing says which words were changed."""

    items: list[SanitizedView]
    guarantee: str
    released_as_public: list[str]
    artifact: dict[str, Any] = Field(description="All that the law of the outputs depends on, by SHA-256; its audit.")
    ledger: TextLedgerView


@router.post(
    "/sanitize",
    summary="Sanitise texts",
    responses={
        403: {"description": "Not an analyst's key; or the texts would cost more than your key's texts may."},
        422: {"description": "No sanitiser has such an ε, or something else is wrong. Nothing was charged."},
        503: {"description": "The service has no sanitiser, or not yet."},
    },
)
async def sanitize(body: TextsToSanitize, services: TheServices, key: AnalystKey) -> SanitizedTexts:
    """Replace the words of texts at random, before they leave for a model that you do not trust.

    The same text of the same key always becomes the same, and is charged once. All texts are sanitised or none.
    """
    return await asyncio.to_thread(_sanitize, body, services, key.id)


def _sanitize(body: TextsToSanitize, services: TheServices, owner: str) -> SanitizedTexts:
    if not STEP <= body.epsilon <= LARGEST_EPSILON:
        raise EpsilonNotAttainableError(body.epsilon, STEP)
    sanitizer = services.sanitizers.open(body.mechanism, STEP * (body.epsilon // STEP), body.keep)
    texts = services.records.texts
    done, cost = texts.sanitize(sanitizer, body.texts, owner=owner, conversation=body.conversation or "")
    conversation = None if body.conversation is None else texts.cost(owner, body.conversation).epsilon
    return SanitizedTexts(
        items=[SanitizedView(**one.document()) for one in done],
        **sanitizer.document(),
        ledger=TextLedgerView(
            charged=cost.epsilon, epsilon=texts.cost(owner).epsilon, conversation_epsilon=conversation, cap=texts.cap
        ),
    )
