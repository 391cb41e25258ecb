"""Reading people's text files as UTF-8: they are UTF-8, or in the encoding that a byte-order mark or the person names.

No encoding is guessed: short texts look alike in many encodings, and a wrong guess would store wrong texts, labels and
unit ids in silence. Only the message of a refusal contains a guess.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from exemplar_store import BadRowError
from exemplar_store.errors import NotUtf8Error
from service.sources.guesses import guess, mostly_utf8

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
_CHUNK_BYTES = 1 << 16
_SHOWN = 80
_BEFORE = 30
_HEADER_BYTES = 64


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
        b"a".decode(named, "replace")  # which also refuses what encodes no text, such as base64
        name = codecs.lookup(named).name
    except (LookupError, ValueError):
        raise ValueError(f"{named!r} is not the name of a text encoding, such as cp1252 or shift_jis") from None
    if marked and not name.startswith(marked):
        raise ValueError(f"it begins with the mark of {marked}, so it is not {named}: leave the encoding out")
    return name


def as_utf8(text: BinaryIO, encoding: str) -> BinaryIO:
    """A text in UTF-8, whatever its encoding. Reading it raises :class:`BadRowError` where it is not so encoded."""
    return text if encoding == UTF8 else io.BufferedReader(_AsUtf8(text, encoding), _CHUNK_BYTES)


def unmarked_utf(beginning: bytes) -> str | None:
    """The kind of UTF-16 or UTF-32 that a text without a mark looks like.

    Its first line names columns: there a letter, comma or quote of ASCII has its NULs always on the same side. In the
    lines below most letters may be of another script.
    """
    line = beginning.partition(b"\n")[0][:_HEADER_BYTES]
    if line.count(0) <= len(line) // 12:
        return None
    fits = {
        "utf-16-le": all(line[::2]),
        "utf-16-be": all(line[1::2]),
        "utf-32-le": not any(line[3::4]),
        "utf-32-be": not any(line[::4]),
    }
    return next((encoding for encoding, found in fits.items() if found), None)


def check_marked(where: str, beginning: bytes) -> None:
    """Refuse UTF-16 and UTF-32 without a mark.

    Raises:
        ValueError: the text looks like one of them without a mark.
    """
    if encoding := unmarked_utf(beginning):
        line = _excerpt(beginning.decode(encoding, "replace").partition("\n")[0])
        said = f"{_refusal(where, 1)}; it looks like {encoding}, in which the line reads {line!r}"
        raise ValueError(said + _IF_RIGHT.format(encoding))


def not_utf8(where: str, error: NotUtf8Error, sample: bytes, *, may_name: bool = True) -> ValueError:
    """The error for a text that is neither UTF-8 nor marked, with a guess, and the line as it would read.

    Args:
        where: name of the text in the message.
        error: the error that names the line.
        sample: part of the text that the guess is based on.
        may_name: whether the person may name the encoding instead.
    """
    said = _refusal(where, error.row)
    save = "save it as UTF-8" if not may_name else "name its encoding with --encoding, or save it as UTF-8"
    lines = sample.split(b"\n")[:-1]
    if mostly_utf8(sample + b"\n" + error.line):
        line = _excerpt(error.line.decode("utf-8", "replace"))
        return ValueError(
            f"{said}; most of its letters are UTF-8, and byte {error.byte} of this line is not, which reads {line!r}: "
            "correct it, and others like it, where the file was made"
        )
    numbers = [*range(1, len(lines) + 1), error.row]
    found = guess(lines := [*lines, error.line])
    if not found.likely:
        return ValueError(f"{said}; {save}")
    place, first = found.telling(lines)
    number = numbers[place]
    which = "the line" if number == error.row else f"line {number}"
    read = [(encoding, _excerpt(lines[place].decode(encoding, "replace"), first)) for encoding in found.likely]
    if len(read) == 1:
        ((encoding, line),) = read
        said += f"; it looks like {encoding}, in which {which} reads {line!r}"
        return ValueError(said + (_IF_RIGHT.format(encoding) if may_name else f": {save}"))
    (encoding, line), *others = read
    said += f"; it may be {encoding}, in which {which} reads {line!r}"
    said += "".join(f", or {encoding}: {line!r}" for encoding, line in others)
    add = "name the one that reads right with --encoding, or save it as UTF-8"
    return ValueError(f"{said}: {add if may_name else save}")


def likely_encodings(sample: bytes, line: bytes) -> Sequence[str]:
    """The encodings that a text may be in, of which a line is not UTF-8; none where most of it is UTF-8.

    Args:
        sample: the beginning of the text, which the guess is based on, too.
        line: the line.
    """
    if mostly_utf8(sample + b"\n" + line):
        return ()
    return guess([*sample.split(b"\n")[:-1], line]).likely


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


_IF_RIGHT = ": if that is right, add --encoding {}, else name the right one, or save it as UTF-8"


def _refusal(where: str, row: int) -> str:
    return f"{where}: line {row} is not UTF-8, and the file is not marked as another encoding"


def _excerpt(line: str, first: int | None = None) -> str:
    """The part of a line around a character, or around the first that is not ASCII, on one line of a terminal."""
    if first is None:
        first = next((place for place, character in enumerate(line) if not character.isascii()), 0)
    start = max(0, first - _BEFORE)
    part = line[start : start + _SHOWN]
    shown = "".join(character if character.isprintable() else " " for character in part).strip()
    return ("…" if start else "") + shown + ("…" if line[start + _SHOWN :].strip() else "")


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
