"""Mechanisms as a plan writes them: their parameters, and which profiles calibration chooses their noise from.

This is all that a plan needs to be read and signed. What answers with a mechanism and describes it is the service's
(``service/answering/mechanisms``), which this package does not import.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    TypeAdapter,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import override

from accounting.plans.labels import check_distinct
from accounting.plans.releases import Each, Once, OnceBySlots, Releases
from accounting.plans.strict import Strict, is_unset
from accounting.privacy import calibration
from accounting.privacy.calibration import VOTES, AnyFamily
from accounting.privacy.profiles import GaussianThreshold, ProposeTestRelease
from accounting.privacy.token_ensemble import MOST_TOKENS

LARGEST_DELTA0 = 0.1
"""Largest δ₀: a test that passes more often than this on an unsafe gap protects too little."""
_LARGEST_CLIP = 20.0
_LONGEST_SCHEMA = 20_000


class Mechanism(Strict):
    """A mechanism with its parameters.

    Attributes:
        kind: kind of the tasks that may have it.
        shows_exemplars: whether an engine is shown exemplars with a question, private or released.
    """

    kind: ClassVar[str]
    shows_exemplars: ClassVar[bool] = True
    type: str

    @property
    def releases(self) -> Releases:
        """The way in which its answers are released, as it is written: by default, each by itself."""
        return Each()

    @property
    def left_out(self) -> float:
        """Share of the units that a one-time release is measured on, and not made of; 0: it is not measured."""
        return 0.0

    def family(self, delta: float, answers: int, probability: float, ensemble: int) -> AnyFamily:
        """Family of mechanisms that calibration chooses from: by default, Gaussian noise.

        Args:
            delta: share of the plan's δ that belongs to the task.
            answers: number of the task's answers.
            probability: probability with which a unit is drawn for each answer.
            ensemble: number of slots of an answer.
        """
        return calibration.GAUSSIAN

    def __str__(self) -> str:
        """The mechanism and its parameters, in a few words."""
        written = [(name, value) for name, value in self if value is not None]
        parameters = [(name, f"{value:g}" if isinstance(value, float) else value) for name, value in written]
        return ", ".join([self.type, *(f"{name} {value}" for name, value in parameters if name != "type")])


class LabelMechanism(Mechanism):
    """A mechanism that releases a label."""

    kind = "classify"
    can_be_fitted: ClassVar[bool] = False
    """Whether it has parameters that make the score the label's probability of being right."""

    @property
    def gives_score(self) -> bool:
        """Whether the label leaves with a score, from 0 to 1."""
        return False

    @property
    def weighs_prior(self) -> bool:
        """Whether it weighs public probabilities of the labels against the votes."""
        return False

    @property
    def fitted(self) -> int | None:
        """Number of labelled public rows that the score was fitted to, which makes it the label's probability of being
        right; None: it was not fitted, so it is not one."""
        return None

    def check(self, labels: Sequence[str], label_field: str, fields: Sequence[str]) -> None:
        """Whether it fits a task.

        Args:
            labels: the task's.
            label_field: the exemplars' field that holds the label.
            fields: all that the prompt shows of an exemplar.

        Raises:
            ValueError: it does not; the message begins with the mechanism's key.
        """


class TextMechanism(Mechanism):
    """A mechanism that releases a text.

    Attributes:
        written_together: whether the engine's slots write it together, which not every engine's can.
        releases_words: whether it releases words, which then become a sentence.
    """

    kind = "generate"
    written_together: ClassVar[bool] = False
    releases_words: ClassVar[bool] = False

    def check(self, written: str, asked: Sequence[str], shown: Sequence[str]) -> None:
        """Whether it fits a task.

        Args:
            written: the template that shows texts which were written once; empty: there is none.
            asked: the fields of the template of a question.
            shown: all that the prompt shows of an exemplar.

        Raises:
            ValueError: it does not; the message begins with the key of what does not fit.
        """
        if written:
            raise ValueError("prompt.written: is for `release: once`")


FEWEST_ROWS = 200
"""Labelled rows that make a score a probability: fewer do not show well enough how often it is right."""


class Calibration(Strict):
    """Parameters of the posterior (``aggregation/posterior.py`` has the model). They cost no budget.

    ``dpicl eval`` shows how often labels are right beside their scores, and ``dpicl eval --fit`` fits all of this.
    """

    fitted_to: int | None = Field(default=None, ge=FEWEST_ROWS, exclude_if=is_unset)
    """Number of labelled public rows that the parameters were fitted to, as `dpicl eval --fit` writes it: answers then
    carry the label's `probability` of being right. Unless set, they carry a `score`, which is not one."""

    prior: float = Field(default=1.0, ge=0, le=10)
    """Weight of zero-shot's log-probabilities: 0 ignores them, 1 takes them as they are."""
    decisiveness: float | None = Field(default=None, ge=0.01, le=1000, exclude_if=is_unset)
    """Nats by which 50 times as many votes as another label's, without noise, favour a label over it. Unless set, 8 for
    hard votes and 17 for soft ones, over the square root of the number of labels."""
    lead: float = Field(default=0.14, ge=0.001, le=1)
    """The share of the votes that a label gains by being right."""
    echo: float | None = Field(default=None, ge=0, le=2, exclude_if=is_unset)
    """Degree to which the votes repeat zero-shot. Unless set, 0.5 where slots quote, and 1 where they ask a model, or
    the task has `prior_from`."""
    label_weights: Mapping[str, Annotated[float, Field(ge=0.01, le=100)]] = Field(
        default_factory=dict, exclude_if=lambda weights: not weights
    )
    """Factor by which a label is likelier than zero-shot and votes make it: below 1 for labels that are rarer than the
    engine thinks. 1 for each label unless set."""


"""Signed plans rely on these defaults permanently: they must not change."""


class RnmGaussianMechanism(LabelMechanism):
    """Votes with Gaussian noise: one label leaves.

    With ``decide: posterior`` it is the one that is likeliest to be right, given the noisy votes and the public
    zero-shot probabilities, and leaves with a score; with ``decide: argmax`` the one of the most noisy votes.
    """

    can_be_fitted = True
    type: Literal["rnm_gaussian"]
    vote: Literal["hard", "soft"] = "hard"
    """Whether a slot votes for its likeliest label, or for each label with its probability."""
    prior_weight: float | None = Field(default=None, ge=0, le=1e6, exclude_if=is_unset)
    """For `argmax`: number of votes that the public zero-shot probabilities count for; costs nothing. 0 unless set."""
    decide: Literal["posterior", "argmax"] = Field(default="posterior", exclude_if=lambda decide: decide == "argmax")
    """Rule that chooses the label. A plan that sets `prior_weight` and not this means `argmax`, once the only rule."""
    calibration: Calibration | None = Field(default=Calibration(), exclude_if=is_unset)
    """For `posterior`: the parameters of its model."""

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, written: Any) -> Any:
        """Complete what is not written. As signed, `argmax` is a `prior_weight` without `decide`."""
        if not isinstance(written, dict):
            return written
        decide = written.get("decide", "posterior" if written.get("prior_weight") is None else "argmax")
        unless: dict[str, Any] = (
            {"calibration": None, "prior_weight": 0.0} if decide == "argmax" else {"calibration": {}}
        )
        missing = {name: value for name, value in unless.items() if written.get(name) is None}
        return {**written, **missing, "decide": decide}

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> Self:
        if self.decide == "posterior" and self.prior_weight is not None:
            raise ValueError("prior_weight: is for decide: argmax; for the posterior write calibration: {prior: ...}")
        if self.decide == "argmax" and self.calibration is not None:
            raise ValueError("calibration: is for decide: posterior")
        return self

    @override
    def check(self, labels: Sequence[str], label_field: str, fields: Sequence[str]) -> None:
        weights = self.calibration.label_weights if self.calibration else {}
        if unknown := sorted(set(weights) - set(labels)):
            raise ValueError(f"mechanism.calibration.label_weights: {', '.join(unknown)} is not among the labels")

    @property
    @override
    def gives_score(self) -> bool:
        return self.decide == "posterior"

    @property
    @override
    def weighs_prior(self) -> bool:
        return self.decide == "posterior"

    @property
    @override
    def fitted(self) -> int | None:
        return None if self.calibration is None else self.calibration.fitted_to

    @override
    def family(self, delta: float, answers: int, probability: float, ensemble: int) -> AnyFamily:
        return VOTES

    def decisiveness(self, labels: int) -> float:
        """The decisiveness in the calibration; else the default for this number of labels."""
        written = self.calibration and self.calibration.decisiveness
        return written or (8.0 if self.vote == "hard" else 17.0) / math.sqrt(labels)

    def __str__(self) -> str:
        how = "posterior" if self.decide == "posterior" else f"argmax, prior weight {self.prior_weight:g}"
        return f"rnm_gaussian, {self.vote} votes, {how}"


class OnceLabelMechanism(LabelMechanism):
    """A mechanism with a one-time release, which then labels any number of questions."""

    @property
    @override
    def releases(self) -> Releases:
        return Once()

    @property
    @override
    def gives_score(self) -> bool:
        return True


class PrototypesMechanism(OnceLabelMechanism):
    """A noisy prototype of each label, by a one-time release: the label of a question is that of the nearest one."""

    shows_exemplars = False
    can_be_fitted = True
    type: Literal["prototypes"]
    temperature: float = Field(default=0.04, ge=0.001, le=10)
    """Certainty of an answer about the nearest prototype: the lower, the surer. It changes no label, only scores."""
    fitted_to: int | None = Field(default=None, ge=FEWEST_ROWS, exclude_if=is_unset)
    """Number of labelled public rows that the temperature was fitted to, as `dpicl eval --fit` writes it: answers then
    carry the label's `probability` of being right. Unless set, they carry a `score`, which is not one."""

    @property
    @override
    def fitted(self) -> int | None:
        return self.fitted_to


class SoftmaxRegressionMechanism(OnceLabelMechanism):
    """Softmax regression on embeddings, by a one-time release: noisy gradient descent, which labels any number of
    questions."""

    shows_exemplars = False
    can_be_fitted = True
    type: Literal["softmax_regression"]
    temperature: float = Field(default=1.0, ge=0.01, le=100)
    """Certainty of an answer: the lower, the surer. It changes no label, only scores."""
    fitted_to: int | None = Field(default=None, ge=FEWEST_ROWS, exclude_if=is_unset)
    """Number of labelled public rows that the temperature was fitted to, as `dpicl eval --fit` writes it: answers then
    carry the label's `probability` of being right. Unless set, they carry a `score`, which is not one."""
    measured_on: float | None = Field(default=None, ge=0.01, le=0.5, exclude_if=is_unset)
    """Share of the units that are left out of the release, by a keyed hash of each, and that it is measured on: with
    noise, it counts how many of them it labels right, and every answer states it (`measured`). That costs no further
    budget, since a unit is in one part or the other. Unless set, the release is made of all units and not measured."""

    @property
    @override
    def fitted(self) -> int | None:
        return self.fitted_to

    @property
    @override
    def left_out(self) -> float:
        return self.measured_on or 0.0


class SyntheticExemplarsMechanism(OnceLabelMechanism):
    """Public candidates that private units vote for, once: the engine is shown the chosen ones with every question."""

    type: Literal["synthetic_exemplars"]
    candidates: tuple[dict[str, Annotated[str, StringConstraints(min_length=1, max_length=5000)]], ...] = Field(
        max_length=1000, strict=False
    )
    """Exemplars that are public, by the fields that the prompt shows. Never write them from private texts."""
    per_label: int = Field(default=2, ge=1, le=100)
    """Number of candidates chosen for each label."""

    @override
    def check(self, labels: Sequence[str], label_field: str, fields: Sequence[str]) -> None:
        for number, candidate in enumerate(self.candidates):
            where = f"mechanism.candidates.{number}"
            if set(candidate) != set(fields):
                raise ValueError(f"{where}: must have the fields {', '.join(fields)}, and no others")
            if candidate[label_field] not in labels:
                raise ValueError(f"{where}: {candidate[label_field]!r} is not among the labels")
            if any(not text.strip() for text in candidate.values()):
                raise ValueError(f"{where}: a field is empty")
            if candidate in self.candidates[:number]:
                raise ValueError(f"{where}: each candidate may appear once")
        counts = Counter(candidate[label_field] for candidate in self.candidates)
        if few := [label for label in labels if counts[label] < self.per_label]:
            raise ValueError(f"mechanism.candidates: {', '.join(few)}: fewer than per_label = {self.per_label}")

    def __str__(self) -> str:
        return f"synthetic_exemplars, {self.per_label} of each label"


class EmbeddingMeanMechanism(TextMechanism):
    """The public candidate nearest to the noisy sum of the slots' sentence embeddings leaves."""

    type: Literal["embedding_mean"]
    radius: float = Field(default=1.0, gt=0, le=2)
    """Embeddings are clipped to this norm, and the noise is in proportion to it; 1 clips nothing."""
    centred: bool = False
    """Whether embeddings are measured from the mean of the candidates, so that a radius below 1 loses little."""

    @override
    def family(self, delta: float, answers: int, probability: float, ensemble: int) -> AnyFamily:
        return calibration.BALL

    def __str__(self) -> str:
        return f"embedding_mean{', centred' if self.centred else ''}, radius {self.radius:g}"


class KeywordJointEmMechanism(TextMechanism):
    """The joint exponential mechanism: an ordered sequence of k words of a public domain leaves."""

    releases_words = True
    type: Literal["keyword_joint_em"]
    k: int = Field(ge=1, le=100)
    """Number of words that are released."""
    typical_domain: int = Field(default=100, ge=1, le=1_000_000)
    """A public guess of how many words the query and the zero-shot answers have together, for the preview only."""

    @model_validator(mode="after")
    def _domain_holds_k(self) -> Self:
        if self.typical_domain < self.k:
            raise ValueError(f"typical_domain: {self.k} words cannot come from a domain of {self.typical_domain}")
        return self

    @override
    def family(self, delta: float, answers: int, probability: float, ensemble: int) -> AnyFamily:
        return calibration.BOUNDED_RANGE

    def __str__(self) -> str:
        return f"keyword_joint_em, k = {self.k}"


class KeywordPtrMechanism(TextMechanism):
    """Propose-test-release: the k most frequent words leave if they stand out, else the zero-shot answer."""

    releases_words = True
    type: Literal["keyword_ptr"]
    k_min: int = Field(ge=1, le=100)
    """Fewest words that may leave."""
    k_max: int = Field(ge=1, le=100)
    """Most words that may leave."""
    choice_share: float = Field(default=0.5, gt=0, lt=1)
    """Share of an answer's cost that goes to choosing k; the test gets the rest."""
    delta_share: float = Field(default=0.5, gt=0, lt=1)
    """Share of the task's part of δ that its tests may fail with, all answers together."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.k_min > self.k_max:
            raise ValueError("k_min: must be at most k_max")
        return self

    @override
    def family(
        self, delta: float, answers: int, probability: float, ensemble: int
    ) -> calibration.Family[ProposeTestRelease]:
        delta0 = _delta0(self.delta_share, delta, answers, probability)
        return calibration.propose_test_release(delta0, self.choice_share)

    def __str__(self) -> str:
        return f"keyword_ptr, k = {self.k_min} to {self.k_max}"


class CommonSentencesMechanism(TextMechanism):
    """Sentences that many slots share, word for word, leave; where there are none, the zero-shot answer."""

    type: Literal["common_sentences"]
    sentences: int = Field(default=2, ge=1, le=10)
    """Most sentences that a slot contributes: those with most words of the question, and the longest. The noise grows
    with the square root of this number."""
    show: int = Field(default=3, ge=1, le=10)
    """Most sentences of an answer; of those that mean nearly the same, one is shown."""
    leave_out: tuple[Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)], ...] = (
        Field(default=(), max_length=1000, strict=False, exclude_if=lambda leave_out: not leave_out)
    )
    """Public sentences that are not counted, in upper case or lower, such as greetings and signatures."""
    delta_share: float = Field(default=0.3, gt=0, lt=1)
    """Share of the task's part of δ with which a sentence of one slot alone may leave, all answers together."""

    @override
    def family(
        self, delta: float, answers: int, probability: float, ensemble: int
    ) -> calibration.Family[GaussianThreshold]:
        return calibration.gaussian_threshold(_delta0(self.delta_share, delta, answers, probability))

    def __str__(self) -> str:
        return f"common_sentences, {self.sentences} of a slot"


class TokenEnsembleMechanism(TextMechanism):
    """The language model writes the answer: each token is drawn from its own distribution without exemplars, moved
    towards the slots' distributions (``aggregation/token_ensemble.py``).

    How far it is moved follows from the budget. With ``topics`` it writes the texts of one release.
    """

    written_together = True
    type: Literal["token_ensemble"]
    tokens: int = Field(default=40, ge=1, le=MOST_TOKENS)
    """Number of an answer's tokens that the slots influence. An answer is charged for all, however short it is."""
    max_tokens: int | None = Field(default=None, ge=1, le=2000, exclude_if=is_unset)
    """Most tokens of an answer; those beyond `tokens` are the model's own. As many as `tokens` unless set."""
    clip: float = Field(default=2.0, ge=0.01, le=_LARGEST_CLIP)
    """Largest change of a token's log-probability by one slot, in nats; up to 20 where the budget allows for it."""
    weight: float = Field(default=1.0, gt=0, le=10)
    """Largest weight of the slots' mean, if the budget allows it; 1: as if it were the model's own distribution."""
    temperature: float = Field(default=1.0, ge=0.1, le=5)
    """Temperature of the distribution that a token is drawn from."""
    top_k: int = Field(default=100, ge=2, le=127)
    """Number of the tokens likeliest without exemplars, among which one is drawn."""
    gate: float = Field(default=0.95, gt=0, le=1)
    """A token that is likelier than this without exemplars is drawn without asking the slots, and not paid for."""
    banned: tuple[Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)], ...] = Field(
        default=(), max_length=100, strict=False, exclude_if=lambda banned: not banned
    )
    """Texts that no answer contains, in upper case or lower, inside a longer word or not: a token that would complete
    one is not among those to draw from. They are public and cost nothing."""
    regex: str | None = Field(default=None, min_length=1, max_length=2000, exclude_if=is_unset)
    """A regular expression that whole answers match. It is public and costs nothing, nor does a token that it leaves no
    choice of. An answer that reaches its greatest length before is cut off there."""
    json_schema: dict[str, Any] | None = Field(default=None, exclude_if=is_unset)
    """A JSON schema that whole answers follow, like `regex`, without whitespace between their parts."""
    after: KeywordPtrMechanism | None = Field(default=None, exclude_if=is_unset)
    """Words that the same slots agree on, released first and named to all who write, in every prompt, as
    `prompt.keywords` has it. If none stand out, the answer is written without them."""
    after_share: float = Field(default=0.3, gt=0, lt=1)
    """For `after`: share of an answer's cost that goes to the words; the tokens get the rest."""
    topics: tuple[Annotated[str, StringConstraints(min_length=1, max_length=100)], ...] | None = Field(
        default=None, min_length=1, max_length=100, strict=False, exclude_if=is_unset
    )
    """For `release: once`: topics of the texts, values of the one field that `prompt.query` asks for. Public."""
    texts: int | None = Field(default=None, ge=1, le=MOST_TOKENS, exclude_if=is_unset)
    """For `release: once`: number of texts on each topic. A unit influences those of one topic."""
    shown: int = Field(default=4, ge=1, le=100, exclude_if=lambda shown: shown == 4)
    """For `release: once`: number of texts that are shown with a question, those that resemble it most; all those of
    its topic, if it names one."""

    @property
    @override
    def releases(self) -> Releases:
        """Each by itself; with topics, one."""
        return Each(", unless it names topics") if self.topics is None else OnceBySlots()

    @override
    def check(self, written: str, asked: Sequence[str], shown: Sequence[str]) -> None:
        if self.topics is None:
            super().check(written, asked, shown)
            return
        if not written:
            raise ValueError("prompt.written: is missing; it asks a question and shows the texts that were written")
        if len(asked) != 1:
            raise ValueError("prompt.query: must have one placeholder, the field of the topic")
        if len(shown) != 2:
            raise ValueError("prompt.exemplar: must show the field of the topic and the response, and no other field")

    @property
    def paid(self) -> int:
        """Tokens that a release is charged for: a unit influences all texts on its topic."""
        return self.tokens * (self.texts or 1)

    @property
    def longest(self) -> int:
        """Most tokens of an answer."""
        return self.max_tokens or self.tokens

    def pull(self, epsilon: float, ensemble: int) -> float:
        """Largest amount by which one slot moves a token's log-odds, in nats of the distribution that is drawn from.

        Args:
            epsilon: range of a token's log-likelihood ratios, from calibration: four times that.
            ensemble: number of slots.
        """
        return min(epsilon / 4, self.weight * _LARGEST_CLIP / (ensemble * self.temperature))

    def reach(self, pull: float, ensemble: int) -> float:
        """Largest change of a token's log-probability by one slot, in nats, that `weight` allows with such a pull.

        Args:
            pull: value of :meth:`pull`.
            ensemble: number of slots.
        """
        return max(self.clip, pull * ensemble * self.temperature / self.weight)

    @model_validator(mode="after")
    def _is_long_enough(self) -> Self:
        if self.longest < self.tokens:
            raise ValueError("max_tokens: must be at least tokens")
        if self.regex is not None and self.json_schema is not None:
            raise ValueError("json_schema: an answer keeps to it or to a regex, not to both")
        if self.json_schema is not None and len(json.dumps(self.json_schema)) > _LONGEST_SCHEMA:
            raise ValueError(f"json_schema: at most {_LONGEST_SCHEMA:,} characters as JSON")
        return self

    @model_validator(mode="after")
    def _writes_on_topics(self) -> Self:
        if (self.topics is None) != (self.texts is None):
            raise ValueError("topics: write both topics and texts, or neither")
        if self.paid > MOST_TOKENS:
            raise ValueError(f"texts: texts × tokens is {self.paid}, and may be {MOST_TOKENS}; lower one of them")
        topics = self.topics or ()
        check_distinct("topics", topics)
        if topics and self.after is not None:
            raise ValueError("after: no words are released before texts on topics; leave it out")
        return self

    @override
    def family(self, delta: float, answers: int, probability: float, ensemble: int) -> AnyFamily:
        tokens = calibration.token_ensemble(self.paid, 4 * self.pull(math.inf, ensemble), sampled=probability < 1)
        if self.after is None:
            return tokens
        words = self.after.family(delta, answers, probability, ensemble)
        return calibration.guided_tokens(words, tokens, self.after_share)

    def __str__(self) -> str:
        many = "1 text" if self.texts == 1 else f"{self.texts} texts"
        written = f"{many} on each of {len(self.topics)} topics, " if self.topics else ""
        after = "" if self.after is None else f", after {self.after}"
        return f"token_ensemble, {written}{self.tokens} tokens, clip {self.clip:g}{after}"


def _delta0(share: float, delta: float, answers: int, probability: float) -> float:
    """δ₀ of an answer, where ``share`` of the task's δ is for all answers together."""
    return min(share * delta / (answers * probability), LARGEST_DELTA0)


def type_of(mechanism: type[Mechanism]) -> str:
    """The value of ``mechanism.type`` in a plan."""
    (written,) = get_args(mechanism.model_fields["type"].annotation)
    return str(written)


MECHANISMS: dict[str, type[Mechanism]] = {
    type_of(known): known
    for known in (
        RnmGaussianMechanism,
        PrototypesMechanism,
        SoftmaxRegressionMechanism,
        SyntheticExemplarsMechanism,
        EmbeddingMeanMechanism,
        KeywordJointEmMechanism,
        KeywordPtrMechanism,
        CommonSentencesMechanism,
        TokenEnsembleMechanism,
    )
}
"""Mechanisms by type; :func:`register` adds to them."""


def register(mechanism: type[Mechanism]) -> None:
    """Let plans name a further mechanism; nothing happens if it is known.

    Raises:
        ValueError: there is another of its type; signed plans must keep their meaning permanently.
    """
    written = type_of(mechanism)
    if MECHANISMS.setdefault(written, mechanism) is not mechanism:
        raise ValueError(f"there is another mechanism {written}")


def types_of(kind: str) -> list[str]:
    """The types that a task of this kind may name."""
    return [written for written, known in MECHANISMS.items() if known.kind == kind]


@dataclass(frozen=True)
class Registered:
    """Marks a field that holds one of :data:`MECHANISMS`, looked up by its type when a plan is read.

    Attributes:
        base: class that they must be subclasses of.
    """

    base: type[Mechanism]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(lambda written: self._known().validate_python(written))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(self._known().core_schema)

    def _known(self) -> TypeAdapter[Mechanism]:
        return _one_of(tuple(known for known in MECHANISMS.values() if issubclass(known, self.base)))


@cache
def _one_of(mechanisms: tuple[type[Mechanism], ...]) -> TypeAdapter[Mechanism]:
    union: Any = Union[mechanisms]  # noqa: UP007  (of a tuple)
    return TypeAdapter(Annotated[union, Field(discriminator="type")])
