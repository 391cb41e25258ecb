"""Signing in with a key or a provider, signing out, and the choice of light or dark."""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from service.gateway.dashboard import attempt
from service.gateway.dashboard.attempt import SignInRefusedError
from service.gateway.dashboard.forms import check_ours, read_form
from service.gateway.dashboard.pages import COOKIE, SIGN_OUT, THEME, THEMES, VOUCHER, Handler, Pages, Visit
from service.operations.roles import Right
from service.operations.wording import lasting

if TYPE_CHECKING:
    from service.gateway.dashboard.provider import Provider

pages = Pages()

_MAX_BYTES = 4096
_SIGN_IN = "/sign-in"
_CALLBACK = "/sign-in/callback"
_LONGEST_COOKIE = 3800  # browsers drop one whose name, value and attributes exceed 4,096 bytes
# A key has 256 random bits, so this stops no guessing that could succeed; it keeps the attempts from being a load.
_PER_ADDRESS = {"per_minute": 10, "burst": 10}
_OVERALL = {"per_minute": 120, "burst": 60}


def _open_to_all(method: str, path: str) -> Callable[[Handler], Handler]:
    """Declare a page for people who are not signed in; a refusal shows the sign-in page again, with the reason."""

    def add(handler: Handler) -> Handler:
        async def endpoint(request: Request) -> Response:
            visit = Visit(request, None)
            if method == "POST":
                check_ours(request)
                visit.form = await read_form(request, _MAX_BYTES)
            try:
                return await handler(visit)
            except SignInRefusedError as error:
                visit.status, visit.refused = error.status, str(error)
                response = await show(visit)
                if error.wait_s:
                    response.headers["Retry-After"] = str(math.ceil(error.wait_s))
                for name in error.ended:
                    _keep_attempt(visit, response, name, "")
                return response

        pages.routes.append(Route(path, endpoint, methods=[method]))
        return handler

    return add


@_open_to_all("GET", "/sign-in")
async def show(visit: Visit) -> Response:
    """The sign-in page."""
    issuer = visit.services.records.settings.oidc_issuer
    provider = urlsplit(issuer).hostname if issuer else None
    return visit.page("sign_in.html", going=visit.field("next", visit.asked("next")), provider=provider)


@_open_to_all("POST", "/sign-in")
async def sign_in(visit: Visit) -> Response:
    """Exchange a key for a session."""
    await asyncio.to_thread(_check_rate, visit)
    records = visit.services.records
    key = await asyncio.to_thread(records.keys.authenticate, visit.field("key"))
    if key is None:
        raise SignInRefusedError("This key is unknown, was revoked or has expired.", 401)
    token = await asyncio.to_thread(visit.request.app.state.sessions.start, key)
    await asyncio.to_thread(records.rates.forget_idle)
    response = visit.redirect(visit.inside(visit.root + visit.field("next")) or "/")
    visit.keep(response, COOKIE, token)
    return response


@_open_to_all("GET", "/sign-in/provider")
async def to_provider(visit: Visit) -> Response:
    """Send the browser to the provider of the settings."""
    provider = _provider(visit)
    await asyncio.to_thread(_check_rate, visit)
    going = visit.inside(visit.root + visit.asked("next")) or "/"
    address, begun = await provider.begin(_absolute(visit, _CALLBACK), going)
    response = RedirectResponse(address, 303)
    for name in attempt.oldest(visit.request.cookies):
        _keep_attempt(visit, response, name, "")
    _keep_attempt(visit, response, begun.cookie, begun.kept)
    return response


@_open_to_all("GET", _CALLBACK)
async def from_provider(visit: Visit) -> Response:
    """Sign in a person who comes back from the provider."""
    provider, request = _provider(visit), visit.request
    await asyncio.to_thread(_check_rate, visit)
    name, begun = attempt.find(request.cookies, request.query_params.get("state", ""))
    try:
        person, id_token = await provider.person(begun, request.query_params, _absolute(visit, _CALLBACK))
    except SignInRefusedError as error:
        error.ended = [name]
        raise
    token = await asyncio.to_thread(request.app.state.sessions.start, person)
    # Not by a redirect: the provider began this navigation, so the browser would not send the cookie.
    response = visit.page("signed_in.html", going=visit.inside(visit.root + begun.going) or "/")
    visit.keep(response, COOKIE, token)
    if len(id_token) <= _LONGEST_COOKIE:
        visit.keep(response, VOUCHER, id_token, path=visit.url(SIGN_OUT))
    else:  # nor one from before
        response.delete_cookie(VOUCHER, path=visit.url(SIGN_OUT))
    _keep_attempt(visit, response, name, "")
    return response


@_open_to_all("POST", "/theme")
async def theme(visit: Visit) -> Response:
    """Choose light, dark, or the system's theme; kept for a year."""
    response = visit.redirect(visit.inside(visit.field("back")) or "/")
    chosen = visit.field("theme")
    visit.keep(response, THEME, chosen if chosen in THEMES else "auto", 365 * 24 * 3600)
    return response


@pages.post(SIGN_OUT, needs=Right.SIGN_IN)
async def sign_out(visit: Visit) -> Response:
    """End the session; a person who signed in at the provider is signed out there, too, if it offers that."""
    cookies = visit.request.cookies
    await asyncio.to_thread(visit.request.app.state.sessions.end, cookies[COOKIE])
    response, elsewhere = visit.redirect("/sign-in", done="You are signed out."), None
    try:
        if visit.actor.kind == "person":
            elsewhere = await _provider(visit).sign_out_address(cookies.get(VOUCHER), _absolute(visit, "/sign-in"))
    except SignInRefusedError as error:
        problem = f"You are signed out here, and perhaps not at the provider: {error}"
        response = visit.redirect("/sign-in", refused=problem)
    if elsewhere is not None:
        # Not by a redirect: the policy lets no form lead to another site, and redirects count as the form's.
        response = Visit(visit.request, None).page("signed_out.html", elsewhere=elsewhere)
    visit.forget(response)
    return response


def _keep_attempt(visit: Visit, response: Response, name: str, kept: str) -> None:
    """Keep an attempt in a cookie until the provider sends the browser back; empty: delete it."""
    visit.keep(response, name, kept, 600 if kept else 0, path=visit.url(_SIGN_IN), samesite="lax")


def _provider(visit: Visit) -> Provider:
    provider: Provider | None = visit.request.app.state.provider
    if provider is None:
        raise HTTPException(404)
    return provider


def _absolute(visit: Visit, path: str) -> str:
    """An address to which the provider sends the browser back; it knows the right ones, and refuses any other."""
    return visit.origin + visit.url(path)


def _check_rate(visit: Visit) -> None:
    """Check that there were few attempts from this address, and from all addresses.

    Raises:
        SignInRefusedError: there were too many.
    """
    client = visit.request.client
    rates = visit.services.records.rates
    # The address as the service sees it: behind a proxy all share one. A header that names another can be forged.
    mine = rates.take(f"sign-in {_neighbourhood(client.host if client else '?')}", **_PER_ADDRESS)
    if wait_s := mine.wait_s or rates.take("sign-in", **_OVERALL).wait_s:
        raise SignInRefusedError(f"Too many attempts. Try again in {lasting(wait_s)}.", 429, wait_s)


def _neighbourhood(host: str) -> str:
    """Addresses whose attempts count together: in IPv6 a network of 64 bits, of which one machine may have all."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64)
    return str(address)
