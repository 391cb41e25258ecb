"""The desk of the plan studio: the draft in the form, computed beside the event loop and kept by its content."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from starlette.responses import Response

from service.gateway.dashboard.computing import Computations
from service.gateway.dashboard.pages import Visit
from service.gateway.dashboard.plan_studio.charts import agreement_chart
from service.operations import plan_drafts
from service.operations.measuring import MeasuredTask
from service.operations.plan_curves import Otherwise
from service.operations.plan_drafts import Draft
from service.operations.starting_plans import KINDS, answer_fields, chosen, needs_public_answers
from service.operations.uploads import FormFile, SentRows

T = TypeVar("T")

HOME = "/knowledge-bases/{name}/plan"
_WAIT_S, _POLL_S = 20.0, 1.0
_computations, _measurements = Computations("calibration"), Computations("measurement", kept=20)


async def open_desk(visit: Visit, *, patiently: bool = False) -> Draft:
    """The draft in the form, computed, for the knowledge base that the address names; without a form an empty draft.

    Waits for the computation; unless ``patiently``, only briefly where the page asks again by itself.
    """
    name = visit.path("name")
    if visit.request.method == "GET":
        return await visit.do(plan_drafts.open_, name)
    written = visit.form.get("text", "")
    text = written.replace("\r\n", "\n") if isinstance(written, str) else ""
    desk = await visit.do(plan_drafts.open_, name, text)
    if desk.computing:
        embed = visit.services.embedder.embed
        computed = await compute(visit, desk.key, lambda: desk.work_out(embed), patiently=patiently)
        if computed is not None:
            await visit.do(plan_drafts.price, desk, computed, visit.services.grains)
    return desk


async def compute(visit: Visit, key: Hashable, job: Callable[[], T], *, patiently: bool = False) -> T | None:
    """The result of a job that takes seconds; None: not computed yet. Waits as :func:`open_desk` does."""
    polls = visit.is_htmx and not patiently
    return await _computations.result(visit.actor.id, key, job, _POLL_S if polls else _WAIT_S, insist=not polls)


async def measured_rows(
    visit: Visit,
    desk: Draft,
    varied: Otherwise,
    file: FormFile,
    *,
    unit_id: str,
    columns: Mapping[str, str],
    reading: SentRows,
) -> list[MeasuredTask] | None:
    """The accuracies of a draft and of proposals for it, as of :func:`service.operations.plan_drafts.measure`.

    None: they are still being measured. One file is measured at a time, in turns with private questions; it is in
    memory until then.
    """
    if desk.outcome is None:
        raise ValueError("the plan is not computed")
    trials, loop = visit.services.trials, asyncio.get_running_loop()
    how = json.dumps([file.name, file.encoding, unit_id, dict(columns), reading.model_dump(mode="json")])
    read = hashlib.sha256(how.encode() + b"\0" + file.content).hexdigest()

    def measure() -> list[MeasuredTask]:
        work = plan_drafts.measure(
            visit.actor,
            trials,
            desk,
            varied.proposals,
            file=file,
            unit_id=unit_id,
            columns=columns,
            reading=reading,
        )
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    key = ("measured", desk.outcome.calibrated.digest, read)
    polls = visit.is_htmx
    return await _measurements.result(visit.actor.id, key, measure, _POLL_S if polls else _WAIT_S, insist=not polls)


async def studio(visit: Visit, desk: Draft, **context: Any) -> Response:
    """The whole page."""
    if desk.problems:
        visit.status = 422
    choices = chosen(visit.request.query_params)
    return part(
        visit,
        "plan_studio.html",
        desk,
        choices=choices,
        kinds=KINDS,
        guesses=_guesses(desk),
        needs_public_answers=needs_public_answers(desk.engine),
        **context,
    )


def _guesses(desk: Draft) -> dict[str, Any]:
    """The fields that may hold an answer, and the likeliest for each kind of answer."""
    labels, texts = (answer_fields(desk.described, is_label=is_label) or ["label"] for is_label in (True, False))
    return {"fields": labels, "label": labels[0], "text": texts[0]}


def part(visit: Visit, template: str, desk: Draft, **context: Any) -> Response:
    """The page, or a part of it."""
    return visit.page(template, here="plans", desk=desk, agreement_chart=agreement_chart, **context)
