"""Plans as people write them: their schema, and examples."""

from collections.abc import Mapping
from typing import Any

from accounting.plans import plain_yaml
from accounting.plans.plan import Plan

CLASSIFY: dict[str, Any] = {
    "knowledge_base": "support",
    "budget": {"epsilon": 2, "delta": 1e-4},
    "tasks": {
        "queue": {
            "kind": "classify",
            "labels": ["Billing", "Technical"],
            "prompt": {"exemplar": "Ticket: {text}\nQueue: {label}", "query": "Ticket: {text}\nQueue:"},
            "shots": 4,
            "ensemble": 40,
            "answers": 500,
            "mechanism": {"type": "rnm_gaussian", "vote": "soft"},
        }
    },
}
GENERATE = {
    **CLASSIFY,
    "tasks": {
        "reply": {
            "kind": "generate",
            "response_field": "reply",
            "prompt": {"exemplar": "Ticket: {text}\nReply: {reply}", "query": "Ticket: {text}\nReply:"},
            "public_answers": ["A refund takes five working days.", "You can change your address under Settings."],
            "shots": 4,
            "ensemble": 40,
            "answers": 50,
            "mechanism": {"type": "keyword_ptr", "k_min": 1, "k_max": 8},
        }
    },
}


def as_yaml(plan: Mapping[str, Any]) -> str:
    """A plan as people write it.

    Args:
        plan: a mapping of plain values.
    """
    return plain_yaml.dump(plan)


def schema(reference: str) -> dict[str, Any]:
    """The JSON Schema of a plan, with those of its parts in ``$defs``.

    Args:
        reference: template of a reference to a part, with ``{model}`` for the part's name.
    """
    return Plan.model_json_schema(ref_template=reference)
