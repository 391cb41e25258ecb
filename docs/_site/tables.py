"""Tables of fields, from JSON Schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

_LIMITS = {
    "minimum": "≥ {}",
    "maximum": "≤ {}",
    "exclusiveMinimum": "> {}",
    "exclusiveMaximum": "< {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "maxItems": "at most {}",
    "minProperties": "at least {}",
    "maxProperties": "at most {}",
    "pattern": "matches `{}`",
}


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *[[cell(c) for c in row] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def cell(text: str) -> str:
    """A text that stays within a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`")


def section(heading: str, schema: Schema) -> str:
    """A schema under its heading: its description, and its properties or its type."""
    body = fields(schema) if "properties" in schema else kind(schema)
    return f"{heading}\n\n{schema.get('description', '')}\n\n{body}\n"


def fields(schema: Schema) -> str:
    """A table of an object schema's properties."""
    required = schema.get("required", [])
    rows = [
        [f"`{name}`", kind(of), "required" if name in required else default(of), of.get("description", "")]
        for name, of in schema.get("properties", {}).items()
    ]
    return table(["name", "type", "default", "meaning"], rows)


def kind(schema: Schema) -> str:
    """A schema's type and limits in a few words; other objects are links to their own headings."""
    if ref := schema.get("$ref"):
        name = ref.rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return " or ".join(dict.fromkeys(kind(one) for one in schema[union] if one.get("type") != "null"))
    what = schema.get("format") or schema.get("type", "anything")
    if what == "array":
        items = schema.get("items") or {}
        what = f"list of {kind(items)}" if items else "list"
    if what == "object":
        values = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
        what = next((f"mapping of names to {kind(one)}" for one in values if isinstance(one, dict)), what)
    limits = [form.format(schema[key]) for key, form in _LIMITS.items() if key in schema]
    return ", ".join([what, *limits])


def default(schema: Schema) -> str:
    """Default of a property."""
    value = schema.get("default")
    if value is None or value == "":
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
