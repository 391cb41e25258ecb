"""The topics of signed tasks: which of them an exemplar or a question belongs to.

Both follow from public values that were signed with the plan: the names of the topics, or their centres. So a topic
means the same for as long as the plan answers, even if the embedding model changes.
"""

import base64
from collections.abc import Mapping, Sequence

import numpy as np
import sqlalchemy as sa

from accounting.ledger.budgets import SignedTask
from accounting.ledger.promised import plans_of
from accounting.plans.labels import spellings
from accounting.plans.tasks import ClassifyTask, GenerateTask
from accounting.plans.topics import TopicsByField, TopicsBySimilarity, TopicsByTexts
from exemplar_store import Exemplar, OnTopic, TopicList
from exemplar_store.nearness import cosines, rounded
from exemplar_store.topics import TopicOf
from service.records.signed import read_signed

_NAMED = 100  # topics, in a refusal
Task = ClassifyTask | GenerateTask


def topic_list(task: Task, centres: Sequence[str], version: int, name: str) -> TopicList:
    """The topics of a task.

    Args:
        task: the task as written; it must have topics.
        centres: the centres of its topics, from the signed plan; empty where a field names the topic.
        version: version of its plan.
        name: name of the task.
    """
    return TopicList(version, name, len(_topics(task).all), _topic_of(task, centres))


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
    calibrated = read_signed(signed.document)
    task = calibrated.plan.tasks[signed.name]
    topics = topic_list(task, calibrated.centres.get(signed.name, ()), signed.version, signed.name)
    return OnTopic(topics, _topics(task).all.index(signed.topic))


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
        number = spellings(topics.names).number(query[topics.field])
        return None if number is None else topics.names[number]
    if embedding is None:
        raise TypeError("the question was not embedded, and no field names its topic")
    return topics.all[_nearest(opened(centres), embedding)]


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


def _nearest(centres: np.ndarray, embedding: np.ndarray) -> int:
    return int(np.argmax(cosines(centres, rounded(embedding))))


def _topic_of(task: Task, written: Sequence[str]) -> TopicOf:
    if isinstance(task.topics, TopicsByField):
        field, named = task.topics.field, spellings(task.topics.names)
        return lambda exemplar: named.number(exemplar.fields.get(field))
    centres = opened(written)

    def nearest(exemplar: Exemplar) -> int | None:
        if exemplar.embedding is None or len(exemplar.embedding) != centres.shape[1]:
            return None
        return _nearest(centres, exemplar.embedding)

    return nearest
