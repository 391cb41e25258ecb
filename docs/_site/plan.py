"""The reference of plan files, from the models that read them."""

from __future__ import annotations

from _site.tables import section
from accounting.plans.plan import Plan

_HEAD = """# Plan files

A plan is YAML or JSON. Unknown keys are refused, numbers are not taken from strings, and each problem is reported with
its key. What the settings do, with examples: [plans](../plans.md).

"""


def page() -> str:
    """Every key of a plan file."""
    schema = Plan.model_json_schema()
    parts = {"Plan": schema, **schema["$defs"]}
    return _HEAD + "\n".join(section(f"## {name}", part) for name, part in parts.items())
