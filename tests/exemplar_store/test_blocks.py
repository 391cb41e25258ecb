"""Blocks: which units they hold, how they are drawn, and that nothing else moves when a unit comes or goes."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from exemplar_store import Slot
from exemplar_store.blocks import tag_range
from exemplar_store.tables import knowledge_bases, units
from tests.exemplar_store.effort import postgresql_rows, sqlite_steps
from tests.laws import ALPHA, ONE_DATABASE, p_value

EVERYBODY = {"probability": 1, "max_exemplars": 1000}


def texts(slots: Sequence[Slot]) -> list[list[str]]:
    """The texts in each slot, in order."""
    return [[exemplar.fields["text"] for exemplar in slot] for slot in slots]


def block_of(text: str, slots: Sequence[Slot]) -> int:
    (block,) = [number for number, held in enumerate(texts(slots)) if text in held]
    return block


@given(st.data(), st.integers(1, 10**15))
def test_blocks_share_out_all_tags_evenly(data: st.DataObject, blocks: int) -> None:
    block = data.draw(st.integers(0, blocks - 1))
    first, last = map(int.from_bytes, tag_range(block, blocks))
    assert first == (0 if block == 0 else int.from_bytes(tag_range(block - 1, blocks)[1]) + 1)
    assert (last == 2**128 - 1) == (block == blocks - 1)
    assert 2**128 // blocks <= last - first + 1 <= 2**128 // blocks + 1


def test_a_units_tag_and_nothing_else_names_its_block(store, engine, tickets, rows):
    store.ingest("tickets", rows(50))
    with engine.connect() as connection:
        keys = store.keyring.of(connection.execute(sa.select(knowledge_bases)).one())
    for blocks in (1, 2, 7, 100):
        slots = store.sample_blocks("tickets", blocks=blocks, **EVERYBODY)
        assert len(slots) == blocks
        for unit in range(50):
            tag = int.from_bytes(keys.unit_tag(f"u{unit}"))
            assert block_of(f"text 0 of u{unit}", slots) == tag * blocks // 2**128


def test_a_unit_that_comes_or_goes_changes_its_own_block_and_no_other(store, tickets, rows):
    store.ingest("tickets", rows(40, each=3))
    for most in (2, 1000):
        before = texts(store.sample_blocks("tickets", probability=1, blocks=10, max_exemplars=most))
        store.ingest("tickets", rows(1, each=5, prefix="newcomer"))
        after = texts(store.sample_blocks("tickets", probability=1, blocks=10, max_exemplars=most))
        everybody = store.sample_blocks("tickets", blocks=10, **EVERYBODY)
        own = block_of("text 0 of newcomer0", everybody)
        assert [number for number in range(10) if before[number] != after[number]] in ([own], [])
        assert sum(map(len, texts(everybody))) == 125
        store.forget("tickets", "newcomer0")
        assert texts(store.sample_blocks("tickets", probability=1, blocks=10, max_exemplars=most)) == before


def test_more_blocks_than_a_sample_may_have_are_an_empty_sample(store, tickets, rows, monkeypatch):
    """Whichever units are in them, the coins decide, and no block is used in place of another."""
    store.ingest("tickets", rows(10))
    for drawn, kept in ((3, 3), (4, 0)):
        monkeypatch.setattr("exemplar_store.sampling.poisson_sample", lambda *_, drawn=drawn: np.arange(drawn))
        assert len(store.sample_blocks("tickets", probability=0.5, blocks=6, most=3, max_exemplars=9)) == kept


def test_blocks_do_not_depend_on_the_order_of_uploads(store, tickets, rows):
    upload = rows(30, each=2)
    store.ingest("tickets", upload)
    first = texts(store.sample_blocks("tickets", blocks=6, **EVERYBODY))
    for unit in range(30):
        store.forget("tickets", f"u{unit}")
    assert texts(store.sample_blocks("tickets", blocks=6, **EVERYBODY)) == [[]] * 6
    for part in (upload[40:], upload[10:40:-1], upload):
        store.ingest("tickets", part)
    assert texts(store.sample_blocks("tickets", blocks=6, **EVERYBODY)) == first


def test_a_block_is_the_same_whenever_it_is_drawn(store, tickets, rows):
    store.ingest("tickets", rows(120, each=2))
    whole = texts(store.sample_blocks("tickets", blocks=5, **EVERYBODY))
    assert min(map(len, whole)) > 3  # fewer than two of the units in one of the blocks: below 4e-10 for a random key
    for _ in range(20):
        drawn = texts(store.sample_blocks("tickets", probability=0.5, blocks=5, max_exemplars=3))
        places = [[block[:3] for block in whole].index(one) for one in drawn]
        assert places == sorted(set(places))


def test_the_order_within_a_block_mixes_units(store, tickets, rows):
    """Exemplars are in the order of keyed hashes, not of units: those of a large unit are not all first or last."""
    store.ingest("tickets", rows(2, each=100))
    ((block),) = texts(store.sample_blocks("tickets", blocks=1, **EVERYBODY))
    assert len(block) == 200
    first_half = sum(text.endswith("u0") for text in block[:100])
    assert 10 < first_half < 90  # hypergeometric, mean 50, deviation 3.5


BLOCKS = 4


@pytest.mark.slow
@ONE_DATABASE
def test_each_block_is_drawn_independently_with_the_probability(store, tickets, rows):
    """The whole joint law of which blocks are drawn: 16 sets."""
    store.ingest("tickets", rows(80))
    whole = texts(store.sample_blocks("tickets", blocks=BLOCKS, **EVERYBODY))
    assert all(whole)
    number = {block[0]: i for i, block in enumerate(whole)}
    runs, q = 1500, 0.3
    counts = np.zeros(2**BLOCKS, int)
    for _ in range(runs):
        slots = texts(store.sample_blocks("tickets", probability=q, blocks=BLOCKS, max_exemplars=1))
        counts[sum(1 << number[text] for (text,) in slots)] += 1
    sizes = np.array([bin(drawn).count("1") for drawn in range(2**BLOCKS)])
    law = q**sizes * (1 - q) ** (BLOCKS - sizes)
    assert p_value(counts, runs, law) > ALPHA
    assert p_value(counts, runs, np.full(2**BLOCKS, 1 / 2**BLOCKS)) < ALPHA  # q = 1/2 would be noticed
    fixed_size = np.where(sizes == 1, 1 / BLOCKS, 0)
    assert p_value(counts, runs, fixed_size) < ALPHA


@pytest.mark.slow
@ONE_DATABASE
def test_the_number_of_slots_has_a_law_without_exemplars_in_it(store, tickets, rows):
    """The law is binomial over all blocks, including empty ones; so an empty knowledge base has slots too."""
    runs, q = 600, 0.25
    law = stats.binom.pmf(np.arange(BLOCKS + 1), BLOCKS, q)
    for upload in ([], rows(1)):
        store.ingest("tickets", upload)
        drawn = [
            len(store.sample_blocks("tickets", probability=q, blocks=BLOCKS, max_exemplars=1)) for _ in range(runs)
        ]
        assert p_value(np.bincount(drawn, minlength=law.size), runs, law) > ALPHA


def test_ten_thousand_blocks_fit_in_one_query(store, tickets, rows):
    store.ingest("tickets", rows(500))
    slots = store.sample_blocks("tickets", blocks=10_000, **EVERYBODY)
    assert len(slots) == 10_000
    assert sorted(itertools.chain(*texts(slots))) == sorted(f"text 0 of u{i}" for i in range(500))


def test_tags_at_the_edges_of_a_block_belong_to_it(store, engine, tickets, rows):
    store.ingest("tickets", rows(4))
    first, last = tag_range(2, 3)
    edges = [tag_range(1, 3)[1], first, last, b"\0" * 16]
    with engine.begin() as connection:
        for position, tag in enumerate(edges):
            connection.execute(sa.update(units).where(units.c.position == position).values(unit_tag=tag))
    slots = texts(store.sample_blocks("tickets", blocks=3, **EVERYBODY))
    assert [set(slot) for slot in slots] == [{"text 0 of u3"}, {"text 0 of u0"}, {"text 0 of u1", "text 0 of u2"}]


@pytest.mark.parametrize("analysed", [False, True])
def test_only_the_drawn_blocks_are_read(store, engine, tickets, rows, analysed):
    """Rows or steps, with the database's statistics and before it has any."""
    store.ingest("tickets", rows(6_000))
    if analysed:
        with engine.begin() as connection:
            connection.exec_driver_sql("ANALYZE")

    def sample() -> None:
        slots = store.sample_blocks("tickets", probability=0.01, blocks=1500, max_exemplars=100)
        assert sum(map(len, slots)) < 300

    if engine.dialect.name == "sqlite":
        assert sqlite_steps(engine, sample) < 12_000
    else:
        assert postgresql_rows(engine, sample) < 2_000
