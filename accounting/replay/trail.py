"""Replaying an export of the audit trail, offline: is it whole, and did the ledger keep every plan?

An export stands by itself: this module needs neither the database nor the service. It finds an event that was changed,
left out or moved, since each is bound by its hash to all before it. It then follows every budget, plan, charge and key
through its states, and computes what each plan promised by accountants other than the one that calibrated it.

A chain cannot vouch for its own end: an attacker who rewrites or cuts it from some event on makes another valid one.
So keep the hash of the newest event somewhere else now and then, or a signed checkpoint, and give it to :func:`verify`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from accounting.ledger.amounts import exact
from accounting.ledger.budgets import address
from accounting.ledger.entries import parts
from accounting.ledger.events import Particulars, PlanSigned, read
from accounting.ledger.events.replayed import Replayed
from accounting.ledger.notes import Checkpoint, VerifierKey
from accounting.ledger.trail import FIRST, canonical, digest
from accounting.plans.plan import CalibratedPlan, load_plan
from accounting.privacy.accountants import ACCOUNTANTS, AccountantsDisagreeError, compare
from accounting.privacy.bounds import EpsilonBounds, UnsupportedEventsError
from accounting.replay.signed_heads import SignedHead, SignedHeads

MOST_PROBLEMS = 100
_CALIBRATION_SLACK = 1e-9  # a plan's ε is a decimal, its accountant's bound a float

Progress = Callable[[str], None]


@dataclass
class Report:
    """The findings of a replay.

    Attributes:
        events: number of events.
        head: hash of the last event.
        problems: problems found, in words; at most the first 100.
        plans: ε that each accountant finds in a plan, by plan (``support@1``).
        charged: number of charges that were not voided, by task address.
        released: number of answers released, by task address.
        signatures: genuine signatures of checkpoints that these events fit.
        unchecked: whether there is a signed checkpoint, and no key was given to check it by.
    """

    events: int = 0
    head: str = FIRST
    problems: list[str] = field(default_factory=list)
    plans: dict[str, dict[str, EpsilonBounds]] = field(default_factory=dict)
    charged: Counter[str] = field(default_factory=Counter)
    released: Counter[str] = field(default_factory=Counter)
    signatures: list[SignedHead] = field(default_factory=list)
    unchecked: bool = False


def verify(
    lines: Iterable[str],
    *,
    heads: Iterable[str] = (),
    keys: Iterable[VerifierKey] = (),
    checkpoints: Iterable[Checkpoint] = (),
    recompute: bool = True,
    progress: Progress = lambda _text: None,
) -> Report:
    """Replay an export.

    Args:
        lines: lines of :meth:`accounting.ledger.trail.AuditTrail.export`: one JSON object each; the last marks the end.
        heads: hashes noted from earlier exports; each must be the hash of one of these events.
        keys: verifier keys of the log and its witnesses, as :class:`accounting.replay.signed_heads.SignedHeads` takes
            them.
        checkpoints: signed checkpoints kept elsewhere; each must fit these events.
        recompute: whether to compute plans again, which takes seconds each.
        progress: called with what takes long.
    """
    replay = _Replay()
    signed = SignedHeads(keys, checkpoints)
    ended = False
    unseen = set(heads)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if ended:
            replay.wrong(f"line {number}: something follows the export's last line")
            break
        try:
            parsed = json.loads(line)
            if "end" in parsed:
                ended = True
                replay.end(parsed["end"])
                if "checkpoint" in parsed:
                    signed.end(parsed["checkpoint"])
            else:
                signed.add(line.removesuffix("\n"))
                replay.link(parsed)
                unseen.discard(str(parsed["hash"]))
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            replay.wrong(f"line {number} is not an event of an export ({type(error).__name__}: {error})")
            break
    if not ended:
        replay.wrong("the export is cut off: its last line must name the trail's end")
    for head in sorted(unseen):
        replay.wrong(f"no event has the hash {head}, noted earlier: the trail was rewritten or cut")
    replay.report.signatures, problems = signed.compare()
    replay.report.unchecked = signed.unchecked
    for problem in problems:
        replay.wrong(problem)
    if recompute:
        for plan in replay.plans:
            progress(plan)
            replay.recompute(plan)
    return replay.report


class _Replay:
    """Checks the chain and the plans; each kind of event has its own rule."""

    def __init__(self) -> None:
        self.past = Replayed()
        self.report = Report(charged=self.past.charged, released=self.past.released)
        self.plans: dict[str, tuple[CalibratedPlan, PlanSigned]] = {}

    def wrong(self, problem: str) -> None:
        if len(self.report.problems) < MOST_PROBLEMS:
            self.report.problems.append(problem)

    def link(self, event: Mapping[str, Any]) -> None:
        """Check the chain, then what happened."""
        sequence, at, kind, body = event["sequence"], event["at"], event["kind"], canonical(event["body"])
        here = f"event {sequence} ({kind})"
        if sequence != self.report.events + 1:
            self.wrong(f"{here} follows event {self.report.events}: events are missing, repeated or out of order")
        if event["previous"] != self.report.head:
            self.wrong(f"{here} does not continue the event before it: something was removed, moved or changed")
        if digest(sequence, at, kind, body, event["previous"]) != event["hash"]:
            self.wrong(f"{here} does not have the hash it was written with: it was changed")
        self.report.events = self.past.events = sequence
        self.report.head = event["hash"]
        particulars = read(kind, body)
        if particulars is None:
            self.wrong(f"{here} is of a kind this version does not know: use the version that wrote it, or a newer one")
            return
        for problem in self.follow(particulars):
            self.wrong(f"{here}: {problem}")

    def end(self, end: Mapping[str, Any]) -> None:
        if (end["sequence"], end["hash"]) != (self.report.events, self.report.head):
            self.wrong(f"the trail ended with event {end['sequence']}, the export with event {self.report.events}")

    def follow(self, happened: Particulars) -> Iterable[str]:
        """Take one event into account; yields problems with it, in words."""
        yield from happened.replay(self.past)
        if isinstance(happened, PlanSigned) and happened.knowledge_base in self.past.budgets:
            yield from self._read(happened)

    def _read(self, signed: PlanSigned) -> Iterable[str]:
        """Check that what was granted is in the plan's document."""
        name, version = signed.knowledge_base, signed.version
        plan = CalibratedPlan.model_validate_json(signed.document)
        for named, answers in signed.answers.items():
            task, _ = parts(named)
            self.past.tasks[address(name, named, version)] = answers, task in plan.plan.once
            self.past.asked.add(address(name, task, version))
        planned, budget = dict(plan.plan.counters()), plan.plan.budget
        if planned != signed.answers or plan.plan.knowledge_base != name:
            yield "the tasks granted are not those of the plan's document"
        if plan.cohorts != signed.cohorts:
            yield "the cohorts charged are not those of the plan's document"
        if (exact(budget.epsilon), exact(budget.delta)) != (exact(signed.epsilon), exact(signed.delta)):
            yield "the (ε, δ) granted is not that of the plan's document"
        if signed.approval is not None and not plan.is_of(load_plan(signed.approval.text)):
            yield f"the plan that {signed.approval.by} approved is another one"
        self.plans[f"{name}@{version}"] = plan, signed

    def recompute(self, name: str) -> None:
        """Whether other accountants agree with what a plan promises."""
        plan, signed = self.plans[name]
        accountant, epsilon = signed.accountant, signed.epsilon
        try:
            found = compare(plan.events(), float(signed.delta))
        except (AccountantsDisagreeError, UnsupportedEventsError, ValueError) as error:
            self.wrong(f"plan {name}: {error}")
            return
        self.report.plans[name] = found
        if accountant not in found:
            self.wrong(f"plan {name}: {accountant!r} cannot have calibrated it; there are {', '.join(ACCOUNTANTS)}")
            return
        promised = float(epsilon) * (1 + _CALIBRATION_SLACK)
        if found[accountant].upper > promised:
            self.wrong(f"plan {name} promises epsilon {epsilon}, and {accountant} finds {found[accountant].upper:.6g}")
        for other, bounds in found.items():
            if bounds.lower > promised:
                self.wrong(f"plan {name} promises epsilon {epsilon}, and {other} finds at least {bounds.lower:.6g}")
