"""A second person's approval of a plan: a signature over the bytes of its file, by a key that the operator named.

The person signs with OpenSSL, apart from the service. The trail keeps the text and the signature, so that an auditor
verifies the approval from an export, with the person's public key.
"""

from collections.abc import Mapping
from functools import partial

from accounting.ledger.events import Approval, PlanSigned
from accounting.ledger.trail import every
from accounting.plans.plan import CalibratedPlan, load_plan
from service.problem_kinds import ProblemKind, RefusalError
from service.records.records import Records

HOW = (
    "the person signs the file's exact bytes with `openssl pkeyutl -sign -inkey KEY.pem -rawin -in PLAN -out "
    "PLAN.sig`, and PLAN.sig comes with the plan: `dpicl plan sign PLAN --approval PLAN.sig`, or over REST the header "
    "x-dpicl-approval with the signature in base64"
)


class NotApprovedError(RefusalError):
    """A plan lacks the approval of a second person that the service demands; nothing is signed.

    Attributes:
        why: the reason, a sentence without its end.
    """

    kind = ProblemKind.PLAN_NOT_APPROVED
    field = "approval"

    def __init__(self, why: str, how: str = "") -> None:
        super().__init__(f"{why}{f': {how}' if how else ''}. Nothing was signed")
        self.why = why


def check_approval(approvers: Mapping[str, str], text: str, signature: str | None) -> Approval | None:
    """The approval of a plan as written; None where no plan needs one.

    Args:
        approvers: names of persons with their public keys, as of ``Settings.plan_approvers``.
        text: the plan's file.
        signature: the person's signature over the file's bytes, in base64; None: there is none.

    Raises:
        NotApprovedError: an approval is demanded and not given, or given and not demanded.
    """
    if not approvers:
        if signature is None:
            return None
        raise NotApprovedError(
            "no plan needs an approval here, so this one would count for nothing: leave it out, or let the operator "
            "name the person's key in DPICL_PLAN_APPROVERS"
        )
    people = ", ".join(sorted(approvers))
    if signature is None:
        raise NotApprovedError(f"a second person must approve the plan, one of {people}", HOW)
    for name, public_key in approvers.items():
        approval = Approval(by=name, public_key=public_key, signature=signature, text=text)
        if approval.is_genuine:
            return approval
    raise NotApprovedError(
        f"the approval is not a signature of this very file by one of {people}. A file that was changed afterwards, "
        "even in its line ends, must be approved again; it must be UTF-8 without a mark at its beginning",
        HOW,
    )


def check_approved(records: Records, calibrated: CalibratedPlan, approval: Approval | None) -> Approval | None:
    """The approval of a plan that is about to be signed; None where it needs none.

    Raises:
        NotApprovedError: it has none, another plan was approved, or the approval was used before.
    """
    text, signature = ("", None) if approval is None else (approval.text, approval.signature)
    approval = check_approval(records.settings.plan_approvers, text, signature)
    if approval is None:
        return None
    if not calibrated.is_of(load_plan(text)):
        raise NotApprovedError("the plan that was approved is another one")
    signed = partial(records.audit.events, kinds=[PlanSigned.kind], knowledge_base=calibrated.plan.knowledge_base)
    for event in every(signed):
        before = event.particulars
        if isinstance(before, PlanSigned) and before.approval is not None and before.approval.text == text:
            raise NotApprovedError(
                f"this approval was used for plan {before.version}: to sign the plan once more, let the person approve "
                "a changed file, such as one with a comment that gives the reason"
            )
    return approval
