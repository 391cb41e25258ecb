"""The reference of plan files, from the models that read them."""

from __future__ import annotations

from _site.tables import section
from accounting.plans.plan import Plan

_HEAD = """# Plan files

For admins: every key of a plan file. [Plans](../plans.md) explains the settings, with examples.

A plan is YAML or JSON. Unknown keys are refused, numbers are not taken from strings, and each problem is reported with
its key.

"""


def page() -> str:
    """Every key of a plan file."""
    schema = Plan.model_json_schema()
    parts = {"Plan": schema, **schema["$defs"]}
    return _HEAD + "\n".join(section(f"## {name}", part) for name, part in parts.items())
