"""Signing in with a key or a provider, signing out, and how the pages look."""

from __future__ import annotations

import asyncio
import ipaddress
import math
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from service.dashboard.attempts import Attempt, SignInRefusedError
from service.dashboard.forms import FormError, read_form
from service.dashboard.pages import ATTEMPT, COOKIE, SIGN_OUT, VOUCHER, Pages, Visit
from service.dashboard.security import from_our_page
from service.records.roles import Right, may
from service.wording import lasting

if TYPE_CHECKING:
    from service.dashboard.provider import Provider

pages = Pages()

_MAX_BYTES = 4096
_CALLBACK = "/sign-in/callback"
# A key has 256 random bits, so this stops no guessing that could succeed; it keeps the attempts from being a load.
_PER_ADDRESS = {"per_minute": 10, "burst": 10}
_OVERALL = {"per_minute": 120, "burst": 60}


async def show(request: Request) -> Response:
    """The sign-in page."""
    return _show(Visit(request, None), request.query_params.get("next", ""))


async def sign_in(request: Request) -> Response:
    """Exchange a key for a session."""
    visit = await _sent(request)
    if isinstance(visit, Response):
        return visit
    going = visit.field("next")
    if wait_s := await asyncio.to_thread(_too_soon, visit):
        return _show(visit, going, 429, f"Too many attempts. Try again in {lasting(wait_s)}.", wait_s)
    key = await asyncio.to_thread(visit.services.records.keys.authenticate, visit.field("key"))
    if key is None:
        return _show(visit, going, 401, "This key is unknown, was revoked or has expired.")
    if not may(key.role, Right.BROWSE):
        return _show(
            visit,
            going,
            403,
            f"“{key.name}” is an analyst’s key: it asks questions over the API. The dashboard is for the keys of "
            "admins, auditors and viewers, which cannot ask.",
        )
    token = await asyncio.to_thread(request.app.state.sessions.start, key)
    await asyncio.to_thread(visit.services.records.rates.forget_idle)
    response = visit.redirect(visit.inside(visit.root + going) or "/")
    visit.sign_in(response, token)
    return response


async def to_provider(request: Request) -> Response:
    """Send the browser to the provider of the settings."""
    visit, provider = Visit(request, None), _provider(request)
    going = visit.inside(visit.root + request.query_params.get("next", "")) or "/"
    if wait_s := await asyncio.to_thread(_too_soon, visit):
        return _show(visit, going, 429, f"Too many attempts. Try again in {lasting(wait_s)}.", wait_s)
    try:
        address, attempt = await provider.begin(_callback(visit), going)
    except SignInRefusedError as error:
        return _show(visit, going, error.status, str(error))
    response = RedirectResponse(address, 303)
    visit.begin(response, _CALLBACK, attempt.kept)
    return response


async def from_provider(request: Request) -> Response:
    """Sign in the person who comes back from the provider with its word for it."""
    visit, provider = Visit(request, None), _provider(request)
    if wait_s := await asyncio.to_thread(_too_soon, visit):
        return _show(visit, "", 429, f"Too many attempts. Try again in {lasting(wait_s)}.", wait_s)
    try:
        attempt = Attempt.read(request.cookies.get(ATTEMPT, ""))
        person, id_token = await provider.person(attempt, request.query_params, _callback(visit))
    except SignInRefusedError as error:
        response = _show(visit, "", error.status, str(error))
    else:
        token = await asyncio.to_thread(request.app.state.sessions.start, person)
        # Not by a redirect: the provider began this navigation, so the browser would keep the cookie back.
        response = visit.page("signed_in.html", going=visit.inside(visit.root + attempt.going) or "/")
        visit.sign_in(response, token)
        visit.keep_id_token(response, id_token)
    visit.begin(response, _CALLBACK, "")
    return response


async def theme(request: Request) -> Response:
    """Choose light or dark, or what the system has."""
    visit = await _sent(request)
    if isinstance(visit, Response):
        return visit
    response = visit.redirect(visit.inside(visit.field("back")) or "/")
    visit.choose_theme(response, visit.field("theme"))
    return response


@pages.post(SIGN_OUT, needs=Right.BROWSE, max_bytes=_MAX_BYTES)
async def sign_out(visit: Visit) -> Response:
    """End the session; of somebody who came from the provider, there too if it lets people sign out."""
    await asyncio.to_thread(visit.request.app.state.sessions.end, visit.request.cookies[COOKIE])
    response = visit.redirect("/sign-in", done="You are signed out.")
    if visit.session.issuer is not None:
        try:
            elsewhere = await _provider(visit.request).sign_out_address(
                visit.request.cookies.get(VOUCHER), _absolute(visit, "/sign-in")
            )
        except SignInRefusedError as error:
            problem = f"You are signed out here, and perhaps not at the provider: {error}"
            response = visit.redirect("/sign-in", refused=problem)
        else:
            if elsewhere is not None:
                # Not by a redirect: the policy lets no form lead to another site, and redirects count as the form's.
                response = Visit(visit.request, None).page("signed_out.html", elsewhere=elsewhere)
    visit.forget(response)
    return response


pages.routes += [
    Route("/sign-in", show, methods=["GET"]),
    Route("/sign-in", sign_in, methods=["POST"]),
    Route("/sign-in/provider", to_provider, methods=["GET"]),
    Route(_CALLBACK, from_provider, methods=["GET"]),
    Route("/theme", theme, methods=["POST"]),
]


async def _sent(request: Request) -> Visit | Response:
    """A form of somebody who need not be signed in, if it comes from our page."""
    visit = Visit(request, None)
    if not from_our_page(request):
        return visit.page("error.html", 403, title="Not from this page", detail="Open the dashboard and try again.")
    try:
        return Visit(request, None, await read_form(request, _MAX_BYTES))
    except FormError as error:
        return visit.page("error.html", 413, title="Not taken", detail=str(error))


def _provider(request: Request) -> Provider:
    provider: Provider | None = request.app.state.provider
    if provider is None:
        raise HTTPException(404)
    return provider


def _callback(visit: Visit) -> str:
    """The address that the provider sends the browser back to; it knows the right one, and refuses any other."""
    return _absolute(visit, _CALLBACK)


def _absolute(visit: Visit, path: str) -> str:
    return visit.origin + visit.url(path)


def _too_soon(visit: Visit) -> float | None:
    """Seconds to wait, after too many attempts from this address or from all."""
    client = visit.request.client
    rates = visit.services.records.rates
    # The address as the service sees it: behind a proxy all share one. A header that names another can be forged.
    mine = rates.take(f"sign-in {_neighbourhood(client.host if client else '?')}", **_PER_ADDRESS)
    return mine.wait_s or rates.take("sign-in", **_OVERALL).wait_s


def _neighbourhood(host: str) -> str:
    """Whose attempts count as one's: of IPv6 a network of 64 bits, since one machine may have all of its addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64)
    return str(address)


def _show(
    visit: Visit, going: str, status: int = 200, problem: str | None = None, retry_after_s: float | None = None
) -> Response:
    issuer = visit.services.records.settings.oidc_issuer
    provider = urlsplit(issuer).hostname if issuer else None
    response = visit.page("sign_in.html", status, going=going, problem=problem, provider=provider)
    if retry_after_s is not None:
        response.headers["Retry-After"] = str(math.ceil(retry_after_s))
    return response
