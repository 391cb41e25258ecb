"""Tasks as a plan writes them: what is asked, how slots are drawn, and by which mechanism an answer is released."""

import math
import string
from abc import abstractmethod
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator
from typing_extensions import override

from accounting.plans.labels import check_distinct, plain, spellings
from accounting.plans.mechanisms import LabelMechanism, Mechanism, Registered, TextMechanism
from accounting.plans.releases import ONE, REFUSE, Once, Releases
from accounting.plans.strict import Strict, is_unset
from accounting.plans.topics import Topics, TopicsByField

KEYWORDS = "keywords"
"""The placeholder of the released words in ``prompt.keywords``; no field of a task may bear this name."""
WRITTEN = "written"
"""The placeholder of the texts in ``prompt.written``; no field of a task may bear this name."""


class PromptTemplate(Strict):
    """Templates with ``{field}`` placeholders: the fields of an exemplar, and the fields a query must bring."""

    instruction: str = ""
    """Text that begins every prompt."""
    exemplar: str
    """One exemplar, its answer included."""
    query: str
    """The query, up to where its answer begins."""

    @field_validator("exemplar", "query")
    @classmethod
    def _has_placeholders(cls, template: str) -> str:
        if not placeholders(template):
            raise ValueError("needs at least one {field} placeholder")
        return template


class GeneratePromptTemplate(PromptTemplate):
    """The templates of a task that is answered in free text."""

    keywords: str = ""
    """Asks for a sentence made of released words: ``{keywords}`` and fields of the query. Made from ``query`` unless
    set: its last line, which begins the answer, is preceded by a line with the words."""

    written: str = Field(default="", exclude_if=lambda template: not template)
    """For `release: once`: the whole prompt of a question, ``{written}`` being the texts that were written, each as in
    ``exemplar``, and the other placeholders the fields that a question brings."""

    @field_validator("written")
    @classmethod
    def _shows_the_texts(cls, template: str) -> str:
        if template and not {WRITTEN} < set(placeholders(template)):
            raise ValueError(f"needs the placeholder {{{WRITTEN}}}, and a field of the question")
        return template

    @field_validator("keywords")
    @classmethod
    def _shows_the_keywords(cls, template: str) -> str:
        if template and KEYWORDS not in placeholders(template):
            raise ValueError(f"needs the placeholder {{{KEYWORDS}}}")
        return template


PublicText = Annotated[str, StringConstraints(min_length=1, max_length=5000)]
"""A field of a public exemplar, or a public answer."""

_SLOT_TOKENS, _SHOT_TOKENS = 1024, 64
_CONTENT_FREE = ("N/A", "", "[MASK]")  # Zhao et al. 2021 (arXiv 2102.09690), section 4
_FEWEST_PUBLIC_TEXTS = 8


class _Task(Strict):
    prompt: PromptTemplate
    release: Literal["each", "once"] = Field(default="each", exclude_if=lambda release: release == "each")
    """Whether each answer is released and charged by itself, or one release is made at signing, from the whole
    knowledge base, and answers all questions at no further cost. Then there is no number of answers, and no slots
    unless the mechanism deals all units to some."""
    shots: int = Field(ge=1, le=1000)
    """Exemplars that a slot expects to show. With `order: nearest` it shows no more than these."""
    drawn: int | None = Field(default=None, ge=1, le=10_000, exclude_if=is_unset)
    """Exemplars that a slot expects to draw, with `order: nearest`: it shows those that are nearest to the question.
    As many as `shots` unless set. More of them cost as much as more shots would."""
    order: Literal["random", "nearest"] = Field(default="random", exclude_if=lambda order: order == "random")
    """Whether a slot shows what it has drawn, in random order, or the exemplars nearest to the question, nearest last.
    """
    slots: Literal["model", "quote"] = Field(default="model", exclude_if=lambda slots: slots == "model")
    """Source of a slot's answer: with `model`, a model that is shown its exemplars; with `quote`, which needs `order:
    nearest`, the response or label of the nearest exemplar. The model is then asked for the zero-shot answer, and for a
    sentence of the released words, and no exemplar is shown to it."""
    ensemble: int = Field(ge=1, le=10_000)
    """Slots of a query, each asked by itself: what is sampled is `drawn` times this, on average."""
    answers: int = Field(ge=1, le=100_000_000)
    """Number of answers the task may give in all; more of them need more noise in each."""
    sampling: Literal["units", "blocks"] = "units"
    """Whether units are drawn one by one, or in fixed blocks whose prompts a language model's cache can keep."""
    max_exemplars: int | None = Field(default=None, ge=1)
    """Most exemplars a slot keeps of what it has drawn, by lot; twice as many as it expects unless set."""
    share: float = Field(default=1.0, ge=1e-6, le=1e6)
    """Share of the task in the plan's budget, relative to the other tasks' shares."""
    slot_tokens: int | None = Field(default=None, ge=1, le=1_000_000, exclude_if=is_unset)
    """The most tokens that a slot's exemplars have in a language model's prompt; the slot leaves out those that do not
    fit. 1,024 unless set, or 64 a shot where that is more. Every answer takes as long as with the largest slots, so set
    it a little above what as many exemplars as there are shots have."""

    earlier_turns: Literal["refuse", "rewrite"] = Field(default="refuse", exclude_if=lambda turns: turns == "refuse")
    """Whether a question that comes with earlier turns of a conversation is refused, or a language model rewrites it as
    one question that stands alone. The model sees the caller's turns and no exemplar; the rewritten question is the one
    that is charged. For tasks whose questions have one field."""
    public_exemplars: tuple[dict[str, PublicText], ...] = Field(
        default=(), max_length=32, strict=False, exclude_if=lambda exemplars: not exemplars
    )
    """Up to 32 exemplars that are public, each by the fields that the prompt shows, its answer included. Every prompt
    shows them: the one without private exemplars, and those of slots, before their own. They cost no budget. Never
    write them from private texts."""
    topics: Topics | None = Field(default=None, exclude_if=is_unset)
    """Public parts of the units, each of which gives `answers` of its own, drawn from its units alone. All of them
    together cost what the dearest costs."""

    @model_validator(mode="before")
    @classmethod
    def _one_release(cls, written: Any) -> Any:
        """Add shots, ensemble and answers for a one-time release, where they are not written."""
        once = isinstance(written, dict) and written.get("release") == Once.written
        return {**ONE, **written} if once else written

    @property
    @abstractmethod
    def answer_field(self) -> str:
        """The exemplars' field that holds what the task asks for."""

    @property
    @abstractmethod
    def releases(self) -> Releases:
        """The way in which its answers are released: that of its mechanism."""

    @property
    def once(self) -> bool:
        """Whether its one release is made at signing."""
        return isinstance(self.releases, Once)

    def by(self, mechanism: Mechanism) -> Self:
        """The same task, answered by another mechanism of its kind, in that one's way."""
        releases = mechanism.releases
        unset = {**releases.unset, **({} if mechanism.shows_exemplars else {"public_exemplars": ()})}
        return self.model_copy(update={**unset, "release": releases.written, "mechanism": mechanism})

    def alone(self) -> Self:
        """The same task, relying on no other of its plan."""
        return self

    def sampling_probability(self, public_size: int) -> float:
        """The chance of a unit, or a block, to be drawn; above 1 if the knowledge base is too small.

        Of topics, the largest chance.

        Args:
            public_size: the knowledge base's public number of exemplars.
        """
        if self.topics is not None:
            return max(self.topic_probability(topic, public_size) for topic in self.topics.all)
        return self.releases.probability(self.expected * self.ensemble, public_size)

    def topic_probability(self, topic: str, public_size: int) -> float:
        """The chance of a unit on some topic to be drawn, at most 1; arguments as of :meth:`sampling_probability`."""
        if self.topics is None:
            raise TypeError("the task has no topics")
        return min(1.0, self.expected * self.ensemble / self.topics.size(topic, public_size))

    @property
    def expected(self) -> int:
        """Exemplars that a slot expects to draw."""
        return self.shots if self.drawn is None else self.drawn

    @model_validator(mode="after")
    def _prompt_fits(self) -> Self:
        if self.answer_field not in placeholders(self.prompt.exemplar):
            raise ValueError(f"prompt.exemplar: needs the placeholder {{{self.answer_field}}}, the field of the answer")
        if self.answer_field in placeholders(self.prompt.query):
            raise ValueError(f"prompt.query: must not show the answer {{{self.answer_field}}}")
        if missing := sorted(set(placeholders(self.prompt.query)) - set(self.exemplar_fields)):
            raise ValueError(f"prompt.exemplar: lacks {', '.join(missing)}, which prompt.query has")
        if self.max_exemplars is not None and self.max_exemplars < self.expected:
            raise ValueError("max_exemplars: must be at least what a slot expects to draw, `drawn` or `shots`")
        if self.drawn is not None and self.order == "random":
            raise ValueError("drawn: a slot shows all that it draws; write `order: nearest`, or raise `shots`")
        if self.drawn is not None and self.drawn < self.shots:
            raise ValueError("drawn: must be at least shots, which are chosen from what is drawn")
        if self.order == "nearest" and self.sampling == "blocks":
            raise ValueError("order: blocks show the same exemplars to every question; use `sampling: units`")
        if self.slots == "quote" and self.order != "nearest":
            raise ValueError("slots: what is quoted is the exemplar nearest to the question; write `order: nearest`")
        if self.topics is not None and self.sampling == "blocks":
            raise ValueError("topics: a block has units of several topics; use `sampling: units`")
        if self.earlier_turns == "rewrite" and len(self.query_fields) > 1:
            raise ValueError(f"earlier_turns: a rewritten question is one text, not {', '.join(self.query_fields)}")
        if isinstance(self.topics, TopicsByField) and self.topics.field == self.answer_field:
            raise ValueError("topics.field: a question does not bring its answer; choose another field")
        return self

    @model_validator(mode="after")
    def _public_exemplars_fit(self) -> Self:
        shown, seen = placeholders(self.prompt.exemplar), dict[str, int]()
        for number, exemplar in enumerate(self.public_exemplars):
            where = f"public_exemplars.{number}"
            if set(exemplar) != set(shown):
                raise ValueError(f"{where}: must have the fields that prompt.exemplar shows, {', '.join(shown)}")
            for name, text in exemplar.items():
                if not plain(text):
                    raise ValueError(f"{where}.{name}: is empty; write what can be read")
            compared = repr([plain(exemplar[name]) for name in shown])
            if compared in seen:
                raise ValueError(
                    f"{where}: is the same as number {seen[compared]}, since they are compared without regard to case, "
                    "spaces and characters that look alike; leave out one of them"
                )
            seen[compared] = number
        return self

    def _check_release(self, mechanism: Mechanism) -> None:
        releases = mechanism.releases
        if self.release != releases.written:
            raise ValueError(f"release: {mechanism.type} {releases.refusal}")
        releases.check(dict(self))
        if self.public_exemplars and not mechanism.shows_exemplars:
            raise ValueError(f"public_exemplars: {mechanism.type} shows no exemplars to any model; leave them out")

    @property
    def query_fields(self) -> tuple[str, ...]:
        """The fields a query must bring, in the order of the query template; last that of the topic, if not shown."""
        return self.with_topic(placeholders(self.prompt.query))

    def with_topic(self, fields: tuple[str, ...]) -> tuple[str, ...]:
        """Some fields, and the one that names the topic, if one does and it is not among them."""
        if not isinstance(self.topics, TopicsByField) or self.topics.field in fields:
            return fields
        return (*fields, self.topics.field)

    @property
    def compares(self) -> bool:
        """Whether the question's embedding is compared with exemplars', or with topics."""
        return self.order == "nearest" or not isinstance(self.topics, TopicsByField | None)

    @property
    def exemplar_fields(self) -> tuple[str, ...]:
        """The fields an exemplar must have."""
        return self.with_topic(placeholders(self.prompt.exemplar))

    @property
    def most_slots(self) -> int:
        """Most slots of a query. With blocks, drawing more than this number is as good as impossible."""
        return self.ensemble + (6 * math.isqrt(self.ensemble) + 6 if self.sampling == "blocks" else 0)

    @property
    def slot_room(self) -> int:
        """Most tokens of a slot's exemplars in a language model's prompt."""
        return self.slot_tokens if self.slot_tokens is not None else max(_SLOT_TOKENS, _SHOT_TOKENS * self.shots)

    @property
    def slot_cap(self) -> int:
        """Most exemplars a slot keeps of what it has drawn."""
        return self.max_exemplars if self.max_exemplars is not None else 2 * self.expected

    @property
    def slot_shown(self) -> int:
        """Most exemplars a slot shows."""
        return self.shots if self.order == "nearest" else self.slot_cap


class ClassifyTask(_Task):
    """Classification: a query is answered with one of the labels."""

    kind: Literal["classify"]
    labels: tuple[Annotated[str, StringConstraints(min_length=1, max_length=200)], ...] = Field(
        min_length=2, max_length=1000, strict=False
    )
    """The possible answers."""
    label_descriptions: dict[str, str] = Field(default_factory=dict)
    """A public sentence on a label, for the engine that compares sentences."""
    label_field: str = "label"
    """The exemplars' field that holds the label."""
    mechanism: Annotated[LabelMechanism, Registered(LabelMechanism)]
    abstain_below: float | None = Field(default=None, ge=0, le=1, exclude_if=is_unset)
    """Answers whose label has a lower score than this are shown as abstentions; they are charged like any other. Where
    the mechanism was fitted, the score is the label's probability."""
    when_spent: str = Field(default=REFUSE, exclude_if=lambda named: named == REFUSE)
    """The fallback when all answers are given: `refuse`, or the name of a task of this plan with `release: once` and
    the same labels, which then answers in its place, at no cost."""
    prior_from: str | None = Field(default=None, exclude_if=is_unset)
    """A task of this plan with `release: once` and the same labels: its scores take the place of zero-shot's
    probabilities in the posterior. An answer does not cost more, but the release takes its own share of the budget."""
    calibrate: Literal["public_texts", "content_free", "none"] | None = Field(default=None, exclude_if=is_unset)
    """Source of what a language model's label scores are divided by: its scores of `public_texts`, or of texts without
    content. A model favours some labels whatever the question, and all slots do so alike. `public_texts` where there
    are some, else `content_free`, unless set."""
    own_reference: float | None = Field(default=None, ge=0, le=1, exclude_if=is_unset)
    """Weight of a slot's own scores of these texts, beside its exemplars, in what its scores are divided by. The rest
    is the weight of the scores beside other such texts as exemplars, under each label in turn: these are the same for
    all slots, and asked for once. Above 0 a slot is asked each of the texts, too. Unless set, 0 with `order: nearest`
    and 1 with exemplars at random."""
    public_texts: tuple[str | dict[str, str], ...] = Field(
        default=(), max_length=32, strict=False, exclude_if=lambda texts: not texts
    )
    """8 to 32 public questions without labels, such as a caller may ask: texts, or the fields of a question."""

    @property
    def calibration_queries(self) -> tuple[dict[str, str], ...]:
        """Public questions whose label scores a slot's are divided by; none where they are taken as they are."""
        chosen = self.calibrate or ("public_texts" if self.public_texts else "content_free")
        texts = {"public_texts": self.public_texts, "content_free": _CONTENT_FREE, "none": ()}[chosen]
        return tuple(
            text if isinstance(text, dict) else dict.fromkeys(self.query_fields, text)  # a text is the one field
            for text in texts
        )

    @property
    def own_share(self) -> float:
        """The weight of a slot's own scores of public texts, from 0 to 1."""
        return self.own_reference if self.own_reference is not None else float(self.order == "random")

    @property
    def answer_field(self) -> str:
        """The exemplars' field that holds the label."""
        return self.label_field

    @property
    @override
    def releases(self) -> Releases:
        return self.mechanism.releases

    @model_validator(mode="after")
    def _labels_are_consistent(self) -> Self:
        check_distinct("labels", self.labels, "each label")
        if unknown := sorted(set(self.label_descriptions) - set(self.labels)):
            raise ValueError(f"label_descriptions: {', '.join(unknown)} is not among the labels")
        if self.abstain_below is not None and not self.mechanism.gives_score:
            raise ValueError(f"abstain_below: {self.mechanism} gives no score")
        self._check_release(self.mechanism)
        self.mechanism.check(self.labels, self.label_field, self.exemplar_fields)
        if self.prior_from is not None and not self.mechanism.weighs_prior:
            raise ValueError(f"prior_from: {self.mechanism} weighs no prior")
        if self.prior_from is not None and self.mechanism.fitted:
            raise ValueError("prior_from: the mechanism was fitted with zero-shot's probabilities; leave out fitted_to")
        if self.calibrate == "public_texts" or self.public_texts:
            self._check_public_texts()
        if self.calibrate == "none" and self.own_reference is not None:
            raise ValueError("own_reference: `calibrate: none` divides scores by nothing; leave one of them out")
        for number, exemplar in enumerate(self.public_exemplars):
            if spellings(self.labels).number(said := exemplar[self.label_field]) is None:
                where = f"public_exemplars.{number}.{self.label_field}"
                raise ValueError(f"{where}: {said!r} is not among the labels, which are {', '.join(self.labels)}")
        return self

    def _check_public_texts(self) -> None:
        if len(self.public_texts) < _FEWEST_PUBLIC_TEXTS:
            raise ValueError(
                f"public_texts: needs at least {_FEWEST_PUBLIC_TEXTS}; `calibrate: content_free` needs none"
            )
        for text in self.public_texts:
            fields = text.keys() if isinstance(text, dict) else self.query_fields[:1]
            if set(fields) != set(self.query_fields):
                raise ValueError(f"public_texts: each needs the fields of a question: {', '.join(self.query_fields)}")

    @override
    def alone(self) -> Self:
        return self.model_copy(update={"when_spent": REFUSE, "prior_from": None})

    @property
    def relies_on(self) -> dict[str, str]:
        """Tasks of the plan that this one names, by the key that names them."""
        named = {"when_spent": self.when_spent, "prior_from": self.prior_from}
        return {key: name for key, name in named.items() if name is not None and name != REFUSE}


class GenerateTask(_Task):
    """Text generation: a query is answered in free text."""

    kind: Literal["generate"]
    prompt: GeneratePromptTemplate
    response_field: str = "response"
    """The exemplars' field that holds the answer."""
    document_field: str | None = None
    """The query's field that answers are taken from, for an engine that extracts rather than writes."""
    candidates: int = Field(default=20, ge=1, le=1000)
    """Number of public zero-shot answers to ask for: the candidates of `embedding_mean`, and, beside the query, the
    source of the words of `keyword_joint_em`."""
    public_answers: tuple[PublicText, ...] = Field(default=(), max_length=1000, strict=False)
    """Answers that are public anyway, such as those on a help page; candidates beside the engine's own."""
    mechanism: Annotated[TextMechanism, Registered(TextMechanism)]
    sentence: Literal["written", "chosen"] | None = Field(default=None, exclude_if=is_unset)
    """Source of the text that released words become: with `written`, a language model writes a sentence of them; with
    `chosen`, it is the public candidate that has most of them, so it was written before they were released. `chosen`
    where there are public exemplars, else `written`, unless set. An engine that is not a language model always chooses.
    """

    @property
    def answer_field(self) -> str:
        """The exemplars' field that holds the response."""
        return self.response_field

    @property
    @override
    def releases(self) -> Releases:
        return self.mechanism.releases

    @model_validator(mode="after")
    def _fields_are_consistent(self) -> Self:
        self._check_release(self.mechanism)
        self.mechanism.check(self.prompt.written, placeholders(self.prompt.query), self.exemplar_fields)
        if self.document_field is not None and self.document_field not in self.query_fields:
            raise ValueError(f"document_field: prompt.query has no placeholder {{{self.document_field}}}")
        if KEYWORDS in self.exemplar_fields:
            raise ValueError(f"prompt.exemplar: a field cannot be called {KEYWORDS}; that is what is released")
        if unknown := sorted(set(placeholders(self.prompt.keywords)) - {KEYWORDS, *self.query_fields}):
            raise ValueError(f"prompt.keywords: the query has no field {', '.join(unknown)}")
        if len(set(self.public_answers)) != len(self.public_answers):
            raise ValueError("public_answers: each answer may appear once")
        if any(not answer.strip() for answer in self.public_answers):
            raise ValueError("public_answers: an answer is empty")
        if self.sentence == "chosen" and not self.mechanism.releases_words:
            raise ValueError(
                f"sentence: {self.mechanism.type} releases no words that a sentence is made of; leave it out"
            )
        if self.slots == "quote" and self.mechanism.written_together:
            raise ValueError(f"slots: a model writes {self.mechanism.type} answers, and every slot shows it exemplars")
        if self.prompt.written and WRITTEN in self.exemplar_fields:
            raise ValueError(f"prompt.exemplar: a field cannot be called {WRITTEN}; those are the texts")
        return self

    @property
    def chooses(self) -> bool:
        """Whether released words choose among the public candidates, rather than become a sentence of their own."""
        return self.sentence == "chosen" or (self.sentence is None and bool(self.public_exemplars))

    @property
    def topic_field(self) -> str:
        """The exemplars' field that holds the topic, where texts are written once."""
        return placeholders(self.prompt.query)[0]

    @property
    def one_text(self) -> Self:
        """The task by which each text of a one-time release is written: as an answer, from the slots of a topic."""
        mechanism = self.mechanism.model_copy(update={"topics": None, "texts": None})
        prompt = self.prompt.model_copy(update={"written": ""})
        return self.model_copy(update={"release": "each", "mechanism": mechanism, "prompt": prompt})

    @property
    def query_fields(self) -> tuple[str, ...]:
        """The fields a query must bring; where texts are written once, in the order of the template that shows them."""
        template = self.prompt.written or self.prompt.query
        return self.with_topic(tuple(name for name in placeholders(template) if name != WRITTEN))


Task = Annotated[ClassifyTask | GenerateTask, Field(discriminator="kind")]


def placeholders(template: str) -> tuple[str, ...]:
    """The ``{field}`` names of a template, in order, each once.

    Raises:
        ValueError: unbalanced braces, or a placeholder that is not a plain name.
    """
    names: dict[str, None] = {}
    for _, name, spec, conversion in string.Formatter().parse(template):
        if name is None:
            continue
        if not name.isidentifier() or spec or conversion:
            raise ValueError(f"{{{name}}} is not a plain {{field}} placeholder; write {{{{ and }}}} for braces")
        names[name] = None
    return tuple(names)
