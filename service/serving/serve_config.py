"""Reading a Ray Serve config strictly: Serve itself accepts unknown keys without a word."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ray.serve.schema import ServeDeploySchema

from accounting.plans import plain_yaml
from accounting.plans.written_numbers import advice_on
from service.serving.application import ApplicationArgs
from service.sources.encodings import read_text

_FREE_FORM = {"args", "runtime_env", "user_config", "resources"}


def load_serve_config(path: Path) -> ServeDeploySchema:
    """Read and check a Serve config.

    Raises:
        ValueError: not YAML, values that Serve's YAML 1.1 reads as others, unknown keys, or values Serve refuses; names
            the key.
    """
    try:
        raw = plain_yaml.load(read_text(path))
    except plain_yaml.NotPlainError as error:
        said = [f"{key or f'line {line}'}: {why}" if key or line else why for key, why, line in error.problems]
        raise ValueError(f"{path}: {'; '.join(said)}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: a Serve config is a mapping with the key applications")
    try:
        schema = ServeDeploySchema.model_validate(raw)
        for application in raw["applications"]:
            ApplicationArgs.model_validate(application.get("args", {}))
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, e['loc']))}: {advice_on(e) or e['msg'].removeprefix('Value error, ')}"
            for e in error.errors()
        ]
        raise ValueError(f"{path}: {'; '.join(problems)}") from None
    # What Serve read, dumped again, lacks exactly the keys it did not know.
    if unknown := sorted(_missing(raw, schema.model_dump(exclude_unset=True))):
        raise ValueError(f"{path}: unknown keys {', '.join(unknown)}")
    return schema


def _missing(given: Any, read: Any, at: str = "") -> Iterator[str]:
    if isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():
            where = f"{at}.{key}" if at else str(key)
            if key not in read:
                yield where
            elif key not in _FREE_FORM:
                yield from _missing(value, read[key], where)
    elif isinstance(given, list) and isinstance(read, list):
        for index, (member, other) in enumerate(zip(given, read, strict=False)):
            yield from _missing(member, other, f"{at}.{index}")
