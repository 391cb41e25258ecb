"""What is wrong with an input, by field and in words: the same sentences on every form."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from service.wording import figure

_LIMITS = {"gt": "more than", "ge": "at least", "le": "at most", "lt": "less than"}


class FieldError(ValueError):
    """A field of the input is wrong; nothing was done.

    Attributes:
        field: its name.
        why: what is wrong with it, a sentence without its end.
    """

    def __init__(self, field: str, why: str):
        super().__init__(f"{field}: {why}")
        self.field = field
        self.why = why


def problems(error: ValidationError | FieldError, model: type[BaseModel]) -> dict[str, str]:
    """What is wrong, a sentence for each field of ``model``; the first of several."""
    if isinstance(error, FieldError):
        return {error.field: _sentence(error.why)}
    found: dict[str, str] = {}
    for one in error.errors():
        field = str(one["loc"][0]) if one["loc"] else next(iter(model.model_fields))
        found.setdefault(field, _in_words(one, model, field))
    return found


def _in_words(error: Any, model: type[BaseModel], field: str) -> str:
    extra: Any = model.model_config.get("json_schema_extra", {})
    example = extra["examples"][0].get(field) if "examples" in extra else None
    such_as = f", such as {figure(example)}" if isinstance(example, int | float) else ""
    match error["type"]:
        case "missing":
            return "Fill this in."
        case "string_pattern_mismatch":
            described = model.model_fields[field].description
            return f"Use this: {described}" if described else "This has characters that cannot be used."
        case "int_parsing" | "int_parsing_size" | "int_type":
            return f"Enter a whole number{such_as}."
        case "float_parsing" | "float_type":
            return f"Enter a number{such_as}."
        case "literal_error":
            return "Choose one of them."
    for limit, value in error.get("ctx", {}).items():
        if limit in _LIMITS:
            return f"This must be {_LIMITS[limit]} {figure(value)}."
    return _sentence(error["msg"].removeprefix("Value error, "))


def _sentence(why: str) -> str:
    return f"{why[:1].upper()}{why[1:].removesuffix('.')}."
