"""The reference of the REST API, from its OpenAPI document."""

from __future__ import annotations

import json
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

from _site.tables import kind, section, table
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.engines.embedding.embedder import Embedder
from service.operations.services import open_services
from service.records.records import open_records
from service.serving.web import create_app
from service.settings import Settings

_HEAD = """# REST

For programmers: every route of the service, and the objects that it takes and gives.

Every request but those for health brings `Authorization: Bearer KEY`. Errors are problem details (RFC 9457).
The same as an [OpenAPI document](openapi.json).
"""
_TAGS = {"openai": "OpenAI"}


@cache
def _api() -> dict[str, Any]:
    """The OpenAPI document of a service with an empty database and the default engine, which is not asked anything."""
    with TemporaryDirectory() as folder:
        records = open_records(Settings(database_url=f"sqlite:///{folder}/empty.sqlite", development=True))
        embedder = Embedder()
        api = create_app(open_services(records, NearestExemplarEngine(embedder), embedder)).openapi()
        records.database.dispose()
    return api


def document() -> str:
    """The OpenAPI document."""
    return json.dumps(_api(), indent=1, ensure_ascii=False)


def page() -> str:
    """Every operation, by tag, then the objects they speak of."""
    tagged: dict[str, list[str]] = {}
    for path, methods in _api()["paths"].items():
        for method, operation in methods.items():
            tagged.setdefault((operation.get("tags") or ["other"])[0], []).append(_operation(path, method, operation))
    parts = [_HEAD]
    for tag, operations in tagged.items():
        parts += [f"## {_TAGS.get(tag, tag.capitalize())}", *operations]
    parts.append("## Objects")
    parts += [section(f"### {name}", schema) for name, schema in _api()["components"]["schemas"].items()]
    return "\n\n".join(parts)


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [f"### {operation['summary']}", f"`{method.upper()} {path}`", operation.get("description", "")]
    if parameters := operation.get("parameters"):
        rows = [[f"`{p['name']}`", p["in"], kind(p["schema"]), p.get("description", "")] for p in parameters]
        parts.append(table(["parameter", "in", "type", "meaning"], rows))
    if body := operation.get("requestBody"):
        parts.append(
            "Body: " + "; ".join(f"`{media}`, {kind(one.get('schema', {}))}" for media, one in body["content"].items())
        )
        parts += [_example(one) for one in body["content"].values()]
    rows = [[status, _returned(one), one["description"]] for status, one in operation["responses"].items()]
    parts.append(table(["status", "body", "meaning"], rows))
    return "\n\n".join(part for part in parts if part)


def _returned(response: dict[str, Any]) -> str:
    return "; ".join(kind(one.get("schema", {})) for one in response.get("content", {}).values())


def _example(content: dict[str, Any]) -> str:
    shown = [content["example"]] if "example" in content else []
    shown += [example["value"] for example in content.get("examples", {}).values() if "value" in example]
    name = content.get("schema", {}).get("$ref", "").rsplit("/", 1)[-1]
    shown += _api()["components"]["schemas"].get(name, {}).get("examples", [])
    if not shown:
        return ""
    text = shown[0] if isinstance(shown[0], str) else json.dumps(shown[0], indent=2, ensure_ascii=False)
    return f"```\n{text}\n```"
