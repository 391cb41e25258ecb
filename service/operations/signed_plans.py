"""Signed plans: one in full with its preview, and as text for the next plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from accounting.ledger.budgets import SignedPlan
from accounting.plans import plain_yaml
from accounting.plans.plan import CalibratedPlan
from service.answering.plans.preview import PlanPreview, preview
from service.operations import plans
from service.operations.command import command
from service.operations.keys import called
from service.operations.roles import Actor, Right
from service.records.records import Records
from service.records.signed import read_signed


@dataclass(frozen=True)
class SignedPlans:
    """The plans of a knowledge base, one of them in full.

    Attributes:
        versions: versions of all plans, the newest first.
        plan: one plan as it was signed; None: no plan is signed yet.
        calibrated: the same plan, read.
        gives: preview of the plan.
        signed_by: name of the signer, for people.
        retired_at: time since which its tasks answer no more; None: they do.
    """

    versions: Sequence[int]
    plan: SignedPlan | None = None
    calibrated: CalibratedPlan | None = None
    gives: PlanPreview | None = None
    signed_by: str = ""
    retired_at: datetime | None = None


@command(Right.BROWSE)
def read(actor: Actor, records: Records, name: str, version: int | None = None) -> SignedPlans:
    """The plans of a knowledge base, and in full the plan of a version, or else the newest.

    Raises:
        accounting.ledger.errors.UnknownPlanError: no signed plan has this version.
    """
    signed = plans.list_(actor, records, name)
    versions = [plan.version for plan in reversed(signed)]
    if version is None and not signed:
        return SignedPlans(versions)
    plan = signed[-1] if version is None else records.ledger.budgets.plan(name, version)
    calibrated = read_signed(plan.document)
    by = called(plan.signed_by, plans.names(actor, records))
    retired_at = records.ledger.budgets.retired(name).get(plan.version)
    return SignedPlans(versions, plan, calibrated, preview(calibrated), by, retired_at)


@command(Right.DECIDE)
def text(_actor: Actor, records: Records, name: str, version: int) -> str:
    """A signed plan as YAML, to be changed.

    Raises:
        accounting.ledger.errors.UnknownPlanError: no signed plan has this version.
    """
    return as_text(records.ledger.budgets.plan(name, version).document)


def as_text(document: str) -> str:
    """A signed plan as YAML.

    Args:
        document: document of a :class:`accounting.ledger.budgets.SignedPlan`.
    """
    plan = read_signed(document).plan
    left_out: Any = {"tasks": {name: set(task.releases.unset) for name, task in plan.tasks.items()}}
    written = plan.model_dump(mode="json", exclude_defaults=True, exclude=left_out)
    return plain_yaml.dump(written)
