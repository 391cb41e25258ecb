"""A knowledge base of reviews, and plans of every kind for it."""

from pathlib import Path

from service.engines.embedding.embedder import Embed
from service.operations.services import Services, open_services
from service.records.records import Records, open_records
from tests.service.answering import topic_shop as shop
from tests.service.conftest import Embedding, MajorityEngine, development

_HEAD = "knowledge_base: shop\nbudget: {epsilon: 8, delta: 1.0e-3}\naccountant: rdp\ntasks:\n  mood:\n"
_PROMPT = '    prompt: {exemplar: "{text}: {label}", query: "{text}:"}\n'
_DRAWN = "    shots: 4\n    ensemble: 10\n    answers: 5\n"
_LABELS = "    kind: classify\n    labels: [glad, sad]\n" + _PROMPT
_LABEL = _HEAD + _LABELS + _DRAWN
_TEXT = (
    _HEAD
    + "    kind: generate\n    response_field: label\n    public_answers: [glad, sad, neither]\n"
    + _PROMPT
    + _DRAWN
)
_HARD = "    mechanism: {type: rnm_gaussian, vote: hard}\n"
_NEAREST = "    order: nearest\n    drawn: 8\n"
_FIELD = "    topics: {by: field, field: product, names: [kettle, lamp]}\n"
_SIMILARITY = "    topics: {by: similarity, names: {kettle: about a kettle, lamp: about a lamp}}\n"
_TEXTS = "    topics: {by: public_texts, number: 2, texts: [a kettle, a lamp, my kettle, my lamp]}\n"

PLANS = {
    "labels": _LABEL + "    mechanism: {type: rnm_gaussian, vote: soft}\n",
    "labels, nearest": _LABEL + _NEAREST + _HARD,
    "labels, quoted": _LABEL.replace("shots: 4", "shots: 1") + _NEAREST + "    slots: quote\n" + _HARD,
    "labels, blocks": _LABEL + "    sampling: blocks\n" + _HARD,
    "labels, conversations": _LABEL + "    earlier_turns: rewrite\n" + _HARD,
    "labels, topics by field": _LABEL + _FIELD + _HARD,
    "labels, topics by similarity": _LABEL + _SIMILARITY + _HARD,
    "labels, topics by public texts, nearest": _LABEL + _TEXTS + _NEAREST + _HARD,
    "words, topics by similarity": _TEXT + _SIMILARITY + "    mechanism: {type: keyword_ptr, k_min: 1, k_max: 2}\n",
    "words": _TEXT + "    mechanism: {type: keyword_joint_em, k: 2}\n",
    "meaning": _TEXT + "    mechanism: {type: embedding_mean}\n",
    "once": _HEAD + _LABELS + "    release: once\n    mechanism: {type: prototypes}\n",
}
"""Plans by their kind."""


def open_shop(folder: Path, embed: Embed = shop.embed) -> Records:
    """Records of the shop, whose lifetime budget takes each plan several times."""
    records = open_records(development(folder))
    fields = ["text", "product", "label"]
    records.create_knowledge_base(
        shop.NAME, epsilon=500, delta=0.5, public_size=300, fields=fields, embedded_field="text"
    )
    records.ingest(shop.NAME, shop.rows(shop.reviews()), embed, by="test")
    return records


def serve_shop(records: Records, embed: Embed = shop.embed) -> Services:
    """Services of the shop, with an engine that answers with the commonest label."""
    return open_services(records, MajorityEngine(), Embedding(embed))
