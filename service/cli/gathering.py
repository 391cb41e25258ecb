"""Options that belong together are declared once, as the fields of a model, and a command takes the model.

Typer takes no models, and pydantic-typer imports what Typer has no more. Cyclopts and pydantic-settings do, but show
pydantic's own text for a wrong value, with a link to pydantic's site, and describe a field in one way only.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial, wraps
from typing import Annotated, Any, get_args, get_type_hints

import typer
from pydantic import BaseModel
from typer.core import TyperCommand
from typer.models import CommandFunctionType, ParameterInfo

from accounting.plans.described import Described, descriptions
from accounting.plans.written_numbers import number_in, read_as

NOTHING: Mapping[str, Any] = {}


class Options(Described):
    """Options that belong together; the docstring below each is its help."""


_USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]


class _Command(TyperCommand):
    """A command that reads numbers as :func:`accounting.plans.written_numbers.read_number` does.

    Typer reads them as Python or pydantic does: 1.000 as 1 where a whole number is wanted, and 1_000 as 1000.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for parameter in self.params:
            if number_in(parameter.type_descriptor.annotation):  # type: ignore[attr-defined]
                parameter.process_value = partial(_read, parameter, parameter.process_value)  # type: ignore[method-assign]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; an error about a text that begins with a dash names the way to write it."""
        try:
            return super().parse_args(ctx, args)
        except _USAGE_ERROR as error:
            option = getattr(error, "option_name", "")
            if re.fullmatch("-[^-]", option) or " " in option:
                error.message += ". Write -- before a text that begins with -"  # type: ignore[attr-defined]
            raise


def _read(parameter: Any, process: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    annotation, many = parameter.type_descriptor.annotation, isinstance(value, list | tuple)
    try:
        read = [read_as(annotation, one) for one in (value if many else [value])]
    except ValueError as error:
        raise typer.BadParameter(str(error), context, parameter) from None
    return process(context, read if many else read[0])


class Commands(typer.Typer):
    """Commands that belong together, each of them :func:`gathered`."""

    def __init__(self, **settings: Any):
        super().__init__(no_args_is_help=True, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Add a command; arguments as of Typer's."""
        add = super().command(name, **{"cls": _Command, **settings})

        def gather(function: CommandFunctionType) -> CommandFunctionType:
            add(gathered(function))
            return function

        return gather


def gathered(function: Callable[..., None]) -> Callable[..., None]:
    """A command with an option for each field of its parameters that are models; options not given are not set in them.

    The help of a parameter stands under ``Args:``, the last of the docstring, that of a field in its description. The
    help in an annotation has precedence, and for a field so does a mapping of options by field in the parameter's
    annotation.
    """
    signature = inspect.signature(function, eval_str=True)
    text, _, args = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")
    described = dict(re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", args, re.MULTILINE))
    models: dict[str, type[BaseModel]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        model, *others = get_args(parameter.annotation) or (parameter.annotation,)
        if isinstance(model, type) and issubclass(model, BaseModel):
            models[name] = model
            parameters += _options(model, *others)
        else:
            annotation = _described(parameter.annotation, described.get(name))
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation))

    @wraps(function)
    def command(**given: Any) -> None:
        for name, model in models.items():
            required = {field for field, described in model.model_fields.items() if described.is_required()}
            fields = {field: given.pop(field) for field in model.model_fields}
            said = {field: value for field, value in fields.items() if value is not None or field in required}
            given[name] = model(**said)
        function(**given)

    command.__doc__ = text
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _options(model: type[BaseModel], others: Mapping[str, Any] = NOTHING) -> list[inspect.Parameter]:
    types, docstrings = get_type_hints(model), descriptions(model)
    parameters = []
    for name, field in model.model_fields.items():
        names = [f"--{name.replace('_', '-')}"] if types[name] is bool else []
        own = next((mark for mark in field.metadata if isinstance(mark, ParameterInfo)), None)
        annotation = Annotated[types[name], others.get(name) or own or typer.Option(*names)]  # type: ignore[valid-type]
        default = field.get_default(call_default_factory=True)
        if field.is_required():
            default = None if type(None) in get_args(types[name]) else inspect.Parameter.empty
        described = _described(annotation, field.description or docstrings.get(name))
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=described)
        )
    return parameters


def _described(annotation: Any, text: str | None) -> Any:
    """The annotation of an option, with the text as its help unless it has one."""
    marks = getattr(annotation, "__metadata__", ())
    own = next((mark for mark in marks if isinstance(mark, ParameterInfo)), None)
    if text is None or (own and own.help):
        return annotation
    described = copy(own) if own else typer.Option()
    described.help = " ".join(text.split())
    return Annotated[get_args(annotation)[0] if marks else annotation, described]
