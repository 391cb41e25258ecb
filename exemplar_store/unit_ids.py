"""A unit's id as one text, whatever its type and spelling in the source that it came from.

A person who is two texts is two units, and is promised less. So what databases, files and languages write in several
ways is written in one: integers without zeros behind a point; UUIDs in small letters with hyphens; Unicode composed;
full-width letters and digits, and half-width kana, in their ordinary width.
Ids that only look alike, such as ``007`` and ``7``, stay apart. Ids that look the same do not: characters that are not
shown are refused.
"""

import re
from datetime import date, time
from decimal import Decimal
from unicodedata import normalize
from uuid import UUID

import regex

MAX_CHARACTERS = 1000

_INTEGER = re.compile(r"(-?[0-9]+)\.0+")
_HEXADECIMAL = r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # the former is what SQLite stores
_OTHER_WIDTHS = re.compile("[\uff01-\uffee]+")
_UUID = re.compile(rf"(?:urn:uuid:|\{{)?({_HEXADECIMAL})\}}?", re.IGNORECASE | re.ASCII)
# Controls, format characters (zero-width spaces, soft hyphens, directions), variation selectors; and spaces that look
# like the one of the keyboard.
_NOT_SHOWN = regex.compile(r"[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]|(?! )\p{Zs}")


def problem(unit_id: str) -> str | None:
    """Why a text cannot be an id, if it cannot: it is too long, or looks the same as another one."""
    if len(unit_id) > MAX_CHARACTERS:
        return f"has {len(unit_id):,} characters; at most {MAX_CHARACTERS:,} are allowed"
    if unit_id != unit_id.strip():
        return "has spaces around it, which would make it another unit than the same id without; remove them"
    if found := _NOT_SHOWN.search(unit_id):
        return (
            f"contains the character U+{ord(found[0]):04X}, which looks like nothing or like a space and would make it "
            "another unit than the same id without; remove it"
        )
    return None


def canonical(text: str) -> str:
    """The one spelling of an id."""
    composed = normalize("NFC", _OTHER_WIDTHS.sub(lambda match: normalize("NFKC", match[0]), text))
    if match := _UUID.fullmatch(composed):
        return str(UUID(match[1]))
    return match[1] if (match := _INTEGER.fullmatch(composed)) else composed


def as_text(value: object) -> object:
    """Text of an id of another type; a value that cannot be an id, as it is.

    Raises:
        ValueError: it is of a type whose text depends on the source; the message states what to do.
    """
    if isinstance(value, (date, time)):
        raise ValueError("is a date or a time, which sources write in several ways; give the unit an id that is text")
    if isinstance(value, (float, Decimal)) and value == value:
        if isinstance(value, float) or not _is_integer(value):
            raise ValueError(
                "is a number with a point. Missing values make such numbers of integers: leave out rows without an id, "
                "and read the column as integers or as text"
            )
        return str(int(value))
    return str(value) if isinstance(value, (int, UUID)) and not isinstance(value, bool) else value


def _is_integer(value: Decimal) -> bool:
    return value.is_finite() and value.adjusted() < MAX_CHARACTERS and value == value.to_integral_value()
