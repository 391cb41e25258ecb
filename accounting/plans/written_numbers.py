"""Numbers as people write them: read if they can mean one thing only, else refused with the way to write them.

A comma parts decimals in one country and thousands in another, and a point does, too. What cannot be undone is never
guessed: an admin who means 0.5 and writes 0,5 must not get 5.
"""

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BeforeValidator

_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_ZERO = re.compile(r"-0*\.?0*([eE][+-]?\d+)?", re.ASCII)
_LEADING = re.compile(r"^([+-]?)0+(?=\d)")
_MOST_DIGITS = 60
_LARGEST = 10**15
_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(\d{3})+")
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_POWER = re.compile(
    r"(?:(?P<factor>.*?)\s*[·×*x⋅∙]\s*)?10\s*(?:(?:\^|\*\*)\s*(?P<plain>[+-]?\d+)|(?P<raised>[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+))"
)
_PER = {"%": -2, "‰": -3}
_PARTS = re.compile(r"[\s_'’`´]+")
_MINUS = str.maketrans("−–﹣－", "----")


def read_number(written: str, *, whole: bool = False) -> float:
    """A number as written, or a whole one.

    Args:
        written: decimal digits, perhaps with a decimal point and, unless ``whole``, an exponent such as e-4.
        whole: whether only a whole number will do.

    Raises:
        ValueError: it is not so written; the message shows how to write it, where that can be known.
    """
    text = written.strip()
    if not _reads(text, whole):
        raise ValueError(advise(written, whole=whole))
    return int(text) if whole else float(text)


def _reads(text: str, whole: bool) -> bool:
    pattern = _WHOLE if whole else _DECIMAL
    written = len(text) <= _MOST_DIGITS and pattern.fullmatch(text) and not _ZERO.fullmatch(text)
    return bool(written) and (whole or math.isfinite(float(text)))


def number_in(annotation: Any) -> type[int | float] | None:
    """The kind of number that a field takes, if it takes no text, also as of ``int | None`` or ``list[float]``."""
    parts = _parts(annotation)
    return None if str in parts else next((kind for kind in (float, int) if kind in parts), None)


def _parts(annotation: Any) -> list[Any]:
    inner = [] if get_origin(annotation) is Literal else [part for one in get_args(annotation) for part in _parts(one)]
    return inner or [annotation]


def read_as(annotation: Any, written: Any) -> Any:
    """A text as the number that a field of this annotation takes; any other value, or for any other field, as it is.

    Raises:
        ValueError: see :func:`read_number`.
    """
    kind = number_in(annotation)
    return read_number(written, whole=kind is int) if kind is not None and isinstance(written, str) else written


WrittenWhole = Annotated[int, BeforeValidator(lambda written: read_as(int, written))]
"""A whole number that comes as a text, such as a parameter in an address."""


def advise(written: str, *, whole: bool = False) -> str:
    """How to write what cannot be read as a number, a sentence without capital and full stop."""
    text = written.strip()
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    ways = [*dict.fromkeys(_ways(text, whole))] if len(text) <= _MOST_DIGITS else []
    kind = "a whole number in digits" if whole else "a number in digits with a decimal point"
    if not ways:
        example = "600" if whole else "0.5 or 1e-4"
        return f"{shown!r} is not {kind}, such as {example}"
    which = ", whichever you mean" if len(ways) > 1 else ""
    return f"{shown!r} is not {kind}: write {' or '.join(ways)}{which}"


_NOT_A_NUMBER = {
    "int_type": True,
    "int_parsing": True,
    "int_from_float": True,
    "float_type": False,
    "float_parsing": False,
}
"""Pydantic's types of errors of a value that should be a number, and whether a whole one is wanted."""


def advice_on(error: Mapping[str, Any]) -> str | None:
    """Advice on an error of pydantic's about a text that should be a number; None: it is another error."""
    whole, written = _NOT_A_NUMBER.get(error["type"]), error.get("input")
    if whole is None or not isinstance(written, str):
        return None
    text = written.strip()
    return f"{text!r} is a text: write {text} without quotes" if _reads(text, whole) else advise(written, whole=whole)


def _ways(text: str, whole: bool) -> Iterator[str]:
    """The ways to write what a text may mean."""
    exponent = 0
    if (power := _POWER.fullmatch(text)) is not None:
        text = power["factor"] or "1"
        exponent = int(power["plain"] or (power["raised"] or "0").translate(_RAISED))
    elif text[-1:] in _PER:
        exponent, text = _PER[text[-1]], text[:-1]
    folded = "".join(_digit(character) for character in text.translate(_MINUS).replace("٫", ".").replace("٬", ","))
    for plain in _plain(_PARTS.sub("", folded), whole):
        if _DECIMAL.fullmatch(plain):
            yield from _write(plain, exponent, whole)


def _digit(character: str) -> str:
    value = unicodedata.decimal(character, None)
    return unicodedata.normalize("NFKC", character) if value is None else str(value)


def _plain(text: str, whole: bool) -> Iterator[str]:
    """A text without parted thousands, and with a decimal point."""
    if "," in text and "." in text:
        last = max(text.rfind(","), text.rfind("."))
        yield text[:last].replace(",", "").replace(".", "") + "." + text[last + 1 :]
        return
    part = "," if "," in text else "."
    together, groups = text.replace(part, ""), text.split(part)
    parted = all(len(group) == 3 for group in groups[1:]) and _GROUPS.fullmatch(together) is not None
    thousands = part in text and parted and (part == "," or whole or len(groups) > 2)
    if thousands:
        yield together
    if len(groups) <= 2 and not (thousands and whole):
        yield text.replace(part, ".")


def _write(plain: str, exponent: int, whole: bool) -> Iterator[str]:
    plain = _LEADING.sub(r"\1", plain)
    exact = set(plain.lower()).isdisjoint("e")
    number = (float(f"{plain}e{exponent}") if exact else float(plain)) + 0.0  # -0 becomes 0
    if not math.isfinite(number) or (exponent and not exact) or (whole and abs(number) > _LARGEST):
        return
    if whole:
        if number == int(number):
            yield str(int(number))
    elif exponent < -3 and set(plain) <= set("0123456789"):
        yield f"{plain}e{exponent}"
    else:
        yield plain if exact and not exponent and number else f"{number:g}"
