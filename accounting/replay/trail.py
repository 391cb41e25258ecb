"""Replaying an export of the audit trail, offline: is it whole, and did the ledger keep every plan?

An export stands by itself: this module needs neither the database nor the service. It finds an event that was changed,
left out or moved, since each is bound by its hash to all before it. It then follows every budget, plan, charge and key
through its states, and computes what each plan promised by accountants other than the one that calibrated it.

A chain cannot vouch for its own end: an attacker who rewrites or cuts it from some event on makes another valid one.
So keep the hash of the newest event somewhere else now and then, and give it to :func:`verify`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import Any

from accounting.ledger import events
from accounting.ledger.amounts import Pair, exact, rest, total
from accounting.ledger.budgets import address
from accounting.ledger.entries import parts
from accounting.ledger.quotas import in_scope
from accounting.ledger.trail import FIRST, canonical, digest
from accounting.plans.plan import CalibratedPlan
from accounting.privacy.accountants import ACCOUNTANTS, AccountantsDisagreeError, compare
from accounting.privacy.bounds import EpsilonBounds, UnsupportedEventsError

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
    """

    events: int = 0
    head: str = FIRST
    problems: list[str] = field(default_factory=list)
    plans: dict[str, dict[str, EpsilonBounds]] = field(default_factory=dict)
    charged: Counter[str] = field(default_factory=Counter)
    released: Counter[str] = field(default_factory=Counter)


def verify(
    lines: Iterable[str],
    *,
    heads: Iterable[str] = (),
    recompute: bool = True,
    progress: Progress = lambda _text: None,
) -> Report:
    """Replay an export.

    Args:
        lines: lines of :meth:`accounting.ledger.trail.AuditTrail.export`: one JSON object each; the last marks the end.
        heads: hashes noted from earlier exports; each must be the hash of one of these events.
        recompute: whether to compute plans again, which takes seconds each.
        progress: called with what takes long.
    """
    replay = _Replay()
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
            else:
                replay.link(parsed)
                unseen.discard(str(parsed["hash"]))
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            replay.wrong(f"line {number} is no event of an export ({type(error).__name__}: {error})")
            break
    if not ended:
        replay.wrong("the export is cut off: its last line must say where the trail ended")
    for head in sorted(unseen):
        replay.wrong(f"no event has the hash {head}, noted earlier: the trail was rewritten or cut")
    if recompute:
        for plan in replay.plans:
            progress(plan)
            replay.recompute(plan)
    return replay.report


class _Replay:
    """The state that the events read so far add up to."""

    def __init__(self) -> None:
        self.report = Report()
        self.plans: dict[str, tuple[CalibratedPlan, events.PlanSigned]] = {}
        self._budgets: dict[str, list[Pair]] = {}  # of each cohort
        self._closed: set[tuple[str, int]] = set()
        self._archived: set[str] = set()
        self._granted: dict[str, list[tuple[tuple[int, ...], Pair]]] = {}  # cohorts, (ε, δ)
        self._groups: dict[str, Pair] = {}
        self._group_of: dict[str, str] = {}
        self._tasks: dict[str, tuple[int, bool]] = {}  # answers; whether there is one release
        self._asked: set[str] = set()  # tasks, without their topics
        self._used_up: set[str] = set()  # topics that a restore left without an answer
        self._charges: dict[str, tuple[str, str, str]] = {}  # by id: task, key, state
        self._keys: dict[str, events.KeyCreated] = {}
        self._revoked: set[str] = set()
        self._people: set[str] = set()  # who signed in with a provider
        self._uploads: set[str] = set()
        self._uploaded: set[str] = set()  # knowledge bases
        self._tokens: set[str] = set()  # hashes of those that replaced others
        self._charged_by: Counter[str] = Counter()
        self._releases: set[str] = set()

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
        self.report.events, self.report.head = sequence, event["hash"]
        particulars = events.read(kind, body)
        if particulars is None:
            self.wrong(f"{here} is of a kind this version does not know: use the version that wrote it, or a newer one")
            return
        for problem in self.follow(particulars):
            self.wrong(f"{here}: {problem}")

    def end(self, end: Mapping[str, Any]) -> None:
        if (end["sequence"], end["hash"]) != (self.report.events, self.report.head):
            self.wrong(f"the trail ended with event {end['sequence']}, the export with event {self.report.events}")

    @singledispatchmethod
    def follow(self, happened: events.Particulars) -> Iterable[str]:
        """Take one event into account; what is wrong with it, in words."""
        raise NotImplementedError(happened.kind)

    @follow.register
    def _(self, opened: events.BudgetOpened) -> Iterable[str]:
        name = opened.knowledge_base
        if name in self._budgets:
            yield f"{name} had its lifetime budget already"
        self._budgets[name] = [(exact(opened.epsilon), exact(opened.delta))]
        self._granted[name] = []

    @follow.register
    def _(self, opened: events.CohortOpened) -> Iterable[str]:
        standing = self._budgets.get(opened.knowledge_base, [])
        yield from self._came_late(opened)
        if opened.cohort != len(standing) + 1 or opened.cohort == 1:
            yield f"cohort {opened.cohort} of {opened.knowledge_base} follows cohort {len(standing)}"
        standing.append((exact(opened.epsilon), exact(opened.delta)))

    @follow.register
    def _(self, closed: events.CohortClosed) -> Iterable[str]:
        name, cohort = closed.knowledge_base, closed.cohort
        if not 1 <= cohort <= len(self._budgets.get(name, [])) or (name, cohort) in self._closed:
            yield f"cohort {cohort} of {name} is none that could be closed"
        self._closed.add((name, cohort))

    @follow.register
    def _(self, opened: events.GroupOpened) -> Iterable[str]:
        if opened.group in self._groups:
            yield f"there was a group {opened.group} already"
        self._groups[opened.group] = exact(opened.epsilon), exact(opened.delta)

    @follow.register
    def _(self, joined: events.GroupJoined) -> Iterable[str]:
        name = joined.knowledge_base
        if joined.group not in self._groups or name not in self._budgets or name in self._group_of:
            yield f"{name} is no knowledge base that could join {joined.group}"
            return
        self._group_of[name] = joined.group
        yield from self._shared(name)

    @follow.register
    def _(self, archived: events.KnowledgeBaseArchived) -> Iterable[str]:
        name = archived.knowledge_base
        standing = range(1, len(self._budgets.get(name, [])) + 1)
        if not standing or any((name, cohort) not in self._closed for cohort in standing):
            yield f"{name} was archived with an open cohort, or does not exist"
        if name in self._archived:
            yield f"{name} was archived before"
        self._archived.add(name)

    @follow.register
    def _(self, deleted: events.KnowledgeBaseDeleted) -> Iterable[str]:
        name = deleted.knowledge_base
        yield from self._exists(name)
        if self._granted.get(name) or name in self._uploaded or name in self._group_of:
            yield f"{name} was deleted, and had plans, exemplars or a group"
        closed = {one for one in self._closed if one[0] == name}
        if (deleted.cohorts, deleted.closed) != (len(self._budgets.get(name, ())), len(closed)):
            yield f"{name} had other cohorts when it was deleted"
        self._budgets.pop(name, None)
        self._granted.pop(name, None)
        self._closed -= closed
        self._archived.discard(name)

    @follow.register
    def _(self, signed: events.PlanSigned) -> Iterable[str]:
        name, version = signed.knowledge_base, signed.version
        if name not in self._budgets:
            yield f"{name} has no lifetime budget"
            return
        granted = self._granted[name]
        if version != len(granted) + 1:
            yield f"version {version} of {name} follows version {len(granted)}"
        epsilon, delta = exact(signed.epsilon), exact(signed.delta)
        granted.append((signed.cohorts, (epsilon, delta)))
        if not signed.cohorts:
            yield "the plan is charged to no cohort"
        for cohort in signed.cohorts:
            if not 1 <= cohort <= len(self._budgets[name]) or (name, cohort) in self._closed:
                yield f"{name} has no cohort {cohort} that the plan could draw on"
                continue
            charged = [pair for cohorts, pair in granted if cohort in cohorts]
            if min(rest(self._budgets[name][cohort - 1], charged)[1]) < 0:
                which = name if len(self._budgets[name]) == 1 else f"cohort {cohort} of {name}"
                yield f"the plans of {which} promise more than its lifetime budget"
        yield from self._shared(name)
        plan = CalibratedPlan.model_validate_json(signed.document)
        for named, answers in signed.answers.items():
            task, _ = parts(named)
            once = task in plan.plan.tasks and plan.plan.tasks[task].once
            self._tasks[address(name, named, version)] = answers, once
            self._asked.add(address(name, task, version))
        planned = dict(plan.plan.counters())
        if planned != signed.answers or plan.plan.knowledge_base != name:
            yield "the tasks granted are not those of the plan's document"
        if plan.cohorts != signed.cohorts:
            yield "the cohorts charged are not those of the plan's document"
        if (exact(plan.plan.budget.epsilon), exact(plan.plan.budget.delta)) != (epsilon, delta):
            yield "the (ε, δ) granted is not that of the plan's document"
        self.plans[f"{name}@{version}"] = plan, signed

    @follow.register
    def _(self, charged: events.AnswerCharged) -> Iterable[str]:
        key = charged.key
        if charged.charge in self._charges:
            yield f"charge {charged.charge} was made before"
        self._charges[charged.charge] = charged.task, key, "charged"
        if charged.task not in self._tasks:
            yield f"no signed plan has the task {charged.task}"
            return
        answers, once = self._tasks[charged.task]
        self.report.charged[charged.task] += 1
        self._charged_by[key] += 1
        if charged.task in self._used_up:
            yield f"{charged.task} was charged after a restore had used it up"
        if self.report.charged[charged.task] > answers:
            yield f"{charged.task} was charged {self.report.charged[charged.task]} answers of {answers} planned"
        if once or not key:
            if key or not once:
                yield f"{charged.task} was charged to {key or 'no key'}; only a release made once is charged to none"
        elif key not in self._keys:
            yield f"key {key} was never made"
        elif (quota := self._keys[key].quota) is not None and self._charged_by[key] > quota:
            yield f"key {key} was charged {self._charged_by[key]} answers of its quota of {quota}"
        elif self._keys[key].role in ("viewer", "auditor"):
            yield f"key {key} was charged, and {self._keys[key].role}s cannot ask"
        elif not in_scope(self._keys[key].scope, charged.task):
            yield f"key {key} was charged by {charged.task}, which is not in its scope"

    @follow.register
    def _(self, released: events.AnswerReleased) -> Iterable[str]:
        yield from self._settle(released, "released", {"charged", "lost"})
        if released.release in self._releases:
            yield f"release {released.release} was made before"
        self._releases.add(released.release)
        if released.task in self._tasks:
            self.report.released[released.task] += 1

    @follow.register
    def _(self, voided: events.ChargeVoided) -> Iterable[str]:
        problems = [*self._settle(voided, "voided", {"charged"})]
        yield from problems
        if not problems and voided.task in self._tasks:
            self.report.charged[voided.task] -= 1
            self._charged_by[self._charges[voided.charge][1]] -= 1

    @follow.register
    def _(self, lost: events.ChargeLost) -> Iterable[str]:
        yield from self._settle(lost, "lost", {"charged"})

    @follow.register
    def _(self, created: events.KeyCreated) -> Iterable[str]:
        if created.key in self._keys:
            yield f"key {created.key} was made before"
        self._keys[created.key] = created

    @follow.register
    def _(self, changed: events.KeyChanged) -> Iterable[str]:
        if changed.key not in self._keys:
            yield f"key {changed.key} was never made"
            return
        self._keys[changed.key] = self._keys[changed.key].model_copy(update={"quota": changed.quota})

    @follow.register
    def _(self, rotated: events.KeyRotated) -> Iterable[str]:
        if rotated.key not in self._keys or rotated.key in self._revoked:
            yield f"key {rotated.key} is no key whose token could be replaced"
        if rotated.token_sha256 in self._tokens:
            yield f"key {rotated.key} got a token that a key had before"
        self._tokens.add(rotated.token_sha256)

    @follow.register
    def _(self, revoked: events.KeyRevoked) -> Iterable[str]:
        if revoked.key not in self._keys or revoked.key in self._revoked:
            yield f"key {revoked.key} is no key that could be revoked"
        self._revoked.add(revoked.key)

    @follow.register
    def _(self, person: events.PersonSignedIn) -> Iterable[str]:
        if person.by != f"{person.subject} at {person.issuer}" or person.role not in ("viewer", "auditor", "admin"):
            yield f"{person.by} is not who signed in, or has no role that may"
        self._people.add(person.by)

    @follow.register
    def _(self, person: events.PersonSignedOut) -> Iterable[str]:
        if person.by not in self._people:
            yield f"{person.by} never signed in"

    @follow.register
    def _(self, happened: events.KeySignedIn | events.KeySignedOut) -> Iterable[str]:
        key = self._keys.get(happened.key)
        if key is None or key.role == "analyst":
            yield f"key {happened.key} may not sign in"

    @follow.register
    def _(
        self, happened: events.ExemplarsIngested | events.UnitForgotten | events.RemoteEngineChanged
    ) -> Iterable[str]:
        yield from self._exists(happened.knowledge_base)
        if isinstance(happened, events.ExemplarsIngested):
            self._uploads.add(happened.upload)
            self._uploaded.add(happened.knowledge_base)
            yield from self._came_late(happened)

    @follow.register
    def _(self, ended: events.UploadEnded) -> Iterable[str]:
        if ended.upload not in self._uploads:
            yield f"upload {ended.upload} was never announced"

    @follow.register
    def _(self, happened: events.EncryptionKeyChanged | events.ExemplarsReencrypted) -> Iterable[str]:
        if not all(happened.model_dump().values()):
            yield "which encryption key, or by whom, is not said"

    @follow.register
    def _(self, published: events.BundlePublished) -> Iterable[str]:
        if published.data not in ("public", "consented") or not published.declared_by:
            yield f"nobody declared why the data of {published.bundle} may be shown"

    @follow.register
    def _(self, restored: events.LedgerRestored) -> Iterable[str]:
        self._used_up.update(restored.spent)
        for name in restored.charged_twice:
            yield f"{name} or its group was charged answers in two histories, together perhaps more than were planned"
        if restored.common > self.report.events or restored.witness.sequence < restored.common:
            yield "restore marks out of order"

    @follow.register
    def _(self, refused: events.QueryRefused) -> Iterable[str]:
        if refused.task not in self._tasks and refused.task not in self._asked:
            yield f"no signed plan has the task {refused.task}"
        if refused.times < 1:
            yield "a refusal that happened less than once"

    def _shared(self, name: str) -> Iterable[str]:
        """Check the budget of a group for a unit in every knowledge base of it, each time in the dearest cohort."""
        group = self._group_of.get(name)
        if group is None:
            return
        dearest = []
        for other in (other for other, its in self._group_of.items() if its == group):
            granted, cohorts = self._granted[other], range(1, len(self._budgets[other]) + 1)
            paid = [total(pair for named, pair in granted if cohort in named) for cohort in cohorts]
            dearest.append((max(epsilon for epsilon, _ in paid), max(delta for _, delta in paid)))
        if min(rest(self._groups[group], dearest)[1]) < 0:
            yield f"the plans of the group {group} promise more than its budget"

    def _exists(self, knowledge_base: str) -> Iterable[str]:
        if knowledge_base not in self._budgets:
            yield f"there is no knowledge base {knowledge_base}"

    def _came_late(self, happened: events.CohortOpened | events.ExemplarsIngested) -> Iterable[str]:
        if happened.knowledge_base in self._archived:
            yield f"{happened.knowledge_base} was archived"

    def _settle(
        self, event: events.AnswerReleased | events.ChargeVoided | events.ChargeLost, state: str, allowed: set[str]
    ) -> Iterable[str]:
        task, key, before = self._charges.get(event.charge, ("", "", "never made"))
        if before not in allowed:
            yield f"charge {event.charge} was {before} and cannot be {state}"
            return
        if task != event.task:
            yield f"charge {event.charge} is of {task}, not of {event.task}"
        self._charges[event.charge] = task, key, state

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
