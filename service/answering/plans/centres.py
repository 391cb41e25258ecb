"""The centres of topics that are found by similarity: made of public texts, when a plan is prepared for signing."""

from collections.abc import Mapping

import numpy as np

from accounting.plans.plan import PlanError
from accounting.plans.tasks import ClassifyTask, GenerateTask
from accounting.plans.topics import TopicsByField, TopicsBySimilarity
from exemplar_store import KnowledgeBase
from exemplar_store.nearness import rounded
from service.engines.embedding.embedder import Embed
from service.records.topics import written

_ROUNDS = 100


def centres(
    tasks: Mapping[str, ClassifyTask | GenerateTask], knowledge_base: KnowledgeBase | None, embed: Embed
) -> dict[str, list[str]]:
    """Topic centres of a calibrated plan, by task.

    No exemplar is read: the centres are public with the plan, and units are sorted by them.

    Args:
        tasks: the plan's, by name.
        knowledge_base: knowledge base with the exemplars to compare; None: one that was embedded by the same model.
        embed: embeds public texts as the exemplars were.

    Raises:
        PlanError: the texts cannot be embedded as the exemplars were, or are too much alike for this number of topics.
    """
    found = {}
    for name, task in tasks.items():
        if task.topics is None or isinstance(task.topics, TopicsByField):
            continue
        if isinstance(task.topics, TopicsBySimilarity):
            vectors, key = _embedded(list(task.topics.names.values()), knowledge_base, embed, name), "names"
        else:
            texts = _embedded(list(dict.fromkeys(task.topics.texts)), knowledge_base, embed, name)
            vectors, key = _clusters(texts, task.topics.number), "texts"
        whole = rounded(vectors)
        if len(np.unique(whole, axis=0)) < len(whole):
            alike = "two topics have the same centre: describe them apart, or ask for fewer"
            raise PlanError((f"tasks.{name}.topics.{key}", alike))
        found[name] = [written(centre) for centre in whole]
    return found


def _embedded(texts: list[str], knowledge_base: KnowledgeBase | None, embed: Embed, name: str) -> np.ndarray:
    try:
        vectors = embed(texts)
    except Exception as error:
        raise PlanError((f"tasks.{name}.topics", f"the public texts cannot be embedded: {error}")) from error
    if knowledge_base is not None and knowledge_base.embedding_dimension not in (None, vectors.shape[1]):
        why = f"{knowledge_base.name} was embedded by another model; upload its exemplars again"
        raise PlanError((f"tasks.{name}.topics", why))
    return vectors


def _clusters(vectors: np.ndarray, number: int) -> np.ndarray:
    """Centres by k-means, float64 (number, d): the same for the same texts, since its random choices are fixed."""
    from scipy.cluster.vq import kmeans2  # a fifth of a second, and few plans need it

    found, _ = kmeans2(vectors.astype(np.float64), number, _ROUNDS, minit="++", seed=0)
    return np.asarray(found)
