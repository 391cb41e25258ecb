"""Creating a knowledge base, and filling it."""

from __future__ import annotations

from functools import partial
from io import BytesIO

from starlette.responses import Response

from exemplar_store import (
    MAX_EXEMPLARS_PER_UNIT,
    MAX_UNIT_BYTES,
    BadRowError,
    UnitTooLargeError,
    read_csv,
    read_json_lines,
)
from service.commands import exemplars as exemplar_commands
from service.commands import knowledge_bases
from service.commands.exemplars import Upload
from service.commands.fields import FieldError
from service.commands.knowledge_bases import NewKnowledgeBase
from service.dashboard.forms import MAX_FORM_BYTES
from service.dashboard.knowledge_base import HOME, exemplars
from service.dashboard.pages import Pages, Visit

pages = Pages()

_READERS = {"csv": read_csv, "jsonl": read_json_lines, "ndjson": read_json_lines}


@pages.get("/new-knowledge-base")
async def blank(visit: Visit) -> Response:
    """The form."""
    return visit.page("new_knowledge_base.html", here="overview")


@pages.post("/new-knowledge-base", again=blank, about="name")
async def create(visit: Visit) -> Response:
    """Create a knowledge base with its lifetime budget, or say what is wrong, field by field."""
    wanted = visit.read(NewKnowledgeBase)
    await visit.do(knowledge_bases.create, wanted, visit.confirmed)
    done = f"“{wanted.name}” was created with its lifetime budget. Next: upload its exemplars."
    return visit.redirect(f"/knowledge-bases/{wanted.name}/exemplars", done=done)


@pages.post(
    HOME + "/exemplars",
    again=exemplars,
    about="file",
    max_bytes=lambda services: services.records.settings.max_upload_bytes + MAX_FORM_BYTES,
    streams=True,
)
async def upload(visit: Visit) -> Response:
    """Store a file of exemplars, all of it or nothing."""
    name, services = visit.path("name"), visit.services
    if (file := visit.file("file")) is None:
        raise FieldError("file", "choose a file first")
    suffix = (file.filename or "").rpartition(".")[2].lower()
    if (reader := _READERS.get(suffix)) is None:
        raise FieldError("file", "the file’s name must end in .csv, .jsonl or .ndjson")
    read, how = partial(reader, BytesIO(await file.read())), visit.read(Upload)
    try:
        await visit.do(exemplar_commands.ingest, name, read, how, services.embedder.embed)
    except BadRowError as error:
        raise FieldError("file", str(error)) from error
    except UnitTooLargeError:  # whose own words count units
        most = f"{MAX_EXEMPLARS_PER_UNIT:,} exemplars, or more than {MAX_UNIT_BYTES:,} bytes of text"
        raise FieldError("file", f"a unit would have more than {most}") from None
    done = "Done: every row of the file is stored, encrypted. Uploading the same file again would change nothing."
    return visit.redirect(f"{HOME.format(name=name)}/exemplars", done=done)
