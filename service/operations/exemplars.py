"""Exemplars: ingested from rows, and forgotten unit by unit. What comes back is for admins alone."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict

from pydantic import BaseModel, Field

from exemplar_store import Layout, Row, UnknownUnitError
from exemplar_store.knowledge_base import Progress, do_nothing
from service.engines.embedding.embedder import Embed
from service.operations.command import command
from service.operations.fields import FieldError
from service.operations.roles import Actor, Right
from service.records.records import Records
from service.sources.counts import RowCounts


class Upload(BaseModel):
    """How rows become exemplars."""

    unit_id: str = Field(
        default="unit_id",
        pattern=r"^[^\x00]*$",
        description="The column that names the privacy unit: the person or customer protected as a whole.",
    )
    numbers_as_text: bool = Field(
        default=False, description="Take numbers, dates and times as text; else they are errors."
    )
    replace: bool = Field(
        default=False, description="The rows are all there is of their units: delete what these had before."
    )
    dry_run: bool = Field(default=False, description="Say what would be stored, and store nothing.")


class Ingested(BaseModel):
    """What an upload stored. Exemplars that were there already were left alone, or `replaced`, which deleted them."""

    exemplars: int
    units: int
    already_there: int
    replaced: int
    ignored_fields: list[str]
    rows: int = Field(description="That were read.")
    values: dict[str, dict[str, int]] = Field(
        description="Of each field with few and short values, how many rows have which: look for misspelt labels.",
        examples=[{"label": {"Billing": 312, "billing": 3}}],
    )
    notice: str | None = Field(description="What the rows' unit ids mean for privacy, if all are equal or different.")


@command(Right.DECIDE, private=True)
def ingest(
    actor: Actor,
    records: Records,
    name: str,
    read: Callable[[Layout], Iterable[Row]],
    upload: Upload,
    embed: Embed,
    *,
    columns: Mapping[str, str] | None = None,
    progress: Progress = do_nothing,
) -> Ingested:
    """Store all rows, or none. Repeating it is harmless.

    Args:
        actor: who uploads them.
        records: where they go.
        name: the knowledge base.
        read: gives the rows, given what is in which column.
        upload: how they are read and stored.
        embed: makes embeddings of texts, after all rows were checked.
        columns: of fields that have another name there.
        progress: told how many of how many rows are embedded.

    Raises:
        FieldError: ``columns`` names what is no field.
        exemplar_store.BadRowError: a row that cannot be stored.
        exemplar_store.UnitTooLargeError: a unit would have too much.
        accounting.ledger.errors.KnowledgeBaseArchivedError: it takes no exemplars any more.
    """
    fields = records.store.get(name).fields
    renamed = dict(columns or {})
    for field in renamed:
        if field not in (known := ("unit_id", *fields)):
            raise FieldError("columns", f"there is no {field}; the fields are {', '.join(known)}")
    layout = Layout(fields, renamed.pop("unit_id", upload.unit_id), renamed, upload.numbers_as_text)
    how = {"replace": upload.replace, "dry_run": upload.dry_run}
    counts = RowCounts()
    report = records.ingest(name, counts.counting(read(layout)), embed, by=actor.id, progress=progress, **how)
    return Ingested(**asdict(report), rows=counts.rows, values=counts.values, notice=counts.notice)


@command(Right.DECIDE, private=True)
def forget(actor: Actor, records: Records, name: str, unit: str) -> int:
    """Delete a unit; how many exemplars it had. Answers released before stay: the privacy guarantee covers them.

    Raises:
        exemplar_store.InvalidUnitIdError: no unit can have this id.
        exemplar_store.UnknownUnitError: there is none of this id.
    """
    return records.forget(name, unit, by=actor.id)


@command(Right.DECIDE, private=True)
def forget_many(actor: Actor, records: Records, name: str, units: Collection[str]) -> tuple[int, int]:
    """Delete units: how many exemplars they had, and how many units were not there."""
    deleted = unknown = 0
    for unit in sorted(units):
        try:
            deleted += records.forget(name, unit, by=actor.id)
        except UnknownUnitError:
            unknown += 1
    return deleted, unknown
