"""The reference of plan files, from the models that read them."""

from __future__ import annotations

import inspect

from _site.tables import field_docstrings, fields
from accounting import mechanisms, tasks
from accounting import plan as plans
from accounting.plan import Plan

_HEAD = """# Plan files

A plan is YAML or JSON. Unknown keys are refused, numbers are not taken from strings, and each problem is reported with
its key. What the settings do, with examples: [for admins](../admin.md).

"""


def page() -> str:
    """Every key of a plan file."""
    schema = Plan.model_json_schema()
    parts = [_section("Plan", schema)]
    parts += [_section(name, one) for name, one in schema["$defs"].items()]
    return _HEAD + "\n".join(parts)


def _section(name: str, schema: dict[str, object]) -> str:
    model = getattr(plans, name, None) or getattr(tasks, name, None) or getattr(mechanisms, name)
    return f"## {name}\n\n{inspect.cleandoc(model.__doc__)}\n\n{fields(schema, field_docstrings(model))}"
