"""Dependencies of endpoints: the services, and the caller with the right that the endpoint needs."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ParamSpec, TypeVar

from fastapi import Depends, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import Field

from service.gateway.api.problems import Problem
from service.operations.admission import Admitted, admit
from service.operations.command import SENT, TOKEN, Confirmation, OnRecords
from service.operations.fields import did_you_mean
from service.operations.roles import Actor, Right
from service.operations.services import Services
from service.problem_kinds import ProblemKind

P = ParamSpec("P")
T = TypeVar("T")

bearer = HTTPBearer(auto_error=False, description="An API key made with `dpicl keys create`.")


async def get_services(request: Request) -> Services:  # not async, it would be called in a thread
    """The services that the app was built with."""
    return request.app.state.services


TheServices = Annotated[Services, Depends(get_services)]


async def given_once(request: Request) -> None:
    """Refuse a parameter given twice, of which the framework would silently take the last value.

    Raises:
        Problem: 422, unless the parameter takes several values.
    """
    given = request.query_params
    if len(given) == len(given.multi_items()):
        return
    for parameter in _parameters(request):
        schema = parameter["schema"]
        several = any(option.get("type") == "array" for option in schema.get("anyOf", [schema]))
        times = len(given.getlist(parameter["name"]))
        if times > 1 and parameter["in"] == "query" and not several:
            raise Problem(ProblemKind.INVALID_REQUEST, f"{parameter['name']}: given {times} times; give it once")


def _check_known(request: Request) -> None:
    """Refuse a parameter that does not exist, which the framework would ignore: ``dryrun=true`` would sign the plan.

    Raises:
        Problem: 422, there is one.
    """
    if not request.query_params:
        return
    known = [parameter["name"] for parameter in _parameters(request) if parameter["in"] == "query"]
    for name in request.query_params.keys() - {*known}:
        meant = did_you_mean(name, known)
        raise Problem(ProblemKind.INVALID_REQUEST, f"{name[:100]}: this request has no such parameter{meant}")


def _parameters(request: Request) -> Sequence[Mapping[str, Any]]:
    """The parameters of a request's route, as the document of the API has them."""
    operations = request.app.openapi()["paths"].get(request.scope["route"].path, {})
    return operations.get(request.method.lower(), {}).get("parameters", ())


async def authenticate(
    request: Request,
    services: TheServices,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> Actor:
    """The caller, with a key of any role.

    Raises:
        Problem: 401, there is no valid key; 429, it sends more requests than it may.
    """
    challenge = {"WWW-Authenticate": "Bearer"}
    if credentials is None:
        raise Problem(ProblemKind.MISSING_KEY, "send an API key: Authorization: Bearer dpicl_...", headers=challenge)
    admitted = await asyncio.to_thread(admit, services.records, credentials.credentials)
    if admitted is None:
        why = "this API key is unknown, was revoked or has expired; ask an admin for another"
        raise Problem(ProblemKind.INVALID_KEY, why, headers=challenge)
    _report_limits(request, admitted)
    if admitted.rate is not None and admitted.rate.wait_s is not None:
        raise Problem(
            ProblemKind.RATE_LIMITED,
            f"this key may send {admitted.key.rate_per_minute} requests a minute; wait for Retry-After seconds",
            retry_after_s=admitted.rate.wait_s,
        )
    return admitted.actor


def _report_limits(request: Request, admitted: Admitted) -> None:
    """Report what a key with limits has left, in headers (draft-ietf-httpapi-ratelimit-headers)."""
    key, rate = admitted.key, admitted.rate
    policies, states = [], []
    if key.quota is not None:
        policies.append(f'"answers";q={key.quota}')
        states.append(f'"answers";r={max(0, key.quota - key.charged)}')
    if rate is not None:
        policies.append(f'"requests";q={key.rate_per_minute};w=60')
        states.append(f'"requests";r={rate.left};t={math.ceil(rate.full_in_s)}')
    if policies:
        headers = (("ratelimit-policy", policies), ("ratelimit", states))
        request.state.limits = [(name.encode(), ", ".join(items).encode()) for name, items in headers]


@dataclass(frozen=True)
class Caller:
    """The caller, who has the right that the endpoint needs; does commands on the services' records."""

    actor: Actor
    services: Services

    async def do(self, command: OnRecords[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do a command beside the event loop, as :meth:`service.operations.command.Command.aside` does."""
        return await command.aside(self.actor, self.services.records, *args, **kwargs)


def _with(right: Right) -> Callable[..., Awaitable[Caller]]:
    async def check(request: Request, actor: Annotated[Actor, Depends(authenticate)], services: TheServices) -> Caller:
        actor.require(right)  # before the request's body is judged
        if right is Right.DECIDE and request.method != "GET":
            _check_known(request)
        return Caller(actor, services)

    return check


AnyKey = Annotated[Caller, Depends(_with(Right.SEE))]
AnalystKey = Annotated[Caller, Depends(_with(Right.ASK))]
TrialKey = Annotated[Caller, Depends(_with(Right.TRY))]
AuditKey = Annotated[Caller, Depends(_with(Right.AUDIT))]
Admin = Annotated[Caller, Depends(_with(Right.DECIDE))]


async def _confirmed(
    confirm: Annotated[
        list[Confirmation | Annotated[str, Field(pattern=f"^{TOKEN}$")]],
        Query(
            max_length=10,
            description="Consequences to confirm: an earlier refusal's `confirm`, or its `token`, which confirms the "
            "figures that it showed and no others.",
        ),
    ] = [],  # noqa: B006
) -> frozenset[str]:
    return frozenset(confirm)


Confirmed = Annotated[frozenset[str], Depends(_confirmed)]


async def _sent(
    confirmed: Confirmed,
    ask_first: Annotated[
        bool,
        Query(
            description="Whether to refuse this once, to show its figures: they are the `problems` of the refusal, and "
            "`?confirm=` with its `token` confirms them."
        ),
    ] = False,
) -> frozenset[str]:
    shown = any(one.startswith(f"{Confirmation.PERMANENT}:") for one in confirmed)
    return confirmed if ask_first or shown else confirmed | SENT


Sent = Annotated[frozenset[str], Depends(_sent)]
"""Confirmations of an act that cannot be undone: a request is its own, unless it asks first or confirms figures."""
