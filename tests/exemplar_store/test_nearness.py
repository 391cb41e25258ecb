"""A slot shows its nearest exemplars, and nothing of another slot moves when a unit comes or goes, not by one bit."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from exemplar_store import Exemplar, ExemplarStore, Nearest, Row
from exemplar_store.nearness import LEVELS, closest, cosines, nearest, rounded, shown
from exemplar_store.tables import exemplars

DIMENSION = 384


def directions(count: int, seed: int, dimension: int = DIMENSION) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("dimension", [8, 384, 1040, 1041, 1042, 1536, 3072, 4096])
def test_products_are_whole_numbers_that_are_exact(dimension: int) -> None:
    """Also the largest, of which a float32 holds no odd one beyond 1,040 dimensions."""
    vectors = rounded(directions(200, 1, dimension))
    vectors[:100] = np.random.default_rng(2).integers(LEVELS - 1, LEVELS + 1, (100, dimension))
    vectors[100] = LEVELS
    for question in (vectors[100], vectors[0], vectors[101]):
        whole = vectors.astype(int)
        products, squares = whole @ question.astype(int), (whole * whole).sum(axis=1)
        assert cosines(vectors, question).tolist() == [p / np.sqrt(s) for p, s in zip(products, squares, strict=True)]


@pytest.mark.parametrize("dimension", [16, 1041])
def test_the_closest_centre_is_that_of_each_vector_alone(dimension: int) -> None:
    """There are more vectors than are compared at once. The last centre, which equals the first, is never closest."""
    centres = rounded(directions(5, 3, dimension))
    centres[4] = centres[0]
    vectors = rounded(directions(2 * 1024 + 9, 4, dimension))
    whole, norms = centres.astype(int), np.sqrt((centres.astype(int) ** 2).sum(axis=1))
    alone = [int(np.argmax((whole @ vector.astype(int)) / norms)) for vector in vectors]
    assert closest(centres, vectors).tolist() == alone
    assert set(alone) == {0, 1, 2, 3}


def test_embeddings_become_whole_numbers_each_by_itself() -> None:
    embeddings = np.array([[0.5, -0.25, 0.1], [-8.0, 4.0, 0.03], [0.0, 0.0, 1e-6]], np.float32)
    expected = [[127, -64, 25], [-127, 64, 0], [0, 0, 127]]
    assert rounded(embeddings).tolist() == expected
    assert [rounded(one).tolist() for one in embeddings] == expected


def test_rounding_keeps_what_is_near() -> None:
    vectors, (question,) = directions(2000, 2), directions(1, 3)
    true = vectors @ question
    order = np.argsort(-cosines(rounded(vectors), rounded(question)))
    assert true[order[:20]].min() > np.sort(true)[-25]


def bits_depend_on_others(near: Callable[[np.ndarray, np.ndarray], np.ndarray], dimension: int = DIMENSION) -> bool:
    """Whether an exemplar's cosine has other bits among other exemplars."""
    vectors, (question,) = rounded(directions(257, 4, dimension)), rounded(directions(1, 5, dimension))
    vectors[::3] = question  # as large as products can be
    alone = np.concatenate([near(vectors[i : i + 1], question) for i in range(len(vectors))])
    return any(
        near(vectors[first:end], question).tobytes() != alone[first:end].tobytes()
        for first in (0, 1, 3, 100)
        for end in (101, 104, 128, 200, 255, 256, 257)
    )


@pytest.mark.parametrize("dimension", [DIMENSION, 1041, 3072])
def test_a_cosine_has_the_same_bits_among_any_exemplars(dimension: int) -> None:
    assert not bits_depend_on_others(cosines, dimension)


def test_a_product_of_floating_point_matrices_would_be_noticed() -> None:
    def in_floats(vectors: np.ndarray, question: np.ndarray) -> np.ndarray:
        floats = [some.astype(np.float32) / np.linalg.norm(some.astype(np.float32)) for some in (vectors, question)]
        return floats[0] @ floats[1]

    assert bits_depend_on_others(in_floats)


def by_hand(
    kept: Sequence[np.ndarray], tags: np.ndarray, vectors: dict[int, bytes], wanted: Nearest
) -> list[list[int]]:
    question = rounded(wanted.question)
    said = []
    for numbers in kept:
        here = [number for number in numbers.tolist() if number in vectors]
        near = {n: cosines(np.frombuffer(vectors[n], np.int8)[None], question)[0] for n in here}
        said.append(sorted(here, key=lambda n: (-near[n], tags[n]))[: wanted.shown][::-1])
    return said


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_each_slot_shows_its_own_nearest_and_the_nearest_last(slots: list[int], most: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    vectors = rounded(random.integers(-1, 2, size=(len(slots), 3)) + 0.5)  # equals among them
    tags = np.array([random.bytes(16) for _ in slots], "S16")
    opened = {number: vectors[number].tobytes() for number in range(len(slots)) if random.random() < 0.9}
    kept = [np.flatnonzero(np.array(slots, int) == slot) for slot in range(5)]
    wanted = Nearest(random.normal(size=3), most)
    found = nearest(kept, tags, opened, wanted)
    assert [numbers.tolist() for numbers in found] == by_hand(kept, tags, opened, wanted)


def test_exemplars_at_hand_are_ranked_alike() -> None:
    vectors, (question,) = directions(9, 6), directions(1, 7)
    slot = tuple(Exemplar({"text": str(number)}, vector) for number, vector in enumerate(vectors))
    order = np.argsort(-(vectors @ question))[:4]
    assert [int(one.fields["text"]) for one in shown(slot, Nearest(question, 4))] == order[::-1].tolist()
    assert shown((), Nearest(question, 4)) == ()
    twins = tuple(Exemplar({"text": str(number)}, vectors[number % 3]) for number in range(9))
    near = [int(one.fields["text"]) for one in shown(twins, Nearest(vectors[1], 3))]
    assert near == [7, 4, 1]  # of equals the first, and the nearest last


ENSEMBLE = 6


def embed(texts: Sequence[str]) -> np.ndarray:
    return np.concatenate([directions(1, int(text.rsplit(" ", 1)[1])) for text in texts])


@pytest.fixture
def compared(store: ExemplarStore, engine: sa.Engine) -> ExemplarStore:
    with engine.begin() as connection:
        store.create(connection, "near", public_size=100, fields=["text"], embedded_field="text")
    store.ingest("near", rows_of(range(60)), embed)
    return store


def rows_of(numbers):
    return [Row(n, f"u{n}", {"text": f"text {n}"}) for n in numbers]


def coins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every unit a slot and a priority of its own, whatever other units there are."""
    monkeypatch.setattr("exemplar_store.sampling.below", lambda bound, count: np.arange(count) % bound)
    monkeypatch.setattr("exemplar_store.sampling.words", lambda count: np.arange(count, dtype=np.uint64))


def test_whole_numbers_depend_on_no_other_exemplar_of_the_upload(store, engine) -> None:
    """One exemplar with a coordinate of 1, which the others' coordinates are far from, makes them no coarser."""
    vectors = directions(64, 8)
    embedded = {
        str(number): vector for number, vector in enumerate([np.eye(1, DIMENSION, dtype=np.float32)[0], *vectors])
    }
    with engine.begin() as connection:
        store.create(connection, "near", public_size=100, fields=["text"], embedded_field="text")
    rows = [Row(1, f"u{text}", {"text": text}) for text in embedded]
    store.ingest("near", rows, lambda texts: np.stack([embedded[text] for text in texts]))
    (question,) = directions(1, 9)
    (slot,) = store.sample_slots(
        "near", probability=1, ensemble=1, max_exemplars=99, nearest=Nearest(question, 99), embeddings=False
    )
    stored = rounded(np.stack([*embedded.values()]).astype(np.float16).astype(np.float32))  # in half precision
    order = np.argsort(cosines(stored, rounded(question)))
    assert [exemplar.fields["text"] for exemplar in slot] == [str(number) for number in order]


def drawn(store: ExemplarStore, most: int = 2) -> list[list[str]]:
    question = Nearest(directions(1, 99)[0], most)
    slots = store.sample_slots("near", probability=1, ensemble=ENSEMBLE, max_exemplars=1000, nearest=question)
    return [[exemplar.fields["text"] for exemplar in slot] for slot in slots]


def slots_that_differ(store: ExemplarStore, monkeypatch: pytest.MonkeyPatch) -> int:
    """The largest number of slots in which neighbours differ, over several units that are added last."""
    coins(monkeypatch)
    most = 0
    for newcomer in range(200, 212):
        before = drawn(store)
        store.ingest("near", rows_of([newcomer]), embed)
        most = max(most, sum(one != other for one, other in zip(before, drawn(store), strict=True)))
        store.forget("near", f"u{newcomer}")
    return most


def test_a_unit_that_comes_or_goes_changes_its_own_slot_and_no_other(compared, monkeypatch) -> None:
    assert slots_that_differ(compared, monkeypatch) == 1


def test_ranking_all_that_was_drawn_would_be_noticed(compared, monkeypatch) -> None:
    """The nearest of all are dealt to the slots in order, so one more unit moves the others on."""

    def of_all(kept, tags, vectors, wanted):
        everybody = np.sort(np.concatenate(kept))
        (best,) = nearest([everybody], tags, vectors, Nearest(wanted.question, wanted.shown * len(kept)))
        return [best[slot :: len(kept)] for slot in range(len(kept))]

    monkeypatch.setattr("exemplar_store.slots.nearest", of_all)
    assert slots_that_differ(compared, monkeypatch) > 1


def test_what_a_slot_shows_is_the_nearest_of_what_it_drew(compared, monkeypatch) -> None:
    coins(monkeypatch)
    (question,) = directions(1, 99)
    everything = [
        [exemplar.fields["text"] for exemplar in slot]
        for slot in compared.sample_slots("near", probability=1, ensemble=ENSEMBLE, max_exemplars=1000)
    ]
    for all_of_it, some in zip(everything, drawn(compared, 3), strict=True):
        ranked = sorted(all_of_it, key=lambda text: float(embed([text])[0] @ question))
        assert some == ranked[-3:]


def test_an_exemplar_whose_embedding_was_changed_is_not_shown(compared, engine, monkeypatch) -> None:
    coins(monkeypatch)
    with engine.begin() as connection:
        connection.execute(sa.update(exemplars).where(exemplars.c.position == 7).values(vector=b"changed"))
    seen = [text for slot in drawn(compared, 1000) for text in slot]
    assert len(seen) == 59
    assert "text 7" not in seen


def test_under_a_new_data_key_slots_show_the_same(compared, engine, monkeypatch) -> None:
    coins(monkeypatch)
    with engine.connect() as connection:
        before, old = drawn(compared), connection.scalars(sa.select(exemplars.c.vector)).all()
    compared.reencrypt(lambda *_: None)
    again = ExemplarStore(engine, bytes(range(32)))
    assert sorted(map(sorted, drawn(again))) == sorted(map(sorted, before))
    with engine.connect() as connection:
        assert not {*old} & {*connection.scalars(sa.select(exemplars.c.vector))}


def test_texts_of_what_is_not_shown_are_not_read(compared, engine, monkeypatch) -> None:
    from exemplar_store.encryption import KnowledgeBaseKeys

    opened = []
    decrypt = KnowledgeBaseKeys.decrypt
    monkeypatch.setattr(KnowledgeBaseKeys, "decrypt", lambda keys, *of: opened.append(of) or decrypt(keys, *of))
    drawn(compared)
    assert len(opened) <= 2 * ENSEMBLE


def test_embeddings_lie_encrypted(compared, engine) -> None:
    with engine.connect() as connection:
        vectors = connection.scalars(sa.select(exemplars.c.vector)).all()
    plain = {rounded(embed([f"text {n}"]))[0].tobytes() for n in range(60)}
    assert len(vectors) == 60
    assert not any(one in bytes(sealed) for sealed in vectors for one in plain)
