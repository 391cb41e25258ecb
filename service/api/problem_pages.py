"""What each kind of problem means, at the address that its ``type`` is unless an operator sets another."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from service.api.problems import Problem
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/problems", tags=["problems"])

_KINDS = {kind.slug: kind for kind in ProblemKind}
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"description": "There is no such kind of problem."}}


class ProblemKindView(BaseModel):
    """A kind of problem."""

    title: str
    status: int | None = Field(description="HTTP status code; null for several.")
    explanation: str = Field(description="What is wrong, whether anything was charged or changed, and what to do.")


@router.get("/{kind}", summary="Explain a kind of problem", responses=_UNKNOWN)
async def explain(kind: Annotated[str, Path(examples=["answers-exhausted"])]) -> ProblemKindView:
    """For everybody, without a key."""
    if (known := _KINDS.get(kind)) is None:
        raise Problem(ProblemKind.NOT_FOUND, f"there is no kind of problem named {kind!r}")
    return ProblemKindView(title=known.title, status=known.status or None, explanation=known.explanation)
