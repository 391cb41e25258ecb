"""A folder with training and test rows, and an engine's replies to every test row."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from accounting.plans.labels import spellings
from accounting.plans.plan import Plan, TaskNoise
from accounting.plans.tasks import ClassifyTask, GenerateTask
from accounting.plans.topics import TopicsByField
from exemplar_store import BadRowError, ExemplarStore, Layout, OnTopic, TopicList
from exemplar_store.cohorts import FIRST
from exemplar_store.knowledge_base import do_nothing
from exemplar_store.store import Slots
from research.evaluation.replies import KeptEngine
from service.answering.draw import draw
from service.answering.mechanisms.adapter import Outputs
from service.answering.plans.centres import centres
from service.answering.queries import check_query, response_field, task_spec
from service.answering.quoting import quotes
from service.engines.embedding.embedder import Embed
from service.engines.protocol import Engine
from service.engines.task import Output, TaskSpec, ZeroShot
from service.records.database import open_database
from service.records.schema import migrate
from service.records.topics import check_named, topic_list, topic_of
from service.sources.files import Source, can_read, open_file
from service.sources.reading import AS_IT_IS, Reading

NAME = "evaluation"
"""Name of the knowledge base that is filled."""
ZERO_SHOT, PUBLIC_ONLY = "zero-shot", "public exemplars only"
"""Methods that see no private exemplar."""
_VERSION = 1  # of a plan, under which topics are kept

Progress = Callable[[str, int, int], None]
"""Called with a stage, the amount done of it and the total."""


@dataclass(frozen=True)
class Asked:
    """A test row and an engine's replies to it, before any noise.

    Attributes:
        query: fields of the question.
        answer: right answer, as the data have it.
        zero_shot: public output.
        outputs: outputs, one per slot.
        bare: public output without public exemplars, where the task has some.
    """

    query: Mapping[str, str]
    answer: str
    zero_shot: ZeroShot
    outputs: Outputs
    bare: ZeroShot | None = None


def without_private(asked: Sequence[Asked]) -> dict[str, list[ZeroShot]]:
    """Public outputs by method: zero-shot, and where the task has public exemplars, with these and no others.

    The last is the free answer that a private one has to beat.
    """
    bare = [row.bare for row in asked if row.bare is not None]
    free = [row.zero_shot for row in asked]
    return {ZERO_SHOT: bare, PUBLIC_ONLY: free} if bare else {ZERO_SHOT: free}


@dataclass(frozen=True)
class Dataset:
    """The folder, and a task to ask with it.

    Attributes:
        folder: folder with ``train`` and ``test``, each a file or a folder of rows, as of ``dpicl kb ingest``; they
            have the fields of the task's prompt.
        plan: plan with the task; the public size of its knowledge base is the number of training rows, public here.
        task_name: name of one of the plan's tasks.
        field: field of the query, which exemplars and queries are compared by.
        unit_id: column that names the privacy unit.
        limit: number of test rows to use, from the first; None: all.
        reading: options of reading files.
        signed: noise of the signed task; None: it is calibrated for the training rows.
    """

    folder: Path
    plan: Plan
    task_name: str
    field: str
    unit_id: str = "unit_id"
    limit: int | None = None
    reading: Reading = AS_IT_IS
    signed: TaskNoise | None = None

    @property
    def task(self) -> ClassifyTask | GenerateTask:
        """The task."""
        return self.plan.tasks[self.task_name]

    @cached_property
    def specification(self) -> TaskSpec:
        """The task as the engine sees it."""
        return task_spec(
            f"{self.plan.knowledge_base}.{self.task_name}",
            self.task,
            self.plan.knowledge_base,
            self.field,
            response_field=response_field(self.task),
            asker="",
        )

    @cached_property
    def questions(self) -> list[dict[str, Any]]:
        """The test rows.

        Raises:
            ValueError: the file or a field is missing, or a label is not among the task's.
        """
        task, file, rows = self.task, self._file("test"), []
        labels = spellings(task.labels if isinstance(task, ClassifyTask) else ())
        with open_file(file, self.reading, for_others=True) as source:
            for number, row in islice(source.records((*task.query_fields, task.answer_field)), self.limit):
                if isinstance(task, ClassifyTask):
                    if labels.number(row[task.label_field]) is None:
                        problem = f"is not among the task's labels, which are {', '.join(map(repr, task.labels))}"
                        raise ValueError(f"{file}: {BadRowError(number, task.label_field, problem)}")
                    row[task.label_field] = labels.spelt(row[task.label_field])
                rows.append(row)
        return rows

    @cached_property
    def public_size(self) -> int:
        """Number of training rows.

        Raises:
            ValueError: the file is missing.
        """
        return self._training[0]

    @cached_property
    def _training(self) -> tuple[int, str]:
        """Number of training rows, and a digest of them."""
        count, digest = 0, hashlib.sha256()
        with self._train() as source:
            needed = self._layout.needed if self.reading.skip_incomplete else ()
            for count, (_, row) in enumerate(source.records(needed, whole=True), 1):  # noqa: B007 (it is used below)
                read = {name: row.get(name) for name in self._layout.needed}
                digest.update(json.dumps(read, sort_keys=True, default=str).encode() + b"\n")
        return count, digest.hexdigest()

    @property
    def _layout(self) -> Layout:
        return Layout(list(self.task.exemplar_fields), self.unit_id)

    def _train(self) -> AbstractContextManager[Source]:
        return open_file(self._file("train"), self.reading, for_others=True)

    def _file(self, name: str) -> str:
        """The one file or folder of this name, whatever its ending."""
        named = [path for path in self.folder.iterdir() if path.name.partition(".")[0] == name]
        found = sorted(str(path) for path in named if path.is_dir() or can_read(path.name))
        if not found:
            raise ValueError(
                f"{self.folder} holds no {name} rows: a dataset is a folder with train and test, each a file such as "
                f"{name}.jsonl or {name}.csv, or a folder, as of `dpicl kb ingest`"
            )
        if len(found) > 1:
            raise ValueError(
                f"{self.folder}: {' and '.join(found)} may both be the {name} rows; leave one of them there"
            )
        return found[0]

    @contextmanager
    def filled(self, embed: Embed | None, progress: Progress = do_nothing) -> Iterator[ExemplarStore]:
        """A store whose knowledge base :data:`NAME` holds the training rows as exemplars.

        Args:
            embed: embedding for ingest; None: exemplars have no embeddings.
            progress: called with the number of exemplars.

        Raises:
            ValueError: files or fields are missing, or there are fewer training rows than all slots together expect.
        """
        if self.task.sampling_probability(self.public_size) > 1:
            slots, each = self.task.ensemble, self.task.expected
            lower = f", or lower `ensemble` or `{'shots' if self.task.drawn is None else 'drawn'}` in the plan"
            raise ValueError(
                f"{self.folder}: {self.public_size} training rows are too few for {slots} slots that draw {each} "
                f"exemplars each, which need {slots * each:,}. Add rows{'' if self.signed else lower}"
            )
        names = list(self.task.exemplar_fields)
        with tempfile.TemporaryDirectory() as folder:
            database = open_database(f"sqlite:///{folder}/evaluation.sqlite")
            migrate(database)
            store = ExemplarStore(database, os.urandom(32))
            with database.begin() as connection:
                store.create(
                    connection,
                    NAME,
                    public_size=self.public_size,
                    fields=names,
                    embedded_field=self.field,
                    response_field=response_field(self.task),
                )
            with self._train() as source:
                store.ingest(NAME, source.rows(self._layout), embed, partial(progress, "exemplars"))
            if self.task.topics is not None:
                topics = self._topics(embed)
                with database.begin() as connection:
                    store.keep_topics(connection, NAME, topics, store.topics_of(NAME, topics))
            yield store
            database.dispose()

    def _centres(self, embed: Embed | None) -> list[str]:
        """The centres of the task's topics; none if a field names the topic."""
        if embed is None or isinstance(self.task.topics, TopicsByField):
            return []
        return centres({self.task_name: self.task}, None, embed)[self.task_name]

    def _topics(self, embed: Embed | None) -> TopicList:
        return topic_list(self.task, self._centres(embed), _VERSION, self.task_name)

    async def ask(
        self,
        store: ExemplarStore,
        engine: Engine,
        embed: Embed,
        *,
        same_slots: bool = False,
        progress: Progress = do_nothing,
    ) -> list[Asked]:
        """Ask the engine every question.

        A task with a one-time release draws no slots: the engine's outputs are empty.

        Args:
            store: store from :meth:`filled`.
            engine: engine that answers; a :class:`.replies.KeptEngine` only new rows; the others keep their draw.
            embed: embedding for questions, where slots show what is nearest to them.
            same_slots: whether slots are drawn once, for all rows, rather than for each.
            progress: called with the number of queries.

        Raises:
            ValueError: fields are missing; or the same slots are wanted for all rows, which show different exemplars.
        """
        task, spec, size = self.task, self.specification, self.public_size
        if same_slots and task.topics is not None:
            raise ValueError("with topics each question has slots of its topic: leave --same-slots out")
        if same_slots and task.order == "nearest":
            raise ValueError("with `order: nearest` each question has slots of its own: leave --same-slots out")
        queries = [check_query(task, {name: row[name] for name in task.query_fields}) for row in self.questions]
        kept, keys = engine if isinstance(engine, KeptEngine) else None, list[str]()
        topics = None if task.topics is None else task.topics.model_dump(mode="json")
        sizes = [task.shots, task.slot_cap, task.drawn, task.order, task.slots, topics]
        drawn = [] if task.once else [self._training[1], self.unit_id, task.sampling, *sizes]
        if kept:
            # Names change no reply.
            digests = [kept.key("row", replace(spec, name="", knowledge_base=""), drawn, query) for query in queries]
            keys = [f"{key} {digests[:i].count(key)}" for i, key in enumerate(digests)]  # asked twice, drawn twice
        on_topics = self._on_topics(queries, embed)
        said = {i: kept_row for i, key in enumerate(keys) if kept and (kept_row := kept.row(key))}
        progress("queries", len(said), len(queries))
        slots = None
        for i in sorted(set(range(len(queries))) - said.keys()):
            zero_shot = await engine.zero_shot(spec, queries[i])
            outputs = list[Output | None]()
            if not drawn:
                slots = Slots()
            else:
                if slots is None or not same_slots:
                    on_it = on_topics[i]
                    probability = task.sampling_probability(size)
                    if on_it is not None and task.topics is not None:
                        probability = task.topic_probability(task.topics.all[on_it.number], size)
                    near = embed([queries[i][self.field]])[0] if task.order == "nearest" else None
                    drawing: dict[str, Any] = {"public_size": size, "probability": probability, "cohorts": FIRST}
                    slots = draw(store, NAME, task, **drawing, question=near, topic=on_it)
                    if same_slots:
                        spec = await _kept(engine, spec, slots, zero_shot.tokens)
                if spec.quotes:
                    outputs = quotes(spec, slots)
                else:
                    outputs = list(await engine.contributions(spec, queries[i], slots, zero_shot))
            # If every slot that was asked is silent, the engine may just have been down.
            if kept and (any(output is not None for output in outputs) or not any(slots)):
                kept.keep_row(keys[i], zero_shot, outputs)
            said[i] = zero_shot, outputs
            progress("queries", len(said), len(queries))
        bare = [await self._bare(engine, query) for query in queries]
        return [
            Asked(query, self.questions[i][task.answer_field], *said[i], bare[i]) for i, query in enumerate(queries)
        ]

    async def _bare(self, engine: Engine, query: Mapping[str, str]) -> ZeroShot | None:
        """The public output without public exemplars; None where the task has none."""
        spec = self.specification
        if not spec.public_exemplars:
            return None
        spec = replace(spec, prompt=replace(spec.prompt, public=()), public_exemplars=(), candidates=1)
        if not isinstance(engine, KeptEngine):
            return await engine.zero_shot(spec, query)
        key = engine.key("bare", replace(spec, name="", knowledge_base=""), query)
        if (kept := engine.row(key)) is not None:
            return kept[0]
        answered = await engine.zero_shot(spec, query)
        engine.keep_row(key, answered, [])
        return answered

    def _on_topics(self, queries: Sequence[Mapping[str, str]], embed: Embed) -> list[OnTopic | None]:
        """The topic of each question; None: the task has no topics.

        Raises:
            ValueError: a question's field names none.
        """
        task = self.task
        if task.topics is None:
            return [None] * len(queries)
        found, topics = self._centres(embed), self._topics(embed)
        vectors = None if isinstance(task.topics, TopicsByField) else embed([query[self.field] for query in queries])
        each = [None] * len(queries) if vectors is None else vectors
        named = [topic_of(task, found, query, vector) for query, vector in zip(queries, each, strict=True)]
        try:
            return [OnTopic(topics, task.topics.all.index(check_named(task, topic))) for topic in named]
        except LookupError as error:
            raise ValueError(f"the test rows: {error}") from None


async def _kept(engine: Any, spec: TaskSpec, slots: Slots, tokens: int) -> TaskSpec:
    """The task with slots that the engine has read ahead, if it can."""
    if (await engine.describe()).keeps_blocks and not await engine.room(spec, tokens, len(slots), len(slots)):
        return replace(spec, kept=await engine.keep(spec, slots))
    return spec
