"""A sentence sanitised at a chosen ε: the chances of its words, and of an attacker. Nothing is stored."""

from starlette.responses import Response

from service.gateway.dashboard.pages import Pages, Visit
from service.operations.sanitising_preview import LARGEST, LEAST, STEP, choices, show

pages = Pages()

MOST_CHARACTERS = 1000
_EXAMPLE = "My landlord in Boston keeps the deposit of 1,250 dollars."


@pages.get("/sanitising")
@pages.post("/sanitising")
async def sanitising(visit: Visit) -> Response:
    """The page, with an example or another sentence; htmx gets the part that shows the result."""
    sanitizers, text = visit.services.sanitizers, visit.field("text", _EXAMPLE)[:MOST_CHARACTERS]
    try:
        epsilon = min(max(LEAST, float(visit.field("epsilon"))), LARGEST)  # in this order, NaN becomes the least
    except ValueError:
        epsilon = 8.0
    offered = choices(sanitizers)
    keep = [name for name in offered.keepable if name in visit.fields("keep")] if visit.form else offered.kept
    mechanism = visit.field("mechanism")
    if mechanism not in offered.mechanisms:
        mechanism = offered.usual
    shown = None
    with visit.refusals():
        shown = await show.aside(visit.actor, sanitizers, text, epsilon, mechanism, keep)
    return visit.page(
        "sanitising_shown.html" if visit.is_htmx else "sanitising.html",
        200,
        here="sanitising",
        text=text,
        epsilon=epsilon,
        mechanism=mechanism,
        keep=keep,
        mechanisms=offered.mechanisms,
        whole=offered.whole,
        keepable=offered.keepable,
        limits=(LEAST, LARGEST, STEP),
        most=MOST_CHARACTERS,
        shown=shown,
    )
