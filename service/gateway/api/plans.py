"""Plans: previewed for free, and signed irrevocably."""

import asyncio
from json import JSONDecodeError
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from service.gateway.api.dependencies import Admin, AnyKey, Confirmed, Sent
from service.gateway.api.document import PLAN
from service.gateway.api.knowledge_bases import NOT_SEEN, KnowledgeBaseName
from service.gateway.api.once import OnceRoute, changes_nothing, once
from service.gateway.api.paging import Page, Paging
from service.gateway.api.problems import Problem, may_meet
from service.gateway.bodies import body_within, exact_json, streams_body
from service.operations import knowledge_bases, measuring, plans, written_plans
from service.operations.fields import WrittenWhole
from service.operations.measuring import Measured, Measuring
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
        ProblemKind.PLAN_NOT_APPROVED,
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
    dry_run: Annotated[
        bool, Query(examples=[True], description="Only compute and show the plan; spends nothing.")
    ] = False,
    again: Annotated[
        WrittenWhole | None,
        Query(
            ge=1,
            lt=2**31,
            description="Version of the newest signed plan that equals this one, to take its budget once more.",
        ),
    ] = None,
    approval: Annotated[
        str | None,
        Header(
            alias="x-dpicl-approval",
            max_length=200,
            description="A second person's Ed25519 signature over the body's bytes, in base64, where the service "
            "demands one.",
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
    approved = None
    if not dry_run:
        approved = plans.approve(records, text, approval)
        await once(request, text.encode())
    embed = caller.services.embedder.embed
    calibrated = await asyncio.to_thread(plans.prepare, records, text, knowledge_base, embed)
    if dry_run:
        response.status_code = 200
        grains = caller.services.grains
        return await caller.do(plans.preview, calibrated, grains=grains, better=True, otherwise=True, embed=embed)
    return await caller.do(plans.sign, calibrated, confirmed, again=again, approval=approved, make=caller.services.make)


_LABELLED = [{"unit_id": f"customer-{number}", "text": "I was charged twice.", "label": "Billing"} for number in (1, 2)]
_MEASURED: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": Measuring.model_json_schema(),
                "example": {"plan": CLASSIFY, "rows": _LABELLED},
            }
        },
    }
}
_NOT_MEASURED = may_meet(
    ProblemKind.UNKNOWN_KNOWLEDGE_BASE,
    ProblemKind.INVALID_PLAN,
    ProblemKind.BAD_ROW,
    ProblemKind.INVALID_QUERY,
    ProblemKind.UPLOAD_TOO_LARGE,
    ProblemKind.BUSY,
    ProblemKind.ENGINE_UNAVAILABLE,
)


@router.post("/measure", summary="Measure a plan on labelled rows", openapi_extra=_MEASURED, responses=_NOT_MEASURED)
@streams_body
@changes_nothing
async def measure_plan(knowledge_base: KnowledgeBaseName, request: Request, caller: Admin) -> Measured:
    """Hold out a fifth of the people in the rows, and report how many of them a plan answers right: it spends nothing.

    The others stand in for the knowledge base, whose exemplars are not read. Each proposal of a dry run is measured,
    too. This takes a minute or two. The figures are not private, and the rows are not kept.
    """
    services, embed = caller.services, caller.services.embedder.embed
    described = await caller.do(knowledge_bases.describe, knowledge_base)
    limit = services.records.settings.max_upload_bytes
    too_large = Problem(ProblemKind.UPLOAD_TOO_LARGE, f"a plan with its rows is at most {limit} bytes; send fewer rows")
    body = await body_within(request, limit, too_large)
    try:
        sent = await asyncio.to_thread(_measuring, body)
    except JSONDecodeError as error:
        problem = {"type": "json_invalid", "loc": ("body", error.pos), "ctx": {"error": error.msg}}
        raise RequestValidationError([problem]) from None
    except ValidationError as error:
        raise RequestValidationError([one | {"loc": ("body", *one["loc"])} for one in error.errors()]) from None
    calibrated = await asyncio.to_thread(plans.prepare, services.records, sent.text, knowledge_base, embed)
    rows = await asyncio.to_thread(sent.read, calibrated.plan)
    offered = await caller.do(plans.preview, calibrated, better=True, embed=embed)
    held_out = services.trials.held_out(rows, described.embedded_field, asker=caller.actor.id)
    proposals = offered.proposals or []
    found = await measuring.measure(caller.actor, held_out, calibrated, proposals)
    return Measured(proposals=proposals, measured=found)


def _measuring(body: bytes) -> Measuring:
    exact_json(body)  # pydantic would take the last of two members with one name
    return Measuring.model_validate_json(body)


@router.get("", summary="List the signed plans", responses=NOT_SEEN)
async def list_plans(knowledge_base: KnowledgeBaseName, caller: AnyKey, window: Paging) -> Page[SignedPlanView]:
    """Every plan signed for the knowledge base, oldest first."""
    page = window.cut(await caller.do(plans.list_, knowledge_base), lambda plan: str(plan.version))
    names = await asyncio.to_thread(plans.names, caller.actor, caller.services.records)
    retired = await caller.do(plans.retired, knowledge_base)
    return Page(
        data=[SignedPlanView.of(plan, names, retired).within(caller.actor) for plan in page.data],
        has_more=page.has_more,
        next=page.next,
    )


_RETIRED = may_meet(
    ProblemKind.UNKNOWN_KNOWLEDGE_BASE, ProblemKind.UNKNOWN_PLAN, ProblemKind.PLAN_RETIRED, ProblemKind.UNCONFIRMED
)


@router.post("/{version}/retire", summary="Retire a signed plan", responses=_RETIRED)
async def retire_plan(
    knowledge_base: KnowledgeBaseName,
    version: Annotated[WrittenWhole, Path(ge=1, lt=2**31, examples=[1])],
    caller: Admin,
    confirmed: Sent,
) -> SignedPlanView:
    """Its tasks answer no more, permanently, and are no longer measured. Its budget stays taken."""
    return await caller.do(plans.retire, knowledge_base, version, confirmed)


async def _text(request: Request) -> str:
    body = await body_within(request, _MAX_PLAN_BYTES, _no_plan(f"a plan is at most {_MAX_PLAN_BYTES} bytes"))
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise _no_plan("a plan is UTF-8 text") from None


def _no_plan(why: str) -> Problem:
    return Problem(ProblemKind.INVALID_PLAN, why, extra={"problems": [why]})
