"""Models with fields that are described by the docstring below each.

Pydantic reads such docstrings, too, but when a class is made, which is a tenth of the time that a command takes to
import. Here they are read when someone asks.
"""

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel


class Described(BaseModel):
    """A model with a JSON schema that has the docstrings of its fields."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        schema: dict[str, Any] = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in descriptions(cls).items():
            properties[name].setdefault("description", text)
        return schema


def descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """The docstrings below the fields of a model and of the models that it inherits from, by field."""
    found = {}
    for each in reversed(model.__mro__):
        definition = _definitions(each.__module__).get(each.__name__) if issubclass(each, Described) else None
        for field, below in pairwise(definition.body if definition else ()):
            match field, below:
                case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))) if name in model.model_fields:
                    found[name] = inspect.cleandoc(text)
    return found


@cache
def _definitions(module: str) -> Mapping[str, ast.ClassDef]:
    """The classes of a module's source, by name."""
    nodes = ast.walk(ast.parse(inspect.getsource(sys.modules[module])))
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
