"""Compressed files and archives: their one file is read, or a sentence explains the refusal."""

import bz2
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from exemplar_store import Layout
from service.sources.files import open_file
from tests.service.sources.contract import FileContract, Record
from tests.service.sources.test_sources import table

LAYOUT = Layout(("text",))
TEXT = "unit_id,text\n" + "".join(f"u{number},a text of number {number}\n" for number in range(200))


def read(file: Path) -> int:
    with open_file(str(file)) as source:
        return len(list(source.rows(LAYOUT)))


def zipped(**members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def locked() -> bytes:
    data = bytearray(zipped(**{"a.csv": TEXT}))
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.find(signature) + flags] |= 1
    return bytes(data)


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zip": lambda data: zipped(**{"a.csv": data.decode()}),
}


class TestCompressed(FileContract):
    name = "t.jsonl.gz"

    def put(self, records: Sequence[Record], path: Path) -> None:
        path.write_bytes(gzip.compress("".join(f"{json.dumps(row)}\n" for row in records).encode()))


class TestArchive(FileContract):
    name, first = "t.zip", 2

    def put(self, records: Sequence[Record], path: Path) -> None:
        path.write_bytes(zipped(**{"a.csv": table(",", records)}))


@pytest.mark.parametrize("ending", COMPRESSED)
def test_a_compressed_file_is_read_whole_or_refused(tmp_path: Path, ending: str) -> None:
    data, file = COMPRESSED[ending](TEXT.encode()), tmp_path / f"t.csv{ending}"
    file.write_bytes(data)
    assert read(file) == 200
    middle = len(data) // 2
    for damaged in (data[:-20], data[:middle], data[:middle] + bytes(20) + data[middle + 20 :], TEXT.encode(), b""):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"^{file}: "):
            read(file)


@pytest.mark.parametrize(
    "members",
    [
        {"__MACOSX/._a.csv": "\x00Mac OS X", "a.csv": TEXT},
        {"a.csv": TEXT, "__MACOSX/._a.csv": "\x00Mac OS X", ".DS_Store": ""},
        {"data/": "", "data/a.csv": TEXT},
    ],
)
def test_the_one_file_of_an_archive_is_read(tmp_path: Path, members: dict[str, str]) -> None:
    for name in ("t.csv.zip", "t.zip"):
        (tmp_path / name).write_bytes(zipped(**members))
        assert read(tmp_path / name) == 200


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (zipped(**{"january.csv": TEXT, "february.csv": TEXT}), r"holds 2 files \(january.csv, february.csv\): unpack"),
        (zipped(**{f"{month}.csv": TEXT for month in range(12)}), r"holds 12 files \(0.csv, .*, …\): unpack"),
        (zipped(), "holds no file"),
        (zipped(**{"a.csv.gz": ""}), "must end in"),
        (locked(), "password"),
    ],
)
def test_other_archives_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "t.csv.zip").write_bytes(data)
    with pytest.raises(ValueError, match=rf"^{tmp_path}/t\.csv\.zip: .*{message}"):
        read(tmp_path / "t.csv.zip")


def test_a_file_that_cannot_be_unpacked_here_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv.zst").write_bytes(b"(\xb5/\xfd")
    with pytest.raises(ValueError, match="zstd"):
        read(tmp_path / "t.csv.zst")
