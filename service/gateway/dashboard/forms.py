"""Forms as browsers send them, read into memory up to a limit: a file may be private, and is never put on disk."""

from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

from starlette.datastructures import FormData, Headers
from starlette.formparsers import FormParser, MultiPartException, MultiPartParser
from starlette.requests import Request

MAX_FORM_BYTES = 1024 * 1024
_MAX_FIELDS = 200


NOT_OURS = "this form does not come from your open dashboard, so nothing was done. Go to the page and send it again"


class FormError(ValueError):
    """The form is refused; the message gives the reason.

    Attributes:
        status: HTTP status of the page that shows the message.
    """

    def __init__(self, why: str, status: int = 413):
        super().__init__(why)
        self.status = status


def check_ours(request: Request) -> None:
    """Check that a form was sent from a page of ours, by the origin that the browser reports.

    Browsers that reach us over HTTPS or on localhost send ``Sec-Fetch-Site``, which no page can forge and no proxy
    confuses; others at least ``Origin``. A request with neither is refused.

    Raises:
        FormError: it was sent from elsewhere, or the browser reports no origin.
    """
    headers = request.headers
    ours = headers.get("sec-fetch-site") == "same-origin"
    if "sec-fetch-site" not in headers and "origin" in headers:
        ours = urlsplit(headers["origin"]).netloc == headers.get("host")
    if not ours:
        raise FormError(NOT_OURS, 403)


async def read_form(request: Request, max_bytes: int) -> FormData:
    """The form of a request, URL-encoded or multipart.

    Args:
        request: request whose body was not read yet.
        max_bytes: largest size of the whole body.

    Raises:
        FormError: the body is too large, or is not a form.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = _bounded(request, max_bytes)
    try:
        if kind == "application/x-www-form-urlencoded":
            return await FormParser(request.headers, body).parse()
        if kind == "multipart/form-data":
            return await _InMemory(request.headers, body, max_bytes).parse()
    except MultiPartException as error:
        raise FormError("the form cannot be read; send it again from the page") from error
    raise FormError("this address only takes forms; send it from the page")


class _InMemory(MultiPartParser):
    def __init__(self, headers: Headers, body: AsyncGenerator[bytes, None], max_bytes: int):
        super().__init__(headers, body, max_files=1, max_fields=_MAX_FIELDS, max_part_size=MAX_FORM_BYTES)
        self.spool_max_size = max_bytes + 1  # never reached, so never rolled over to a file


async def _bounded(request: Request, max_bytes: int) -> AsyncGenerator[bytes, None]:
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            raise FormError(f"the form is larger than {max_bytes:,} bytes; send less")
        yield chunk
