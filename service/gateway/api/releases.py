"""What left the service: public, and free to read."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from accounting.ledger.budgets import address, parsed
from accounting.ledger.charges import Release
from accounting.ledger.entries import parts
from service.gateway.api.dependencies import AnyKey, AuditKey
from service.gateway.api.paging import Page, Paging
from service.gateway.api.problems import may_meet
from service.operations import answers
from service.operations.fields import ABSENT, NAME
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/v1/releases", tags=["releases"])

_ID = "8b7e8f43-9a3c-4f0e-9d0b-7a7b4f1f3c55"


class ReleaseView(BaseModel):
    """An answer that left."""

    id: str = Field(examples=[_ID])
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


@router.get("", summary="List the releases")
async def list_releases(
    caller: AuditKey,
    window: Paging,
    task: Annotated[
        str | None,
        Query(
            pattern=rf"^{NAME}\.{NAME}(@[1-9][0-9]{{0,8}})?$",
            examples=["support.queue"],
            description="Only of this task: in every plan, or with `@version` in one.",
        ),
    ] = None,
    knowledge_base: Annotated[
        str | None, Query(pattern=f"^{NAME}$", examples=["support"], description="Only of this knowledge base.")
    ] = None,
) -> Page[ReleaseView]:
    """What left, the newest first. Queries are not kept, so none is shown."""
    listed = await caller.do(
        answers.list_releases,
        task=task,
        knowledge_base=knowledge_base,
        after=window.after,
        limit=window.limit + 1,
    )
    return window.page([view(release) for release in listed], lambda release: release.id)


@router.get("/{release_id}", summary="Read a release again", responses=may_meet(ProblemKind.UNKNOWN_RELEASE))
async def get_release(release_id: Annotated[str, Path(examples=[_ID])], caller: AnyKey) -> ReleaseView:
    """Releases are public: reading one again costs nothing."""
    return view(await caller.do(answers.read_release, release_id))


def view(release: Release) -> ReleaseView:
    """A release as it may be shown."""
    knowledge_base, named, version = parsed(release.task)
    name, topic = parts(named)
    task = address(knowledge_base, name, version or 0)
    return ReleaseView(id=release.id, task=task, topic=topic, created_at=release.created_at, **release.answer)
