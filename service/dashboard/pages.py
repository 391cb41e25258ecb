"""What every page shares: its routes, who looks at it, and answers with a message.

A page is a file with ``pages = Pages()`` and functions that take a :class:`Visit`. Anybody not signed in never
reaches one, and neither does a form that was not sent from our own page by the one who is signed in. A page is for
admins alone unless it says which lesser right it needs.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any, Literal, TypeVar, get_args, get_origin
from urllib.parse import quote, unquote, urlencode, urlsplit

from pydantic import BaseModel
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from service.bodies import streams_body
from service.commands.command import Confirmation
from service.dashboard.forms import MAX_FORM_BYTES, FormError, read_form
from service.dashboard.security import from_our_page, is_https
from service.dashboard.templating import render
from service.records.roles import Actor, Right, may, why_not
from service.records.sessions import Session, Sessions
from service.services import Services

M = TypeVar("M", bound=BaseModel)

COOKIE = "dpicl_session"
ATTEMPT = "dpicl_sign_in"
VOUCHER = "dpicl_id_token"
_LONGEST_COOKIE = 3800  # browsers drop one whose name, value and attributes exceed 4,096 bytes
_NOTICE = "dpicl_notice"
_THEME = "dpicl_theme"
THEMES = ("auto", "light", "dark")
SIGN_OUT = "/sign-out"


class _Number(IntegerConvertor):
    """Of a plan or a cohort: few enough digits for a database's integer."""

    regex = "[0-9]{1,9}"


register_url_convertor("number", _Number())


class Visit:
    """One request, of somebody who is signed in (``session``), or on the sign-in page (None).

    Attributes:
        request: as it came.
        session: who is signed in.
        form: of a POST, checked to come from our page.
    """

    def __init__(self, request: Request, session: Session | None, form: FormData | None = None):
        self.request = request
        self._session = session
        self.form = form or FormData()

    @property
    def services(self) -> Services:
        """The services the application was built with."""
        services: Services = self.request.app.state.services
        return services

    @property
    def session(self) -> Session:
        """Who is signed in."""
        if self._session is None:
            raise LookupError("nobody is signed in here")
        return self._session

    @property
    def actor(self) -> Actor:
        """Whoever is signed in."""
        return self.session.actor

    @property
    def signed_in(self) -> Session | None:
        """The session, if there is one."""
        return self._session

    @property
    def decides(self) -> bool:
        """Whether the signed-in person may change things; what changes something is left out for others."""
        return self._may(Right.DECIDE)

    @property
    def audits(self) -> bool:
        """Whether the signed-in person may read the audit trail and the releases."""
        return self._may(Right.AUDIT)

    def _may(self, right: Right) -> bool:
        return self._session is not None and may(self._session.role, right)

    @property
    def is_htmx(self) -> bool:
        """Whether htmx asks, for a part of a page."""
        return self.request.headers.get("hx-request") == "true"

    @cached_property
    def root(self) -> str:
        """Where the dashboard is mounted, without the final slash."""
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    @property
    def origin(self) -> str:
        """Scheme and host of our addresses, as the browser has them."""
        return f"{'https' if is_https(self.request) else 'http'}://{self.request.url.netloc}"

    def url(self, path: str, **query: Any) -> str:
        """The address of a page of the dashboard.

        Args:
            path: such as ``/keys``; quote names in it with :func:`urllib.parse.quote`.
            query: what follows the question mark; None is left out.
        """
        given = {name: value for name, value in query.items() if value is not None}
        return f"{self.root}{path}" + (f"?{urlencode(given)}" if given else "")

    def field(self, name: str) -> str:
        """A field of the form, without white space around it; empty where there is none."""
        value = self.form.get(name, "")
        return value.strip() if isinstance(value, str) else ""

    def fields(self, name: str) -> list[str]:
        """All values of a field that may be repeated."""
        return [value for value in self.form.getlist(name) if isinstance(value, str)]

    def read(self, model: type[M]) -> M:
        """The form as an input. An empty field is left out, or null where it must be said; a list has commas or spaces.

        Raises:
            pydantic.ValidationError: it is none; :func:`service.commands.fields.problems` says why.
        """
        given: dict[str, Any] = {}
        for name, field in model.model_fields.items():
            if not (text := self.field(name)):
                if field.is_required() and type(None) in get_args(field.annotation):
                    given[name] = None
            elif get_origin(field.annotation) is list:
                given[name] = text.replace(",", " ").split()
            else:
                given[name] = text if field.annotation is str else text.replace(",", "")
        return model.model_validate(given, strict=False)

    def given(self, model: type[BaseModel]) -> dict[str, str]:
        """What the form has for the fields of an input, to be shown again."""
        return {name: self.field(name) for name in model.model_fields}

    @property
    def confirmed(self) -> set[Confirmation]:
        """What the form confirms."""
        return {confirmation for confirmation in Confirmation if confirmation in self.fields("confirm")}

    def file(self, name: str) -> UploadFile | None:
        """A file of the form, or None where none was chosen."""
        value = self.form.get(name)
        return value if isinstance(value, UploadFile) and value.filename else None

    @property
    def theme(self) -> str:
        """What was chosen: auto, light or dark."""
        theme = self.request.cookies.get(_THEME, "auto")
        return theme if theme in THEMES else "auto"

    @cached_property
    def notice(self) -> tuple[str, str] | None:
        """What came of the form sent before: ("done" or "refused", sentence)."""
        kind, _, sentence = unquote(self.request.cookies.get(_NOTICE, "")).partition(":")
        return (kind, sentence) if kind in ("done", "refused") and sentence else None

    def page(self, template: str, status: int = 200, **context: Any) -> Response:
        """Render a template (or a part of a page, for htmx)."""
        response = HTMLResponse(render(template, visit=self, url=self.url, **context), status)
        if self.notice and not self.is_htmx:
            response.delete_cookie(_NOTICE, path=self.root or "/")
        return response

    def redirect(self, path: str, *, done: str | None = None, refused: str | None = None) -> Response:
        """Send the browser to a page (by GET), which shows a sentence on what came of it."""
        response = RedirectResponse(self.url(path), 303)
        if sentence := done or refused:
            # A cookie and not the address, so that nobody can word a notice by sending a link.
            self._cookie(response, _NOTICE, quote(f"{'done' if done else 'refused'}:{sentence}"), 60)
        return response

    def choose_theme(self, response: Response, theme: str) -> None:
        """Keep how the pages look, for a year."""
        self._cookie(response, _THEME, theme if theme in THEMES else "auto", 365 * 24 * 3600)

    def sign_in(self, response: Response, token: str) -> None:
        """Hand out a session's cookie; it goes when the browser is closed, if not sooner."""
        self._cookie(response, COOKIE, token, None)

    def begin(self, response: Response, path: str, attempt: str) -> None:
        """Keep what a sign-in that was begun must be finished with, until the provider sends the browser back.

        Args:
            response: that sends it there.
            path: where it comes back to.
            attempt: anything; an empty one takes back what was kept.
        """
        self._cookie(response, ATTEMPT, attempt, 600 if attempt else 0, path=self.url(path), samesite="lax")

    def keep_id_token(self, response: Response, id_token: str) -> None:
        """Keep a provider's ID token where the browser signs out, and only there. One too long for that is not kept."""
        if len(id_token) <= _LONGEST_COOKIE:
            self._cookie(response, VOUCHER, id_token, None, path=self.url(SIGN_OUT))
        else:  # nor one from before
            response.delete_cookie(VOUCHER, path=self.url(SIGN_OUT))

    def forget(self, response: Response) -> None:
        """Take back the cookies of the session."""
        response.delete_cookie(COOKIE, path=self.root or "/")
        response.delete_cookie(VOUCHER, path=self.url(SIGN_OUT))

    def _cookie(
        self,
        response: Response,
        name: str,
        value: str,
        max_age: int | None,
        *,
        path: str | None = None,
        samesite: Literal["lax", "strict"] = "strict",
    ) -> None:
        response.set_cookie(
            name,
            value,
            max_age=max_age,
            path=path or self.root or "/",
            secure=is_https(self.request),
            httponly=True,
            samesite=samesite,
        )

    def inside(self, address: str) -> str | None:
        """The path within the dashboard that an address of it leads to, with its query; None for any other address."""
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or "\\" in address or not parts.path.startswith(f"{self.root}/"):
            return None
        return parts.path.removeprefix(self.root) + (f"?{parts.query}" if parts.query else "")


Handler = Callable[[Visit], Awaitable[Response]]


class Pages:
    """Routes of a page.

    Attributes:
        routes: for the application, in the order they were added.
    """

    def __init__(self) -> None:
        self.routes: list[Route] = []

    def get(self, path: str, *, needs: Right = Right.DECIDE) -> Callable[[Handler], Handler]:
        """A page.

        Args:
            path: where it is.
            needs: what the signed-in person must be able to do.
        """

        def add(handler: Handler) -> Handler:
            async def endpoint(request: Request) -> Response:
                session = await _session(request)
                if session is None:
                    return _to_sign_in(request)
                if not may(session.role, needs):
                    return _not_for(request, session, needs)
                return await handler(Visit(request, session))

            self.routes.append(Route(path, endpoint, methods=["GET"]))
            return handler

        return add

    def post(
        self,
        path: str,
        *,
        needs: Right = Right.DECIDE,
        max_bytes: int | Callable[[Services], int] = MAX_FORM_BYTES,
        streams: bool = False,
    ) -> Callable[[Handler], Handler]:
        """What a form does, for somebody signed in who sent it from our page.

        Args:
            path: where it is sent.
            needs: what the signed-in person must be able to do.
            max_bytes: largest body.
            streams: whether it may be larger than the gate in front of the application lets in.
        """

        def add(handler: Handler) -> Handler:
            async def endpoint(request: Request) -> Response:
                refused = Visit(request, None)
                if not from_our_page(request):
                    return _stranger(refused)
                session = await _session(request)
                if session is None:
                    return _to_sign_in(request)
                if not may(session.role, needs):
                    return _not_for(request, session, needs)
                limit = max_bytes(refused.services) if callable(max_bytes) else max_bytes
                try:
                    visit = Visit(request, session, await read_form(request, limit))
                except FormError as error:
                    return Visit(request, session).page("error.html", 413, title="Not taken", detail=str(error))
                if not hmac.compare_digest(visit.field("csrf").encode(), session.csrf.encode()):
                    return _stranger(visit)
                return await handler(visit)

            self.routes.append(Route(path, streams_body(endpoint) if streams else endpoint, methods=["POST"]))
            return handler

        return add


async def _session(request: Request) -> Session | None:
    token = request.cookies.get(COOKIE)
    if not token:
        return None
    sessions: Sessions = request.app.state.sessions
    return await asyncio.to_thread(sessions.find, token)


def _stranger(visit: Visit) -> Response:
    return visit.page(
        "error.html",
        403,
        title="Not from this page",
        detail="This form does not come from your open dashboard, so nothing was done. "
        "Go to the page and send it again.",
    )


def _not_for(request: Request, session: Session, needs: Right) -> Response:
    sentence = why_not(session.role, needs)
    return Visit(request, session).page(
        "error.html", 403, title="Not for your role", detail=f"{sentence[0].upper()}{sentence[1:]}. Nothing was done."
    )


def _to_sign_in(request: Request) -> Response:
    """To the sign-in page, and back to where the browser was: for a form, to the page that had it."""
    visit = Visit(request, None)
    if request.method == "GET" and not visit.is_htmx:
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    else:
        page = urlsplit(request.headers.get("hx-current-url") or request.headers.get("referer", ""))
        target = page.path + (f"?{page.query}" if page.query else "")
    ended = COOKIE in request.cookies
    if request.method == "POST":
        sentence = "Your session has ended, and nothing was done. Sign in, then send the form again."
    else:
        sentence = "Your session has ended. Sign in to continue."
    back = visit.inside(target)
    path = "/sign-in" + (f"?{urlencode({'next': back})}" if back and back != "/" else "")
    response = visit.redirect(path, refused=sentence if ended else None)
    if visit.is_htmx:  # which would follow a redirect and put the sign-in page into a corner of this one
        cookies = [value for name, value in response.raw_headers if name == b"set-cookie"]
        response = Response(status_code=204, headers={"HX-Redirect": visit.url(path)})
        response.raw_headers.extend((b"set-cookie", value) for value in cookies)
    return response
