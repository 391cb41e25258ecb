"""``token_ensemble`` with ``release: once``: slots write texts on public topics, for any number of answers.

Proof that this keeps the promise. Nothing is drawn by chance but slots: each unit counts for one topic, a function of
this unit alone, and goes to a slot of that topic that is drawn apart from all other units'. Which exemplars a slot
keeps depends on this slot. So, all coins being fixed, neighbours differ in one slot of one topic. Texts on other topics
have the same law. Each paid token of the texts on this one comes from a mechanism whose range is four pulls
(:mod:`aggregation.token_ensemble`), also if all texts see the same slots. Together they are an adaptive composition of
``texts`` times ``tokens`` of these, which is what
:attr:`~accounting.plans.mechanisms.TokenEnsembleMechanism.paid` charges.
"""

import asyncio
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from typing_extensions import override

from accounting.plans.labels import spellings
from accounting.plans.mechanisms import TokenEnsembleMechanism
from accounting.plans.plan import TaskNoise
from accounting.plans.tasks import WRITTEN, GenerateTask
from accounting.privacy.token_ensemble import TokenEnsembleProfile
from exemplar_store import Exemplar, Slot
from service.answering.draw import deal
from service.answering.mechanisms.adapter import Answer, OnceAdapter, Reader, Show, Write
from service.answering.mechanisms.outlook import Outlook
from service.answering.mechanisms.token_ensemble import TokenEnsembleAdapter
from service.engines.embedding.embedder import TextEmbedder
from service.engines.prompts import BETWEEN
from service.engines.task import Prompt, TaskSpec, Writing


@dataclass(frozen=True)
class WrittenTexts(Reader):
    """The engine's own answer with the texts in the prompt: no private data, for every caller.

    Attributes:
        task: the signed task.
        spec: the task, all but its prompt as the engine is to see it.
        rows: the texts, as exemplars.
        embeddings: embeddings of the texts, float32 (rows, d), of norm 1.
        embedder: embedder of questions.
        show: function that asks the engine.
    """

    task: GenerateTask
    spec: TaskSpec
    rows: Sequence[Mapping[str, str]]
    embeddings: np.ndarray
    embedder: TextEmbedder
    show: Show

    @override
    async def answer(self, query: Mapping[str, str], asker: str) -> Answer:
        field, mechanism = self.task.topic_field, cast(TokenEnsembleMechanism, self.task.mechanism)
        topic = spellings(mechanism.topics or ()).spelt(query.get(field, ""))
        rows = [row for row in self.rows if row[field] == topic]
        if self.rows and not rows:
            (question,) = await asyncio.to_thread(self.embedder.embed, ["\n".join(query.values())])
            nearest = np.argsort(-(self.embeddings @ question), kind="stable")[: mechanism.shown]
            rows = [self.rows[number] for number in nearest]
        prompt = self.task.prompt
        written = BETWEEN.join(prompt.exemplar.format_map(row) for row in rows)
        spec = replace(self.spec, asker=asker, prompt=Prompt("", prompt.exemplar, _filled_in(prompt.written, written)))
        text = str(await self.show(spec, query, ()))
        return {"text": text, "method": "written by the engine, which was shown texts that were written once"}


def _filled_in(template: str, written: str) -> str:
    """The template with the texts in it, as these are not a field of the question, which might be sanitised."""

    def escaped(text: str) -> str:
        return text.replace("{", "{{").replace("}", "}}")

    return "".join(
        escaped(literal) + (escaped(written) if name == WRITTEN else f"{{{name}}}" if name else "")
        for literal, name, _, _ in string.Formatter().parse(template)
    )


class WrittenTextsAdapter(OnceAdapter[TokenEnsembleMechanism, TokenEnsembleProfile]):
    """The adapter of ``token_ensemble`` with ``release: once``."""

    schema = TokenEnsembleMechanism
    profile = TokenEnsembleProfile
    example = TokenEnsembleMechanism(type="token_ensemble", topics=("a topic",), texts=4)
    about = "Texts on public topics that the language model writes, once: questions are asked with them."
    plainly = (
        "A model has written texts on public topics, once: each piece of them is drawn at random from what it "
        "would write without rows, which rows may change by a limited amount. A model sees these texts with "
        "every question, and no row."
    )
    calls = 1  # with texts, and without exemplars
    task: GenerateTask

    @property
    def text(self) -> TokenEnsembleAdapter:
        """The adapter of one text, which is written as an answer is."""
        return TokenEnsembleAdapter(self.task, TaskNoise(sampling_probability=1.0, mechanism=self.noise))

    @property
    @override
    def writing(self) -> Writing:
        return self.text.writing

    @override
    def make(self, units: Iterable[Sequence[Exemplar]], public: np.ndarray, write: Write, public_size: int) -> Answer:
        field, topics = self.task.topic_field, self.written.topics or ()
        parts: dict[str, list[Slot]] = {topic: [] for topic in topics}
        for unit in units:
            said = [spellings(topics).spelt(exemplar.fields.get(field, "")) for exemplar in unit]
            topic = max(topics, key=said.count)  # what most of its exemplars are on; any, with none of them, if none is
            parts[topic].append(tuple(exemplar for exemplar, on in zip(unit, said, strict=True) if on == topic))
        texts = {}
        for topic in topics:
            slots = deal(parts[topic], self.task)
            texts[topic] = [write({field: topic}, slots) for _ in range(self.written.texts or 0)]
        return {"made_once": self.written.type, "texts": texts}

    def chosen(self, made: Mapping[str, Any]) -> list[dict[str, str]]:
        """See :class:`.adapter.OnceAdapter`: the texts, each with its topic; of empty ones nothing."""
        topic_field, field = self.task.topic_field, self.task.response_field
        texts = ((topic, text) for topic, written in made["texts"].items() for text in written if text.strip())
        return [{topic_field: topic, field: text} for topic, text in texts]

    @override
    def open(self, made: Mapping[str, Any], spec: TaskSpec, embedder: TextEmbedder, show: Show) -> WrittenTexts:
        rows = self.chosen(made)
        # A cache of prompts must share nothing with private slots.
        unshared = f"written texts of {spec.knowledge_base}"
        shown = replace(spec, knowledge_base=unshared, slot_tokens=0, candidates=1, public_answers=())
        embeddings = embedder.embed([row[self.task.response_field] for row in rows]) if rows else np.empty((0, 0))
        return WrittenTexts(self.task, shown, rows, embeddings, embedder, show)

    def voices(self, public_size: int) -> int:
        """See :class:`.adapter.Adapter`: slots of a topic that have units, if all topics are equally frequent."""
        return max(1, min(self.task.ensemble, public_size // len(self.written.topics or "?")))

    @property
    def exemplars(self) -> int:
        """See :class:`.adapter.Adapter`: the texts that are shown."""
        return self.written.shown

    @override
    def outlook(self) -> Outlook:
        m, text = self.written, self.text.outlook()
        many = "1 text" if m.texts == 1 else f"{m.texts} texts"
        return replace(
            text,
            head=f"{many} on each of {len(m.topics or ())} topics, {m.tokens} tokens each ({m.paid} in all "
            "are paid for, since a unit counts in one topic), which all slots together move by a weight of "
            f"{text.noise['weight']:.2f}: the log-odds of two tokens by {text.noise['log_odds']:.1f} at most "
            f"(μ = {text.noise['mu']:.2f} in all)",
            remedies="more ε, fewer texts, fewer tokens, a larger ensemble or weight",
            notes=" Made when the plan is signed, from the exemplars stored then, by an engine that can write."
            f"{text.notes}",
        )
