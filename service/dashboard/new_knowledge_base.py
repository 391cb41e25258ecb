"""Creating a knowledge base, and filling it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

from accounting.ledger.errors import BudgetExistsError, KnowledgeBaseArchivedError
from exemplar_store import (
    MAX_EXEMPLARS_PER_UNIT,
    MAX_UNIT_BYTES,
    BadRowError,
    InvalidKnowledgeBaseError,
    KnowledgeBaseExistsError,
    Layout,
    UnitTooLargeError,
    read_csv,
    read_json_lines,
)
from service.dashboard.forms import MAX_FORM_BYTES
from service.dashboard.knowledge_base import show_exemplars
from service.dashboard.pages import Pages, Visit
from service.dashboard.promises import numbers, out_of_range
from service.private_threads import privately
from service.records.new_knowledge_base import NewKnowledgeBase, weaknesses

pages = Pages()

_READERS = {"csv": read_csv, "jsonl": read_json_lines, "ndjson": read_json_lines}
_BLANK = {
    "name": "",
    "epsilon": "",
    "delta": "",
    "public_size": "",
    "fields": "text, label",
    "embedded_field": "text",
    "response_field": "",
    "remote_engine": "",
}


@pages.get("/new-knowledge-base")
async def blank(visit: Visit) -> Response:
    """The form."""
    return _form(visit, _BLANK, {})


@pages.post("/new-knowledge-base")
async def create(visit: Visit) -> Response:
    """Create a knowledge base with its lifetime budget, or say what is wrong, field by field."""
    given = {name: visit.field(name) for name in _BLANK}
    values, problems = _read(given)
    if not problems:
        try:
            wanted = NewKnowledgeBase(**values)
            weak = weaknesses(wanted.epsilon, wanted.delta, wanted.public_size)
            if weak and visit.field("accept_weak_promise") != "yes":
                return _form(visit, given, {}, 422, weak)
            create = visit.services.records.create_knowledge_base
            await asyncio.to_thread(create, **wanted.model_dump(), by=visit.session.by)
        except ValidationError as error:
            problems = out_of_range(error)
        except (KnowledgeBaseExistsError, BudgetExistsError, KnowledgeBaseArchivedError) as error:
            problems = {"name": str(error)}
        except InvalidKnowledgeBaseError as error:
            problems = {_at_fault(str(error)): str(error)}
    if problems:
        return _form(visit, given, problems, 422)
    name = values["name"]
    return visit.redirect(
        f"/knowledge-bases/{name}/exemplars",
        done=f"“{name}” was created with its lifetime budget. Next: upload its exemplars.",
    )


@pages.post(
    "/knowledge-bases/{name}/exemplars",
    max_bytes=lambda services: services.records.settings.max_upload_bytes + MAX_FORM_BYTES,
    streams=True,
)
async def upload(visit: Visit) -> Response:
    """Store a file of exemplars, all of it or nothing."""
    name = visit.request.path_params["name"]
    records = visit.services.records
    described = await asyncio.to_thread(records.store.get, name)
    file = visit.file("file")
    if file is None:
        return await show_exemplars(visit, 422, "Choose a file first.")
    suffix = (file.filename or "").rpartition(".")[2].lower()
    if (reader := _READERS.get(suffix)) is None:
        return await show_exemplars(visit, 422, "The file’s name must end in .csv, .jsonl or .ndjson.")
    layout = Layout(described.fields, visit.field("unit_id") or "unit_id")
    rows = reader(BytesIO(await file.read()), layout)
    try:
        await privately(lambda: records.ingest(name, rows, visit.services.embedder.embed, by=visit.session.by))
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


def _read(given: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The form's texts as values, and what cannot be read."""
    values: dict[str, Any] = {
        "name": given["name"],
        "fields": [field for field in re.split(r"[,\s]+", given["fields"]) if field],
        "embedded_field": given["embedded_field"],
        "remote_engine": given["remote_engine"] == "yes",
    }
    if given["response_field"]:
        values["response_field"] = given["response_field"]
    read, problems = numbers(given)
    return values | read, problems


def _at_fault(message: str) -> str:
    """The field an error names first."""
    first = message.split()[0].rstrip(":")
    return first if first in _BLANK else "fields"


def _form(
    visit: Visit, given: dict[str, str], problems: dict[str, str], status: int = 200, weak: Sequence[str] = ()
) -> Response:
    return visit.page(
        "new_knowledge_base.html", status, here="overview", given=given, problems=problems, weaknesses=weak
    )
