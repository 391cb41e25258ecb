"""HTML: the templates' environment, and documents that stand alone, to be kept or printed."""

import base64
import hashlib
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from service.operations import wording
from service.operations.statement import Statement

_TEMPLATES = Path(__file__).parent / "templates"
_STYLE = (_TEMPLATES / "document.css").read_text(encoding="utf-8")
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"{_POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of a response that is such a document: its own style is applied, and nothing else is run or loaded."""


def exactly(value: float | Decimal) -> Markup:
    """A number for people, with its exact value in a title."""
    exact = f"{value.normalize():f}" if isinstance(value, Decimal) else repr(value)
    return Markup('<span title="{}">{}</span>').format(exact, wording.figure(value))


def when(moment: datetime | None, missing: str = "never") -> Markup:
    """A time to the minute in UTC, exact in its ``datetime`` attribute."""
    if moment is None:
        return Markup.escape(missing)
    moment = moment.astimezone(UTC)
    shown = f"{moment.day} {moment:%b %Y, %H:%M} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(moment.isoformat(), moment.isoformat(), shown)


def environment(folder: Path) -> Environment:
    """Templates of a folder, in which everything is escaped and nothing may be missing."""
    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= wording.FILTERS | {"exactly": exactly, "when": when}
    return made


@cache
def _own() -> Environment:
    return environment(_TEMPLATES)


def statement_html(statement: Statement, *, home: str = "", file: str = "") -> str:
    """A statement as one HTML document, without scripts, and without anything that it would load.

    Args:
        statement: the statement.
        home: address of the knowledge base's page, to go back to; empty: the document is not shown there.
        file: address at which the document is downloaded.
    """
    shown = {"statement": statement, "home": home, "file": file}
    return _own().get_template("statement.html").render(**shown, style=Markup(_STYLE), policy=_POLICY)  # noqa: S704
