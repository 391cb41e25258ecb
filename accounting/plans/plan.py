"""Plan files: an immutable grant of budget to tasks, as the admin writes it (YAML) and as it is signed (calibrated).

A plan fixes everything the accounting needs beforehand, mechanisms, sampling probabilities and numbers of answers, so
tight composition holds for any adaptive and interleaved order of queries.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any, NamedTuple, Self, cast

from pydantic import Field, StringConstraints, ValidationError, model_validator

from accounting.ledger.entries import by_task, entry
from accounting.ledger.errors import did_you_mean
from accounting.plans import plain_yaml
from accounting.plans.mechanisms import MECHANISMS, types_of
from accounting.plans.strict import Strict, is_unset
from accounting.plans.tasks import ClassifyTask, Task, placeholders
from accounting.plans.topics import WAYS
from accounting.plans.written_numbers import advice_on
from accounting.privacy import calibration
from accounting.privacy.accountants import ACCOUNTANTS, AccountantName, compare, get_accountant
from accounting.privacy.bounds import UnsupportedEventsError
from accounting.privacy.calibration import Grant, calibrate
from accounting.privacy.events import Event, Sampling
from accounting.privacy.guided_tokens import GuidedTokens
from accounting.privacy.profiles import BoundedRange, Gaussian, GaussianThreshold, ProposeTestRelease, PtrTest
from accounting.privacy.token_ensemble import TokenEnsembleProfile

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
SMALLEST_DELTA = 1e-12
LARGEST_DELTA = 0.01
LARGEST_EPSILON = 25.0
"""Largest ε of a plan. Up to here the samplers' rounding adds less than 1e-13 to δ (docs/privacy/numerics.md)."""
_WORTH_IT = 0.997  # calibration itself leaves up to 0.2 % of ε
_KINDS = ("classify", "generate")


class PlanProblem(NamedTuple):
    """A problem of a plan.

    Attributes:
        key: dotted key that it is about; empty: the plan as a whole.
        message: description of the problem, a sentence without its end.
        line: line in the text, counted from 1, if that is known.
    """

    key: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


class PlanError(ValueError):
    """A plan that cannot be read or cannot be kept.

    Attributes:
        problems: problems in the order of the plan.
    """

    def __init__(self, *problems: tuple[str, str] | tuple[str, str, int | None]):
        self.problems = [PlanProblem(*problem) for problem in problems]
        super().__init__("\n".join(map(str, self.problems)))


class Budget(Strict):
    """The (ε, δ) this plan takes out of its knowledge base's lifetime budget."""

    epsilon: float = Field(ge=1e-3, le=100)
    delta: float = Field(ge=SMALLEST_DELTA, le=LARGEST_DELTA)


class Plan(Strict):
    """A plan as written, before calibration."""

    knowledge_base: Name
    budget: Budget
    accountant: AccountantName = "pld"
    """Accountant whose bound has to keep the budget. Unless it is written, pld or rdp, whichever needs less noise. For
    Gaussian noise rdp needs more: ε is 10 to 20 % larger, and more than twice as large for few answers."""
    cohorts: list[Annotated[int, Field(ge=1, lt=2**31)]] | None = Field(default=None, min_length=1, exclude_if=is_unset)
    """Numbers of the cohorts that it draws on, and is charged to. Where neither these nor ``retain`` are written, all
    that are not closed when it is prepared for signing; a signed plan names them."""
    retain: int | None = Field(default=None, ge=1, exclude_if=is_unset)
    """Number of the newest cohorts to draw on, of those that are not closed."""
    tasks: dict[Name, Task] = Field(min_length=1, max_length=100)

    @model_validator(mode="after")
    def _cohorts_are_named_once(self) -> Self:
        if self.cohorts is not None and self.retain is not None:
            raise ValueError("cohorts and retain: write one of them")
        if self.cohorts is not None and self.cohorts != sorted(set(self.cohorts)):
            raise ValueError("cohorts: name each once, in ascending order")
        return self

    @property
    def once(self) -> dict[str, Task]:
        """The tasks whose one release is made at signing."""
        return {name: task for name, task in self.tasks.items() if task.once}

    @property
    def each(self) -> dict[str, Task]:
        """The tasks that release each answer by itself."""
        return {name: task for name, task in self.tasks.items() if not task.once}

    def counters(self) -> list[tuple[str, int]]:
        """Names of the ledger's counters, and their largest numbers of answers: one for each task, or each topic."""
        return [
            (entry(name, topic), task.answers)
            for name, task in self.tasks.items()
            for topic in (task.topics.all if task.topics is not None else (None,))
        ]


Profile = (
    GuidedTokens | ProposeTestRelease | GaussianThreshold | PtrTest | Gaussian | TokenEnsembleProfile | BoundedRange
)


class TaskNoise(Strict):
    """The result of calibration for one task."""

    sampling_probability: float
    mechanism: Profile = Field(union_mode="left_to_right")
    """The profile of one answer before sampling; its parameters are those of the release."""
    topics: dict[str, float] | None = Field(default=None, exclude_if=is_unset)
    """The sampling probability on each topic, of which ``sampling_probability`` is the largest; None: there are none.
    """

    @model_validator(mode="after")
    def _pays_for_the_likeliest(self) -> Self:
        if self.topics and max(self.topics.values()) > self.sampling_probability:
            raise ValueError("topics: one of them is drawn with a larger probability than is paid for")
        return self

    def on(self, topic: str | None) -> Self:
        """The noise of an answer on a topic; of a task without topics, as it is."""
        if self.topics is None or topic is None:
            return self
        return self.model_copy(update={"sampling_probability": self.topics[topic], "topics": None})


class EpsilonRange(Strict):
    """One accountant's bounds for the whole plan at its δ: the true ε lies between these."""

    lower: float
    upper: float


class CalibratedPlan(Strict):
    """A plan with its noise: what is signed, stored, and never changed again.

    Attributes:
        plan: plan as written.
        public_size: public number of exemplars of its cohorts, which the sampling probabilities rest on.
        noise: noise of each task, by name.
        epsilon: bounds by accountant, for every accountant that supports the plan.
        unsupported: reason why an accountant does not support the plan, by accountant.
    """

    plan: Plan
    public_size: int
    noise: dict[str, TaskNoise]
    epsilon: dict[str, EpsilonRange]
    unsupported: dict[str, str]
    centres: dict[str, list[str]] = Field(default_factory=dict, exclude_if=lambda centres: not centres)
    """The embeddings of topics, in their order, for each task whose topics are found by similarity: made of public
    texts, as whole numbers of 8 bits (:func:`exemplar_store.nearness.rounded`), in base64."""

    def is_of(self, written: Plan) -> bool:
        """Whether this is a plan as written, where that leaves open which cohorts it draws on."""
        named, settled = ({"cohorts", "retain"}, self.plan) if written.cohorts is None else ({"retain"}, self.plan)
        return written.model_dump(exclude=named) == settled.model_dump(exclude=named)

    def events(self, counts: Mapping[str, int] | None = None) -> list[Event]:
        """The events that happen to a unit when every task gives its planned number of answers, or the given numbers.

        A unit is on one topic of a task, so it is drawn from for the answers on that one. The worst is that it is on
        the topic with the most answers, and with the largest probability: drawn with a smaller one, an answer is made
        from an answer with a larger one, by putting an answer without the unit in its place, now and then.

        Args:
            counts: number of answers by task, or by task and topic (:func:`accounting.ledger.entries.entry`).
        """
        counts = None if counts is None else by_task(counts)
        return [
            Event(self.noise[name].mechanism, Sampling(task.sampling, self.noise[name].sampling_probability), count)
            for name, task in self.plan.tasks.items()
            if (count := task.answers if counts is None else counts.get(name, 0)) > 0
        ]

    @property
    def cohorts(self) -> tuple[int, ...]:
        """Numbers of the cohorts that are charged and drawn on. Without cohorts: the first."""
        return tuple(self.plan.cohorts or (1,))

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical document, in hexadecimal."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def load_plan(text: str) -> Plan:
    """Read a plan from YAML (JSON is YAML too).

    Raises:
        PlanError: each problem names its key.
    """
    try:
        document = plain_yaml.load(text)
    except plain_yaml.NotPlainError as error:
        raise PlanError(*error.problems) from None
    return parse_plan(document)


def parse_plan(document: Any) -> Plan:
    """Check a plan already read into plain values.

    Raises:
        PlanError: each problem names its key.
    """
    if not isinstance(document, dict):
        raise PlanError(("", "a plan is a mapping with the keys knowledge_base, budget, tasks"))
    _check_texts(document)
    try:
        return Plan.model_validate(document)
    except ValidationError as error:
        errors = [one for one in error.errors() if not _of_other_kind(one)]
        wrong = {one["loc"][:-1] for one in errors}
        raise PlanError(*(_describe(one) for one in errors if not _lacks_wrong(one, wrong))) from None


def calibrate_plan(plan: Plan, public_size: int) -> CalibratedPlan:
    """Find the least noise with which the whole plan keeps its (ε, δ), and ask every other accountant.

    Args:
        plan: plan as written.
        public_size: public number of exemplars of the plan's cohorts; task i samples with probability
            shots·ensemble / public_size, or draws every unit for a one-time release.

    Raises:
        PlanError: a task relies on one that is not there, the sampling probability would exceed 1, or no noise keeps
            the promise.
        accounting.privacy.accountants.AccountantsDisagreeError: the accountants contradict each other.
    """
    grants = _granted(plan, public_size)
    events = _calibrate(plan, grants)
    bounds = compare(events, plan.budget.delta)
    # Both are bounds of the same plan, fixed beforehand, so the smaller may be promised.
    if "accountant" not in plan.model_fields_set and bounds["rdp"].upper < _WORTH_IT * bounds["pld"].upper:
        plan = plan.model_copy(update={"accountant": "rdp"})
        events = _calibrate(plan, grants)
        bounds = compare(events, plan.budget.delta)
    # PRV composes the remove direction alone, and that it is the worse one is proved for a single answer only. PLD
    # composes both, so its bound has to hold as well.
    if plan.accountant == "prv" and bounds["pld"].upper > plan.budget.epsilon:
        raise PlanError(("accountant", "pld does not confirm what prv found for this plan; write `accountant: pld`"))
    return CalibratedPlan(
        plan=plan,
        public_size=public_size,
        noise=_noise(plan, public_size, events),
        epsilon={name: EpsilonRange(lower=b.lower, upper=b.upper) for name, b in bounds.items()},
        unsupported={
            name: get_accountant(name).unsupported(events) or "its numerics do not reach this delta"
            for name in ACCOUNTANTS
            if name not in bounds
        },
    )


def least_noise(plan: Plan, public_size: int) -> dict[str, TaskNoise]:
    """The noise that :func:`calibrate_plan` would find, sooner, by task: only to be looked at.

    No other accountant is asked whether it contradicts, so nothing may be signed with it.

    Raises:
        PlanError: the plan cannot be kept, as with :func:`calibrate_plan`.
    """
    grants = _granted(plan, public_size)
    events = _calibrate(plan, grants)
    if "accountant" not in plan.model_fields_set:
        pld, rdp = (get_accountant(name).upper(events, plan.budget.delta) for name in ("pld", "rdp"))
        if rdp < _WORTH_IT * pld:
            events = _calibrate(plan.model_copy(update={"accountant": "rdp"}), grants)
    return _noise(plan, public_size, events)


class Variants:
    """The noise of plans that differ in few tasks from a calibrated one, at its budget: only to be looked at.

    Args:
        calibrated: the plan.
    """

    def __init__(self, calibrated: CalibratedPlan) -> None:
        plan = calibrated.plan
        self._public_size = calibrated.public_size
        grants = _granted(plan, self._public_size)
        self._variants = calibration.Variants(
            grants, calibrated.events(), plan.budget.epsilon, plan.budget.delta, plan.accountant
        )

    def rough_noise(self, plan: Plan) -> dict[str, TaskNoise]:
        """A variant's noise at the cost of the calibrated plan, by task, at once: about what it will be.

        Raises:
            PlanError: the plan cannot be kept.
        """
        return self._noise(plan, self._variants.roughly)

    def least_noise(self, plan: Plan) -> dict[str, TaskNoise]:
        """A variant's noise as by :func:`least_noise`, sooner.

        Raises:
            PlanError: the plan cannot be kept.
        """
        return self._noise(plan, self._variants.calibrate)

    def _noise(self, plan: Plan, calibrated: Callable[[Sequence[Grant]], list[Event]]) -> dict[str, TaskNoise]:
        grants = _granted(plan, self._public_size)
        with _refused():
            events = calibrated(grants)
        return _noise(plan, self._public_size, events)


def _granted(plan: Plan, public_size: int) -> list[Grant]:
    """The answers that each task is granted.

    Raises:
        PlanError: a task cannot be granted what it asks for.
    """
    problems = _unknown_tasks(plan) + [
        (
            f"tasks.{name}",
            f"{'shots' if task.drawn is None else 'drawn'} × ensemble = {task.expected * task.ensemble} exceeds the "
            f"knowledge base's public size of {public_size}; lower one of them",
        )
        for name, task in plan.tasks.items()
        if task.sampling_probability(public_size) > 1
    ]
    if problems:
        raise PlanError(*problems)
    if plan.budget.epsilon > LARGEST_EPSILON:
        why = (
            f"{plan.budget.epsilon:g} is above {LARGEST_EPSILON:g}, beyond which what rounding the sampling "
            "probabilities adds to delta is not negligible; sign a smaller plan"
        )
        raise PlanError(("budget.epsilon", why))
    shares = sum(task.share for task in plan.tasks.values())
    grants = []
    for task in plan.tasks.values():
        sampling = Sampling(task.sampling, task.sampling_probability(public_size))
        delta = plan.budget.delta * task.share / shares
        family = task.mechanism.family(delta, task.answers, sampling.probability, task.ensemble)
        grants.append(Grant(family, sampling, task.answers, task.share))
    return grants


def _noise(plan: Plan, public_size: int, events: Sequence[Event]) -> dict[str, TaskNoise]:
    return {
        name: TaskNoise(
            sampling_probability=event.sampling.probability,
            mechanism=cast(Profile, event.mechanism),
            topics=None
            if task.topics is None
            else {topic: task.topic_probability(topic, public_size) for topic in task.topics.all},
        )
        for (name, task), event in zip(plan.tasks.items(), events, strict=True)
    }


def _unknown_tasks(plan: Plan) -> list[tuple[str, str]]:
    """The problems with tasks that other tasks name."""
    problems = []
    for name, task in plan.tasks.items():
        if not isinstance(task, ClassifyTask):
            continue
        for key, other in task.relies_on.items():
            named = plan.once.get(other)
            if not isinstance(named, ClassifyTask):
                problems.append((f"tasks.{name}.{key}", f"the plan has no task {other!r} with `release: once`"))
            elif (named.labels, set(named.query_fields)) != (task.labels, set(placeholders(task.prompt.query))):
                problems.append((f"tasks.{name}.{key}", f"{other} has other labels or asks for other fields"))
    return problems


def _calibrate(plan: Plan, grants: Sequence[Grant]) -> list[Event]:
    with _refused():
        return calibrate(grants, plan.budget.epsilon, plan.budget.delta, plan.accountant)


@contextmanager
def _refused() -> Iterator[None]:
    """Name the key of a plan that cannot be kept."""
    try:
        yield
    except UnsupportedEventsError as error:
        raise PlanError(("accountant", str(error))) from error
    except ValueError as error:
        raise PlanError(("budget", str(error))) from error


_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")


def _check_texts(document: Any) -> None:
    """Refuse characters that YAML can write as escapes and that cannot be stored or sent.

    The models do not check this: they must read whatever was signed before.

    Raises:
        PlanError: names the key of the first such text.
    """
    found: list[tuple[tuple[object, ...], Any]] = [((), document)]
    seen = set()
    for path, value in found:  # which grows
        if isinstance(value, str) and _NO_CHARACTER.search(value):
            key = _NO_CHARACTER.sub("\N{REPLACEMENT CHARACTER}", ".".join(map(str, path)))
            why = "contains a NUL character or half of a surrogate pair; remove it, or write it unescaped"
            raise PlanError((key, why))
        if isinstance(value, (dict, list, tuple, set)) and id(value) not in seen:
            seen.add(id(value))  # an alias may lead back to it
            for name, member in value.items() if isinstance(value, dict) else enumerate(value):
                found += [((*path, name), name), ((*path, name), member)]


def _of_other_kind(problem: Mapping[str, Any]) -> bool:
    """Whether a public text, which is a text or the fields of a question, only fails to be the other of the two."""
    if problem["loc"][3:4] != ("public_texts",):
        return False
    is_fields = isinstance(problem["input"], Mapping)
    return problem["type"] == "dict_type" or (problem["loc"][5:] == ("str",) and is_fields)


def _lacks_wrong(problem: Mapping[str, Any], wrong: Collection[tuple[str | int, ...]]) -> bool:
    """Whether a list is only too short because members of it are wrong."""
    return problem["type"] == "too_short" and problem["loc"] in wrong


def _describe(problem: Mapping[str, Any]) -> tuple[str, str]:
    key = ".".join(_path(problem["loc"]))
    message = str(problem["msg"]).removeprefix("Value error, ")
    match problem["type"]:
        case "extra_forbidden":
            *parents, unknown = problem["loc"]
            schema = _schema()
            return (key, f"unknown key{did_you_mean(str(unknown), _keys(schema, schema['$defs'], parents))}")
        case "missing":
            return (key, "is missing")
        case "union_tag_not_found" | "union_tag_invalid":
            tag = str(problem["ctx"]["discriminator"]).strip("'")
            ways = {"kind": _KINDS, "by": WAYS}
            known = ", ".join(ways[tag] if tag in ways else types_of(problem["loc"][2]))
            missing = "is missing; " if problem["type"].endswith("found") else ""
            return (f"{key}.{tag}", f"{missing}must be one of {known}")
        case "tuple_type" | "list_type":
            return (key, "must be a list, such as [A, B]")
        case "string_type" if isinstance(problem["input"], bool | int | float | None):
            return (key, f"{json.dumps(problem['input'])} is not a text: quote it")
        case "string_type":
            return (key, "must be a text")
        case "dict_type" | "model_type" | "model_attributes_type":
            return (key, "must have keys of its own, as in {key: value}")
        case "string_pattern_mismatch" if "topics" in problem["loc"]:
            return (key, "a topic's name has no @, no # and no line break")
        case "string_pattern_mismatch":
            return (key, "names are up to 64 small letters, digits, - and _, beginning with a letter or digit")
    return (key, advice_on(problem) or f"{message[0].lower()}{message[1:]}")


@cache
def _schema() -> dict[str, Any]:
    """The JSON schema of a plan, which takes longer to make than a plan to check."""
    return Plan.model_json_schema()


def _keys(schema: Mapping[str, Any], parts: Mapping[str, Any], location: Sequence[str | int]) -> list[str]:
    """The keys that there may be at a problem's location, by JSON Schema."""
    if "$ref" in schema:
        return _keys(parts[schema["$ref"].rpartition("/")[2]], parts, location)
    if "anyOf" in schema:
        return [key for one in schema["anyOf"] for key in _keys(one, parts, location)]
    if not location:
        return list(schema.get("properties", ()))
    tagged = schema.get("discriminator", {}).get("mapping", {})
    named = {**schema.get("properties", {}), **{tag: {"$ref": part} for tag, part in tagged.items()}}
    inner: Mapping[str, Any] = named.get(location[0]) or next(iter(schema.get("patternProperties", {}).values()), {})
    return _keys(inner, parts, location[1:])


def _path(location: Sequence[str | int]) -> list[str]:
    """A problem's keys as the plan has them, without the tags pydantic puts in for kinds and types."""
    tags = {2} if location[:1] == ("tasks",) else set()
    if location[3:4] == ("mechanism",) and location[4:5] and location[4] in MECHANISMS:
        tags.add(4)
    if location[3:4] == ("topics",) and location[4:5] and location[4] in WAYS:
        tags.add(4)
    if location[3:4] == ("public_texts",):
        tags.add(5)
    return [str(part) for place, part in enumerate(location) if place not in tags and part != "[key]"]
