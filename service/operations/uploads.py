"""Exemplars from a whole file: from a form, whose field each refusal names, or from a program."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath

from pydantic import Field

from exemplar_store import (
    MAX_EXEMPLARS_PER_UNIT,
    MAX_UNIT_BYTES,
    BadRowError,
    Layout,
    Row,
    UnitTooLargeError,
)
from service.engines.embedding.embedder import Embed
from service.operations import exemplars
from service.operations.command import command
from service.operations.exemplars import Ingested, Upload, columns_named
from service.operations.fields import FieldError
from service.operations.roles import Actor, Right
from service.problem_kinds import ProblemKind, RefusalError
from service.records.records import Records
from service.sources.reading import MeaninglessOptionError
from service.sources.reading import SentRows as SentRows  # for faces, too
from service.sources.uploads import rows_of
from service.sources.workbooks import WORKBOOKS

_LOOKED_AT = 10
_JSON = (".jsonl", ".ndjson")
_ENDINGS = (".csv", ".tsv", *WORKBOOKS, *_JSON)
_ADVICE = "write its encoding under “Encoding”, or save the file as UTF-8"
_BEFORE_TEXT = b"\xef\xbb\xbf\xff\xfe\0 \t\r\n"
"""Marks of encodings, and white space, which may stand before a file's first character."""


class SentUpload(Upload, SentRows):
    """Options of an upload of a whole file."""

    columns: list[str] = Field(
        default=[],
        description="A field and the column of another name to take it from, as `FIELD=COLUMN`, for each such field. A "
        "name with a dot leads into JSON.",
        examples=[["text=message.body"]],
    )

    @property
    def by_field(self) -> dict[str, str]:
        """Names of columns, by field.

        Raises:
            FieldError: one of ``columns`` is not a pair.
        """
        return columns_named(self.columns)


class NotTextError(RefusalError, ValueError):
    """A file that was sent is not text in the encoding that its sender names; nothing was stored."""

    kind = ProblemKind.UNSUPPORTED_MEDIA_TYPE


class SentRowError(RefusalError, ValueError):
    """A row of a file that was sent cannot be ingested; nothing was stored. It names the option that may help."""

    kind = ProblemKind.BAD_ROW


@dataclass(frozen=True)
class SentFile:
    """A file as a program sends it.

    Attributes:
        content: bytes of the file.
        json_lines: whether it is JSON Lines rather than CSV; None: not known, and it is JSON Lines if it begins
            with ``{``, or with ``[``, which no row does.
        encoding: name of the encoding from the sender; None: not named.
        advice: help for senders whose text is neither UTF-8 nor marked.
    """

    content: bytes
    json_lines: bool | None
    encoding: str | None
    advice: str

    def rows(self, reading: SentRows) -> Callable[[Layout], Iterable[Row]]:
        """Function that yields the rows, given the layout of their columns.

        It raises :class:`exemplar_store.BadRowError` for a bad row.

        Args:
            reading: options of reading.

        Raises:
            NotTextError: the content is not text, or not in the encoding that is named.
            FieldError: an option means nothing for such a file.
        """
        json_lines = self.json_lines
        if json_lines is None:
            json_lines = self.content.lstrip(_BEFORE_TEXT)[:1] in (b"{", b"[")
        try:
            return rows_of(
                self.content, json_lines=json_lines, encoding=self.encoding, reading=reading, advice=self.advice
            )
        except BadRowError:
            raise
        except MeaninglessOptionError as error:
            raise FieldError(error.option, str(error)) from None
        except ValueError as error:
            raise NotTextError(str(error)) from None


@dataclass(frozen=True)
class FormFile:
    """A file as a form brings it.

    Attributes:
        name: name of the file, whose ending shows its format.
        content: bytes of the file.
        encoding: name of its encoding from the person; None: not named.
    """

    name: str
    content: bytes
    encoding: str | None = None


@command(Right.DECIDE, private=True)
def ingest_file(
    actor: Actor, records: Records, name: str, file: FormFile, upload: SentUpload, embed: Embed
) -> Ingested:
    """Store all rows of a file, or none; arguments as of :func:`service.operations.exemplars.ingest`.

    Raises:
        FieldError: the file cannot be read, or a row cannot be stored.
        accounting.ledger.errors.KnowledgeBaseArchivedError: the knowledge base is archived.
    """
    with _of_the_form():
        return _ingest(actor, records, name, _sent(file), upload, embed)


@dataclass(frozen=True)
class Look:
    """What a file holds, before anything of it is stored.

    Attributes:
        report: counts of what would be stored.
        first: the first rows.
    """

    report: Ingested
    first: Sequence[Row]


@command(Right.DECIDE, private=True)
def look(actor: Actor, records: Records, name: str, file: FormFile, upload: SentUpload, embed: Embed) -> Look:
    """Read a whole file and store nothing; arguments and errors as of :func:`ingest_file`."""
    first: list[Row] = []

    def noting(rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            if len(first) < _LOOKED_AT:
                first.append(row)
            yield row

    how = upload.model_copy(update={"dry_run": True})
    with _of_the_form():
        read = _sent(file).rows(how)
        report = exemplars.ingest(
            actor, records, name, lambda layout: noting(read(layout)), how, embed, columns=how.by_field
        )
    return Look(report, first)


def read_file(file: FormFile, layout: Layout, reading: SentRows) -> list[Row]:
    """The rows of a file from a form, which are not stored.

    Raises:
        FieldError: the file cannot be read, or a row is not valid.
    """
    with _of_the_form():
        return list(_sent(file).rows(reading)(layout))


def _sent(file: FormFile) -> SentFile:
    ending = PurePath(file.name).suffix.lower()
    if ending not in _ENDINGS:
        raise FieldError("file", f"the file’s name must end in {', '.join(_ENDINGS)}")
    return SentFile(file.content, ending in _JSON, file.encoding, _ADVICE)


_FORM = {
    "skip_incomplete": "tick “Leave out incomplete rows”",
    "numbers_as_text": "tick “Take numbers and dates as text”",
    "skip_lines": "write {} under “Rows before the header”",
    "unit_id": "write its name under “Column with the id”",
    "columns": "write its name under “Column with {}”",
}
"""The field of a form for each option that an error may propose."""


@contextmanager
def _of_the_form() -> Iterator[None]:
    """Refusals of a file in the words of a form."""
    try:
        yield
    except (NotTextError, BadRowError) as error:
        option, value = getattr(error, "remedy", None) or ("", "")
        field = str(value).removesuffix("=COLUMN")
        said = f"{error}: {_FORM[option].format(field)}" if option in _FORM else str(error)
        raise FieldError("file", said) from error
    except UnitTooLargeError:  # whose own words count units
        most, size = MAX_EXEMPLARS_PER_UNIT, MAX_UNIT_BYTES
        why = f"a unit would have more than {most:,} exemplars, or more than {size:,} bytes of text"
        raise FieldError("file", why) from None


@command(Right.DECIDE, private=True)
def ingest_sent(
    actor: Actor, records: Records, name: str, file: SentFile, upload: SentUpload, embed: Embed
) -> Ingested:
    """Store all rows of a file that a program sent, or none.

    Errors also as of :func:`service.operations.exemplars.ingest`.

    Raises:
        NotTextError: the content is not text, or not in the encoding that is named.
        SentRowError: a row cannot be stored.
    """
    try:
        return _ingest(actor, records, name, file, upload, embed)
    except BadRowError as error:
        if error.remedy is None:
            raise
        option, value = error.remedy
        raise SentRowError(f"{error} (`{option}={'true' if value is True else value}`)") from error


def _ingest(actor: Actor, records: Records, name: str, file: SentFile, upload: SentUpload, embed: Embed) -> Ingested:
    return exemplars.ingest(actor, records, name, file.rows(upload), upload, embed, columns=upload.by_field)
