"""Replaying an export of the audit trail, offline: is it whole, and did the ledger keep every plan?

An export stands by itself: this module needs neither the database nor the service. It finds an event that was changed,
left out or moved, since each is bound by its hash to all before it. It then follows every budget, plan, charge and key
through its states, and computes what each plan promised by accountants other than the one that calibrated it.

A chain cannot vouch for its own end: whoever rewrites it from some event on, or cuts it there, makes another valid one.
So keep the hash of the newest event somewhere else now and then, and give it to :func:`verify`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from accounting.ledger.budgets import address, exact, rest
from accounting.ledger.trail import FIRST, RESTORED, canonical, digest
from accounting.plan import CalibratedPlan
from accounting.privacy.accountants import ACCOUNTANTS, AccountantsDisagreeError, EpsilonBounds, compare
from accounting.privacy.bounds import UnsupportedEventsError

MOST_PROBLEMS = 100
_CALIBRATION_SLACK = 1e-9  # a plan's ε is a decimal, its accountant's bound a float

Progress = Callable[[str], None]


@dataclass
class Report:
    """What a replay found.

    Attributes:
        events: how many there are.
        head: hash of the last one.
        problems: what is wrong, in words; empty if nothing is. At most the first 100.
        plans: by plan (``support@1``), the ε that each accountant finds in it.
        charged: by task address, its charges that were not voided.
        released: by task address, its answers that left.
    """

    events: int = 0
    head: str = FIRST
    problems: list[str] = field(default_factory=list)
    plans: dict[str, dict[str, EpsilonBounds]] = field(default_factory=dict)
    charged: dict[str, int] = field(default_factory=dict)
    released: dict[str, int] = field(default_factory=dict)


def verify(
    lines: Iterable[str],
    *,
    heads: Iterable[str] = (),
    recompute: bool = True,
    progress: Progress = lambda _text: None,
) -> Report:
    """Replay an export.

    Args:
        lines: from :meth:`accounting.ledger.trail.AuditTrail.export`: one JSON object each; the last tells the end.
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
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
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


@dataclass
class _Task:
    answers: int
    charged: int = 0
    released: int = 0


class _Replay:
    """The state that the events read so far add up to."""

    def __init__(self) -> None:
        self.report = Report()
        self.plans: dict[str, tuple[CalibratedPlan, str, Decimal, Decimal]] = {}
        self._budgets: dict[str, tuple[Decimal, Decimal]] = {}
        self._granted: dict[str, list[tuple[Decimal, Decimal]]] = {}
        self._tasks: dict[str, _Task] = {}
        self._charges: dict[str, tuple[str, str, str]] = {}  # by id: task, key, state
        self._keys: dict[str, dict[str, Any]] = {}
        self._revoked: set[str] = set()
        self._charged_by: dict[str, int] = {}
        self._releases: set[str] = set()
        self._at = ""

    def wrong(self, problem: str) -> None:
        if len(self.report.problems) < MOST_PROBLEMS:
            self.report.problems.append(problem)

    def link(self, event: Mapping[str, Any]) -> None:
        """Check the chain, then what happened."""
        sequence, at, kind, body = event["sequence"], event["at"], event["kind"], event["body"]
        here = f"event {sequence} ({kind})"
        if sequence != self.report.events + 1:
            self.wrong(f"{here} follows event {self.report.events}: events are missing, repeated or out of order")
        if event["previous"] != self.report.head:
            self.wrong(f"{here} does not continue the event before it: something was removed, moved or changed")
        if digest(sequence, at, kind, canonical(body), event["previous"]) != event["hash"]:
            self.wrong(f"{here} does not have the hash it was written with: it was changed")
        self.report.events, self.report.head = sequence, event["hash"]
        happened = _KINDS.get(kind)
        if happened is None:
            self.wrong(f"{here} is of a kind this version does not know: use the version that wrote it, or a newer one")
            return
        for problem in happened(self, body):
            self.wrong(f"{here}: {problem}")

    def end(self, end: Mapping[str, Any]) -> None:
        if (end["sequence"], end["hash"]) != (self.report.events, self.report.head):
            self.wrong(f"the trail ended with event {end['sequence']}, the export with event {self.report.events}")

    def budget_opened(self, body: Mapping[str, Any]) -> Iterable[str]:
        name = body["knowledge_base"]
        if name in self._budgets:
            yield f"{name} had its lifetime budget already"
        self._budgets[name] = exact(body["epsilon"]), exact(body["delta"])
        self._granted[name] = []

    def plan_signed(self, body: Mapping[str, Any]) -> Iterable[str]:
        name, version = body["knowledge_base"], body["version"]
        if name not in self._budgets:
            yield f"{name} has no lifetime budget"
            return
        granted = self._granted[name]
        if version != len(granted) + 1:
            yield f"version {version} of {name} follows version {len(granted)}"
        epsilon, delta = exact(body["epsilon"]), exact(body["delta"])
        granted.append((epsilon, delta))
        if min(rest(self._budgets[name], granted)[1]) < 0:
            yield f"the plans of {name} promise more than its lifetime budget"
        for task, answers in body["answers"].items():
            self._tasks[address(name, task, version)] = _Task(answers)
        plan = CalibratedPlan.model_validate_json(body["document"])
        planned = {task: settings.answers for task, settings in plan.plan.tasks.items()}
        if planned != body["answers"] or plan.plan.knowledge_base != name:
            yield "the tasks granted are not those of the plan's document"
        if (exact(plan.plan.budget.epsilon), exact(plan.plan.budget.delta)) != (epsilon, delta):
            yield "the (ε, δ) granted is not that of the plan's document"
        self.plans[f"{name}@{version}"] = plan, body["accountant"], epsilon, delta

    def charge(self, body: Mapping[str, Any]) -> Iterable[str]:
        task, key = self._tasks.get(body["task"]), body["key"]
        if body["charge"] in self._charges:
            yield f"charge {body['charge']} was made before"
        self._charges[body["charge"]] = body["task"], key, "charged"
        if task is None:
            yield f"no signed plan has the task {body['task']}"
            return
        yield from self._count(body["task"], key, 1)
        if task.charged > task.answers:
            yield f"{body['task']} was charged {task.charged} answers of {task.answers} planned"
        if key not in self._keys:
            yield f"key {key} was never made"
        quota = self._keys.get(key, {}).get("quota")
        if quota is not None and self._charged_by[key] > quota:
            yield f"key {key} was charged {self._charged_by[key]} answers of its quota of {quota}"

    def release(self, body: Mapping[str, Any]) -> Iterable[str]:
        yield from self._settle(body, "released", {"charged", "lost"})
        if body["release"] in self._releases:
            yield f"release {body['release']} was made before"
        self._releases.add(body["release"])
        if (task := self._tasks.get(body["task"])) is not None:
            task.released += 1
            self.report.released[body["task"]] = task.released

    def void(self, body: Mapping[str, Any]) -> Iterable[str]:
        problems = [*self._settle(body, "voided", {"charged"})]
        yield from problems
        if not problems:
            yield from self._count(body["task"], self._charges[body["charge"]][1], -1)

    def lost(self, body: Mapping[str, Any]) -> Iterable[str]:
        yield from self._settle(body, "lost", {"charged"})

    def key_created(self, body: Mapping[str, Any]) -> Iterable[str]:
        if body["key"] in self._keys:
            yield f"key {body['key']} was made before"
        self._keys[body["key"]] = dict(body)

    def key_changed(self, body: Mapping[str, Any]) -> Iterable[str]:
        if body["key"] not in self._keys:
            yield f"key {body['key']} was never made"
        self._keys.setdefault(body["key"], {}).update(quota=body["quota"])

    def key_revoked(self, body: Mapping[str, Any]) -> Iterable[str]:
        if body["key"] not in self._keys or body["key"] in self._revoked:
            yield f"key {body['key']} is no key that could be revoked"
        self._revoked.add(body["key"])

    def of_admin(self, body: Mapping[str, Any]) -> Iterable[str]:
        if self._keys.get(body["key"], {}).get("role") != "admin":
            yield f"key {body['key']} is no admin's"

    def of_knowledge_base(self, body: Mapping[str, Any]) -> Iterable[str]:
        if body["knowledge_base"] not in self._budgets:
            yield f"there is no knowledge base {body['knowledge_base']}"

    def of_encryption_key(self, body: Mapping[str, Any]) -> Iterable[str]:
        if not body["fingerprint"] or not body["by"]:
            yield "which encryption key, or by whom, is not said"

    def restored(self, body: Mapping[str, Any]) -> Iterable[str]:
        if body["common"] > self.report.events or body["witness"]["sequence"] < body["common"]:
            yield "a restore that lost less than nothing"

    def refusal(self, body: Mapping[str, Any]) -> Iterable[str]:
        if body["task"] not in self._tasks:
            yield f"no signed plan has the task {body['task']}"
        if body["times"] < 1:
            yield "a refusal that happened less than once"

    def _settle(self, body: Mapping[str, Any], state: str, allowed: set[str]) -> Iterable[str]:
        task, key, before = self._charges.get(body["charge"], ("", "", "never made"))
        if before not in allowed:
            yield f"charge {body['charge']} was {before} and cannot be {state}"
            return
        if task != body["task"]:
            yield f"charge {body['charge']} is of {task}, not of {body['task']}"
        self._charges[body["charge"]] = task, key, state

    def _count(self, task: str, key: str, by: int) -> Iterable[str]:
        self._charged_by[key] = self._charged_by.get(key, 0) + by
        if (counted := self._tasks.get(task)) is not None:
            counted.charged += by
            self.report.charged[task] = counted.charged
        return ()

    def recompute(self, name: str) -> None:
        """Whether other accountants agree with what a plan promises."""
        plan, accountant, epsilon, delta = self.plans[name]
        events = plan.events()
        try:
            found = compare(events, float(delta))
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


_KINDS: Mapping[str, Callable[[_Replay, Mapping[str, Any]], Iterable[str]]] = {
    "budget.opened": _Replay.budget_opened,
    "plan.signed": _Replay.plan_signed,
    "charge": _Replay.charge,
    "release": _Replay.release,
    "void": _Replay.void,
    "lost": _Replay.lost,
    "refusal": _Replay.refusal,
    "key.created": _Replay.key_created,
    "key.changed": _Replay.key_changed,
    "key.revoked": _Replay.key_revoked,
    "admin.signed_in": _Replay.of_admin,
    "admin.signed_out": _Replay.of_admin,
    "exemplars.ingested": _Replay.of_knowledge_base,
    "unit.forgotten": _Replay.of_knowledge_base,
    "remote_engine.changed": _Replay.of_knowledge_base,
    "exemplars.renewed": _Replay.of_knowledge_base,
    "encryption_key.added": _Replay.of_encryption_key,
    "encryption_key.retired": _Replay.of_encryption_key,
    RESTORED: _Replay.restored,
}
