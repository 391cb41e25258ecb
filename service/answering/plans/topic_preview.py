"""The preview of each topic beside its size: its cost alone, and the public texts that are on it."""

from accounting.plans.plan import CalibratedPlan
from accounting.plans.tasks import ClassifyTask, GenerateTask
from accounting.plans.topics import TopicsByField, TopicsByTexts
from accounting.privacy.accountants import get_accountant
from accounting.privacy.events import Event, Sampling
from service.answering.plans.centres import centres
from service.answering.plans.preview import PlanPreview
from service.engines.embedding.embedder import Embed
from service.records.topics import topic_of

_LOOKED_AT, _SHOWN = 100, 3
"""Public texts of a task, and of a topic: a plan may have thousands, and each takes milliseconds to embed."""


def with_topics(described: PlanPreview, calibrated: CalibratedPlan, embed: Embed) -> PlanPreview:
    """The preview with the ε and the first public texts of every topic. Takes a second or more if there are topics.

    Args:
        described: preview of the plan.
        calibrated: the plan, with its centres if it was prepared for a knowledge base.
        embed: embeds public texts as the exemplars were.

    Raises:
        PlanError: see :func:`service.answering.plans.centres.centres`.
    """
    tasks = {name: task for name, task in calibrated.plan.tasks.items() if task.topics is not None}
    missing = {name: task for name, task in tasks.items() if name not in calibrated.centres}
    known = {**calibrated.centres, **centres(missing, None, embed)}
    seen = dict(described.tasks)
    for name, task in tasks.items():
        epsilons, texts = _epsilons(calibrated, name, task), _texts(task, known.get(name, []), embed)
        topics = {
            topic: its.model_copy(
                update={"epsilon": epsilons[its.sampling_probability], "texts": texts.get(topic, [])[:_SHOWN]}
            )
            for topic, its in (seen[name].topics or {}).items()
        }
        seen[name] = seen[name].model_copy(update={"topics": topics})
    return described.model_copy(update={"tasks": seen})


def _epsilons(calibrated: CalibratedPlan, name: str, task: ClassifyTask | GenerateTask) -> dict[float, float]:
    """ε of all answers on a topic to a unit on it, by the topic's sampling probability."""
    noise, budget = calibrated.noise[name], calibrated.plan.budget
    accountant = get_accountant(calibrated.plan.accountant)

    def epsilon(probability: float) -> float:
        event = Event(noise.mechanism, Sampling(task.sampling, probability), task.answers)
        return min(accountant.bounds([event], budget.delta).upper, budget.epsilon)

    return {probability: epsilon(probability) for probability in set((noise.topics or {}).values())}


def _texts(task: ClassifyTask | GenerateTask, written: list[str], embed: Embed) -> dict[str, list[str]]:
    """Public texts of the plan by the topic that a question of these words would be on."""
    if isinstance(task.topics, TopicsByTexts):
        texts = list(task.topics.texts)
    elif isinstance(task, ClassifyTask) and not isinstance(task.topics, TopicsByField):
        texts = [text for text in task.public_texts if isinstance(text, str)]
    else:
        texts = []
    texts = texts[:_LOOKED_AT]
    found: dict[str, list[str]] = {}
    for text, vector in zip(texts, embed(texts) if texts else (), strict=True):
        topic = topic_of(task, written, {}, vector)
        if topic is not None:
            found.setdefault(topic, []).append(text)
    return found
