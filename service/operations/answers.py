"""Questions answered under a task's budget; and released answers, which are public and free to read."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from pydantic import BaseModel, Field

from accounting.ledger.budgets import address, parsed
from accounting.ledger.charges import Release
from accounting.ledger.checkpoints import CheckpointError
from accounting.ledger.entries import parts
from accounting.ledger.events import AnswerReleased
from accounting.ledger.history import History, OwnCharge
from accounting.ledger.inclusion import InclusionProof
from accounting.ledger.trail import every
from service.answering.answering import Answer
from service.answering.answering import Query as Query
from service.answering.conversations import ContextNotSupportedError as ContextNotSupportedError
from service.answering.conversations import Conversation as Conversation
from service.answering.conversations import Turn as Turn
from service.operations.command import command
from service.operations.fields import ABSENT
from service.operations.measured import MeasuredView
from service.operations.roles import Actor, Right
from service.operations.services import Services
from service.records.engine_record import EngineView
from service.records.records import Records

RELEASE_ID = "8b7e8f43-9a3c-4f0e-9d0b-7a7b4f1f3c55"
"""Example of a release's id."""


class ReleaseView(BaseModel):
    """A released answer."""

    id: str = Field(examples=[RELEASE_ID])
    task: str = Field(examples=["support.queue@1"])
    topic: str | None = Field(
        **ABSENT, description="Topic that the answer was drawn from and charged to, where the task has topics."
    )
    label: str | None = Field(**ABSENT, examples=["Billing"], description="Answer of a task that classifies.")
    score: float | None = Field(
        **ABSENT,
        examples=[0.8712],
        description="Support for the label by the noisy release and by public information, from 0 to 1. It is not the "
        "label's probability of being right: the plan was not fitted to labelled rows. Absent where that probability "
        "is known, and where votes are only counted.",
    )
    scores: dict[str, float] | None = Field(**ABSENT, description="Score of every label; their sum is 1.")
    probability: float | None = Field(
        **ABSENT,
        examples=[0.8712],
        description="Probability that the label is right, in place of `score`: the plan was fitted to labelled public "
        "rows.",
    )
    probabilities: dict[str, float] | None = Field(**ABSENT, description="Probability of every label.")
    votes: dict[str, float] | None = Field(
        **ABSENT,
        examples=[{"Billing": 28.4, "Technical": 9.1}],
        description="Slots that vote for each label, with the noise that protects the exemplars: they may be negative. "
        "The answer also weighs what is known without them.",
    )
    zero_shot: str | None = Field(
        **ABSENT,
        examples=["Technical"],
        description="The likeliest label or text without private exemplars: public, and free.",
    )
    text: str | None = Field(**ABSENT, description="Answer of a task that generates text.")
    keywords: list[str] | None = Field(
        **ABSENT,
        description="Words that the text is made of, where the mechanism releases words: the most frequent first if "
        "they are ranked, else in alphabetical order.",
    )
    sentences: list[str] | None = Field(
        **ABSENT,
        description="Sentences that the text consists of, where the mechanism releases those that many slots share: "
        "the most frequent first.",
    )
    fallback: bool | None = Field(
        **ABSENT,
        description="Whether the mechanism fell back, so that the text was made without private exemplars; absent if "
        "it never does.",
    )
    method: str | None = Field(**ABSENT, description="Way in which the text was made.")
    made_once: str | None = Field(
        **ABSENT, examples=["prototypes"], description="Mechanism of a one-time release, made at signing."
    )
    texts: dict[str, list[str]] | None = Field(**ABSENT, description="Texts of a one-time release, by topic.")
    measured: MeasuredView | None = Field(
        **ABSENT,
        description="How often the one-time release that answers is right, by its own count; absent where it is not "
        "measured.",
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
    """Cost of an answer, and the answers left.

    Attributes:
        charged: answers charged by this request: 1, or 0 for a repeat or an answer from a one-time release.
        answers_left: number of answers that the task may still give, to all callers together, on the question's topic
            if it has topics; null if the number is not limited.
        source: mechanism of the one-time release that the answer comes from, if it comes from one.
    """

    charged: int
    answers_left: int | None
    source: str | None = Field(**ABSENT, examples=["prototypes"])


class AnswerView(ReleaseView):
    """An answer with its cost."""

    abstained: bool | None = Field(
        **ABSENT,
        description="Whether the label was left out because its score is below the threshold; absent without a "
        "threshold.",
    )
    question: str | None = Field(
        **ABSENT,
        description="The question that was asked and charged in place of your conversation, where the task rewrites "
        "earlier turns. It is for you alone, and is not part of the release.",
    )
    realigned: str | None = Field(
        **ABSENT,
        description="`text`, fitted to your question by a model beside the service, where the remote one saw a "
        "sanitised question. It is for you alone: it may hold words of your question, and is not part of the release.",
    )
    cost: Cost
    engine: EngineView


@command(Right.ASK)
async def ask(
    actor: Actor,
    services: Services,
    task: str,
    query: Query,
    *,
    idempotency_key: str | None = None,
    abstain_below: float | None = None,
) -> AnswerView:
    """Answer a question; arguments and errors also as of :meth:`service.answering.answering.Answering.answer`.

    Raises:
        service.operations.roles.OutOfScopeError: the actor may not ask this task.
    """
    actor.require_task(task)
    answer = await services.answering.answer(
        task, query, key_id=actor.id, idempotency_key=idempotency_key, abstain_below=abstain_below
    )
    return _shown(answer, EngineView.of(await services.engine.describe()))


def _shown(answer: Answer, engine: EngineView) -> AnswerView:
    """An answer as its caller may see it: if it abstains, without the label."""
    return AnswerView(
        **ReleaseView.of(answer.release).model_dump() | ({"label": None} if answer.abstained else {}),
        abstained=answer.abstained,
        question=answer.question,
        realigned=answer.realigned,
        cost=Cost(charged=int(answer.charged), answers_left=answer.answers_left, source=answer.source),
        engine=engine,
    )


@command(Right.ASK)
def list_own(actor: Actor, records: Records, *, before: int | None = None, limit: int) -> list[OwnCharge]:
    """The actor's own charges with their answers, the newest first, starting behind the charge numbered ``before``.

    Questions are not stored, nor who asked one that was free: there is nothing of them to list.
    """
    return History(records.database).charges_of(actor.id, before=before, limit=limit)


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
    """Releases of a task, a knowledge base or all, the newest first, starting behind the release ``after``."""
    history = History(records.database)
    return history.releases(task=task, knowledge_base=knowledge_base, after=after, limit=limit)


@command(Right.SEE)
def read_release(actor: Actor, records: Records, release: str) -> Release:
    """A release, by its id.

    Raises:
        accounting.ledger.charges.UnknownReleaseError: no release has this id.
        service.operations.roles.OutOfScopeError: the release's task is not in the actor's scope.
    """
    found = records.ledger.get_release(release)
    actor.require_task(found.task)
    return found


@command(Right.SEE)
def receipt(actor: Actor, records: Records, release: str) -> InclusionProof:
    """The proof that a release, by its id, and its charge are in the signed audit trail.

    Raises:
        accounting.ledger.charges.UnknownReleaseError: no release has this id.
        accounting.ledger.checkpoints.CheckpointError: the trail is not signed, or does not continue what was signed.
        service.operations.roles.OutOfScopeError: the release's task is not in the actor's scope.
        accounting.ledger.witness.LedgerRestoredError: the ledger lacks what was witnessed.
        accounting.ledger.witness.WitnessUnavailableError: the witness does not answer.
    """
    left = records.ledger.get_release(release)
    actor.require_task(left.task)
    if records.log is None:
        raise CheckpointError("there are no receipts, as the audit trail is not signed here: ask the operator")
    knowledge_base, day = left.task.partition(".")[0], left.created_at.date()
    of = partial(records.audit.events, kinds=[AnswerReleased.kind], knowledge_base=knowledge_base, day=day)
    for event in every(of):
        if f'"release":"{left.id}"' in event.body:
            return records.log.prove(event)
    raise CheckpointError(f"release {left.id} is not in the audit trail: see `dpicl audit verify`")
