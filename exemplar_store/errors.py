"""Errors of the exemplar store. Every message states what to do, and none repeats an exemplar's text."""

from collections.abc import Collection
from typing import Literal

from exemplar_store.exemplar import MAX_EXEMPLARS_PER_UNIT, MAX_UNIT_BYTES


class ExemplarStoreError(Exception):
    """Base of this package's errors."""


class UnknownKnowledgeBaseError(ExemplarStoreError, LookupError):
    """No knowledge base has this name."""


class KnowledgeBaseExistsError(ExemplarStoreError):
    """Another knowledge base has this name."""

    field = "name"


class InvalidKnowledgeBaseError(ExemplarStoreError, ValueError):
    """The description of a knowledge base is not valid.

    Attributes:
        field: argument at fault.
        why: requirement that the argument does not meet, a sentence without its end.
    """

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field
        self.why = why


class KnowledgeBaseNotEmptyError(ExemplarStoreError):
    """Exemplars were stored in the knowledge base, so it cannot be deleted. Nothing was done."""


class UnknownUnitError(ExemplarStoreError, LookupError):
    """The knowledge base holds no unit with this id."""


class InvalidUnitIdError(ExemplarStoreError, ValueError):
    """An invalid unit id.

    Attributes:
        why: problem with the id, a sentence without its end.
    """

    field = "unit"

    def __init__(self, why: str) -> None:
        super().__init__(f"the unit's id {why}")
        self.why = why


class BadRowError(ExemplarStoreError, ValueError):
    """A row that cannot be ingested. Nothing of its upload was stored.

    Attributes:
        row: the row's number: the line in JSON, else as a spreadsheet counts rows (a header is row 1).
        field: the field at fault, or None if the whole row is.
        remedy: the option of reading that its message proposes, and a value for it; None: there is none.
    """

    def __init__(
        self, row: int, field: str | None, problem: str, remedy: tuple[str, bool | int | str] | None = None
    ) -> None:
        super().__init__(f"row {row}" + (f", field {field!r}" if field is not None else "") + f": {problem}")
        self.row = row
        self.field = field
        self.remedy = remedy


class MissingColumnError(BadRowError):
    """The row that should name the columns lacks one that is needed.

    Attributes:
        needed: names of all columns that are needed.
    """

    def __init__(self, row: int, field: str, problem: str, needed: Collection[str], *, is_unit_id: bool) -> None:
        advice, remedy = ("; name the one with the person's id", ("unit_id", "COLUMN")) if is_unit_id else ("", None)
        super().__init__(row, field, f"{problem}{advice}", remedy)
        self.needed = needed

    def propose_column(self, field: str) -> None:
        """Propose to take a field from another column, unless something else is proposed."""
        if self.remedy is None:
            self.args = (f"{self}; name the column to take it from",)
            self.remedy = ("columns", f"{field}=COLUMN")


class IncompleteRowError(BadRowError):
    """A row in which a needed column holds nothing.

    Attributes:
        reason: ``empty``, or ``missing`` where a row of JSON does not have it.
    """

    def __init__(self, row: int, field: str, reason: Literal["empty", "missing"]) -> None:
        advice = "give it a value, or have all such rows left out"
        super().__init__(row, field, f"is {reason}; {advice}", ("skip_incomplete", True))
        self.reason = reason


class NotUtf8Error(BadRowError):
    """A line of an upload that is not UTF-8.

    Attributes:
        byte: the first wrong one of the line, counted from 1.
        line: bytes of the line. They are private: shown only to a person at a terminal who has the file.
    """

    def __init__(self, row: int, byte: int, line: bytes) -> None:
        super().__init__(row, None, f"is not UTF-8 at byte {byte}; save the file as UTF-8")
        self.byte = byte
        self.line = line


class UnrecognisedUnitsError(ExemplarStoreError):
    """Units of the knowledge base would not be recognised, so a new cohort might not hold new people only."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Knowledge base {name!r} opens no further cohort: uploads were lost in a restore, and people in them "
            "who come back would be taken for new and pay twice. Create another knowledge base for new people."
        )


class UnitTooLargeError(ExemplarStoreError, ValueError):
    """An upload that would give units more than a unit may have (:mod:`exemplar_store.exemplar`). Nothing was stored.

    Attributes:
        units: number of units that would have too much.
    """

    def __init__(self, units: int) -> None:
        super().__init__(
            f"{units:,} {'unit' if units == 1 else 'units'} would have more than {MAX_EXEMPLARS_PER_UNIT:,} exemplars, "
            f"or more than {MAX_UNIT_BYTES:,} bytes of text in them, with those stored before. That is the most a unit "
            "may have, since a query reads all of a unit it draws: keep fewer or shorter ones of each, or check that "
            "the right column names the unit. Nothing was stored."
        )
        self.units = units


class UploadLostError(ExemplarStoreError):
    """An upload that another process cleared, since its own gave no sign of life for more than a minute."""

    def __init__(self) -> None:
        super().__init__(
            "The upload was interrupted for more than a minute, and another process took it for dead. Nothing was "
            "stored; upload again."
        )


class DatabaseInUseError(ExemplarStoreError):
    """Another process has the database open."""


class EmbeddingError(ExemplarStoreError, ValueError):
    """Embeddings of the wrong shape, length or norm, or missing where the knowledge base has them."""


class OtherEmbeddingModelError(ExemplarStoreError):
    """A knowledge base whose embeddings were made by another model than this process has: they do not compare."""

    def __init__(self, name: str, stored: str, here: str) -> None:
        super().__init__(
            f"Knowledge base {name!r} was embedded by another model (SHA-256 {stored[:12]}…) than the one that embeds "
            f"here ({here[:12]}…). Set DPICL_EMBEDDING_MODEL to the model it was filled with, in every process; or "
            "leave this database as it is, and fill a new one with the new model."
        )


class EncryptionKeyError(ExemplarStoreError, ValueError):
    """No usable encryption key."""


class WrongKeyError(EncryptionKeyError):
    """The database, or one of its knowledge bases, was written under another encryption key."""


class TamperedError(ExemplarStoreError):
    """A stored exemplar does not open: its row was changed, or moved, behind the store's back.

    Queries leave such an exemplar out.
    """
