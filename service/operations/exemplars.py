"""Exemplars: ingested from rows, and forgotten unit by unit. Results are for admins alone."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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
from service.sources.reading import column_by_field


class Upload(BaseModel):
    """Options of an upload."""

    unit_id: str = Field(
        default="unit_id",
        pattern=r"^[^\x00]*$",
        description="The column that names the privacy unit: the person or customer protected as a whole.",
    )
    replace: bool = Field(
        default=False, description="The rows are all that their units have: delete earlier exemplars of these units."
    )
    skip_forgotten: bool = Field(
        default=False, description="Leave out units that were forgotten; otherwise they come back."
    )
    dry_run: bool = Field(default=False, description="Report what would be stored, and store nothing.")


class Ingested(BaseModel):
    """Result of an upload. Exemplars that were there already were left alone, or `replaced`, that is, deleted.

    Units that were forgotten and are back are `returned`. With `skip_forgotten` they and their rows are `skipped`.
    """

    exemplars: int
    units: int
    already_there: int
    replaced: int
    returned: int
    skipped_units: int
    skipped_rows: int
    ignored_fields: list[str]
    rows: int = Field(description="Number of rows read, without those that are incomplete.")
    incomplete: dict[str, dict[str, int]] = Field(
        description="Number of rows left out with `skip_incomplete`, by the column without a value and by the reason.",
        examples=[{"code": {"empty": 263}}],
    )
    values: dict[str, dict[str, int]] = Field(
        description="Number of rows by value, for each field with few and short values: look for misspelt labels.",
        examples=[{"label": {"Billing": 312, "billing": 3}}],
    )
    notice: str | None = Field(
        description="Meaning of the unit ids for privacy, if all differ, or a first upload has only one."
    )


def columns_named(pairs: Iterable[str]) -> dict[str, str]:
    """Names of columns, by field, from pairs of the form ``FIELD=COLUMN``.

    Raises:
        FieldError: one of them is not such a pair.
    """
    try:
        return column_by_field(pairs)
    except ValueError as error:
        raise FieldError("columns", str(error)) from None


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
    """Store all rows, or none. Repeating the call is harmless.

    Args:
        actor: the admin.
        records: opened records.
        name: name of the knowledge base.
        read: function that yields the rows, given the layout of their columns.
        upload: options of the upload.
        embed: function that embeds texts, called after all rows were checked.
        columns: names of columns, by field, where the two differ.
        progress: function called with the numbers of rows embedded and of all rows.

    Raises:
        FieldError: ``columns`` names an unknown field, or no row is complete.
        exemplar_store.BadRowError: a row cannot be stored.
        exemplar_store.UnitTooLargeError: a unit would have too many exemplars, or too much text.
        accounting.ledger.errors.KnowledgeBaseArchivedError: the knowledge base is archived.
    """
    described = records.store.get(name)
    fields = described.fields
    renamed = dict(columns or {})
    for field in renamed:
        if field not in (known := ("unit_id", *fields)):
            raise FieldError("columns", f"there is no {field}; the fields are {', '.join(known)}")
    layout = Layout(fields, renamed.pop("unit_id", upload.unit_id), renamed)
    how = {name: getattr(upload, name) for name in ("replace", "skip_forgotten", "dry_run")}
    counts = RowCounts(first=described.embedding_dimension is None)

    def rows() -> Iterator[Row]:
        yield from counts.counting(read(layout))
        if layout.left_out and not counts.rows:
            ((column, reason), number), *_ = layout.left_out.most_common()
            wrong = "; is that the column's name?" if reason == "missing" else ""
            why = f"no row is complete: in {number:,} rows {column!r} is {reason}{wrong}"
            raise FieldError("skip_incomplete", why)

    report = records.ingest(name, rows(), embed, by=actor.id, progress=progress, **how)
    incomplete: dict[str, dict[str, int]] = {}
    for (column, reason), number in layout.left_out.most_common():
        incomplete.setdefault(column, {})[reason] = number
    return Ingested(
        **asdict(report), rows=counts.rows, incomplete=incomplete, values=counts.values, notice=counts.notice
    )


@command(Right.DECIDE, private=True)
def forget(actor: Actor, records: Records, name: str, unit: str) -> int:
    """Delete a unit. Answers released before stay: the privacy guarantee covers them.

    Returns:
        Number of exemplars that the unit had.

    Raises:
        exemplar_store.InvalidUnitIdError: no unit can have this id.
        exemplar_store.UnknownUnitError: no unit has this id.
    """
    return records.forget(name, unit, by=actor.id)


@command(Right.DECIDE, private=True)
def forget_many(actor: Actor, records: Records, name: str, units: Collection[str]) -> tuple[int, int]:
    """Delete units.

    Returns:
        Number of exemplars that they had, and number of units that were not there.
    """
    deleted = unknown = 0
    for unit in sorted(units):
        try:
            deleted += records.forget(name, unit, by=actor.id)
        except UnknownUnitError:
            unknown += 1
    return deleted, unknown
