"""Creating a knowledge base, and filling it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from io import BytesIO

from pydantic import ValidationError
from starlette.responses import Response

from accounting.ledger.errors import BudgetExistsError, KnowledgeBaseArchivedError
from exemplar_store import (
    MAX_EXEMPLARS_PER_UNIT,
    MAX_UNIT_BYTES,
    BadRowError,
    InvalidKnowledgeBaseError,
    KnowledgeBaseExistsError,
    UnitTooLargeError,
    read_csv,
    read_json_lines,
)
from service.commands import exemplars, knowledge_bases
from service.commands.command import UnconfirmedError
from service.commands.exemplars import Upload
from service.commands.fields import problems
from service.commands.knowledge_bases import NewKnowledgeBase
from service.dashboard.forms import MAX_FORM_BYTES
from service.dashboard.knowledge_base import name_of, show_exemplars
from service.dashboard.pages import Pages, Visit

pages = Pages()

_READERS = {"csv": read_csv, "jsonl": read_json_lines, "ndjson": read_json_lines}
_BLANK = dict.fromkeys(NewKnowledgeBase.model_fields, "") | {"fields": "text, label", "embedded_field": "text"}
_TAKEN = (KnowledgeBaseExistsError, BudgetExistsError, KnowledgeBaseArchivedError)


@pages.get("/new-knowledge-base")
async def blank(visit: Visit) -> Response:
    """The form."""
    return _form(visit, _BLANK, {})


@pages.post("/new-knowledge-base")
async def create(visit: Visit) -> Response:
    """Create a knowledge base with its lifetime budget, or say what is wrong, field by field."""
    given = visit.given(NewKnowledgeBase)
    try:
        wanted = visit.read(NewKnowledgeBase)
        await knowledge_bases.create.aside(visit.actor, visit.services.records, wanted, visit.confirmed)
    except UnconfirmedError as error:
        return _form(visit, given, {}, 422, error.doubts)
    except (ValidationError, InvalidKnowledgeBaseError, *_TAKEN) as error:
        return _form(visit, given, problems(error, NewKnowledgeBase), 422)
    return visit.redirect(
        f"/knowledge-bases/{wanted.name}/exemplars",
        done=f"“{wanted.name}” was created with its lifetime budget. Next: upload its exemplars.",
    )


@pages.post(
    "/knowledge-bases/{name}/exemplars",
    max_bytes=lambda services: services.records.settings.max_upload_bytes + MAX_FORM_BYTES,
    streams=True,
)
async def upload(visit: Visit) -> Response:
    """Store a file of exemplars, all of it or nothing."""
    name, services = name_of(visit), visit.services
    await knowledge_bases.describe.aside(visit.actor, services.records, name)
    file = visit.file("file")
    if file is None:
        return await show_exemplars(visit, 422, "Choose a file first.")
    suffix = (file.filename or "").rpartition(".")[2].lower()
    if (reader := _READERS.get(suffix)) is None:
        return await show_exemplars(visit, 422, "The file’s name must end in .csv, .jsonl or .ndjson.")
    read, how = partial(reader, BytesIO(await file.read())), visit.read(Upload)
    try:
        await exemplars.ingest.aside(visit.actor, services.records, name, read, how, services.embedder.embed)
    except BadRowError as error:
        return await show_exemplars(visit, 422, f"Nothing was stored: {error}.")
    except KnowledgeBaseArchivedError as error:
        return await show_exemplars(visit, 409, f"Nothing was stored: {error}.")
    except UnitTooLargeError:  # whose own words count units
        problem = (
            f"Nothing was stored: a unit would have more than {MAX_EXEMPLARS_PER_UNIT:,} exemplars, or more than "
            f"{MAX_UNIT_BYTES:,} bytes of text."
        )
        return await show_exemplars(visit, 422, problem)
    return visit.redirect(
        f"/knowledge-bases/{name}/exemplars",
        done="Done: every row of the file is stored, encrypted. Uploading the same file again would change nothing.",
    )


def _form(
    visit: Visit, given: Mapping[str, str], wrong: Mapping[str, str], status: int = 200, weak: Sequence[str] = ()
) -> Response:
    return visit.page("new_knowledge_base.html", status, here="overview", given=given, problems=wrong, weaknesses=weak)
