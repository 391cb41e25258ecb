"""Common parts of all pages: routes, visits, and results of forms.

A page is a file with ``pages = Pages()`` and functions that take a :class:`Visit`. They are called only for people who
are signed in, and for forms that the signed-in person sent from our own page. A page is for admins alone unless it
declares another right.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin
from urllib.parse import quote, unquote, urlencode, urlsplit

from pydantic import BaseModel, ValidationError
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from service.gateway.bodies import streams_body
from service.gateway.dashboard.forms import MAX_FORM_BYTES, NOT_OURS, FormError, check_ours, read_form
from service.gateway.dashboard.security import is_https
from service.gateway.dashboard.templating import render
from service.operations.command import Confirmation, OnRecords, UnconfirmedError
from service.operations.fields import problems, read_as, sentence
from service.operations.refusals import REFUSALS, kind_of
from service.operations.roles import Actor, Right, may
from service.operations.services import Services
from service.operations.sessions import Session

M = TypeVar("M", bound=BaseModel)
P = ParamSpec("P")
T = TypeVar("T")

COOKIE = "dpicl_session"
VOUCHER = "dpicl_id_token"
SIGN_OUT = "/sign-out"
THEME = "dpicl_theme"
THEMES = ("auto", "light", "dark")
_NOTICE = "dpicl_notice"


class _Number(IntegerConvertor):
    """Number of a plan or a cohort, with few enough digits for a database's integer."""

    regex = "[0-9]{1,9}"


register_url_convertor("number", _Number())


class NotSignedInError(Exception):
    """There is no session, or it has ended."""


class WrongFieldsError(ValueError):
    """Nothing was done.

    Attributes:
        problems: problems, a sentence for each field.
    """

    def __init__(self, problems: dict[str, str]):
        super().__init__(" ".join(problems.values()))
        self.problems = problems


class Visit:
    """One request of a visitor.

    Attributes:
        request: the request.
        signed_in: the visitor's session; None: on the sign-in page.
        form: form of a POST, checked to come from our page.
        problems: problems of the form's fields, a sentence each.
        doubts: reasons to ask for a confirmation, a sentence each.
        unconfirmed: the refusal that has these doubts; None: there are none.
        refused: reason why nothing was done, for the form as a whole; a sentence without its full stop.
        status: HTTP status of the page that shows them.
    """

    def __init__(self, request: Request, session: Session | None):
        self.request = request
        self.form = FormData()
        self.problems: dict[str, str] = {}
        self.doubts: Sequence[str] = ()
        self.unconfirmed: UnconfirmedError | None = None
        self.refused = ""
        self.status = 200
        self.signed_in = session

    @property
    def services(self) -> Services:
        """The services that the application was built with."""
        return self.request.app.state.services

    @property
    def session(self) -> Session:
        """The visitor's session.

        Raises:
            LookupError: the visitor is not signed in.
        """
        if self.signed_in is None:
            raise LookupError("the visitor is not signed in")
        return self.signed_in

    @property
    def actor(self) -> Actor:
        """The actor who is signed in."""
        return self.session.actor

    async def do(self, command: OnRecords[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do a command on the services' records, as :meth:`service.operations.command.Command.aside` does."""
        return await command.aside(self.actor, self.services.records, *args, **kwargs)

    @property
    def decides(self) -> bool:
        """Whether the signed-in person may change things; forms that change something are left out for others."""
        return self._may(Right.DECIDE)

    @property
    def asks(self) -> bool:
        """Whether the signed-in person asks questions; others see budgets."""
        return self._may(Right.ASK)

    @property
    def audits(self) -> bool:
        """Whether the signed-in person may read the audit trail and the releases."""
        return self._may(Right.AUDIT)

    def _may(self, right: Right) -> bool:
        return self.signed_in is not None and may(self.signed_in.actor.role, right)

    @property
    def is_htmx(self) -> bool:
        """Whether htmx asks, for a part of a page."""
        return self.request.headers.get("hx-request") == "true"

    @cached_property
    def root(self) -> str:
        """The path at which the dashboard is mounted, without the final slash."""
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    @property
    def origin(self) -> str:
        """Scheme and host of our addresses, as the browser has them."""
        return f"{'https' if is_https(self.request) else 'http'}://{self.request.url.netloc}"

    def path(self, name: str) -> Any:
        """A part of the address, as its route names it."""
        return self.request.path_params[name]

    def url(self, path: str, **query: Any) -> str:
        """The address of a page of the dashboard.

        Args:
            path: path in the dashboard, such as ``/keys``; quote names in it with :func:`urllib.parse.quote`.
            query: parameters after the question mark; None is left out.
        """
        given = {name: value for name, value in query.items() if value is not None}
        return f"{self.root}{path}" + (f"?{urlencode(given)}" if given else "")

    def asked(self, name: str) -> str:
        """A parameter after the question mark of the address; empty if it is absent."""
        return self.request.query_params.get(name, "")

    def field(self, name: str, default: str = "") -> str:
        """A field of the form, without white space around it; ``default`` where the form has none.

        Forms are sent with CR LF for every line break.
        """
        value = self.form.get(name, default)
        return value.strip().replace("\r\n", "\n") if isinstance(value, str) else ""

    def fields(self, name: str) -> list[str]:
        """All values of a field that may be repeated."""
        return [value for value in self.form.getlist(name) if isinstance(value, str)]

    def read(self, model: type[M], **given: Any) -> M:
        """Read the form as an input. Empty fields are left out, or null if required; commas or spaces part a list.

        A number is read as :func:`accounting.plans.written_numbers.read_number` does.

        Args:
            model: model of the input.
            given: values of fields that the form writes in another way.

        Raises:
            WrongFieldsError: the form is not such an input.
        """
        unread: dict[str, str] = {}
        for name, field in model.model_fields.items():
            if name in given:
                continue
            if not (text := self.field(name)):
                if field.is_required() and type(None) in get_args(field.annotation):
                    given[name] = None
            elif get_origin(field.annotation) is list:
                given[name] = text.replace(",", " ").split()
            else:
                try:
                    given[name] = read_as(field.annotation, text)
                except ValueError as error:
                    unread[name] = sentence(str(error))
        try:
            read = model.model_validate(given, strict=False)
        except ValidationError as error:
            raise WrongFieldsError(problems(error, model) | unread) from None
        if unread:
            raise WrongFieldsError(unread)
        return read

    @contextmanager
    def refusals(self, about: str = "") -> Iterator[None]:
        """Note refusals raised within the block, for a page that shows the form again.

        Args:
            about: field to which a refusal without a field belongs; empty: the form as a whole.
        """
        try:
            yield
        except UnconfirmedError as error:
            self.status, self.doubts, self.unconfirmed = 422, error.doubts, error
        except WrongFieldsError as error:
            self.status, self.problems = 422, error.problems
        except REFUSALS as error:
            self.status = kind_of(error).status
            if field := getattr(error, "field", None) or about:
                self.problems = {field: sentence(getattr(error, "why", str(error)))}
            else:
                self.refused = str(error).removesuffix(".")

    @property
    def confirmed(self) -> set[Confirmation]:
        """The confirmations of a form whose other fields name what was shown, such as a plan's digest."""
        return {confirmation for confirmation in Confirmation if confirmation in self.fields("confirm")}

    @property
    def seen(self) -> set[str]:
        """The confirmations of the figures that were shown: each is for them, and for no others."""
        return {token for token in self.fields("confirm") if ":" in token}

    @property
    def entries(self) -> list[tuple[str, str]]:
        """The fields of the form, to send it again."""
        return [
            (name, value)
            for name, value in self.form.multi_items()
            if isinstance(value, str) and name not in ("csrf", "change")
        ]

    @property
    def theme(self) -> str:
        """The chosen theme: auto, light or dark."""
        theme = self.request.cookies.get(THEME, "auto")
        return theme if theme in THEMES else "auto"

    @cached_property
    def notice(self) -> tuple[str, str] | None:
        """Result of the form sent before: ("done" or "refused", sentence)."""
        kind, _, sentence = unquote(self.request.cookies.get(_NOTICE, "")).partition(":")
        return (kind, sentence) if kind in ("done", "refused") and sentence else None

    def page(self, template: str, status: int | None = None, **context: Any) -> Response:
        """Render a template. A part of a page, for htmx, always has the status 200, or htmx would not show it."""
        status = status or (200 if self.is_htmx else self.status)
        response = HTMLResponse(render(template, visit=self, url=self.url, **context), status)
        if self.notice and not self.is_htmx:
            response.delete_cookie(_NOTICE, path=self.root or "/")
        return response

    def redirect(self, path: str, *, done: str | None = None, refused: str | None = None) -> Response:
        """Send the browser to a page (by GET), which shows the result of the form in a sentence."""
        response = RedirectResponse(self.url(path), 303)
        if sentence := done or refused:
            # A cookie and not the address, so that an attacker cannot word a notice by sending a link.
            self.keep(response, _NOTICE, quote(f"{'done' if done else 'refused'}:{sentence}"), 60)
        return response

    def keep(
        self,
        response: Response,
        name: str,
        value: str,
        max_age: int | None = None,
        *,
        path: str | None = None,
        samesite: Literal["lax", "strict"] = "strict",
    ) -> None:
        """Set a cookie, which the browser keeps for ``max_age`` seconds, or until it is closed."""
        response.set_cookie(
            name,
            value,
            max_age=max_age,
            path=path or self.root or "/",
            secure=is_https(self.request),
            httponly=True,
            samesite=samesite,
        )

    def forget(self, response: Response) -> None:
        """Delete the cookies of the session."""
        response.delete_cookie(COOKIE, path=self.root or "/")
        response.delete_cookie(VOUCHER, path=self.url(SIGN_OUT))

    def inside(self, address: str) -> str | None:
        """The path in the dashboard that an address leads to, with its query; None: it leads elsewhere."""
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or "\\" in address or not parts.path.startswith(f"{self.root}/"):
            return None
        return parts.path.removeprefix(self.root) + (f"?{parts.query}" if parts.query else "")


def whole(written: str, digits: int = 9) -> int | None:
    """A whole number as written; None: it is not one, or too long for a database's integer."""
    return int(written) if written.isascii() and written.isdigit() and len(written) <= digits else None


Handler = Callable[[Visit], Awaitable[Response]]


class Pages:
    """Routes of a page.

    Attributes:
        routes: routes for the application, in the order in which they were added.
    """

    def __init__(self) -> None:
        self.routes: list[Route] = []

    def get(self, path: str, *, needs: Right = Right.DECIDE) -> Callable[[Handler], Handler]:
        """Declare a page.

        Args:
            path: path of the page.
            needs: right that the signed-in person needs.
        """

        def add(handler: Handler) -> Handler:
            async def endpoint(request: Request) -> Response:
                return await handler(Visit(request, await _session(request, needs)))

            self.routes.append(Route(path, endpoint, methods=["GET"]))
            return handler

        return add

    def post(
        self,
        path: str,
        *,
        needs: Right = Right.DECIDE,
        again: Handler | None = None,
        about: str = "",
        uploads: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Declare the handler of a form, which the signed-in person sent from our page.

        Args:
            path: path that the form is sent to.
            needs: right that the signed-in person needs.
            again: page that shows the form again, with its problems; None: errors are raised. What must be confirmed is
                shown on a page of its own, with its figures, and sent again from there.
            about: field to which a refusal without a field belongs, as in :meth:`Visit.refusals`.
            uploads: whether it brings a file, and may be larger than the gate in front of the application admits.
        """

        def add(handler: Handler) -> Handler:
            async def endpoint(request: Request) -> Response:
                check_ours(request)
                session = await _session(request, needs)
                visit = Visit(request, session)
                file_bytes = visit.services.records.settings.max_upload_bytes if uploads else 0
                visit.form = await read_form(request, MAX_FORM_BYTES + file_bytes)
                if not await asyncio.to_thread(request.app.state.sessions.takes_form, session, visit.field("csrf")):
                    raise FormError(NOT_OURS, 403)
                if again is None:
                    return await handler(visit)
                if visit.field("change"):
                    return await again(visit)
                with visit.refusals(about):
                    return await handler(visit)
                if visit.unconfirmed is not None:
                    return visit.page("confirm.html", unconfirmed=visit.unconfirmed)
                return await again(visit)

            self.routes.append(Route(path, streams_body(endpoint) if uploads else endpoint, methods=["POST"]))
            return handler

        return add


async def _session(request: Request, needs: Right) -> Session:
    token = request.cookies.get(COOKIE)
    session: Session | None = await asyncio.to_thread(request.app.state.sessions.find, token) if token else None
    if session is None:
        raise NotSignedInError
    request.state.session = session
    session.actor.require(needs)
    return session
