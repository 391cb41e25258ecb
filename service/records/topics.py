"""The topics of signed tasks: which of them an exemplar or a question belongs to.

Both follow from public values that were signed with the plan: the names of the topics, or their centres. So a topic
means the same for as long as the plan answers, even if the embedding model changes.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import sqlalchemy as sa

from accounting.ledger.budgets import SignedTask
from accounting.ledger.promised import plans_of
from accounting.plans.labels import spellings
from accounting.plans.tasks import ClassifyTask, GenerateTask
from accounting.plans.topics import TopicsByField, TopicsBySimilarity, TopicsByTexts
from exemplar_store import OnTopic, TopicList
from exemplar_store.nearness import closest, rounded
from exemplar_store.topics import NumberOf
from service.records.signed import read_signed

_NAMED = 100  # topics, in a refusal
_SLOWEST = "\ufdfa"  # the character of the longest compatibility form, 18 letters
Task = ClassifyTask | GenerateTask


def topic_list(task: Task, centres: Sequence[str], version: int, name: str) -> TopicList:
    """The topics of a task.

    Args:
        task: the task as written; it must have topics.
        centres: the centres of its topics, from the signed plan; empty where a field names the topic.
        version: version of its plan.
        name: name of the task.
    """
    return TopicList(version, name, len(_topics(task).all), _topics_by(task, centres))


def lists_of(connection: sa.Connection, knowledge_base: str) -> list[TopicList]:
    """The topics of all tasks that were signed for a knowledge base and have topics."""
    return [
        topic_list(task, calibrated.centres.get(name, ()), signed.version, name)
        for signed in connection.execute(plans_of(knowledge_base))
        for calibrated in (read_signed(signed.document),)
        for name, task in calibrated.plan.tasks.items()
        if task.topics is not None
    ]


def on_topic(signed: SignedTask) -> OnTopic | None:
    """The units that an answer draws from if it is charged to a topic; None: the task has no topics."""
    if signed.topic is None:
        return None
    topics = _signed_topics(signed.document, signed.version, signed.name)
    return OnTopic(topics, _topics(read_signed(signed.document).plan.tasks[signed.name]).all.index(signed.topic))


@lru_cache(maxsize=256)
def _signed_topics(document: str, version: int, name: str) -> TopicList:
    calibrated = read_signed(document)
    return topic_list(calibrated.plan.tasks[name], calibrated.centres.get(name, ()), version, name)


def most_work(signed: SignedTask) -> TopicList | None:
    """A task's topics, found with as much work as any exemplar's can take, which are the first for made-up exemplars.

    Not every spelling takes as long as another to compare. None: the task has no topics.
    """
    task = read_signed(signed.document).plan.tasks[signed.name]
    if task.topics is None:
        return None
    topics = _signed_topics(signed.document, signed.version, signed.name)
    if not isinstance(task.topics, TopicsByField):
        return topics
    named = _number_of(task.topics)
    slowest = {task.topics.field: _SLOWEST * spellings(task.topics.names).longest}

    def first(fields: Mapping[str, str]) -> int:
        return (named(fields), named(slowest), 0)[-1]

    return replace(topics, by=first)


def topic_of(
    task: Task, centres: Sequence[str], query: Mapping[str, str], embedding: np.ndarray | None = None
) -> str | None:
    """The topic of a question, a function of the question and of the signed plan.

    Args:
        task: the task as written; it must have topics.
        centres: the centres of its topics, as for :func:`topic_list`.
        query: the question's fields.
        embedding: embedding of the question, float (d,), where no field names the topic.

    Returns:
        Name of the topic; of equally similar ones, the one that the task names first. None where the question's field
        does not name a topic of the task.
    """
    topics = _topics(task)
    if isinstance(topics, TopicsByField):
        number = _number_of(topics)(query)
        return None if number is None else topics.names[number]
    if embedding is None:
        raise TypeError("the question was not embedded, and no field names its topic")
    return topics.all[int(closest(opened(centres), rounded(embedding)[None])[0])]


def check_named(task: Task, topic: str | None) -> str:
    """A question's topic, if it has one.

    Raises:
        LookupError: it has none; the message lists the task's topics.
    """
    if topic is not None:
        return topic
    topics = _topics(task)
    shown = ", ".join(topics.all[:_NAMED])
    more = f", and {len(topics.all) - _NAMED} others" if len(topics.all) > _NAMED else ""
    raise LookupError(f"{getattr(topics, 'field', 'the question')} must be one of this task's topics: {shown}{more}")


def _topics(task: Task) -> TopicsByField | TopicsBySimilarity | TopicsByTexts:
    if task.topics is None:
        raise TypeError("the task has no topics")
    return task.topics


def written(centre: np.ndarray) -> str:
    """A centre, int8 (d,), in the base64 of a plan."""
    return base64.b64encode(centre.astype(np.int8).tobytes()).decode()


def opened(centres: Sequence[str]) -> np.ndarray:
    """Centres from a plan: int8 (topics, d)."""
    return np.stack([np.frombuffer(base64.b64decode(centre), np.int8) for centre in centres])


def _topics_by(task: Task, written: Sequence[str]) -> NumberOf | np.ndarray:
    topics = task.topics
    return _number_of(topics) if isinstance(topics, TopicsByField) else opened(written)


def _number_of(topics: TopicsByField) -> NumberOf:
    named = spellings(topics.names)
    return lambda fields: named.number(fields.get(topics.field))
