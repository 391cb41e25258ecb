"""Questions asked in the browser, and the asker's own answers, which are free to read again."""

import asyncio
import math

from starlette.responses import Response

from service.gateway.dashboard.pages import Pages, Visit, whole
from service.operations import answers, tasks
from service.operations.admission import admit_session
from service.operations.answers import AnswerView, ReleaseView
from service.operations.fields import FieldError
from service.operations.roles import Right
from service.operations.tasks import ListedTask
from service.operations.wording import lasting

pages = Pages()

_PER_PAGE = 9


@pages.get("/ask", needs=Right.ASK)
async def ask(visit: Visit) -> Response:
    """The tasks that may be asked, a form for a question, and the asker's own answers."""
    return await _page(visit)


@pages.post("/ask", needs=Right.ASK, again=ask, about="query")
async def answer(visit: Visit) -> Response:
    """Ask a question, which counts toward the key's rate limit as over REST, and show the answer first."""
    admitted = await asyncio.to_thread(admit_session, visit.services.records, visit.actor)
    if admitted.rate is not None and (wait_s := admitted.rate.wait_s) is not None:
        visit.status = 429
        visit.problems = {"query": f"This key sends too many requests. Ask again in {lasting(wait_s)}."}
        response = await _page(visit)
        response.headers["Retry-After"] = str(math.ceil(wait_s))
        return response
    chosen = _chosen(visit, await visit.do(tasks.list_))
    if chosen is None or chosen.name != visit.field("task"):
        raise FieldError("query", "choose a task that you may ask")
    query = {name: visit.field(f"query_{name}") for name in chosen.view.query_fields}
    return await _page(visit, await answers.ask(visit.actor, visit.services, chosen.name, query))


async def _page(visit: Visit, answered: AnswerView | None = None) -> Response:
    listed = await visit.do(tasks.list_)
    before = whole(visit.asked("before"), 17)
    own = await visit.do(answers.list_own, before=before, limit=_PER_PAGE + 1)
    return visit.page(
        "ask.html",
        here="ask",
        tasks=listed,
        chosen=_chosen(visit, listed),
        answered=answered,
        own=[(charge, charge.release and ReleaseView.of(charge.release)) for charge in own[:_PER_PAGE]],
        older=own[_PER_PAGE - 1].number if len(own) > _PER_PAGE else None,
        first_page=before is None,
    )


def _chosen(visit: Visit, listed: list[ListedTask]) -> ListedTask | None:
    """The task that the form or the address names, or else the first."""
    wanted = visit.field("task") or visit.asked("task")
    return next((task for task in listed if task.name == wanted), listed[0] if listed else None)
