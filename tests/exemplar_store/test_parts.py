"""A unit is left out of a release, or in it, by its keyed tag alone."""

import math

import pytest

from exemplar_store import Part, Row
from exemplar_store.encryption import KnowledgeBaseKeys
from tests.exemplar_store.test_reencryption import reencrypted

NAME = "tickets"


def row(unit: str, text: str = "") -> Row:
    return Row(1, unit, {"text": text or f"text of {unit}", "label": "l"})


def members(store, *, left_out: bool, release: str = "tickets.task@1", share: float = 0.4, **which) -> set[str]:
    units = store.every_unit(NAME, part=Part(release, share, left_out), **which)
    return {one.fields["text"].split()[-1] for unit in units for one in unit}


def both(store, **which) -> tuple[set[str], set[str]]:
    return members(store, left_out=False, **which), members(store, left_out=True, **which)


@pytest.fixture
def sixty(store, tickets):
    store.ingest(NAME, [row(f"u{i}") for i in range(60)])
    return store


def test_every_unit_is_in_one_of_the_two_parts(sixty) -> None:
    kept, left_out = both(sixty)
    assert kept | left_out == {f"u{i}" for i in range(60)}
    assert not kept & left_out
    assert len(kept) > 10  # in all but one of 10^11 knowledge bases
    assert len(left_out) > 3
    assert both(sixty, share=0.0) == (kept | left_out, set())
    assert both(sixty, share=1.0) == (set(), kept | left_out)


def test_a_units_part_depends_on_no_other_unit_and_on_nothing_that_it_holds(sixty) -> None:
    kept, left_out = both(sixty)
    for unit in ("u0", "u1", "u2", "u3", "u4", "u5"):
        sixty.forget(NAME, unit)
    gone = {f"u{i}" for i in range(6)}
    assert both(sixty) == (kept - gone, left_out - gone)
    sixty.ingest(NAME, [row("u0", "another text of u0"), row("u7", "more of u7"), *(row(f"new{i}") for i in range(40))])
    now = both(sixty)
    back = gone - {"u0"}
    assert [{unit for unit in part if unit[0] == "u"} for part in now] == [kept - back, left_out - back]


def test_cohorts_and_later_arrivals_do_not_change_a_part(sixty) -> None:
    before = both(sixty)
    sixty.open_cohort(NAME, 10, lambda *_: None)
    sixty.ingest(NAME, [row(f"later{i}") for i in range(20)])
    assert both(sixty) == before
    assert both(sixty, cohorts=[1, 2], arrived=60) == before
    assert members(sixty, left_out=True, cohorts=[2]) | members(sixty, left_out=False, cohorts=[2]) == {
        f"later{i}" for i in range(20)
    }


def test_another_release_divides_the_units_anew(sixty) -> None:
    assert members(sixty, left_out=True) != members(sixty, left_out=True, release="tickets.task@2")


def test_after_a_change_of_keys_every_unit_is_still_in_one_part(sixty, engine) -> None:
    after = reencrypted(sixty, engine)
    kept, left_out = both(after)
    assert kept | left_out == {f"u{i}" for i in range(60)}
    assert not kept & left_out


def test_the_share_is_that_of_the_units() -> None:
    """Of 20,000 units; six standard deviations."""
    keys = KnowledgeBaseKeys(bytes(32), bytes(16))
    for share in (0.01, 0.2, 0.5):
        part = Part("kb.task@1", share, left_out=True)
        found = sum(part.has(keys, keys.unit_tag(f"u{i}")) for i in range(20_000))
        assert abs(found - 20_000 * share) < 6 * math.sqrt(20_000 * share)


def test_without_the_key_no_unit_can_be_chosen_for_a_part() -> None:
    part = Part("kb.task@1", 0.5, left_out=True)
    one, other = (KnowledgeBaseKeys(bytes([key]) * 32, bytes(16)) for key in (1, 2))
    tag = bytes(range(16))
    agree = sum(part.has(one, bytes([i]) + tag[1:]) == part.has(other, bytes([i]) + tag[1:]) for i in range(256))
    assert 80 < agree < 176
