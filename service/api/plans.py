"""Plans: previewed for free, signed for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import yaml
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from accounting.ledger.budgets import SignedPlan
from accounting.plan import PlanError, load_plan
from service.api.dependencies import AdminKey, AnyKey, TheServices
from service.api.document import PLAN
from service.api.knowledge_bases import NO_KNOWLEDGE_BASE, KnowledgeBaseName
from service.api.paging import Page, Paging
from service.bodies import streams_body
from service.plans.alternatives import alternatives
from service.plans.expected_latency import LatencyEstimate, expected_latency
from service.plans.preview import PlanPreview, TaskPreview, preview
from service.plans.proposals import Proposal, approve, open_proposals, propose
from service.plans.signing import check_worth, not_free, prepare, sign
from service.private_threads import privately
from service.records.engine_record import EngineView, last_engine
from service.records.roles import Right, may
from service.records.signed import read_signed

router = APIRouter(prefix="/v1/knowledge-bases/{knowledge_base}/plans", tags=["plans"])

_MAX_PLAN_BYTES = 1024 * 1024
CLASSIFY = {
    "knowledge_base": "support",
    "budget": {"epsilon": 2, "delta": 1e-4},
    "tasks": {
        "queue": {
            "kind": "classify",
            "labels": ["Billing", "Technical"],
            "prompt": {"exemplar": "Ticket: {text}\nQueue: {label}", "query": "Ticket: {text}\nQueue:"},
            "shots": 4,
            "ensemble": 40,
            "answers": 500,
            "mechanism": {"type": "rnm_gaussian", "vote": "soft"},
        }
    },
}
GENERATE = {
    "knowledge_base": "support",
    "budget": {"epsilon": 2, "delta": 1e-4},
    "tasks": {
        "reply": {
            "kind": "generate",
            "response_field": "reply",
            "prompt": {"exemplar": "Ticket: {text}\nReply: {reply}", "query": "Ticket: {text}\nReply:"},
            "public_answers": ["A refund takes five working days.", "You can change your address under Settings."],
            "shots": 4,
            "ensemble": 40,
            "answers": 50,
            "mechanism": {"type": "keyword_ptr", "k_min": 1, "k_max": 8},
        }
    },
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/yaml": {"schema": {"type": "string"}, "example": yaml.safe_dump(CLASSIFY, sort_keys=False)},
            "application/json": {
                "schema": PLAN,
                "examples": {"labels": {"value": CLASSIFY}, "free text": {"value": GENERATE}},
            },
        },
    }
}


_NAME = "What people call that key; null if it is none, or you may not audit."


class SignedPlanView(BaseModel):
    """A signed plan and what it gives."""

    version: int
    digest: str
    signed_by: str = Field(description="A key's id, a person, or a name of the command line.")
    signed_by_name: str | None = Field(description=_NAME)
    signed_at: datetime
    tasks: list[str]
    preview: PlanPreview


class ProposalView(BaseModel):
    """A plan that somebody else has to approve."""

    id: str
    digest: str
    proposed_by: str
    proposed_by_name: str | None = Field(description=_NAME)
    proposed_at: datetime
    preview: PlanPreview


class PlanResult(BaseModel):
    """The preview of a plan, the engine that would answer, and, unless it was a dry run, the plan's signature.

    Attributes:
        alternatives: of a dry run, by task: what its share of the budget would give otherwise; as planned first.
        exceeds: of a dry run: why the lifetime budget cannot take the plan, absent if it can.
        proposed: where two people sign: what somebody else has to approve.
    """

    engine: EngineView | None
    preview: PlanPreview
    alternatives: dict[str, list[TaskPreview]] | None = Field(default=None, exclude_if=lambda value: value is None)
    exceeds: str | None = Field(default=None, exclude_if=lambda value: value is None)
    latency: dict[str, LatencyEstimate] | None = Field(
        default=None,
        exclude_if=lambda value: not value,
        description="Of a dry run, by task: an estimate of how long answers would take, from a task that this service "
        "has measured. A task is absent if no other of its kind and sampling was asked of a language model here, or if "
        "that one's blocks are read ahead. The task itself is measured once the plan is signed.",
    )
    proposed: ProposalView | None = Field(default=None, exclude_if=lambda value: value is None)
    signed: SignedPlanView | None


_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "A dry run's preview.", "model": PlanResult},
    202: {"description": "Where two people sign: the plan is proposed, and nothing taken.", "model": PlanResult},
    402: {"description": "The knowledge base's lifetime budget does not hold this plan."},
    404: NO_KNOWLEDGE_BASE,
    409: {"description": "A release that is made once cannot be made, or was not; the detail says if it is signed."},
    422: {"description": "The plan cannot be signed: each problem names its key; or it is not worth its price."},
}


@router.post("", status_code=201, summary="Preview or sign a plan", openapi_extra=_BODY, responses=_RESPONSES)
@streams_body
async def post_plan(
    knowledge_base: KnowledgeBaseName,
    request: Request,
    response: Response,
    services: TheServices,
    admin: AdminKey,
    dry_run: Annotated[bool, Query(description="Only compute and show the plan; spends nothing.")] = False,
    accept_worse_than_free: Annotated[
        bool,
        Query(description="Sign although a task's `warning` says that its answers will hardly be worth their price."),
    ] = False,
) -> PlanResult:
    """Send a plan as YAML or JSON. Signing is irrevocable: its (ε, δ) is taken from the lifetime budget for good.

    Releases that are made once are made before this answers, which takes a second or more. Where two people sign, the
    plan is only proposed, and somebody else approves it.
    """
    plan = await asyncio.to_thread(load_plan, await _text(request))
    if plan.knowledge_base != knowledge_base:
        raise PlanError([f"knowledge_base: the plan is for {plan.knowledge_base}, the address for {knowledge_base}"])
    calibrated = await asyncio.to_thread(prepare, services.records, plan)
    engine = await asyncio.to_thread(last_engine, services.records.database)
    described = preview(calibrated)
    if dry_run:
        response.status_code = 200
        otherwise = await asyncio.to_thread(alternatives, plan, calibrated.public_size)
        exceeds = await asyncio.to_thread(not_free, services.records, plan)
        budgets = services.records.ledger.budgets
        latency = await asyncio.to_thread(expected_latency, plan, described, services.grains, budgets)
        return PlanResult(
            engine=engine, preview=described, alternatives=otherwise, exceeds=exceeds, latency=latency, signed=None
        )
    check_worth(described, accepted=accept_worse_than_free)
    own = {admin.id: admin.name}
    if services.records.settings.two_person_signing:
        response.status_code = 202
        proposal = await asyncio.to_thread(propose, services.records, calibrated, admin.id)
        return PlanResult(engine=engine, preview=described, proposed=proposal_view(proposal, own), signed=None)
    signed = await privately(partial(sign, services.records, calibrated, admin.id, make=services.make))
    return PlanResult(engine=engine, preview=described, signed=view(signed, own))


@router.get("", summary="List the signed plans", responses={404: NO_KNOWLEDGE_BASE})
async def list_plans(
    knowledge_base: KnowledgeBaseName, services: TheServices, key: AnyKey, window: Paging
) -> Page[SignedPlanView]:
    """Every plan signed for the knowledge base, oldest first."""
    await asyncio.to_thread(services.records.store.get, knowledge_base)
    signed = await asyncio.to_thread(services.records.ledger.budgets.plans, knowledge_base)
    page = window.cut(signed, lambda plan: str(plan.version))
    names = await asyncio.to_thread(services.records.keys.names) if may(key.role, Right.AUDIT) else {}
    return Page(data=[view(plan, names) for plan in page.data], has_more=page.has_more, next=page.next)


@router.get("/proposals", summary="List the proposed plans", responses={404: NO_KNOWLEDGE_BASE})
async def list_proposals(
    knowledge_base: KnowledgeBaseName, services: TheServices, _admin: AdminKey, window: Paging
) -> Page[ProposalView]:
    """Plans that somebody else has to approve, oldest first. A plan signed since makes others lapse."""
    found = await asyncio.to_thread(open_proposals, services.records, knowledge_base)
    names = await asyncio.to_thread(services.records.keys.names)
    return window.cut([proposal_view(one, names) for one in found], lambda proposal: proposal.id)


@router.post(
    "/proposals/{proposal}/approve",
    status_code=201,
    summary="Approve a proposed plan",
    responses={404: {"description": "No such knowledge base, or no such proposal is open."}},
)
async def approve_proposal(
    knowledge_base: KnowledgeBaseName,
    proposal: Annotated[str, Path(examples=["6a19e5ce-f0c6-4e53-ac8f-9f493baecb88"])],
    services: TheServices,
    admin: AdminKey,
) -> SignedPlanView:
    """Sign what another admin proposed. Irrevocable: its (ε, δ) is taken from the lifetime budget for good."""
    work = partial(approve, services.records, knowledge_base, proposal, admin.id, make=services.make)
    return view(await privately(work), {admin.id: admin.name})


def proposal_view(proposal: Proposal, names: Mapping[str, str]) -> ProposalView:
    """A proposal as it may be shown, to somebody who may know these names of keys, by id."""
    return ProposalView(
        id=proposal.id,
        digest=proposal.digest,
        proposed_by=proposal.proposed_by,
        proposed_by_name=names.get(proposal.proposed_by),
        proposed_at=proposal.proposed_at,
        preview=preview(proposal.calibrated),
    )


def view(signed: SignedPlan, names: Mapping[str, str]) -> SignedPlanView:
    """A signed plan as it may be shown, to somebody who may know these names of keys, by id."""
    return SignedPlanView(
        version=signed.version,
        digest=signed.digest,
        signed_by=signed.signed_by,
        signed_by_name=names.get(signed.signed_by),
        signed_at=signed.signed_at,
        tasks=[f"{signed.knowledge_base}.{name}@{signed.version}" for name, _ in signed.tasks],
        preview=preview(read_signed(signed.document)),
    )


async def _text(request: Request) -> str:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_PLAN_BYTES:
            raise PlanError([f"a plan is at most {_MAX_PLAN_BYTES} bytes"])
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise PlanError(["a plan is UTF-8 text"]) from None
