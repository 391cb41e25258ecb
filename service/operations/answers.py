"""Questions answered under a task's budget; and what left the service, which is public and free to read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pydantic import BaseModel, Field

from accounting.ledger.budgets import address, parsed
from accounting.ledger.charges import Release
from accounting.ledger.entries import parts
from accounting.ledger.history import History
from service.answering.answering import Answer
from service.operations.command import command
from service.operations.fields import ABSENT
from service.operations.roles import Actor, Right
from service.operations.services import Services
from service.records.engine_record import EngineView
from service.records.records import Records

RELEASE_ID = "8b7e8f43-9a3c-4f0e-9d0b-7a7b4f1f3c55"
"""An example of one."""


class ReleaseView(BaseModel):
    """An answer that left."""

    id: str = Field(examples=[RELEASE_ID])
    task: str = Field(examples=["support.queue@1"])
    topic: str | None = Field(
        **ABSENT, description="Where the task has topics: the one that the answer was drawn from and charged to."
    )
    label: str | None = Field(**ABSENT, examples=["Billing"], description="Of a task that classifies.")
    score: float | None = Field(
        **ABSENT,
        examples=[0.8712],
        description="How far the noisy release and public things speak for the label, from 0 to 1. It is not the "
        "label's probability of being right: the plan was fitted to no labelled rows. Absent where that is known, and "
        "where votes are only counted.",
    )
    scores: dict[str, float] | None = Field(**ABSENT, description="The same of every label; their sum is 1.")
    probability: float | None = Field(
        **ABSENT,
        examples=[0.8712],
        description="In place of `score`: of the label, to be right. The plan was fitted to labelled public rows.",
    )
    probabilities: dict[str, float] | None = Field(**ABSENT, description="The same of every label.")
    zero_shot: str | None = Field(
        **ABSENT,
        examples=["Technical"],
        description="The label, or the text, that is likeliest without exemplars: public, and free.",
    )
    text: str | None = Field(**ABSENT, description="Of a task that generates text.")
    keywords: list[str] | None = Field(
        **ABSENT,
        description="The words the text is made of, where the mechanism releases words: the most frequent first if "
        "they are ranked, else in alphabetical order.",
    )
    fallback: bool | None = Field(
        **ABSENT,
        description="Of a mechanism that may fall back: true if it did, so the text was made without exemplars.",
    )
    method: str | None = Field(**ABSENT, description="How the text came about.")
    made_once: str | None = Field(
        **ABSENT, examples=["prototypes"], description="The mechanism of a release that was made once, at signing."
    )
    texts: dict[str, list[str]] | None = Field(
        **ABSENT, description="Of a release that was made once: the texts that were written, by their topic."
    )
    created_at: datetime

    @classmethod
    def of(cls, release: Release) -> ReleaseView:
        """A release as it may be shown."""
        knowledge_base, named, version = parsed(release.task)
        name, topic = parts(named)
        task = address(knowledge_base, name, version or 0)
        return ReleaseView(id=release.id, task=task, topic=topic, created_at=release.created_at, **release.answer)


class Cost(BaseModel):
    """What an answer cost and what is left.

    Attributes:
        charged: answers charged by this request: 1, or 0 for a repeat, and for whatever comes from a release that is
            made once.
        answers_left: how many answers the task may still give to everybody together, on the question's topic if it has
            topics; null if their number is not limited.
        source: the mechanism of the release that the answer comes from, if that is made once.
    """

    charged: int
    answers_left: int | None
    source: str | None = Field(**ABSENT, examples=["prototypes"])


class AnswerView(ReleaseView):
    """An answer with its cost."""

    abstained: bool | None = Field(
        **ABSENT,
        description="Where a threshold is set: whether the label's score is lower than that, and the label left out.",
    )
    realigned: str | None = Field(
        **ABSENT,
        description="`text`, fitted to your question by a model beside the service, where the remote one saw a "
        "sanitised question. It is for you alone: it may hold words of your question, and is no part of the release.",
    )
    cost: Cost
    engine: EngineView


@command(Right.ASK)
async def ask(
    actor: Actor,
    services: Services,
    task: str,
    query: str | Mapping[str, str],
    *,
    idempotency_key: str | None = None,
    abstain_below: float | None = None,
) -> AnswerView:
    """See :meth:`service.answering.answering.Answering.answer`.

    Raises:
        service.operations.roles.OutOfScopeError: the actor may not ask this task.
    """
    actor.require_task(task)
    answer = await services.answering.answer(
        task, query, key_id=actor.id, idempotency_key=idempotency_key, abstain_below=abstain_below
    )
    return _shown(answer, EngineView.of(await services.engine.describe()))


def _shown(answer: Answer, engine: EngineView) -> AnswerView:
    """An answer as its caller may see it: of an abstention without the label."""
    return AnswerView(
        **ReleaseView.of(answer.release).model_dump() | ({"label": None} if answer.abstained else {}),
        abstained=answer.abstained,
        realigned=answer.realigned,
        cost=Cost(charged=int(answer.charged), answers_left=answer.answers_left, source=answer.source),
        engine=engine,
    )


@command(Right.AUDIT)
def list_releases(
    _actor: Actor,
    records: Records,
    *,
    task: str | None = None,
    knowledge_base: str | None = None,
    after: str | None = None,
    limit: int,
) -> list[Release]:
    """What left, the newest first: of a task or a knowledge base, behind the release ``after``."""
    history = History(records.database)
    return history.releases(task=task, knowledge_base=knowledge_base, after=after, limit=limit)


@command(Right.SEE)
def read_release(_actor: Actor, records: Records, release: str) -> Release:
    """A release, by its id.

    Raises:
        accounting.ledger.charges.UnknownReleaseError: there is none.
    """
    return records.ledger.get_release(release)
