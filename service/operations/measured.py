"""The accuracy that a one-time release has measured itself, with noise, on people left out of it; public."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, Field

from accounting.ledger.budgets import SignedPlan, address
from accounting.ledger.charges import Ledger
from service.answering.mechanisms.adapter import MEASURED
from service.answering.once.making import ONE_RELEASE
from service.operations.wording import right_in
from service.records.signed import read_signed


class MeasuredView(BaseModel):
    """How often a one-time release is right, counted with noise on units that were left out of it."""

    accuracy: float = Field(
        ge=0, le=1, examples=[0.861], description="Share of right answers; each unit counts once, whatever it holds."
    )
    standard_error: float = Field(
        ge=0,
        le=0.5,
        examples=[0.011],
        description="Its standard error, from the number of units and the noise; 0.5: nothing is known.",
    )
    units: float = Field(ge=1, examples=[1090.2], description="Number of units that were left out, with noise.")

    def __str__(self) -> str:
        return right_in(self.accuracy, self.standard_error, self.units)


def measured(ledger: Ledger, plans: Iterable[SignedPlan]) -> dict[str, MeasuredView]:
    """The accuracies of the plans' one-time releases that measured themselves, by the task's address with version."""
    found = {}
    for plan in plans:
        for name, task in read_signed(plan.document).plan.once.items():
            if task.mechanism.left_out:
                where = address(plan.knowledge_base, name, plan.version)
                release = ledger.stored_release(ledger.budgets.task(where, even_retired=True), ONE_RELEASE)
                if release is not None:
                    found[where] = MeasuredView(**release.answer[MEASURED])
    return found
