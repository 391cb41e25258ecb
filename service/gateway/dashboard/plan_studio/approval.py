"""A second person's approval on the page that signs: the file to sign, and the signature that comes back."""

import base64
import hashlib

from starlette.datastructures import UploadFile

from service.gateway.dashboard.pages import Visit
from service.operations.plan_drafts import Draft

_SIGNATURE_BYTES = 64


def plan_file(desk: Draft) -> str:
    """The name of the file with the plan."""
    return f"plan-{desk.described.name}-{desk.newest + 1}.yaml"


def file_hash(desk: Draft) -> str:
    """The SHA-256 of that file, in hexadecimal."""
    return hashlib.sha256(desk.text.encode()).hexdigest()


async def signature_in(visit: Visit) -> str | None:
    """The signature that a form brings, in base64; None: it brings none.

    It is a file, as OpenSSL writes it or in base64, or a text in base64.
    """
    chosen = visit.form.get("approval_file")
    content = await chosen.read() if isinstance(chosen, UploadFile) and chosen.filename else b""
    if len(content) == _SIGNATURE_BYTES:
        return base64.b64encode(content).decode()
    return "".join((content.decode("ascii", "replace") or visit.field("approval")).split()) or None
