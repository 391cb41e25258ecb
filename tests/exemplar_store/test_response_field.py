"""A second embedding of each exemplar: that of its response, stored when it is ingested."""

from unittest.mock import Mock

import numpy as np
import pytest
import sqlalchemy as sa

from exemplar_store import (
    EmbeddingError,
    Exemplar,
    ExemplarStore,
    KnowledgeBase,
    Row,
    Slot,
    default_response_field,
    made_up_slots,
)
from exemplar_store.ingest import EMBED_BATCH
from exemplar_store.tables import exemplars

FIELDS = ("text", "label", "reply")


@pytest.fixture
def replies(store: ExemplarStore, engine: sa.Engine) -> KnowledgeBase:
    """An empty knowledge base of texts and replies, both embedded."""
    options = {"public_size": 1000, "fields": FIELDS, "embedded_field": "text", "response_field": "reply"}
    with engine.begin() as connection:
        return store.create(connection, "replies", **options)


def row(number: int, reply: str | None = None, unit: str | None = None) -> Row:
    fields = {"text": f"text {number}", "label": "x", "reply": reply or f"reply {number}"}
    return Row(number, unit or f"u{number}", fields)


def all_of(store: ExemplarStore, **options: bool) -> Slot:
    (slot,) = store.sample_slots("replies", probability=1, ensemble=1, max_exemplars=10_000, **options)
    return slot


def rounded(vector: np.ndarray) -> np.ndarray:
    """A vector as it is stored in half precision."""
    halves = vector.astype("<f2").astype(np.float32)
    return halves / np.linalg.norm(halves[None], axis=1)


def check(found: Slot, embed, count: int) -> None:
    """Check that these are ``count`` exemplars, and that their embeddings are right to the last bit."""
    assert sorted(one.fields["text"] for one in found) == sorted(f"text {n}" for n in range(1, count + 1))
    for one in found:
        for stored, field in ((one.embedding, "text"), (one.response_embedding, "reply")):
            assert stored is not None
            np.testing.assert_array_equal(stored, rounded(embed([one.fields[field]])[0]))
            assert stored.dtype == np.float32
            assert not stored.flags.writeable


def test_both_embeddings_come_back(store, replies, embed):
    assert (replies.response_field, store.get("replies").response_field) == ("reply", "reply")
    store.ingest("replies", [row(n) for n in range(1, 101)], embed)
    assert store.get("replies").embedding_dimension == 16
    check(all_of(store), embed, 100)
    slots = store.sample_blocks("replies", probability=1, blocks=5, max_exemplars=1000)
    check(tuple(one for slot in slots for one in slot), embed, 100)
    for one in all_of(store, embeddings=False):
        assert (one.embedding, one.response_embedding) == (None, None)
        assert set(one.fields) == set(FIELDS)


def test_each_text_is_embedded_once_in_batches_of_limited_size(store, replies, embed):
    """A text is embedded once even where a reply repeats another reply or a text."""
    noting = Mock(wraps=embed)
    store.ingest("replies", [row(n, reply="text 1" if n < 9 else "thanks") for n in range(1, 31)], noting)
    assert sorted(noting.call_args.args[0]) == sorted(["thanks", *(f"text {n}" for n in range(1, 31))])
    noting.assert_called_once()
    check(all_of(store), embed, 30)
    noting.reset_mock()
    store.ingest("replies", [row(n) for n in range(31, 131)], noting)
    asked = [call.args[0] for call in noting.call_args_list]
    assert max(map(len, asked)) <= EMBED_BATCH
    assert sum(map(len, asked)) == 200


def test_the_default_is_a_field_of_that_name():
    assert default_response_field(("text", "response"), "text") == "response"
    assert default_response_field(("text", "response"), "response") is None
    assert default_response_field(("text", "reply"), "text") is None


def test_a_bad_embedding_of_a_response_leaves_nothing(store, engine, replies, embed):
    def wrong(texts):
        vectors = embed(texts)
        vectors[[text.startswith("reply") for text in texts]] *= 2
        return vectors

    with pytest.raises(EmbeddingError, match="norm"):
        store.ingest("replies", [row(1)], wrong)
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(exemplars)) == 0


def test_made_up_exemplars_have_as_many_embeddings(store, replies, embed):
    store.ingest("replies", [row(1)], embed)
    (stored,) = all_of(store)

    def shapes(exemplar: Exemplar) -> list[tuple[int, ...] | None]:
        vectors = (exemplar.embedding, exemplar.response_embedding)
        return [None if vector is None else vector.shape for vector in vectors]

    for response, expected in ((True, [(16,), (16,)]), (False, [(16,), None])):
        slots = made_up_slots([stored.fields] * 2, 16, response=response, exemplars=3)()
        assert [len(slot) for slot in slots] == [3, 3]
        assert all(shapes(one) == expected for slot in slots for one in slot)
    assert shapes(stored) == [(16,), (16,)]
