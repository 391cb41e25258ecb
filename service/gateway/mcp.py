"""The Model Context Protocol: agents list tasks, ask them and read budgets, by the same keys and rights as REST.

Over streamable HTTP without sessions, one JSON object for each request, so that any replica answers. Names and
descriptions of tools are the same for every key and knowledge base.
"""

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import structlog
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import INVALID_PARAMS, PARSE_ERROR, ToolAnnotations
from pydantic import ConfigDict, Field, PlainValidator, WithJsonSchema
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override

from service.gateway.bodies import exact_json
from service.operations import answers, budgets, tasks
from service.operations.admission import Admitted, admit
from service.operations.answers import AnswerView
from service.operations.budgets import BudgetsView
from service.operations.refusals import OUTAGES, REFUSALS, kind_of
from service.operations.roles import Actor
from service.operations.services import Services
from service.operations.tasks import TasksView
from service.problem_kinds import ProblemKind

log = structlog.get_logger()
T = TypeVar("T")

PATH = "/mcp"
INSTRUCTIONS = """\
Answers come from private examples under differential privacy: they are noisy, and each takes one from a limited number.
Call `tasks` first, then `ask` with one whole question. A question that was asked before has the same answer, free.
An error that advises against calling again stays an error: report it to the user instead of asking in other words."""


class KeyToken(AccessToken):
    """A request's token with the key that it belongs to."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    admitted: Admitted


class Keys(TokenVerifier):
    """The service's API keys as MCP's bearer tokens.

    Args:
        services: the services whose records hold the keys.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    @override
    async def verify_token(self, token: str) -> KeyToken | None:
        admitted = await asyncio.to_thread(admit, self._services.records, token)
        if admitted is None:
            return None
        return KeyToken(token="", client_id=admitted.key.id, scopes=[], admitted=admitted)


def mcp_server(services: Services) -> MCPServer:
    """The server with its three tools."""
    # A tool's failure is logged with the arguments in it, which are questions.
    logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)
    issuer = "https://keys.invalid"  # keys are made by an admin: there is no authorization server to go to
    server = _ExactServer(
        "dp-icl",
        instructions=INSTRUCTIONS,
        token_verifier=Keys(services),
        auth=AuthSettings(issuer_url=issuer, resource_server_url=None),
    )
    free = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    charged = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)

    @server.tool("tasks", annotations=free)
    async def list_tasks() -> TasksView:
        """List the tasks that this key may ask: the fields of a question, the labels, and the answers left."""
        listed = await _done(lambda actor: tasks.list_.aside(actor, services.records))
        return TasksView(tasks=[task.view for task in listed])

    @server.tool(annotations=charged)
    async def ask(
        task: Annotated[str, Field(description="Name of the task, as `tasks` lists it.")],
        query: Annotated[
            str,  # in truth also an object: of other types than this one the library parses a text as JSON
            PlainValidator(_question),
            WithJsonSchema({"anyOf": [{"type": "string"}, _OBJECT]}),
            Field(description="The whole question: a text, or for a task of several fields an object of texts."),
        ],
        abstain_below: Annotated[
            float | None,
            Field(
                ge=0, le=1, description="Abstain where the label's score or probability is lower. It costs the same."
            ),
        ] = None,
    ) -> AnswerView:
        """Ask a task one question. This takes one of its answers, unless the question was asked before."""
        return await _done(lambda actor: answers.ask(actor, services, task, query, abstain_below=abstain_below))

    @server.tool(annotations=free)
    async def budget() -> BudgetsView:
        """Report each knowledge base's budget: the privacy promised, and the answers used and left."""
        return await _done(lambda actor: budgets.read.aside(actor, services.records))

    return server


class _ExactServer(MCPServer):
    """A server that refuses arguments that a tool does not have, which the library ignores."""

    @override
    async def call_tool(self, name: str, arguments: dict[str, Any], *others: Any, **context: Any) -> Any:
        known = {tool.name: tool.input_schema.get("properties", {}) for tool in await self.list_tools()}
        if name in known and (unknown := sorted(arguments.keys() - known[name].keys())):
            has = f"it has {', '.join(known[name])}" if known[name] else "it has none"
            shown = ", ".join(argument if argument.isidentifier() else "one that is not a name" for argument in unknown)
            raise ToolError(f"{name} does not have the argument {shown}; {has}. Nothing was charged.")
        return await super().call_tool(name, arguments, *others, **context)


def mcp_app(server: MCPServer, hosts: list[str]) -> Starlette:
    """The server as an ASGI application at :data:`PATH`. Its session manager must run while it serves.

    Args:
        server: the server.
        hosts: values of the ``Host`` header that are answered, ``:*`` for any port; others are refused, so that no
            page of another site can lead a browser here by a name of its own.
    """
    origins = [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
    security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)
    app = server.streamable_http_app(
        streamable_http_path=PATH, json_response=True, stateless_http=True, transport_security=security
    )
    app.add_middleware(_ExactMessages)
    return app


class _ExactMessages:
    """Refuses a message that readers take for different ones: JSON with a member twice, or half a surrogate pair.

    Args:
        app: the library's application, which reads the message.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        unread = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return unread.pop() if unread else await receive()

        refusal = _refusal_of(body) if scope["method"] == "POST" else None
        if refusal is None:
            await self._app(scope, again, send)
        else:
            await JSONResponse({"jsonrpc": "2.0"} | refusal, 400)(scope, again, send)


def _refusal_of(body: bytes) -> dict[str, Any] | None:
    """What refuses a message, with its id where it has one; None: it means the same to every reader."""
    try:
        message = exact_json(body)
    except json.JSONDecodeError as error:
        place = f" at character {error.pos + 1}" if error.pos >= 0 else ""
        reason = f"the message is not JSON: {error.msg}{place}. Nothing was charged"
        return {"id": None, "error": {"code": PARSE_ERROR, "message": reason}}
    try:
        if b"\\ud" in body.lower():  # hardly any message has one
            json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        number = message.get("id") if isinstance(message, dict) else None
        whole = isinstance(number, int) or (isinstance(number, str) and number.isprintable())
        return {"id": number if whole else None, "error": {"code": INVALID_PARAMS, "message": _HALF}}
    return None


_HALF = (
    "the message has half a surrogate pair, such as \\ud83d alone, which is not a character: send whole characters. "
    "Nothing was charged"
)


_OBJECT = {"type": "object", "additionalProperties": {"type": "string"}}


def _question(value: object) -> object:
    """A question as it was sent.

    Raises:
        ValueError: it is neither a text nor an object of texts.
    """
    if isinstance(value, str) or (isinstance(value, dict) and all(isinstance(one, str) for one in value.values())):
        return value
    raise ValueError("send a text, or an object of texts")


async def _done(work: Callable[[Actor], Awaitable[T]]) -> T:
    """The result of an operation for the caller.

    Raises:
        ToolError: it was refused, the key sends more requests than it may, or the service failed. No other error
            leaves, since it might quote what is private.
    """
    token = get_access_token()
    if not isinstance(token, KeyToken):
        raise ToolError("send an API key: Authorization: Bearer dpicl_...")
    rate = token.admitted.rate
    if rate is not None and rate.wait_s is not None:
        raise ToolError(_refusal(ProblemKind.RATE_LIMITED, "this key sends too many requests", rate.wait_s))
    try:
        return await work(token.admitted.actor)
    except REFUSALS as error:
        raise ToolError(_refusal(kind_of(error), str(error), getattr(error, "retry_after_s", None))) from None
    except OUTAGES as error:
        log.error("database_unavailable", route=PATH, error=type(error).__name__)
        raise ToolError(_refusal(ProblemKind.DATABASE_UNAVAILABLE, "the database does not answer", 1)) from None
    except Exception as error:
        log.error("unexpected", route=PATH, error=type(error).__name__)
        raise ToolError(_refusal(ProblemKind.INTERNAL_ERROR, "the service failed", None)) from None


def _refusal(kind: ProblemKind, detail: str, retry_after_s: float | None) -> str:
    """A refusal in words that an agent can act on: what was charged, and whether the same call may succeed."""
    again = (
        "Do not call again with this question: report it to the user."
        if retry_after_s is None
        else f"Call again in {math.ceil(retry_after_s)} s."
    )
    return f"{kind.title}: {detail.rstrip('.')}. {kind.explanation} {again}"
