"""A signed task as the engines see it."""

import pytest

from accounting.plans.plan import load_plan
from exemplar_store import Exemplar
from service.answering.queries import task_spec
from service.engines.prompts import render
from tests.service.conftest import PLAN


@pytest.mark.parametrize("spelt", ["red", "Red", "RED\xa0"])
def test_language_models_are_shown_labels_as_the_plan_spells_them(spelt: str) -> None:
    task = load_plan(PLAN).tasks["colour"]
    spec = task_spec("toys.colour@1", task, "toys", "text", response_field=None, asker="")
    slots = [(Exemplar({"text": "a ball", "label": label}, None),) for label in ("red", spelt)]
    one, other = (render(spec.prompt, {"text": "a brick"}, slot) for slot in slots)
    assert one == other
