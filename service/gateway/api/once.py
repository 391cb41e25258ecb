"""``Idempotency-Key`` on every POST that changes something: the same request, sent again, gets the same response.

A router's ``route_class`` is :class:`OnceRoute`, and endpoints that change nothing are marked by
:func:`changes_nothing`. An endpoint that reads its body itself calls :func:`once` afterwards. Questions have a
mechanism of their own: a stored answer is free to all callers (:mod:`accounting.ledger.charges`).
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Request, Response

from service.gateway.api.dependencies import TheServices, authenticate
from service.gateway.api.problems import Problem, may_meet
from service.gateway.bodies import ExactRoute, reads_body_itself
from service.gateway.paths import inner_path
from service.operations.named_requests import KEPT_DAYS, NamedRequest
from service.operations.roles import Actor
from service.problem_kinds import ProblemKind

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_FREE, _SHOWN_ONCE = "_dpicl_changes_nothing", "_dpicl_shown_once"
_MEETS = may_meet(ProblemKind.IDEMPOTENCY_CONFLICT, ProblemKind.REQUEST_IN_PROGRESS, ProblemKind.DONE_BEFORE)


def changes_nothing(endpoint: Endpoint) -> Endpoint:
    """Mark an endpoint whose POST changes nothing that is kept, or has a mechanism of its own for repeats."""
    setattr(endpoint, _FREE, True)
    return endpoint


def shown_once(endpoint: Endpoint) -> Endpoint:
    """Mark an endpoint whose response has a secret that is never stored: a repeat is refused, with the object's id."""
    setattr(endpoint, _SHOWN_ONCE, True)
    return endpoint


class _Answered(Exception):  # noqa: N818  (no error)
    def __init__(self, response: Response) -> None:
        self.response = response


async def _named(
    request: Request,
    services: TheServices,
    caller: Annotated[Actor, Depends(authenticate)],
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=255,
            description="Your name for this request, such as a UUID. The same request sent again with it is not done "
            f"again, and gets the same response, for {KEPT_DAYS} days; a refused one may be corrected. For another "
            "request it is refused.",
        ),
    ] = None,
) -> None:
    if idempotency_key is None:
        return
    request.state.named = NamedRequest(services.records, caller, idempotency_key)
    if not reads_body_itself(request.scope["endpoint"]):
        await once(request, await request.body())


async def once(request: Request, body: bytes) -> None:
    """Begin a request that has an Idempotency-Key, or end it with the response that it had before.

    Raises:
        Problem: the request was done, and its response is not kept.
        service.records.requests_once.InProgressError: the request is being done.
        accounting.ledger.charges.IdempotencyConflictError: the Idempotency-Key stands for another request.
    """
    if (named := _named_request(request)) is None:
        return
    query = sorted(request.query_params.multi_items())
    media_type = request.headers.get("content-type", "")
    head = json.dumps([request.method, inner_path(request.scope), query, media_type]).encode()
    if (answered := await named.begin(head + b"\n" + body)) is None:
        return
    if hasattr(request.scope["endpoint"], _SHOWN_ONCE):
        made = json.loads(answered.body)["id"]
        raise Problem(
            ProblemKind.DONE_BEFORE,
            f"this request was done before: it gave key {made} a token, which was shown then and is not kept. "
            f"`POST /v1/keys/{made}/rotate` gives it another",
            extra={"id": made},
        )
    repeated = {"Idempotency-Replayed": "true"}
    raise _Answered(Response(answered.body, answered.status, repeated, "application/json"))


def _named_request(request: Request) -> NamedRequest | None:
    return getattr(request.state, "named", None)


class OnceRoute(ExactRoute):
    """A route that takes an ``Idempotency-Key`` if it is a POST that changes something.

    Attributes:
        once: whether it takes the header.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.once = "POST" in (options.get("methods") or ()) and not hasattr(endpoint, _FREE)
        if self.once:
            standing = list(options.get("dependencies") or ())
            if all(one.dependency is not _named for one in standing):  # a router that includes another copies routes
                options["dependencies"] = [*standing, Depends(_named)]
                options["responses"] = _with(options.get("responses") or {})
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Handler:
        """The function that answers a request."""
        handle = super().get_route_handler()
        return _finished(handle) if self.once else handle


def _with(responses: dict[int | str, dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    both = {**responses}
    for status, more in _MEETS.items():
        said = [both.get(status, {}).get("description", ""), more["description"]]
        both[status] = {**both.get(status, {}), "description": " ".join(filter(None, said))}
    return both


def _finished(handle: Handler) -> Handler:
    async def handled(request: Request) -> Response:
        if "idempotency-key" not in request.headers:
            return await handle(request)
        # In its own task: Ray Serve cancels abandoned requests, and this one will be asked for again.
        task = asyncio.create_task(_kept(handle, request))
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return await asyncio.shield(task)

    return handled


async def _kept(handle: Handler, request: Request) -> Response:
    try:
        response = await handle(request)
    except _Answered as answered:
        return answered.response
    except Exception:
        if (named := _named_request(request)) is not None:
            await named.refused()
        raise
    if (named := _named_request(request)) is not None:
        body = bytes(response.body).decode()
        if hasattr(request.scope["endpoint"], _SHOWN_ONCE):
            body = json.dumps({"id": json.loads(body)["id"]})
        await named.keep(response.status_code, body)
    return response
