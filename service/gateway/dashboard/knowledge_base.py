"""A knowledge base's pages: creation, budget, plans, usage, releases, exemplars and settings."""

from typing import Any, Literal

from starlette.responses import HTMLResponse, Response

from service.gateway.dashboard.files import named_columns, sent_file
from service.gateway.dashboard.overview import over_time, task_names
from service.gateway.dashboard.pages import Pages, Visit
from service.gateway.dashboard.usage import charged_by_day
from service.operations import answers, audit, budgets, knowledge_bases, overview, statement, uploads
from service.operations import exemplars as exemplar_commands
from service.operations import plans as plan_commands
from service.operations import signed_plans as plans
from service.operations import usage as usage_commands
from service.operations.command import Confirmation
from service.operations.documents import HEADERS, statement_html
from service.operations.fields import FieldError
from service.operations.forecast import RULE
from service.operations.knowledge_bases import KnowledgeBaseChange, NewKnowledgeBase
from service.operations.roles import Right
from service.operations.uploads import FormFile, SentUpload

pages = Pages()

HOME = "/knowledge-bases/{name}"

_RELEASES = 12
_CHANGES = 12


@pages.get("/new-knowledge-base")
async def blank(visit: Visit) -> Response:
    """The form that creates a knowledge base."""
    return visit.page("new_knowledge_base.html", here="overview")


@pages.post("/new-knowledge-base", again=blank, about="name")
async def create(visit: Visit) -> Response:
    """Create a knowledge base with its lifetime budget, or show the problems, field by field."""
    wanted = visit.read(NewKnowledgeBase)
    await visit.do(knowledge_bases.create, wanted, visit.seen)
    done = f"“{wanted.name}” was created with its lifetime budget. Next: upload its exemplars."
    return visit.redirect(f"/knowledge-bases/{wanted.name}/exemplars", done=done)


@pages.get(HOME, needs=Right.BROWSE)
async def budget(visit: Visit) -> Response:
    """Budget promised, used and free, and a forecast of the answers left."""
    summary = await visit.do(overview.read_one, visit.path("name"))
    listed = await visit.do(budgets.list_groups)
    return await tab(
        visit,
        "budget",
        summary=summary,
        chart=over_time(summary),
        group=next((group for group in listed if group.group == summary.budget.group), None),
        rule=RULE,
    )


@pages.get(HOME + "/plans", needs=Right.BROWSE)
@pages.get(HOME + "/plans/{version:number}", needs=Right.BROWSE)
async def signed_plans(visit: Visit) -> Response:
    """A signed plan with its preview; the newest unless the address names one."""
    name = visit.path("name")
    return await tab(
        visit,
        "plans",
        signed=await visit.do(plans.read, name, visit.request.path_params.get("version")),
        summary=await visit.do(overview.read_one, name),
        latencies={latency.task: latency for latency in visit.services.grains.report or () if not latency.problem},
    )


@pages.post(HOME + "/plans/{version:number}/retire", again=signed_plans)
async def retire(visit: Visit) -> Response:
    """Retire a plan, once the admin has confirmed."""
    name, version = visit.path("name"), visit.path("version")
    await visit.do(plan_commands.retire, name, version, visit.seen)
    done = f"Plan {version} is retired: its tasks answer no more, and its budget stays taken."
    return visit.redirect(f"{HOME.format(name=name)}/plans/{version}", done=done)


@pages.get(HOME + "/usage", needs=Right.BROWSE)
async def usage(visit: Visit) -> Response:
    """Answers charged over time by task or by key, fallbacks, and questions refused without a charge."""
    by: Literal["key", "task"] = "key" if visit.asked("by") == "key" else "task"
    name = visit.path("name")
    shown = await visit.do(usage_commands.read, name, by)
    tasks = task_names(await visit.do(overview.read_one, name)) if by == "task" else []
    return await tab(visit, "usage", by=by, usage=shown, charged=charged_by_day(shown.charged, tasks))


@pages.get(HOME + "/releases", needs=Right.AUDIT)
async def releases(visit: Visit) -> Response:
    """Released answers, newest first."""
    name, after = visit.path("name"), visit.asked("after") or None
    listed = await visit.do(answers.list_releases, knowledge_base=name, after=after, limit=_RELEASES + 1)
    older = listed[_RELEASES - 1].id if len(listed) > _RELEASES else None
    return await tab(visit, "releases", releases=listed[:_RELEASES], older=older, first_page=after is None)


@pages.get(HOME + "/exemplars", needs=Right.AUDIT)
async def exemplars(visit: Visit) -> Response:
    """Upload of files, and changes of the exemplars; the exemplars themselves are never shown."""
    return await _exemplars(visit)


async def _exemplars(visit: Visit, looked: uploads.Look | None = None) -> Response:
    changes = await visit.do(audit.describe, kinds=audit.CHANGES, knowledge_base=visit.path("name"), limit=_CHANGES)
    return await tab(visit, "exemplars", changes=changes, looked=looked)


@pages.post(HOME + "/exemplars", again=exemplars, about="file", uploads=True)
async def upload(visit: Visit) -> Response:
    """Store a file of exemplars, all of it or nothing."""
    name = visit.path("name")
    file, how = await _file(visit)
    stored = await visit.do(uploads.ingest_file, name, file, how, visit.services.embedder.embed_many)
    incomplete = sum(sum(reasons.values()) for reasons in stored.incomplete.values())
    left_out, rows = stored.skipped_rows + incomplete, stored.rows + incomplete
    which = f"{rows - left_out:,} of {rows:,} rows" if left_out else "every row"
    done = f"Done: {which} of the file {'are' if left_out else 'is'} stored, encrypted. Uploading the same "
    done += "file again would change nothing."
    if incomplete:
        done += f" Incomplete rows that were left out: {incomplete:,}."
    if stored.skipped_units:
        done += f" The others belong to {stored.skipped_units:,} forgotten units and were left out."
    if stored.returned:
        done += f" Forgotten units that are back: {stored.returned:,}."
    done = f"{done} {stored.notice}" if stored.notice else done
    return visit.redirect(f"{HOME.format(name=name)}/exemplars", done=done)


@pages.post(HOME + "/exemplars/look", again=exemplars, about="file", uploads=True)
async def look(visit: Visit) -> Response:
    """Show what a file holds, and store nothing: counts, and the first rows."""
    looked = None
    with visit.refusals("file"):
        embed = visit.services.embedder.embed_many
        file, how = await _file(visit)
        looked = await visit.do(uploads.look, visit.path("name"), file, how, embed)
    if visit.is_htmx:
        described = await visit.do(knowledge_bases.describe, visit.path("name"))
        return visit.page("knowledge_base/looked.html", kb=described, looked=looked)
    return await _exemplars(visit, looked)


async def _file(visit: Visit) -> tuple[FormFile, SentUpload]:
    """The file that a form brings, and how to read it."""
    file = await sent_file(visit, "choose a file first")
    fields = (await visit.do(knowledge_bases.describe, visit.path("name"))).fields
    columns = [f"{field}={column}" for field, column in named_columns(visit, fields).items()]
    return file, visit.read(SentUpload, columns=columns)


@pages.post(HOME + "/forget", again=exemplars, about="unit")
async def forget(visit: Visit) -> Response:
    """Delete a unit, once the admin has confirmed; neither the response nor the audit trail names it."""
    name, unit = visit.path("name"), visit.field("unit")
    if not unit or visit.field("sure") != "yes":
        raise FieldError("unit", "enter the unit’s id, and tick the box")
    await visit.do(exemplar_commands.forget, name, unit)
    done = "The unit’s exemplars are deleted. Answers that were released stay: the guarantee covers them."
    return visit.redirect(f"{HOME.format(name=name)}/exemplars", done=done)


@pages.get(HOME + "/statement", needs=Right.AUDIT)
async def show_statement(visit: Visit) -> Response:
    """The statement for a data protection officer, a document by itself; with ``?file=yes`` as a file to keep."""
    name = visit.path("name")
    drawn_up = await visit.do(statement.draw_up, name)
    if visit.asked("file"):
        kept = {"Content-Disposition": f'attachment; filename="statement-{name}.html"'}
        return HTMLResponse(statement_html(drawn_up), headers=HEADERS | kept)
    home = HOME.format(name=name)
    file = visit.url(f"{home}/statement", file="yes")
    return HTMLResponse(statement_html(drawn_up, home=visit.url(home), file=file), headers=HEADERS)


@pages.get(HOME + "/settings", needs=Right.BROWSE)
async def settings(visit: Visit) -> Response:
    """The settings of its creation, with forms to change, archive and delete it."""
    return await tab(visit, "settings")


@pages.post(HOME + "/remote-engine")
async def change_remote_engine(visit: Visit) -> Response:
    """Allow or forbid an engine outside the deployment."""
    name, allowed = visit.path("name"), visit.field("remote_engine") == "yes"
    wanted = KnowledgeBaseChange(remote_engine=allowed)
    await visit.do(knowledge_bases.change, name, wanted)
    what = "exemplars may be shown to" if allowed else "no exemplar goes to"
    done = f"From the next query on, {what} an engine outside this deployment."
    return visit.redirect(f"{HOME.format(name=name)}/settings", done=done)


@pages.post(HOME + "/archive", again=settings, about="name")
async def archive(visit: Visit) -> Response:
    """Archive a knowledge base, once its name is typed."""
    name = visit.path("name")
    if visit.field("name") != name:
        raise FieldError("name", f"to archive it, write its name, {name}, exactly")
    await visit.do(knowledge_bases.archive, name, {Confirmation.PERMANENT})
    return visit.redirect(HOME.format(name=name), done=f"“{name}” is archived. Its ledger and audit trail stay.")


@pages.post(HOME + "/delete", again=settings)
async def delete(visit: Visit) -> Response:
    """Delete a knowledge base, if it is empty."""
    name = visit.path("name")
    await visit.do(knowledge_bases.delete, name)
    return visit.redirect("/", done=f"“{name}” is deleted, and its name is free.")


async def tab(visit: Visit, name: str, **context: Any) -> Response:
    """One of a knowledge base's pages, with the parts that all of them share.

    Args:
        visit: visit, whose path names the knowledge base.
        name: name of the page's template.
        context: further values that the template shows.
    """
    described = await visit.do(knowledge_bases.describe, visit.path("name"))
    return visit.page(f"knowledge_base/{name}.html", here="overview", tab=name, kb=described, **context)
