"""A knowledge base of reviews with topics, for tests: real records, the real pipeline, and an engine that counts."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from accounting.plans.plan import Plan, load_plan
from exemplar_store import Row
from service.answering.answering import Answer
from service.answering.plans.signing import prepare, sign
from service.operations.services import Services, open_services
from service.records.records import Records, open_records
from service.settings import Settings
from tests.service.conftest import Embedding, MajorityEngine, development

NAME = "shop"
PLAN = """
knowledge_base: shop
budget: {epsilon: 8, delta: 1.0e-3}
tasks:
  mood:
    kind: classify
    labels: [glad, sad]
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    shots: 12
    ensemble: 10
    answers: 3
    mechanism: {type: rnm_gaussian, vote: hard}
    topics: TOPICS
"""
BY_FIELD = "{by: field, field: product, names: [kettle, lamp], sizes: {kettle: 40, lamp: 40}}"
BY_SIMILARITY = "{by: similarity, names: {kettle: about a kettle, lamp: about a lamp}, sizes: {kettle: 40, lamp: 40}}"
Review = tuple[str, str, str, str]
"""A unit's id, a text, a product, a label."""


def embed(texts: Sequence[str]) -> np.ndarray:
    """Kettles in one direction, lamps in another, all else between; the length of a text moves it a little."""
    towards = [(1.0 + ("kettle" in text), 1.0 + ("lamp" in text), 0.001 * len(text)) for text in texts]
    vectors = np.array(towards, np.float32).reshape(len(texts), 3)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def reviews() -> list[Review]:
    """Ten glad units on kettles and ten sad ones on lamps; one mostly on kettles, and one on neither."""
    alone = [
        (f"{product}{number}", f"a {product} {number}", product, label)
        for product, label in (("kettle", "glad"), ("lamp", "sad"))
        for number in range(10)
    ]
    both = [
        ("both", "my kettle", "kettle", "glad"),
        ("both", "my other kettle", " Kettle", "glad"),
        ("both", "my lamp", "lamp", "sad"),
        ("none", "a radio", "radio", "sad"),
    ]
    return [*alone, *both]


def rows(some: Iterable[Review]) -> list[Row]:
    return [
        Row(number, unit, {"text": text, "product": product, "label": label})
        for number, (unit, text, product, label) in enumerate(some, 1)
    ]


def upload(records: Records, some: Iterable[Review], *, replace: bool = False) -> None:
    records.ingest(NAME, rows(some), embed, by="test", replace=replace)


def plan(topics: str = BY_FIELD, **changes: str) -> Plan:
    """The plan with some of its lines replaced, for instance ``answers="answers: 5"``."""
    text = PLAN.replace("TOPICS", topics)
    for name, line in changes.items():
        (old,) = (one for one in text.splitlines() if one.strip().startswith(f"{name}:"))
        text = text.replace(old, old[: len(old) - len(old.lstrip())] + line)
    return load_plan(text)


def opened(
    folder: Path,
    topics: str | None = BY_FIELD,
    some: Sequence[Review] | None = None,
    settings: Settings | None = None,
    **changes: str,
) -> Records:
    """Records with the reviews, and the plan signed unless there are to be no topics."""
    records = open_records(settings or development(folder))
    records.create_knowledge_base(
        NAME, epsilon=20, delta=2e-3, public_size=80, fields=["text", "product", "label"], embedded_field="text"
    )
    upload(records, reviews() if some is None else some)
    if topics is not None:
        sign(records, prepare(records, plan(topics, **changes), embed), "test")
    return records


def serve(records: Records) -> Services:
    return open_services(records, MajorityEngine(), Embedding(embed))


def ask(services: Services, text: str, product: str | None = "kettle", task: str = "shop.mood") -> Answer:
    query = text if product is None else {"text": text, "product": product}
    return asyncio.run(services.answering.answer(task, query, key_id="k"))


def shown(services: Services) -> list[set[str]]:
    """The texts of all exemplars that each answer's slots showed."""
    asked = services.engine.engine.shown
    return [{exemplar.fields["text"] for slot in slots for exemplar in slot} for *_, slots in asked]
