"""Problems of an input, by field and in words: the same sentences on every form."""

from typing import Annotated, Any

import regex
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from accounting.ledger.errors import did_you_mean as did_you_mean  # for faces, too
from accounting.plans.written_numbers import WrittenWhole as WrittenWhole
from accounting.plans.written_numbers import advice_on as advice_on  # for faces, too
from accounting.plans.written_numbers import read_as as read_as
from accounting.plans.written_numbers import read_number as read_number
from service.operations.wording import figure
from service.problem_kinds import ProblemKind, RefusalError

NAME = "[a-z0-9][a-z0-9_-]{0,63}"
"""Pattern of the name of a knowledge base, a task or a group."""
Name = Annotated[str, Field(pattern=f"^{NAME}$", description="Small letters, digits, - and _.")]
Scope = Annotated[str, Field(pattern=rf"^{NAME}(\.{NAME})?$")]
"""A knowledge base or one of its tasks."""

_PRINTABLE = regex.compile(r"\P{C}*[^\p{C}\s]\P{C}*")


def _printable(text: str) -> str:
    if not _PRINTABLE.fullmatch(text):
        raise PydanticCustomError("string_pattern_mismatch", "use printable characters, not all of them spaces")
    return text


Printable = Annotated[
    str,
    AfterValidator(_printable),
    Field(json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$"}),
]
"""Text for people to read, such as a name.

The published pattern is weaker than the check, since classes of characters differ between dialects of regular
expressions.
"""

_LIMITS = {"gt": "more than", "ge": "at least", "le": "at most", "lt": "less than"}


ABSENT: dict[str, Any] = {"default": None, "exclude_if": lambda value: value is None}
"""Arguments of the field of an output that is absent if it is None."""


def inputs(**example: Any) -> ConfigDict:
    """Configuration of an input: unknown fields are refused, and values are not converted.

    Args:
        example: values of its fields, for the documentation.
    """
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [example]})


class FieldError(RefusalError, ValueError):
    """A field of the input is wrong; nothing was done.

    Attributes:
        field: name of the field.
        why: the problem, a sentence without capital and full stop.
    """

    kind = ProblemKind.INVALID_REQUEST

    def __init__(self, field: str, why: str):
        super().__init__(f"{field}: {why}")
        self.field = field
        self.why = why


def problems(error: ValidationError, model: type[BaseModel]) -> dict[str, str]:
    """Problems of an input, a sentence for each field of ``model`` that has one: its first."""
    first = next(iter(model.model_fields))
    sentences: dict[str, str] = {}
    for detail in error.errors():
        field = str(detail["loc"][0]) if detail["loc"] else first
        sentences.setdefault(field, _in_words(detail, model, field))
    return sentences


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
        case _ if (advice := advice_on(error)) is not None:
            return sentence(advice)
        case "int_parsing" | "int_parsing_size" | "int_type":
            return f"Enter a whole number{such_as}."
        case "float_parsing" | "float_type":
            return f"Enter a number{such_as}."
        case "literal_error":
            return "Choose one of them."
    for limit, value in error.get("ctx", {}).items():
        if limit in _LIMITS:
            return f"This must be {_LIMITS[limit]} {figure(value)}."
    return sentence(error["msg"].removeprefix("Value error, "))


def sentence(why: str) -> str:
    """A reason as a sentence."""
    return f"{why[:1].upper()}{why[1:].removesuffix('.')}."
