"""Reading people's text files as UTF-8: they are UTF-8, or in the encoding that a byte-order mark or the person names.

No encoding is guessed: short texts look alike in many encodings, and a wrong guess would store wrong texts, labels and
unit ids in silence. Only the message of a refusal contains a guess.
"""

from __future__ import annotations

import codecs
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from charset_normalizer import from_bytes

from exemplar_store import BadRowError
from exemplar_store.errors import NotUtf8Error

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

UTF8 = "utf-8"
_MARKS = {
    codecs.BOM_UTF8: UTF8,
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16's, which it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_COMMON = "cp1252"
_USUAL = [
    *(_COMMON, "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "iso8859_2", "iso8859_5"),
    *("koi8_r", "mac_roman", "cp850", "cp437", "cp932", "cp949", "gb18030", "big5", "euc_jp"),
]
"""The encodings that office programs write. For a short text, more candidates make worse guesses."""
_CHUNK_BYTES = 1 << 16
_SHOWN = 80
_BEFORE = 30


def encoding_of(beginning: bytes, named: str | None) -> str:
    """The encoding in which a text is to be read.

    Args:
        beginning: first bytes of the text, four at least unless it is shorter.
        named: the encoding that the person names; None: none is named.

    Raises:
        ValueError: ``named`` is not an encoding of text, or the text is marked as another.
    """
    marked = next((encoding for mark, encoding in _MARKS.items() if beginning.startswith(mark)), None)
    if named is None:
        return marked or UTF8
    try:
        io.TextIOWrapper(io.BytesIO(), named)  # which also refuses what encodes no text, such as base64
        name = codecs.lookup(named).name
    except (LookupError, ValueError):
        raise ValueError(f"{named!r} is not the name of a text encoding, such as cp1252 or shift_jis") from None
    if marked and not name.startswith(marked):
        raise ValueError(f"it begins with the mark of {marked}, so it is not {named}: leave the encoding out")
    return name


def as_utf8(text: BinaryIO, encoding: str) -> BinaryIO:
    """A text in UTF-8, whatever its encoding. Reading it raises :class:`BadRowError` where it is not so encoded."""
    return text if encoding == UTF8 else io.BufferedReader(_AsUtf8(text, encoding), _CHUNK_BYTES)


def unmarked_utf16(beginning: bytes) -> str | None:
    """The kind of UTF-16 that a text without a mark looks like. Read as UTF-8 it may have a NUL beside each letter."""
    empty = {"utf-16-le": beginning[1::2], "utf-16-be": beginning[::2]}
    return next((encoding for encoding, nuls in empty.items() if nuls.count(0) > len(beginning) // 4), None)


def check_marked(where: str, beginning: bytes) -> None:
    """Refuse UTF-16 without a mark.

    Raises:
        ValueError: the text looks like UTF-16 without a mark.
    """
    if encoding := unmarked_utf16(beginning):
        even = beginning[: len(beginning) // 2 * 2]
        raise ValueError(_refusal(where, 1, encoding, even.decode(encoding, "replace").partition("\n")[0]))


def not_utf8(where: str, error: NotUtf8Error, sample: bytes, *, may_name: bool = True) -> ValueError:
    """The error for a text that is neither UTF-8 nor marked, with a guess, and the line as it would read.

    Args:
        where: name of the text in the message.
        error: the error that names the line.
        sample: part of the text that the guess is based on.
        may_name: whether the person may name the encoding instead.
    """
    guess = _guess(error.line if sample.isascii() else sample)
    line = error.line.decode(guess, "replace") if guess else ""
    return ValueError(_refusal(where, error.row, guess, line, may_name=may_name))


def _guess(sample: bytes) -> str | None:
    best = from_bytes(sample, cp_isolation=_USUAL).best()
    if best is None:
        return None
    # Of a text with few such letters no language is recognised; where they stand alone, it is a Western one.
    alone = best.coherence == 0 and not re.search(rb"[\x80-\xff]{2}", sample)
    return _COMMON if alone or _COMMON in best.could_be_from_charset else best.encoding


def read_text(file: Path) -> str:
    """A whole file, which must be UTF-8 unless it is marked.

    Raises:
        ValueError: the file is neither; the message names the line.
        OSError: the file cannot be read.
    """
    written = file.read_bytes()
    encoding = encoding_of(written, None)
    try:
        return written.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = written[: error.start].count(b"\n") + 1
        raise ValueError(f"{file}: line {line} is not {encoding}; save the file as UTF-8") from None


def _refusal(where: str, row: int, guess: str | None, line: str, *, may_name: bool = True) -> str:
    said = f"{where}: line {row} is not UTF-8, and the file is not marked as another encoding"
    if guess is None:
        return f"{said}; " + (
            "name its encoding with --encoding, or save it as UTF-8" if may_name else "save it as UTF-8"
        )
    said += f"; it looks like {guess}, in which the line reads {_excerpt(line)!r}"
    if not may_name:
        return f"{said}: save it as UTF-8"
    return f"{said}: if that is right, add --encoding {guess}, else name the right one, or save it as UTF-8"


def _excerpt(line: str) -> str:
    """The part of a line that another encoding would change, on one line of a terminal."""
    line = "".join(character if character.isprintable() else " " for character in line).strip()
    first = next((place for place, character in enumerate(line) if not character.isascii()), 0)
    start = max(0, first - _BEFORE)
    return ("…" if start else "") + line[start : start + _SHOWN] + ("…" if line[start + _SHOWN :] else "")


class _AsUtf8(io.RawIOBase):
    """A text, in UTF-8 whatever its encoding."""

    def __init__(self, text: BinaryIO, encoding: str) -> None:
        self._text, self._encoding = text, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._rest, self._lines, self._ended = b"", 1, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        while not self._rest and not self._ended:
            self._rest = self._next()
        part, self._rest = self._rest[: len(view)], self._rest[len(view) :]
        view[: len(part)] = part
        return len(part)

    def _next(self) -> bytes:
        chunk = self._text.read(_CHUNK_BYTES)
        self._ended = not chunk
        state = self._decoder.getstate()
        try:
            decoded = self._decoder.decode(chunk, final=self._ended)
        except UnicodeError as error:
            if isinstance(error, UnicodeDecodeError):  # what comes before the error has line ends, too
                self._decoder.setstate((b"", state[1]))
                self._lines += self._decoder.decode(error.object[: error.start]).count("\n")
            problem = f"is not {self._encoding}; name another encoding, or save the file as UTF-8"
            raise BadRowError(self._lines, None, problem) from None
        self._lines += decoded.count("\n")
        return decoded.encode(errors="surrogatepass")
