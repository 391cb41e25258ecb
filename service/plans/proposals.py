"""Plans that two people sign: one proposes, another approves, and only then the budget is taken.

A proposal lapses when another plan of its knowledge base is signed: it was made in view of what was free then.
"""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import sqlalchemy as sa

from accounting.ledger import trail
from accounting.ledger.budgets import SignedPlan
from accounting.ledger.dialects import reading
from accounting.ledger.errors import PlansChangedError
from accounting.ledger.events import Approval, KeyCreated, KeyRotated, PersonSignedIn, PlanProposed
from accounting.ledger.two_persons import Hands
from accounting.plan import CalibratedPlan
from service.plans.signing import Make, check_finished, check_free, sign
from service.records.records import Records
from service.records.signed import read_signed
from service.records.tables import proposals

_TELL = [event.kind for event in (KeyCreated, KeyRotated, PersonSignedIn)]


class UnknownProposalError(LookupError):
    """No such proposal is open."""


class SamePersonError(ValueError):
    """The approver is in the same hands as the proposer."""


@dataclass(frozen=True)
class Proposal:
    """A plan that somebody else has to approve.

    Attributes:
        id: names it.
        knowledge_base: whose budget it would take from.
        document: the calibrated plan.
        after_version: of the newest plan when it was made.
        proposed_by: who made it, as the audit trail names them.
        proposed_at: when.
    """

    id: str
    knowledge_base: str
    document: str
    after_version: int
    proposed_by: str
    proposed_at: datetime

    @property
    def calibrated(self) -> CalibratedPlan:
        """The plan."""
        return read_signed(self.document)


def propose(records: Records, calibrated: CalibratedPlan, by: str, *, after_version: int | None = None) -> Proposal:
    """Propose a plan. Nothing is taken from the budget; the same plan proposed again is the same proposal.

    Args:
        records: where it is written.
        calibrated: from :func:`service.plans.signing.prepare`.
        by: who proposes, as the audit trail names them.
        after_version: propose only if this is the newest plan's version.

    Raises:
        PlanError: it is not finished.
        accounting.ledger.errors.PlansChangedError: it is not the newest.
        accounting.ledger.errors.BudgetExceededError: the lifetime budget has not enough left.
    """
    plan = calibrated.plan
    check_finished(plan)
    check_free(records, plan)
    newest = _newest(records, plan.knowledge_base)
    if after_version not in (None, newest):
        raise PlansChangedError(f"plan {newest} of {plan.knowledge_base!r} was signed in the meantime; look again")
    made = Proposal(str(uuid.uuid4()), plan.knowledge_base, calibrated.model_dump_json(), newest, by, datetime.now(UTC))
    for standing in open_proposals(records, plan.knowledge_base):
        if (standing.document, standing.proposed_by) == (made.document, by):
            return standing
    told = PlanProposed(knowledge_base=plan.knowledge_base, proposal=made.id, digest=calibrated.digest, by=by)
    with records.database.begin() as connection:
        connection.execute(sa.insert(proposals).values(**vars(made)))
        trail.append(connection, made.proposed_at, told)
    return made


def open_proposals(records: Records, knowledge_base: str) -> list[Proposal]:
    """Those that can be approved, oldest first.

    Raises:
        accounting.ledger.errors.UnknownBudgetError: no such knowledge base.
    """
    current = sa.and_(
        proposals.c.knowledge_base == knowledge_base, proposals.c.after_version == _newest(records, knowledge_base)
    )
    with reading(records.database) as connection:
        rows = connection.execute(sa.select(proposals).where(current).order_by(proposals.c.proposed_at)).all()
    return [Proposal(**row._mapping) for row in rows]


def may_approve(records: Records, proposal: Proposal, by: str) -> bool:
    """Whether somebody is another person than who proposed, as far as the trail can tell."""
    known = Hands()
    for event in trail.every(partial(records.audit.events, kinds=_TELL)):
        if (happened := event.particulars) is not None:
            known.note(happened)
    return not known.are_one(proposal.proposed_by, by)


def approve(records: Records, knowledge_base: str, proposal: str, by: str, make: Make | None = None) -> SignedPlan:
    """Approve a proposal, which signs it: once, and as :func:`service.plans.signing.sign` does.

    Args:
        records: where it is written.
        knowledge_base: whose.
        proposal: its id.
        by: who approves and so signs, as the audit trail names them.
        make: as of signing.

    Raises:
        UnknownProposalError: it is not open: another plan was signed since, perhaps this one.
        SamePersonError: the proposer is in the same hands.
    """
    lapsed = UnknownProposalError(
        f"{knowledge_base} has no open proposal {proposal!r}: a plan that was signed since makes others lapse"
    )
    waiting = next((listed for listed in open_proposals(records, knowledge_base) if listed.id == proposal), None)
    if waiting is None:
        raise lapsed
    if not may_approve(records, waiting, by):
        raise SamePersonError(
            "somebody else must approve this: you proposed it, or a key of yours made or rotated the key that did, or "
            "somebody made or rotated both"
        )
    approval = Approval(waiting.id, by)
    after = waiting.after_version
    twin = records.ledger.budgets.newest_equal(knowledge_base, waiting.document)  # confirmed when it was proposed
    try:
        return sign(records, waiting.calibrated, by, after_version=after, again=twin, make=make, approval=approval)
    except PlansChangedError:
        raise lapsed from None


def _newest(records: Records, knowledge_base: str) -> int:
    records.ledger.budgets.status(knowledge_base)
    return max((plan.version for plan in records.ledger.budgets.plans(knowledge_base)), default=0)
