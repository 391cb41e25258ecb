"""The OpenAPI document, finished: responses that FastAPI cannot know of are described here, for all operations."""

import json
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from service.gateway.api.problems import MEDIA_TYPE, ProblemDocument
from service.gateway.openai.surface import ChatCompletionChunk
from service.operations import written_plans

_REFERENCE = "#/components/schemas/{model}"
PLAN = {"$ref": _REFERENCE.format(model="Plan")}
"""Schema of a plan, for bodies that FastAPI does not parse."""

_REQUEST_ID = {
    "description": "Name of this request in the service's log.",
    "schema": {"type": "string", "pattern": "^[0-9A-Za-z-]{1,64}$"},
}
_ANY = {
    "400": "The address contains a NUL character, or the body is not text.",
    "429": "Too many requests: come back after Retry-After seconds.",
    "431": "The headers are too large.",
    "500": "The service failed.",
    "503": "The service cannot answer now, as while its database does not answer: come back later.",
}
_WITH_KEY = {"401": "No valid key.", "403": "The key's role may not."}
_WITH_INPUT = {"422": "Something in the request is invalid; the detail names it."}
_WITH_BODY = {"408": "The body did not arrive in time.", "413": "The body is too large."}


def install(app: FastAPI) -> None:
    """Make ``app.openapi`` return the finished document."""
    unfinished = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            _finish(unfinished())
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]


def _finish(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for fastapis_own in ("HTTPValidationError", "ValidationError"):
        schemas.pop(fastapis_own, None)
    for name, schema in _further().items():
        schemas.update({part: found for part, found in schema.pop("$defs", {}).items() if part not in schemas})
        schemas[name] = schema
    for schema in schemas.values():
        for member in schema.get("properties", {}).values():
            _describe_default(member)
    for operations in document["paths"].values():
        for operation in operations.values():
            _finish_operation(operation)


def _further() -> dict[str, dict[str, Any]]:
    """Schemas of bodies that FastAPI neither makes nor reads, by name."""
    made: tuple[type[BaseModel], ...] = (ProblemDocument, ChatCompletionChunk)
    further = {one.__name__: one.model_json_schema(ref_template=_REFERENCE, mode="serialization") for one in made}
    return {**further, "Plan": written_plans.schema(_REFERENCE)}


def _describe_default(member: dict[str, Any]) -> None:
    """Describe a default in words if it is an object: few generators of clients take an object as a default."""
    if isinstance(member.get("default"), dict):
        described = f"Left out: `{json.dumps(member.pop('default'))}`."
        member["description"] = f"{member.get('description', '')} {described}".strip()


def _finish_operation(operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    if responses.get("422", {}).get("description") == "Validation Error":  # FastAPI's own, of another shape
        del responses["422"]
    possible = dict(_ANY)
    if "security" in operation:
        possible |= _WITH_KEY
    if "parameters" in operation or "requestBody" in operation:
        possible |= _WITH_INPUT
    if "requestBody" in operation:
        possible |= _WITH_BODY
    for status, description in possible.items():
        responses.setdefault(status, {"description": description})
    for status, response in responses.items():
        response["headers"] = {"x-request-id": _REQUEST_ID}
        if status >= "400":
            response["content"] = {MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(model=ProblemDocument.__name__)}}}
    operation["responses"] = dict(sorted(responses.items()))
