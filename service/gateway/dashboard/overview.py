"""Every knowledge base and its budget, at a glance; the part that changes refreshes itself."""

from starlette.responses import Response

from service.gateway.dashboard.charts import Chart
from service.gateway.dashboard.pages import Pages, Visit, whole
from service.gateway.dashboard.usage import burn_down
from service.operations import overview as commands
from service.operations.attention import Matter, Step
from service.operations.forecast import RULE
from service.operations.overview import FirstSteps, Summary
from service.operations.roles import Right

pages = Pages()

_PER_PAGE = 4
_STEPS = {
    Step.FIRST_PLAN: ("Write a plan", "/knowledge-bases/{name}/plan"),
    Step.NEXT_PLAN: ("Write the next plan", "/knowledge-bases/{name}/plan?from={version}"),
    Step.NEW_COHORT: ("Open a cohort", "/knowledge-bases/{name}/cohorts"),
    Step.SEE_PLAN: ("See why", "/knowledge-bases/{name}/plans/{version}"),
    Step.NEW_KEY: ("Hand out a key", "/keys"),
}


@pages.get("/", needs=Right.SIGN_IN)
async def overview(visit: Visit) -> Response:
    """The start page: for those who ask their own page, for others what needs attention, then every knowledge base.

    For htmx it is the part that changes.
    """
    if visit.asks:
        return visit.redirect("/ask")
    shown = await visit.do(commands.read)
    summaries = shown.summaries
    pages = max(1, -(-len(summaries) // _PER_PAGE))
    page = min(max(1, whole(visit.asked("page")) or 1), pages)
    return visit.page(
        "overview_live.html" if visit.is_htmx else "overview.html",
        here="overview",
        pressing=shown.pressing,
        next_step=next_step,
        summaries=summaries[(page - 1) * _PER_PAGE : page * _PER_PAGE],
        chart=over_time,
        page=page,
        pages=pages,
        steps=_to_do(await visit.do(commands.first_steps, summaries), summaries) if visit.decides else [],
        key_names=shown.key_names,
        engine=shown.engine,
        trouble=shown.trouble,
        rule=RULE,
        now=shown.at,
    )


def next_step(matter: Matter) -> tuple[str, str]:
    """Words for a matter's next step, and the path of its page."""
    words, path = _STEPS[matter.step]
    return words, path.format(name=matter.knowledge_base, version=matter.version)


def over_time(summary: Summary) -> Chart | None:
    """Chart of a knowledge base's answers left; None: no plan is signed yet."""
    return burn_down(summary.name, summary.courses, summary.at, task_names(summary))


def task_names(summary: Summary) -> list[str]:
    """Names of all tasks of a knowledge base without its own, the oldest plan's first."""
    names = (address.split(".", 1)[1] for address in summary.tasks)
    return sorted(names, key=lambda name: int(name.rpartition("@")[2]))


def _to_do(steps: FirstSteps, summaries: list[Summary]) -> list[tuple[bool, str, str]]:
    """Tuples (whether the step is done, its words, path of its page); empty once all are done."""
    new, home, plan = "/new-knowledge-base", "/new-knowledge-base", "/plans"
    if summaries:
        home, plan = f"/knowledge-bases/{summaries[0].name}", f"/plans?knowledge_base={summaries[0].name}"
    listed = [
        (steps.created, "Create a knowledge base with its lifetime budget", new),
        (steps.ingested, "Upload exemplars", f"{home}/exemplars" if summaries else new),
        (steps.signed, "Sign a plan", plan),
        (steps.key_made, "Hand out an analyst’s key", "/keys"),
        (steps.answered, "See the first answer arrive", home),
    ]
    return [] if all(done for done, _, _ in listed) else listed
