"""Bundles that are served, with their publisher's report: answers restored and answers revealed, at equal true ε."""

from collections import defaultdict
from typing import Any

from starlette.responses import Response

from service.gateway.dashboard.charts import STYLES, Axis, Chart, Line, LineChart, Mark
from service.gateway.dashboard.pages import Pages, Visit
from service.operations import restoring as commands
from service.operations.restoring import CONTROLS
from service.operations.roles import Right
from service.operations.wording import figure, percent

pages = Pages()


@pages.get("/bundles", needs=Right.BROWSE)
async def bundles(visit: Visit) -> Response:
    """All bundles."""
    listed = await commands.list_bundles.aside(visit.actor, visit.services.restoring)
    return visit.page("bundles.html", here="bundles", addresses=listed.items)


@pages.get("/bundles/{bundle}", needs=Right.BROWSE)
async def bundle(visit: Visit) -> Response:
    """One bundle, with its report."""
    address = visit.request.path_params["bundle"]
    bundle = await commands.bundle.aside(visit.actor, visit.services.restoring, address)
    report = bundle.manifest.report
    return visit.page(
        "bundle.html",
        here="bundles",
        bundle=bundle,
        controls=[(said, report["controls"][name]) for name, said in CONTROLS.items()] if report else [],
        charts=charts(report) if report else [],
        rows=report.get("rows", {}),
    )


def charts(report: dict[str, Any]) -> list[Chart]:
    """Shares of right answers, and of answers an attacker learns, against true ε, beside texts without a release."""
    controls = report["controls"]
    restored = [Mark("the whole text", y=controls["full"]), Mark("the redacted text", y=controls["redacted"])]
    told = [Mark("the redacted text alone", y=controls["redacted_attacker"])]
    return [
        _against_epsilon("Answers right", "Share of answers that are right.", report["table"], "steered", restored),
        _against_epsilon(
            "Answers that an attacker learns", "Share of answers guessed right.", report["table"], "attacker", told
        ),
    ]


def _against_epsilon(title: str, summary: str, cells: list[dict[str, Any]], quantity: str, marks: list[Mark]) -> Chart:
    curves: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for cell in cells:
        curves[cell["mechanism"]].append((cell["epsilon"], cell[quantity]))
    lines = [Line(name, points, 1 + at % STYLES, at >= STYLES) for at, (name, points) in enumerate(curves.items())]
    epsilons = [cell["epsilon"] for cell in cells]
    low, high = min(epsilons), max(max(epsilons), 1.01 * min(epsilons))
    return LineChart(
        title,
        summary,
        lines,
        Axis("true ε of a question", low, high, log=True, words=figure),
        Axis("share", 0, 1, words=percent),
        marks,
    )
