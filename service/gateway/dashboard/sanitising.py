"""A sentence sanitised at a chosen ε: the chances of its words, and of an attacker. Nothing is stored."""

from starlette.responses import Response

from service.gateway.dashboard.pages import Pages, Visit
from service.operations.fields import read_number
from service.operations.sanitising_preview import LARGEST, LEAST, STEP, choices, show

pages = Pages()

MOST_CHARACTERS = 1000
_EXAMPLE = "My landlord in Boston keeps the deposit of 1,250 dollars."


@pages.get("/sanitising")
@pages.post("/sanitising")
async def sanitising(visit: Visit) -> Response:
    """The page, with an example or another sentence; htmx gets the part that shows the result."""
    sanitizers, text = visit.services.sanitizers, visit.field("text", _EXAMPLE)
    epsilon = 8.0
    try:
        epsilon = read_number(visit.field("epsilon") or "8")
        if not LEAST <= epsilon <= LARGEST:
            raise ValueError(f"ε is from {LEAST} to {LARGEST:g} here")
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"the sentence has {len(text)} characters, and at most {MOST_CHARACTERS} are shown here")
    except ValueError as error:
        visit.refused = str(error)
    offered = choices(sanitizers)
    keep = [name for name in offered.keepable if name in visit.fields("keep")] if visit.form else offered.kept
    mechanism = visit.field("mechanism")
    if mechanism not in offered.mechanisms:
        mechanism = offered.usual
    shown = None
    with visit.refusals():
        if not visit.refused:
            shown = await show(visit.actor, visit.services.answering, sanitizers, text, epsilon, mechanism, keep)
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
