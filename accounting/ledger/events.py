"""The kinds of audit events, each with its name in the trail, its particulars and its words.

All code that appends, reads, replays or shows events uses these definitions. A trail outlives the version that wrote
it: a kind always keeps its name and its fields, and a field that it gains has a default.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import override

from accounting.ledger.entries import parts

Names = Callable[[str], str]
"""A function from the actor in the trail (a key's id, a person, a name of the command line, or nothing) to its name."""


KINDS: dict[str, type[Particulars]] = {}
"""Every kind by its name in the trail."""


class Particulars(BaseModel):
    """The particulars of one kind of event: public quantities only.

    Attributes:
        kind: name of the kind in the trail, at most 40 characters.
        title: the kind in words.
        says: sentence of what happened, with its particulars in braces; names replace the ids of ``by`` and ``key``.
        lost: consequence for an admin where a restore lost such an event, with its particulars in braces; None: no
            consequence, or one that the charges show.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    kind: ClassVar[str]
    title: ClassVar[str]
    says: ClassVar[str]
    lost: ClassVar[str | None] = None

    def __init_subclass__(cls, kind: str, words: str, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.kind, cls.title = kind, words
        KINDS[kind] = cls

    def sentence(self, named: Names) -> str:
        """A sentence of what happened: :attr:`says`, unless the kind has a longer one."""
        actors = {field: named(value) for field, value in self if field in ("by", "key")}
        return self.says.format(**{**dict(self), **actors})

    def if_lost(self) -> str | None:
        """The consequence where a restore lost this event: :attr:`lost` with its particulars."""
        return self.lost and self.lost.format(**dict(self))


def read(kind: str, body: str) -> Particulars | None:
    """An event's particulars, or None for a kind that only a newer version knows.

    Args:
        kind: name of the kind in the trail.
        body: the event's body, from :func:`accounting.ledger.trail.canonical`.

    Raises:
        ValueError: the body does not fit this kind.
    """
    known = KINDS.get(kind)
    if known is None:
        return None
    try:
        return known.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


class BudgetOpened(Particulars, kind="budget.opened", words="Knowledge base created"):
    """A knowledge base was created with its lifetime budget; ε and δ are decimals."""

    knowledge_base: str
    epsilon: str
    delta: str
    by: str = ""

    lost = "knowledge base {knowledge_base} was created: create it again, with the same budget"

    @override
    def sentence(self, named: Names) -> str:
        return f"{named(self.by)} created {self.knowledge_base} with {_budget(self)} for its whole life."


class CohortOpened(Particulars, kind="cohort.opened", words="Cohort opened"):
    """A further cohort was opened, with its own lifetime budget: people who arrive from now on belong to it."""

    knowledge_base: str
    cohort: int
    epsilon: str
    delta: str
    public_size: int
    by: str

    lost = "cohort {cohort} of {knowledge_base} was opened: will be opened again"

    @override
    def sentence(self, named: Names) -> str:
        return f"{named(self.by)} opened cohort {self.cohort} of {self.knowledge_base} with {_budget(self)} for life."


class CohortClosed(Particulars, kind="cohort.closed", words="Cohort closed"):
    """No further plan draws on a cohort; those that are signed do."""

    knowledge_base: str
    cohort: int
    by: str

    says = "{by} closed cohort {cohort} of {knowledge_base} to further plans."
    lost = "cohort {cohort} of {knowledge_base} was closed: will be closed again"


class GroupOpened(Particulars, kind="group.opened", words="Group made"):
    """A group of knowledge bases was made, with the budget that they are to share."""

    group: str
    epsilon: str
    delta: str
    by: str

    lost = "group {group} was made: will be made again"

    @override
    def sentence(self, named: Names) -> str:
        return f"{named(self.by)} made the group {self.group} with {_budget(self)} for its whole life."


class GroupJoined(Particulars, kind="group.joined", words="Knowledge base put into a group"):
    """A knowledge base joined a group, permanently, and shares its budget."""

    group: str
    knowledge_base: str
    by: str

    says = "{by} put {knowledge_base} into the group {group}."
    lost = "knowledge base {knowledge_base} joined group {group}: will join it again"


class KnowledgeBaseArchived(Particulars, kind="knowledge_base.archived", words="Knowledge base archived"):
    """A knowledge base no longer takes plans, cohorts or exemplars; all its cohorts were closed just before."""

    knowledge_base: str
    by: str

    says = "{by} archived {knowledge_base}: it no longer takes plans, cohorts or exemplars."
    lost = "knowledge base {knowledge_base} was archived: will be archived again"


class KnowledgeBaseDeleted(Particulars, kind="knowledge_base.deleted", words="Knowledge base deleted"):
    """A knowledge base was deleted with its budget, of which nothing was ever promised; its name is free.

    Attributes:
        cohorts: number of its cohorts.
        closed: number of those that were closed.
    """

    knowledge_base: str
    cohorts: int
    closed: int
    by: str

    says = "{by} deleted {knowledge_base}, which had no plan and no exemplar."
    lost = "knowledge base {knowledge_base} was deleted while it was empty: will be deleted again"


class PlanSigned(Particulars, kind="plan.signed", words="Plan signed"):
    """Part of cohorts' lifetime budgets was granted.

    Attributes:
        document: the calibrated plan as signed.
        signed_by: the actor that signed: a key's id, a person, or a name of the command line.
        answers: number of answers by task, or by topic if a task has topics (:func:`accounting.ledger.entries.entry`).
        cohorts: numbers of the cohorts that it is charged to, and draws on.
    """

    knowledge_base: str
    version: int
    accountant: str
    document: str
    signed_by: str
    epsilon: str
    delta: str
    answers: dict[str, int]
    cohorts: tuple[int, ...] = (1,)

    lost = "plan {version} of {knowledge_base} was signed: will be signed again"

    @override
    def sentence(self, named: Names) -> str:
        each = {
            parts(name)[0]: f"{_plural(count, 'answer')} of {parts(name)[0]}" for name, count in self.answers.items()
        }
        topics = Counter(parts(name)[0] for name in self.answers if parts(name)[1] is not None)
        answers = ", ".join(
            f"{words} on each of {topics[t]} topics" if t in topics else words for t, words in each.items()
        )
        drawn_on = "" if self.cohorts == (1,) else f" from cohorts {', '.join(map(str, self.cohorts))}"
        return (
            f"{named(self.signed_by)} signed plan {self.version} of {self.knowledge_base}: {_budget(self)} for "
            f"{answers}{drawn_on}."
        )


class AnswerCharged(Particulars, kind="charge", words="Answer charged"):
    """A key was charged an answer, or its plan a one-time release; ``task`` is an address with a version.

    Attributes:
        key: id of the key; empty for a one-time release.
    """

    charge: str
    task: str
    key: str

    @override
    def sentence(self, named: Names) -> str:
        if not self.key:
            return f"The one release of {self.task} was charged to its plan."
        return f"{named(self.key)} was charged an answer of {self.task}."


class AnswerReleased(Particulars, kind="release", words="Answer released"):
    """The answer that was charged left; the hash is over its canonical JSON."""

    release: str
    charge: str
    task: str
    answer_sha256: str

    says = "An answer of {task} was released."


class ChargeVoided(Particulars, kind="void", words="Charge taken back"):
    """A charge was given back."""

    charge: str
    task: str
    reason: str

    @override
    def sentence(self, named: Names) -> str:
        why = _words(self.reason)
        return f"A charge of {self.task} was voided before anything private was read: {why}."


class ChargeLost(Particulars, kind="lost", words="Charge lost"):
    """A charge's holder died or lost its answer."""

    charge: str
    task: str

    says = "A charge of {task} ended without an answer. It stays spent."


class QueryRefused(Particulars, kind="refusal", words="Refused"):
    """Queries were refused without a charge, ``times`` of them since the last such event."""

    task: str
    key: str
    reason: str
    times: int

    @override
    def sentence(self, named: Names) -> str:
        times = "once" if self.times == 1 else f"{self.times:,} times"
        return f"{named(self.key)} was refused by {self.task} {times}: {_words(self.reason)}."


class KeyCreated(Particulars, kind="key.created", words="Key made"):
    """An API key was made."""

    key: str
    name: str
    role: str
    quota: int | None
    rate_per_minute: int | None = None
    scope: tuple[str, ...] = ()
    expires_at: str | None = None
    by: str = ""

    lost = "key {name} ({key}) was made: make another"

    @override
    def sentence(self, named: Names) -> str:
        scope = f", for {', '.join(self.scope)} only" if self.scope else ""
        until = f", until {self.expires_at[:10]}" if self.expires_at else ""
        which = f"{self.role} key “{self.name}” ({self.key})"
        return f"{named(self.by)} created the {which}{scope}{until}, with {_limits(self)}."


class KeyChanged(Particulars, kind="key.changed", words="Key’s limits changed"):
    """An API key got other limits."""

    key: str
    quota: int | None
    rate_per_minute: int | None = None
    by: str = ""

    lost = "key {key} got other limits: will get them again"

    @override
    def sentence(self, named: Names) -> str:
        return f"{named(self.by)} changed the limits of the key {named(self.key)}: {_limits(self)}."


class KeyRotated(Particulars, kind="key.rotated", words="Key’s token replaced"):
    """An API key got another token; all else of it stays.

    Attributes:
        token_sha256: SHA-256 of the new token, in hexadecimal. A token has 256 random bits, so this does not reveal it.
        until: time from which the previous token is refused (ISO 8601); None: at once, as are all earlier ones.
    """

    key: str
    token_sha256: str
    until: str | None
    by: str

    lost = "key {key} got another token: will get it again"

    @override
    def sentence(self, named: Names) -> str:
        ends = f"until {self.until[:16].replace('T', ' ')}" if self.until else "no longer"
        return f"{named(self.by)} replaced the token of the key {named(self.key)}; the one before is valid {ends}."


class KeyRevoked(Particulars, kind="key.revoked", words="Key revoked"):
    """An API key is refused from now on."""

    key: str
    by: str = ""

    says = "{by} revoked the key {key}."
    lost = "key {key} was revoked: will be revoked again"


class KeySignedIn(Particulars, kind="key.signed_in", words="Signed in"):
    """A session on the dashboard was begun with a key."""

    key: str

    says = "{key} signed in to the dashboard."


class KeySignedOut(Particulars, kind="key.signed_out", words="Signed out"):
    """A session on the dashboard that was begun with a key was ended."""

    key: str

    says = "{key} signed out of the dashboard."


class PersonSignedIn(Particulars, kind="person.signed_in", words="Person signed in"):
    """A person whom a provider vouches for signed in to the dashboard; their later events name them as ``by`` does."""

    by: str
    issuer: str
    subject: str
    role: str

    @override
    def sentence(self, named: Names) -> str:
        return f"{self.by} signed in to the dashboard as {self.role}."


class PersonSignedOut(Particulars, kind="person.signed_out", words="Person signed out"):
    """A person ended a session on the dashboard."""

    by: str

    @override
    def sentence(self, named: Names) -> str:
        return f"{self.by} signed out of the dashboard."


class ExemplarsIngested(Particulars, kind="exemplars.ingested", words="Exemplars uploaded"):
    """Exemplars will be added, or none if that fails; their number is private. It is witnessed before they are stored.

    Attributes:
        upload: a random name, which its end bears, too (:class:`UploadEnded`).
    """

    knowledge_base: str
    upload: str
    by: str = ""

    says = "{by} uploaded exemplars to {knowledge_base}."
    lost = "exemplars of {knowledge_base} were uploaded: upload them again"


class UploadEnded(Particulars, kind="upload.ended", words="Upload ended"):
    """An upload stores nothing more. Appended with its exemplars, or after a failure; which of these is private."""

    knowledge_base: str
    upload: str
    by: str

    says = "{by}’s upload to {knowledge_base} ended."


class UnitForgotten(Particulars, kind="unit.forgotten", words="Unit forgotten"):
    """A privacy unit was deleted; which one is private."""

    knowledge_base: str
    by: str = ""

    says = "{by} deleted a unit of {knowledge_base}."
    lost = "a unit of {knowledge_base} was forgotten and is back: forget it again, before answering"


class RemoteEngineChanged(Particulars, kind="remote_engine.changed", words="Engine outside allowed or forbidden"):
    """Exemplars may be shown to an engine outside the deployment, or no longer."""

    knowledge_base: str
    allowed: bool
    by: str = ""

    lost = "the rule on remote engines of {knowledge_base} was changed: will be changed again"

    @override
    def sentence(self, named: Names) -> str:
        did = "allowed" if self.allowed else "forbade"
        return f"{named(self.by)} {did} engines outside the deployment for {self.knowledge_base}."


class BundlePublished(Particulars, kind="bundle.published", words="Bundle published"):
    """A bundle of restoration vectors was published; all of it is public, and so must the data behind it be."""

    bundle: str
    sha256: str
    data: str
    data_sha256: str
    declared_by: str
    by: str

    says = "{by} published {bundle}. {declared_by} declared its data to be {data}."
    lost = "bundle {bundle} was published: its folder is no part of the database, so nothing is to be done"


class EncryptionKeyChanged(Particulars, kind="encryption_key.changed", words="Encryption key changed"):
    """Another master key opens the database, and the one before no longer."""

    fingerprint: str
    by: str

    says = "{by} changed the encryption key to {fingerprint}."
    lost = "the encryption key was changed to {fingerprint}: change it again"


class ExemplarsReencrypted(Particulars, kind="exemplars.reencrypted", words="Exemplars encrypted again"):
    """All exemplars were encrypted under a new data key."""

    by: str

    says = "{by} had all exemplars encrypted under a new data key."
    lost = "all exemplars were encrypted under a new data key: encrypt them again"


@dataclass(frozen=True)
class Mark:
    """A place in the trail: an event's sequence number and hash; (0, zeros) before the first."""

    sequence: int
    hash: str


class LedgerRestored(Particulars, kind="ledger.restored", words="Restored from a backup"):
    """An admin acknowledged a restore from a backup (:mod:`accounting.ledger.restoring`).

    Attributes:
        common: sequence number of the newest event that backup and witness shared.
        witness: the newest event witnessed by then.
        charges: number of lost charges that were charged again.
        ended: knowledge bases that no longer answer, since their promises could not be kept otherwise.
        closed: groups that no further knowledge base joins, for the same reason.
        charged_twice: names of ended ones that were charged answers in two histories, they or others of their groups.
        spent: addresses of topics that no longer answer, since it is not known which units were on them.
    """

    by: str
    common: int
    witness: Mark
    charges: int
    ended: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    charged_twice: tuple[str, ...] = ()
    spent: tuple[str, ...] = ()

    @override
    def sentence(self, named: Names) -> str:
        ended = f" These knowledge bases no longer answer: {', '.join(self.ended)}." if self.ended else ""
        closed = f" These groups take no further knowledge base: {', '.join(self.closed)}." if self.closed else ""
        whole = sorted({f"{parts(one)[0]}@{one.rpartition('@')[2]}" for one in self.spent})
        spent = f" These tasks give no more answers on their topics: {', '.join(whole)}." if whole else ""
        return (
            f"{named(self.by)} acknowledged that the ledger was restored from a backup as it was at event "
            f"{self.common}: {_plural(self.charges, 'answer')} given since stayed charged.{ended}{spent}{closed}"
        )


def _budget(granted: BudgetOpened | CohortOpened | GroupOpened | PlanSigned) -> str:
    return f"ε {Decimal(granted.epsilon).normalize():g} and δ {Decimal(granted.delta).normalize():g}"


def _limits(key: KeyCreated | KeyChanged) -> str:
    answers = "no quota" if key.quota is None else f"a quota of {_plural(key.quota, 'answer')}"
    rate = key.rate_per_minute
    pace = "no rate limit" if rate is None else f"at most {_plural(rate, 'request')} a minute"
    return f"{answers} and {pace}"


def _plural(count: int, one: str) -> str:
    return f"{count:,} {one if count == 1 else one + 's'}"


def _words(reason: str) -> str:
    return reason.replace("-", " ")
