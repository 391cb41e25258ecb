"""Exemplars from a file that a form sends: what is wrong with it is said of the field ``file``."""

from exemplar_store import MAX_EXEMPLARS_PER_UNIT, MAX_UNIT_BYTES, BadRowError, UnitTooLargeError
from service.engines.embedding.embedder import Embed
from service.operations import exemplars
from service.operations.command import command
from service.operations.exemplars import Ingested, Upload
from service.operations.fields import FieldError
from service.operations.roles import Actor, Right
from service.records.records import Records
from service.sources.uploads import rows_of

_ENDINGS = ("csv", "jsonl", "ndjson")
_ADVICE = "save the file as UTF-8, or use `dpicl kb ingest` with --encoding"


@command(Right.DECIDE, private=True)
def ingest_file(
    actor: Actor, records: Records, name: str, file_name: str, content: bytes, upload: Upload, embed: Embed
) -> Ingested:
    """Store all rows of a file, or none; arguments as of :func:`service.operations.exemplars.ingest`.

    Raises:
        FieldError: it cannot be read, or a row cannot be stored.
        accounting.ledger.errors.KnowledgeBaseArchivedError: the knowledge base takes no exemplars any more.
    """
    ending = file_name.rpartition(".")[2].lower()
    if ending not in _ENDINGS:
        raise FieldError("file", "the file’s name must end in .csv, .jsonl or .ndjson")
    try:
        read = rows_of(content, json_lines=ending != "csv", advice=_ADVICE)
    except ValueError as error:
        raise FieldError("file", str(error)) from None
    try:
        return exemplars.ingest(actor, records, name, read, upload, embed)
    except BadRowError as error:
        raise FieldError("file", str(error)) from error
    except UnitTooLargeError:  # whose own words count units
        most, size = MAX_EXEMPLARS_PER_UNIT, MAX_UNIT_BYTES
        why = f"a unit would have more than {most:,} exemplars, or more than {size:,} bytes of text"
        raise FieldError("file", why) from None
