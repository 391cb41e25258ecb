"""Compressed files, and archives with one file in them."""

from __future__ import annotations

import gzip
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import BinaryIO, cast

from fsspec.compression import compr

from service.sources.folders import hidden

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz"}
_ZIP = ".zip"
ENDINGS = (*_COMPRESSIONS, _ZIP)
_MAGIC = {
    b"\x1f\x8b": ("compressed by gzip", "add .gz to its name"),
    b"BZh": ("compressed by bzip2", "add .bz2 to its name"),
    b"\xfd7zXZ\x00": ("compressed by xz", "add .xz to its name"),
    b"(\xb5/\xfd": ("compressed by zstd", "unpack it first"),
    b"PK\x03\x04": ("a zip archive or a workbook", "let an archive's name end in .zip, that of a workbook in .xlsx"),
    b"\xd0\xcf\x11\xe0": ("a workbook of an old spreadsheet program", "let its name end in .xls"),
    b"PAR1": ("Parquet", "let its name end in .parquet"),
    b"ARROW1": ("Arrow", "let its name end in .arrow"),
    b"SQLite format 3\x00": ("an SQLite database", "read it with --from-sql and --query"),
}
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, gzip.BadGzipFile)
_LISTED = 5


def is_compressed(name: str) -> bool:
    """Whether a name ends as that of a compressed file or an archive that can be read."""
    return PurePosixPath(name).suffix.lower() in ENDINGS


@contextmanager
def unpacked(stream: BinaryIO, name: str) -> Iterator[tuple[BinaryIO, str]]:
    """The content of a file, unpacked if it is compressed or an archive.

    Args:
        stream: an open stream of the file.
        name: name of the file.

    Returns:
        The content, and a name with the ending of its format: that of an archive's one file, or ``name`` without the
        ending of the compression.

    Raises:
        ValueError: an archive holds no file or several, or its file is locked or cannot be read.
    """
    stem, ending = PurePosixPath(name).stem, PurePosixPath(name).suffix.lower()
    if ending in _COMPRESSIONS:
        with compr[_COMPRESSIONS[ending]](stream, mode="rb") as content:
            yield cast("BinaryIO", content), stem
    elif ending == _ZIP:
        with zipfile.ZipFile(stream) as archive:
            member = _only_member(archive)
            try:
                content = archive.open(member)
            except RuntimeError:
                raise ValueError("it is locked with a password: unpack it first") from None
            except NotImplementedError:
                raise ValueError("it is compressed in a way that cannot be read here: unpack it first") from None
            with content:
                inner = PurePosixPath(member.filename).name
                yield cast("BinaryIO", content), inner if PurePosixPath(inner).suffix else stem
    else:
        yield stream, name


def damaged(error: Exception) -> bool:
    """Whether an error of reading means that a compressed file is not of the format that its name shows, or cut off."""
    return isinstance(error, _DAMAGED) or (isinstance(error, OSError) and error.errno is None)


def not_text(beginning: bytes) -> tuple[str, str] | None:
    """The kind of a file that should be text but is not, and the remedy for its owner; None: it may be text."""
    return next((what for magic, what in _MAGIC.items() if beginning.startswith(magic)), None)


def _only_member(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """The one file of an archive, apart from hidden files that macOS and others add."""
    members = [member for member in archive.infolist() if not member.is_dir() and not hidden(member.filename)]
    if len(members) == 1:
        return members[0]
    if not members:
        raise ValueError("the archive holds no file")
    names = ", ".join(member.filename for member in members[:_LISTED]) + (", …" if members[_LISTED:] else "")
    raise ValueError(f"the archive holds {len(members)} files ({names}): unpack it, and name one file at a time")
