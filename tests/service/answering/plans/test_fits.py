"""Plans that a knowledge base does not fit are refused with a way that leads out."""

import pytest

from accounting.plans.plan import PlanError, load_plan
from service.answering.plans.signing import check_fits
from service.operations.services import Services
from tests.service.conftest import PLAN

NEAREST = PLAN.replace("shots: 2", "shots: 1\n    drawn: 2\n    order: nearest")


@pytest.mark.parametrize(
    ("compared_by", "problem"),
    [("label", "create another knowledge base whose embedded_field .* such as text"), ("note", "must ask for note")],
)
def test_exemplars_are_compared_by_what_questions_have(services: Services, compared_by: str, problem: str) -> None:
    """The answer cannot be added to a question, so another advice is given where exemplars are compared by it."""
    services.records.create_knowledge_base(
        "other",
        epsilon=4,
        delta=1e-4,
        public_size=60,
        fields=["label", "text", "note"],
        embedded_field=compared_by,
    )
    with pytest.raises(PlanError, match=problem):
        check_fits(load_plan(NEAREST), services.records.store.get("other"))
