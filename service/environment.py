"""Settings read from environment variables that begin with ``DPICL_``: one way to write them, and to refuse them."""

import json
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from accounting.plans.described import Described
from accounting.plans.written_numbers import advice_on, read_as

PREFIX = "DPICL_"


class InvalidSettingError(ValueError):
    """Settings cannot be used; the message names their variables, and shows no secret."""


class FromEnvironment(Described, BaseSettings):
    """Settings; each field is the environment variable ``DPICL_<NAME>``.

    White space around a value does not count, and an empty value is as good as none, as manifests leave it.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True, enable_decoding=False)

    def __init__(self, **given: Any):
        try:
            super().__init__(**given)
        except ValidationError as error:  # which shows what was given, secrets too
            raise InvalidSettingError("; ".join(_in_words(problem) for problem in error.errors())) from None

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, written: object, info: ValidationInfo) -> object:
        if not isinstance(written, str):
            return written
        field = cls.model_fields[info.field_name or ""]
        text = written.strip()
        if not text and not field.is_required():
            return field.get_default()
        if text[:1] in ("'", '"') and text[-1:] == text[:1]:
            raise ValueError("it is in quotation marks: leave them out")
        if Path in get_args(field.annotation) and text.startswith("~"):
            raise ValueError("~ does not stand for your home here; write the whole path")
        if isinstance(field.default, (list, dict)):
            try:
                return json.loads(text)
            except ValueError:
                example = field.examples[0] if field.examples else field.default
                raise ValueError(f"it is not JSON, such as {json.dumps(example)}") from None
        return read_as(field.annotation, text)


def _in_words(problem: Any) -> str:
    name, *within = problem["loc"] or ("",)
    said = advice_on(problem) or problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "bool_parsing":
        said = "write true or false"
    return f"{PREFIX}{'.'.join([str(name).upper(), *map(str, within)])}: {said}" if name else said
