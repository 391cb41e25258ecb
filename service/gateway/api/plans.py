"""Plans: previewed for free, and signed irrevocably."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from service.gateway.api.dependencies import Admin, AnyKey, Confirmed
from service.gateway.api.document import PLAN
from service.gateway.api.knowledge_bases import NO_KNOWLEDGE_BASE, KnowledgeBaseName
from service.gateway.api.once import OnceRoute, once
from service.gateway.api.paging import Page, Paging
from service.gateway.api.problems import Problem, may_meet
from service.gateway.bodies import body_within, streams_body
from service.operations import plans, written_plans
from service.operations.command import SENT
from service.operations.plans import PlanResult, SignedPlanView
from service.operations.written_plans import CLASSIFY, GENERATE
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/v1/knowledge-bases/{knowledge_base}/plans", tags=["plans"], route_class=OnceRoute)

_MAX_PLAN_BYTES = 1024 * 1024
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/yaml": {"schema": {"type": "string"}, "example": written_plans.as_yaml(CLASSIFY)},
            "application/json": {
                "schema": PLAN,
                "examples": {"labels": {"value": CLASSIFY}, "free text": {"value": GENERATE}},
            },
        },
    }
}


_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "A dry run's preview.", "model": PlanResult},
    **may_meet(
        ProblemKind.BUDGET_EXCEEDED,
        ProblemKind.UNKNOWN_KNOWLEDGE_BASE,
        ProblemKind.RELEASE_NOT_MADE,
        ProblemKind.INVALID_PLAN,
        ProblemKind.UNCONFIRMED,
        ProblemKind.PLAN_SIGNED_ALREADY,
    ),
}


@router.post("", status_code=201, summary="Preview or sign a plan", openapi_extra=_BODY, responses=_RESPONSES)
@streams_body
async def sign_plan(
    knowledge_base: KnowledgeBaseName,
    request: Request,
    response: Response,
    caller: Admin,
    confirmed: Confirmed,
    dry_run: Annotated[bool, Query(description="Only compute and show the plan; spends nothing.")] = False,
    again: Annotated[
        int | None,
        Query(
            ge=1,
            lt=2**31,
            description="Version of the newest signed plan that equals this one, to take its budget once more.",
        ),
    ] = None,
) -> PlanResult:
    """Send a plan as YAML or JSON. Signing is irrevocable: its (ε, δ) is taken from the lifetime budget for good.

    A plan that is signed already is refused and takes nothing, unless `again` names it.
    One-time releases are made before this answers, which takes a second or more, and minutes where an engine writes
    texts.
    """
    records = caller.services.records
    text = await _text(request)
    if not dry_run:
        await once(request, text.encode())
    embed = caller.services.embedder.embed
    calibrated = await asyncio.to_thread(plans.prepare, records, text, knowledge_base, embed)
    if dry_run:
        response.status_code = 200
        grains = caller.services.grains
        return await caller.do(plans.preview, calibrated, grains=grains, better=True, otherwise=True, embed=embed)
    return await caller.do(plans.sign, calibrated, confirmed, again=again, make=caller.services.make)


@router.get("", summary="List the signed plans", responses=NO_KNOWLEDGE_BASE)
async def list_plans(knowledge_base: KnowledgeBaseName, caller: AnyKey, window: Paging) -> Page[SignedPlanView]:
    """Every plan signed for the knowledge base, oldest first."""
    page = window.cut(await caller.do(plans.list_, knowledge_base), lambda plan: str(plan.version))
    names = await asyncio.to_thread(plans.names, caller.actor, caller.services.records)
    retired = await caller.do(plans.retired, knowledge_base)
    return Page(
        data=[SignedPlanView.of(plan, names, retired) for plan in page.data], has_more=page.has_more, next=page.next
    )


_RETIRED = may_meet(ProblemKind.UNKNOWN_KNOWLEDGE_BASE, ProblemKind.UNKNOWN_PLAN, ProblemKind.PLAN_RETIRED)


@router.post("/{version}/retire", summary="Retire a signed plan", responses=_RETIRED)
async def retire_plan(
    knowledge_base: KnowledgeBaseName, version: Annotated[int, Path(ge=1, lt=2**31, examples=[1])], caller: Admin
) -> SignedPlanView:
    """Its tasks answer no more, permanently, and are no longer measured. Its budget stays taken."""
    return await caller.do(plans.retire, knowledge_base, version, SENT)


async def _text(request: Request) -> str:
    body = await body_within(request, _MAX_PLAN_BYTES, _no_plan(f"a plan is at most {_MAX_PLAN_BYTES} bytes"))
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise _no_plan("a plan is UTF-8 text") from None


def _no_plan(why: str) -> Problem:
    return Problem(ProblemKind.INVALID_PLAN, why, extra={"problems": [why]})
