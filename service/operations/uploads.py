"""Exemplars from a whole file: from a form, whose field each refusal names, or from a program."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

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
from service.operations.exemplars import Ingested, Upload
from service.operations.fields import FieldError
from service.operations.roles import Actor, Right
from service.problem_kinds import ProblemKind, RefusalError
from service.records.records import Records
from service.sources.uploads import rows_of

_ENDINGS = ("csv", "jsonl", "ndjson")
_ADVICE = "save the file as UTF-8, or use `dpicl kb ingest` with --encoding"
_BEFORE_TEXT = b"\xef\xbb\xbf\xff\xfe\0 \t\r\n"
"""Marks of encodings, and white space, which may stand before a file's first character."""


class NotTextError(RefusalError, ValueError):
    """A file that was sent is not text in the encoding that its sender names; nothing was stored."""

    kind = ProblemKind.UNSUPPORTED_MEDIA_TYPE


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

    def rows(self) -> Callable[[Layout], Iterable[Row]]:
        """Function that yields the rows, given the layout of their columns.

        It raises :class:`exemplar_store.BadRowError` for a bad row.

        Raises:
            NotTextError: the content is not text, or not in the encoding that is named.
        """
        json_lines = self.json_lines
        if json_lines is None:
            json_lines = self.content.lstrip(_BEFORE_TEXT)[:1] in (b"{", b"[")
        try:
            return rows_of(self.content, json_lines=json_lines, encoding=self.encoding, advice=self.advice)
        except ValueError as error:
            raise NotTextError(str(error)) from None


@command(Right.DECIDE, private=True)
def ingest_file(
    actor: Actor, records: Records, name: str, file_name: str, content: bytes, upload: Upload, embed: Embed
) -> Ingested:
    """Store all rows of a file, or none; arguments as of :func:`service.operations.exemplars.ingest`.

    Raises:
        FieldError: the file cannot be read, or a row cannot be stored.
        accounting.ledger.errors.KnowledgeBaseArchivedError: the knowledge base is archived.
    """
    file = _sent(file_name, content)
    try:
        return ingest_sent(actor, records, name, file, upload, embed)
    except (NotTextError, BadRowError) as error:
        raise FieldError("file", str(error)) from error
    except UnitTooLargeError:  # whose own words count units
        most, size = MAX_EXEMPLARS_PER_UNIT, MAX_UNIT_BYTES
        why = f"a unit would have more than {most:,} exemplars, or more than {size:,} bytes of text"
        raise FieldError("file", why) from None


def read_file(file_name: str, content: bytes, layout: Layout) -> list[Row]:
    """The rows of a file from a form, which are not stored.

    Raises:
        FieldError: the file cannot be read, or a row is not valid.
    """
    try:
        return list(_sent(file_name, content).rows()(layout))
    except (NotTextError, BadRowError) as error:
        raise FieldError("file", str(error)) from error


def _sent(file_name: str, content: bytes) -> SentFile:
    ending = file_name.rpartition(".")[2].lower()
    if ending not in _ENDINGS:
        raise FieldError("file", "the file’s name must end in .csv, .jsonl or .ndjson")
    return SentFile(content, ending != "csv", None, _ADVICE)


@command(Right.DECIDE, private=True)
def ingest_sent(actor: Actor, records: Records, name: str, file: SentFile, upload: Upload, embed: Embed) -> Ingested:
    """Store all rows of a file that was sent, or none; errors also as of :func:`service.operations.exemplars.ingest`.

    Raises:
        NotTextError: the file is not text, or not in the encoding that is named.
    """
    return exemplars.ingest(actor, records, name, file.rows(), upload, embed)
