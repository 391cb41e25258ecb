"""Events of questions: charges, releases, refusals, recorded accuracies."""

# ruff: noqa: D102 - Particulars documents these methods
from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from accounting.ledger.events.particulars import Names, Particulars, spaced
from accounting.ledger.events.replayed import Replayed
from accounting.ledger.quotas import in_scope


class AnswerCharged(Particulars, kind="charge", words="Answer charged"):
    """A key was charged an answer, or a plan its one-time release.

    Attributes:
        task: address with a version.
        key: id of the key; empty for a one-time release.
    """

    charge: str
    task: str
    key: str

    def sentence(self, named: Names) -> str:
        if not self.key:
            return f"The one release of {self.task} was charged to its plan."
        return f"{named(self.key)} was charged an answer of {self.task}."

    def replay(self, past: Replayed) -> Iterable[str]:
        key = self.key
        if self.charge in past.charges:
            yield f"charge {self.charge} was made before"
        past.charges[self.charge] = self.task, key, "charged"
        if self.task not in past.tasks:
            yield f"no signed plan has the task {self.task}"
            return
        answers, once = past.tasks[self.task]
        past.charged[self.task] += 1
        past.charged_by[key] += 1
        knowledge_base, _, rest = self.task.partition(".")
        if (knowledge_base, int(rest.rpartition("@")[2])) in past.retired:
            yield f"{self.task} was charged after its plan was retired"
        if self.task in past.used_up:
            yield f"{self.task} was charged after a restore had used it up"
        if past.charged[self.task] > answers:
            yield f"{self.task} was charged {past.charged[self.task]} answers of {answers} planned"
        if once or not key:
            if key or not once:
                yield f"{self.task} was charged to {key or 'no key'}; only a one-time release is charged to none"
        elif key not in past.keys:
            yield f"key {key} was never made"
        elif (quota := past.keys[key].quota) is not None and past.charged_by[key] > quota:
            yield f"key {key} was charged {past.charged_by[key]} answers of its quota of {quota}"
        elif past.keys[key].role in ("viewer", "auditor"):
            yield f"key {key} was charged, and {past.keys[key].role}s cannot ask"
        elif not in_scope(past.keys[key].scope, self.task):
            yield f"key {key} was charged by {self.task}, which is not in its scope"


class AnswerReleased(Particulars, kind="release", words="Answer released"):
    """The answer that was charged left; the hash is over its canonical JSON."""

    release: str
    charge: str
    task: str
    answer_sha256: str

    says = "An answer of {task} was released."
    binds = False

    def replay(self, past: Replayed) -> Iterable[str]:
        yield from past.settle(self, "released", {"charged", "lost"})
        if self.release in past.releases:
            yield f"release {self.release} was made before"
        past.releases.add(self.release)
        if self.task in past.tasks:
            past.released[self.task] += 1


class ChargeVoided(Particulars, kind="void", words="Charge taken back"):
    """A charge was given back."""

    charge: str
    task: str
    reason: str

    binds = False

    def sentence(self, named: Names) -> str:
        why = spaced(self.reason)
        return f"A charge of {self.task} was voided before anything private was read: {why}."

    def replay(self, past: Replayed) -> Iterable[str]:
        problems = [*past.settle(self, "voided", {"charged"})]
        yield from problems
        if not problems and self.task in past.tasks:
            past.charged[self.task] -= 1
            past.charged_by[past.charges[self.charge][1]] -= 1


class ChargeLost(Particulars, kind="lost", words="Charge lost"):
    """A charge's holder died or lost its answer."""

    charge: str
    task: str

    says = "A charge of {task} ended without an answer. It stays spent."
    binds = False

    def replay(self, past: Replayed) -> Iterable[str]:
        yield from past.settle(self, "lost", {"charged"})


class QueryRefused(Particulars, kind="refusal", words="Refused"):
    """Queries were refused without a charge, ``times`` of them since the last such event."""

    task: str
    key: str
    reason: str
    times: int

    binds = False

    def sentence(self, named: Names) -> str:
        times = "once" if self.times == 1 else f"{self.times:,} times"
        return f"{named(self.key)} was refused by {self.task} {times}: {spaced(self.reason)}."

    def replay(self, past: Replayed) -> Iterable[str]:
        if self.task not in past.tasks and self.task not in past.asked:
            yield f"no signed plan has the task {self.task}"
        if self.times < 1:
            yield "a refusal that happened less than once"


class AccuracyRecorded(Particulars, kind="accuracy.recorded", words="Accuracy recorded"):
    """The accuracy of a task was measured on rows that the actor declared public, so it costs nothing.

    Attributes:
        task: address with a version.
        accuracy: share of right answers, in percent.
        zero_shot: the same without exemplars.
        rows: number of test rows.
        engine: name of the engine that answered.
        standard_error: standard error of the accuracy, in points; None: not recorded, as before there were any.
        zero_shot_error: the same without exemplars.
    """

    task: str
    accuracy: float
    zero_shot: float
    rows: int
    engine: str
    by: str
    standard_error: float | None = Field(default=None, exclude_if=lambda error: error is None)
    zero_shot_error: float | None = Field(default=None, exclude_if=lambda error: error is None)

    says = (
        "{by} recorded {accuracy} % right answers of {task}, and {zero_shot} % without exemplars, on {rows} rows "
        "declared public."
    )

    def sentence(self, named: Names) -> str:
        if self.standard_error is None or self.zero_shot_error is None:
            return super().sentence(named)
        return (
            f"{named(self.by)} recorded {self.accuracy} ± {self.standard_error} % right answers of {self.task}, and "
            f"{self.zero_shot} ± {self.zero_shot_error} % without exemplars, on {self.rows} rows declared public."
        )

    lost = "an accuracy of {task} was recorded: measure it again"
    binds = False

    def replay(self, past: Replayed) -> Iterable[str]:
        if self.task not in past.asked:
            yield f"no signed plan has the task {self.task}"
        if not (0 <= self.accuracy <= 100 and 0 <= self.zero_shot <= 100 and self.rows > 0):
            yield f"the accuracy of {self.task} is not a share of any rows"
        if min(self.standard_error or 0.0, self.zero_shot_error or 0.0) < 0:
            yield f"the accuracy of {self.task} has an error below zero"
