"""A lifetime budget and a public size, as forms give them: texts that become numbers, or what is wrong with each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from service.wording import figure

_LIMITS = {"gt": "more than", "ge": "at least", "le": "at most", "lt": "less than"}


def numbers(given: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """ε, δ and, where the form asks for it, the public size by field, and what cannot be read, by field."""
    values: dict[str, Any] = {}
    problems = {}
    for name, kind, example in (("epsilon", float, "8"), ("delta", float, "1e-5"), ("public_size", int, "20000")):
        if name not in given:
            continue
        try:
            values[name] = kind(given[name].replace(",", "") if kind is int else given[name])
        except ValueError:
            problems[name] = f"Enter a number, such as {example}."
    return values, problems


def out_of_range(error: ValidationError) -> dict[str, str]:
    """What a model says against values, by field."""
    return {str(one["loc"][0]): _in_words(one) for one in error.errors()}


def _in_words(error: Any) -> str:
    if error["loc"][0] == "name":
        return "Use small letters, digits, - and _, beginning with a letter or digit; at most 64."
    for limit, value in error.get("ctx", {}).items():
        if limit in _LIMITS:
            return f"This must be {_LIMITS[limit]} {figure(value)}."
    return f"{error['msg']}."
