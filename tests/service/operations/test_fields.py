"""A mistake in an input is reported with the name of its field."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from service.operations.budgets import NewCohort, NewGroup
from service.operations.fields import problems
from service.operations.keys import NewKey
from service.operations.knowledge_bases import NewKnowledgeBase

RIGHT: dict[type[BaseModel], dict[str, Any]] = {
    NewKey: {"name": "ana", "role": "analyst"},
    NewGroup: {"name": "care", "epsilon": 5.0, "delta": 1.5e-4},
    NewCohort: {"epsilon": 5.0, "delta": 1e-5, "public_size": 900},
    NewKnowledgeBase: {"name": "notes", "epsilon": 6.0, "delta": 1e-5, "public_size": 20_000},
}
WRONG: dict[type[BaseModel], dict[str, list[Any]]] = {
    NewKey: {
        "name": ["", "  ", "\u00a0", "a" * 101, "a\nb", "a\u202eb", "a\u200bb"],
        "role": ["king"],
        "quota": [-1, 2**53, True],
        "rate_per_minute": [0, 1_000_001],
        "scope": [["All of it"], ["toys"] * 101],
        "expires_in_days": [0, 36_501],
        "owner": ["ana"],
    },
    NewGroup: {"name": ["No Name", ""], "epsilon": [float("nan"), 0.0], "delta": [0.0, 1.0]},
    NewCohort: {"epsilon": [0.0], "delta": [2.0], "public_size": [0, "900"]},
    NewKnowledgeBase: {
        "name": ["New Notes"],
        "epsilon": [0.0, float("nan"), 1001.0],
        "delta": [1e-13, 1.0],
        "public_size": [0, 10**9 + 1, 1.5],
        "owner": ["ana"],
    },
}


@pytest.mark.parametrize(
    ("model", "field", "value"),
    [(model, field, value) for model, fields in WRONG.items() for field, values in fields.items() for value in values],
)
def test_a_wrong_field_is_named(model: type[BaseModel], field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        model(**RIGHT[model] | {field: value})
    assert list(problems(refused.value, model)) == [field]
