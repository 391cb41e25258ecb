"""A unit's id as one text, whatever its type and spelling in the source that it came from.

A person who is two texts is two units, and is promised less. So what databases, files and languages write in several
ways is written in one: integers without zeros behind a point; UUIDs in small letters with hyphens; and what reads alike
in one spelling (:data:`spelling.lookalikes.UNIT_ID`): hyphens, apostrophes, spaces, characters that are not shown.
``7`` and ``007`` stay apart, and so do ``ann`` and ``Ann``.

The folded id alone is hashed. So a spelling means the same unit in an upload, for its topic, block and cohort, and when
it is forgotten or comes back.
"""

import math
import re
from datetime import date, time
from decimal import Decimal
from uuid import UUID

from spelling.lookalikes import UNIT_ID

MAX_CHARACTERS = 1000

_INTEGER = re.compile(r"(-?[0-9]+)\.0+")
_HEXADECIMAL = r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # the former is what SQLite stores
_UUID = re.compile(rf"(?:urn:uuid:|\{{)?({_HEXADECIMAL})\}}?", re.IGNORECASE | re.ASCII)


def problem(unit_id: str) -> str | None:
    """Why a canonical text cannot be an id, if it cannot: it is too long, or nothing of it is shown."""
    if len(unit_id) > MAX_CHARACTERS:
        return f"has {len(unit_id):,} characters; at most {MAX_CHARACTERS:,} are allowed"
    if not unit_id:
        return "has no character that is shown; give the unit an id that can be read"
    if not unit_id.isascii() and any("\ud800" <= character <= "\udfff" for character in unit_id):
        return "contains half of a surrogate pair, which is not a character; remove it"
    return None


def canonical(text: str) -> str:
    """The one spelling of an id."""
    folded = UNIT_ID.fold(text)
    if match := _UUID.fullmatch(folded):
        return str(UUID(match[1]))
    return match[1] if (match := _INTEGER.fullmatch(folded)) else folded


def as_text(value: object) -> object:
    """Text of an id of another type; a value that cannot be an id, as it is.

    Raises:
        ValueError: it is of a type whose text depends on the source; the message states what to do.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, (date, time)):
        raise ValueError("is a date or a time, which sources write in several ways; give the unit an id that is text")
    if isinstance(value, (float, Decimal)) and not is_nan(value):
        if isinstance(value, float) or not _is_integer(value):
            raise ValueError(
                "is a number with a point. Missing values make such numbers of integers: leave out rows without an id, "
                "and read the column as integers or as text"
            )
        return str(int(value))
    return str(value) if isinstance(value, (int, UUID)) and not isinstance(value, bool) else value


def is_nan(value: object) -> bool:
    """Whether a value is NaN, also a signalling one."""
    return value.is_nan() if isinstance(value, Decimal) else isinstance(value, float) and math.isnan(value)


def _is_integer(value: Decimal) -> bool:
    return value.is_finite() and value.adjusted() < MAX_CHARACTERS and value == value.to_integral_value()
