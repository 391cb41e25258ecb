"""Templates and static files, both inside this package; and Swagger UI, inside another."""

import hashlib
import json
import mimetypes
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from service.gateway.dashboard.times import when
from service.operations.documents import environment

_HERE = Path(__file__).parent
_FOREVER = "public, max-age=31536000, immutable"
_SERVED = {".css", ".js", ".svg", ".woff2"}

mimetypes.add_type("font/woff2", ".woff2")
mimetypes.add_type("text/javascript", ".js")

_SWAGGER_UI = files("fastapi_standalone_docs") / "static" / "swagger"
_FILES = {
    path.name: path.read_bytes()
    for path in [
        *sorted((_HERE / "static").iterdir()),
        *(_SWAGGER_UI / name for name in ("swagger-ui-bundle.js", "swagger-ui.css")),
    ]
    if Path(path.name).suffix in _SERVED
}
VERSION = hashlib.sha256(b"".join(name.encode() + data for name, data in _FILES.items())).hexdigest()[:12]
"""Changes with any static file: part of their addresses, so that browsers may keep them."""


_environment = environment(_HERE / "templates")
_environment.filters["when"] = when  # in the reader's zone
_environment.filters["indented"] = lambda written: json.dumps(json.loads(written), indent=2, ensure_ascii=False)
_environment.filters["quoted"] = lambda text: json.dumps(text, ensure_ascii=False)  # JSON's strings are YAML's, too


def render(template: str, *, visit: Any, **context: Any) -> str:
    """A template as HTML.

    Args:
        template: name of a file in ``templates/``.
        visit: the :class:`service.gateway.dashboard.pages.Visit`.
        context: further values that it shows; everything is escaped.
    """
    session = visit.signed_in
    return _environment.get_template(template).render(
        visit=visit,
        problems=visit.problems,
        refused=visit.refused,
        static=lambda name: visit.url(f"/static/{VERSION}/{name}"),
        csrf=Markup('<input type="hidden" name="csrf" value="{}">').format(session.csrf) if session else "",
        **context,
    )


def render_text(template: str, **context: Any) -> str:
    """A template as plain text: nothing is escaped."""
    return _environment.get_template(template).render(context)


async def static(request: Request) -> Response:
    """A static file. Under another version's address, of a replica newer or older than this one, it is not kept."""
    name = request.path_params["name"]
    if name not in _FILES:
        return Response("There is no such file.", 404, media_type="text/plain")
    kept = _FOREVER if request.path_params["version"] == VERSION else "no-store"
    media_type = mimetypes.guess_type(name)[0]
    return Response(_FILES[name], headers={"Cache-Control": kept}, media_type=media_type)
