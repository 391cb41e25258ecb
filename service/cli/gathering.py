"""Options that belong together are declared once, as the fields of a model, and a command takes the model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

import typer
from pydantic import BaseModel
from typer.models import ParameterInfo

NOTHING: Mapping[str, Any] = {}


def gathered(function: Callable[..., None]) -> Callable[..., None]:
    """A command with an option for each field of its parameters that are models; what nobody gives is left out of them.

    An option says what its field's description says, unless the field is annotated with an option of its own, or the
    parameter with a mapping of options by field.
    """
    signature = inspect.signature(function, eval_str=True)
    models: dict[str, type[BaseModel]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        model, *others = get_args(parameter.annotation) or (parameter.annotation,)
        if isinstance(model, type) and issubclass(model, BaseModel):
            models[parameter.name] = model
            parameters += _options(model, *others)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(function)
    def command(**given: Any) -> None:
        for name, model in models.items():
            fields = {field: given.pop(field) for field in model.model_fields}
            given[name] = model(
                **{
                    field: value
                    for field, value in fields.items()
                    if value is not None or model.model_fields[field].is_required()
                }
            )
        function(**given)

    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _options(model: type[BaseModel], others: Mapping[str, Any] = NOTHING) -> list[inspect.Parameter]:
    types = get_type_hints(model)
    parameters = []
    for name, field in model.model_fields.items():
        names = [f"--{name.replace('_', '-')}"] if types[name] is bool else []
        own = next((mark for mark in field.metadata if isinstance(mark, ParameterInfo)), None)
        shown = others.get(name) or own or typer.Option(*names, help=field.description)
        default = field.get_default(call_default_factory=True)
        if field.is_required():
            default = None if type(None) in get_args(types[name]) else inspect.Parameter.empty
        annotation = Annotated[types[name], shown]  # type: ignore[valid-type]
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )
    return parameters
