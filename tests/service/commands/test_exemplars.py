"""Exemplars, whoever ingests and forgets them: all rows or none, and units by their ids."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from exemplar_store import BadRowError, Layout, Row, UnitTooLargeError, UnknownUnitError, read_json_lines
from service.commands import exemplars
from service.commands.exemplars import Ingested, Upload
from service.commands.fields import FieldError
from service.records.records import Records
from service.records.roles import Actor
from tests.service.conftest import embed, rows

ROOT = Actor("root", "root", "account", "admin")


def reading(*exemplars: dict[str, Any]) -> Callable[[Layout], Iterator[Row]]:
    return partial(read_json_lines, rows(exemplars))


def test_rows_are_stored_as_the_upload_says(records: Records) -> None:
    row = {"owner": "new", "what": "a toy", "label": 3, "price": 1}
    would, stored = (
        exemplars.ingest(
            ROOT,
            records,
            "toys",
            reading(row),
            Upload(unit_id="owner", numbers_as_text=True, dry_run=dry_run),
            embed,
            columns={"text": "what"},
        )
        for dry_run in (True, False)
    )
    assert would == stored == Ingested(exemplars=1, units=1, already_there=0, replaced=0, ignored_fields=["price"])
    other = reading({"id": "new", "text": "another", "label": "red"})
    replaced = exemplars.ingest(ROOT, records, "toys", other, Upload(replace=True), embed, columns={"unit_id": "id"})
    assert (replaced.exemplars, replaced.units, replaced.replaced) == (1, 0, 1)
    assert exemplars.forget(ROOT, records, "toys", "new") == 1
    told = "".join(event.line() for event in records.audit.events(knowledge_base="toys"))
    assert "unit.forgotten" in told
    assert "new" not in told


def test_what_cannot_be_stored_is_not_stored(records: Records) -> None:
    good = {"unit_id": "new", "text": "t", "label": "red"}
    many = [good | {"text": f"t{i}"} for i in range(1001)]
    with pytest.raises(BadRowError) as bad:
        exemplars.ingest(ROOT, records, "toys", reading(good, good | {"text": ""}), Upload(), embed)
    assert (bad.value.row, bad.value.field) == (2, "text")
    with pytest.raises(UnitTooLargeError):
        exemplars.ingest(ROOT, records, "toys", reading(*many), Upload(), embed)
    with pytest.raises(FieldError) as unknown:
        exemplars.ingest(ROOT, records, "toys", reading(good), Upload(), embed, columns={"colour": "label"})
    assert unknown.value.field == "columns"
    with pytest.raises(UnknownUnitError):
        exemplars.forget(ROOT, records, "toys", "new")


def test_many_units_are_forgotten_at_once(records: Records) -> None:
    assert exemplars.forget_many(ROOT, records, "toys", {"u1", "u2", "nobody"}) == (2, 1)
    assert exemplars.forget_many(ROOT, records, "toys", {"u1", "u3"}) == (1, 1)
