"""Texts that are neither UTF-8 nor marked are refused, whatever they look like; their encoding can be named."""

from pathlib import Path

import pytest

from exemplar_store import BadRowError, Layout
from service.sources.encodings import read_text
from service.sources.files import SAMPLE_BYTES, open_file
from service.sources.reading import Reading

LAYOUT = Layout(("text", "label"))
HEADER = "unit_id;text;label\r\n"
WRITTEN = [
    ("cp1250", "Zażółć gęślą jaźń", "Skarga"),
    ("cp1251", "Посылка не пришла", "Доставка"),
    ("cp1252", "Päckchen fehlt", "Größe"),
    ("cp1253", "Το δέμα δεν ήρθε", "Παράδοση"),
    ("cp1254", "Kargo gelmedi, şikâyet ediyorum", "Şikâyet"),
    ("mac_roman", "Le colis n’est pas arrivé", "Réclamation"),
    ("cp932", "荷物が届きません", "配送"),
    ("cp949", "소포가 오지 않았어요", "배송"),
    ("gb18030", "包裹没有到", "配送"),
    ("utf-16-le", "Päckchen fehlt", "Größe"),
    ("utf-16-le", "Посылкапропалавпути", "Доставка"),
    ("utf-16-be", "a parcel is missing", "Size"),
    ("utf-16-be", "荷物が届きません", "配送"),
    ("utf-32-le", "Päckchen fehlt", "Größe"),
    ("utf-32-be", "Посылка не пришла", "Доставка"),
]


def read(file: Path, **options: str) -> list[tuple[str, ...]]:
    with open_file(str(file), Reading(**options)) as source:
        return [(row.unit_id, row.fields["text"], row.fields["label"]) for row in source.rows(LAYOUT)]


@pytest.mark.parametrize("many", [1, 40])
@pytest.mark.parametrize(("encoding", "text", "label"), WRITTEN)
def test_no_encoding_is_guessed(tmp_path: Path, encoding: str, text: str, label: str, many: int) -> None:
    file = tmp_path / "t.csv"
    rows = [(f"u{number}", text, label) for number in range(many)]
    file.write_bytes((HEADER + "".join(";".join(row) + "\r\n" for row in rows)).encode(encoding))
    with pytest.raises(ValueError, match="--encoding"):
        read(file)
    assert read(file, encoding=encoding) == rows


@pytest.mark.parametrize(("encoding", "text", "label"), [WRITTEN[1], WRITTEN[2], WRITTEN[7]])
def test_the_refusal_shows_the_line_as_it_would_read(tmp_path: Path, encoding: str, text: str, label: str) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes((HEADER + f"u1;{'a' * 200};b\r\n" + f"u2;{text};{label}\r\n" * 40).encode(encoding))
    with pytest.raises(ValueError, match=f"line 3 .*--encoding {encoding}") as caught:
        read(file)
    assert text in str(caught.value)
    assert "aaaa" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_an_encoding_that_changes_late_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    plain = HEADER.encode() + b"".join(b"u%d;%s;A\n" % (number, b"plain " * 200) for number in range(1500))
    assert len(plain) > SAMPLE_BYTES
    file.write_bytes(plain + "u;Größe;A\n".encode("cp1252"))
    with pytest.raises(ValueError, match=r"line 1502 .*cp1252, .*u;Größe;A"):
        read(file)
    assert read(file, encoding="cp1252")[-1] == ("u", "Größe", "A")
    file.write_bytes(plain + b"u;\x81;A\n")
    with pytest.raises(BadRowError, match="cp1252") as caught:
        read(file, encoding="cp1252")
    assert caught.value.row == 1502


@pytest.mark.parametrize("encoding", ["klingon", "base64", "rot13", "idna", "undefined", "a\0b"])
def test_a_name_that_is_not_an_encoding_of_text(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.csv").write_text(HEADER)
    with pytest.raises(ValueError, match="is not the name of a text encoding"):
        read(tmp_path / "t.csv", encoding=encoding)


def test_nuls_behind_the_text_are_not_taken_for_another_encoding(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(HEADER.encode() + b"u1;lamp;A\r\n" + b"\0" * 512)  # as a crash leaves it
    with pytest.raises(BadRowError, match="1 cell where the header has 3"):
        read(file)


def test_a_mark_and_another_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(HEADER + "u1;Größe;A\n", encoding="utf-8-sig")
    with pytest.raises(ValueError, match="mark of utf-8"):
        read(tmp_path / "t.csv", encoding="cp1252")
    assert read(tmp_path / "t.csv", encoding="utf-8") == read(tmp_path / "t.csv") == [("u1", "Größe", "A")]


def test_json_lines_are_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    line = '{"unit_id": "u1", "text": "Größe", "label": "A"}\n'
    file.write_bytes(line.encode("cp1252"))
    with pytest.raises(ValueError, match=r"cp1252, .*Größe"):
        read(file)
    with pytest.raises(ValueError, match="--encoding"):
        read(file, encoding="cp1252")
    file.write_bytes(line.encode("utf-16"))  # as PowerShell writes, with a mark
    assert read(file) == [("u1", "Größe", "A")]


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"\x1f\x8b", "gzip"), (b"PK\x03\x04", "workbook"), (b"PAR1", "Parquet"), (b"SQLite format 3\0", "--from-sql")],
)
def test_the_format_of_a_file_that_is_not_text_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(data + bytes(range(256)))
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "t.csv")


def test_a_whole_text_is_utf_8_or_marked(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        file.write_text("labels:\n- Größe", encoding=encoding)
        assert read_text(file) == "labels:\n- Größe"
    file.write_bytes("labels:\n- Größe".encode("cp1252"))
    with pytest.raises(ValueError, match=r"plan\.yaml: line 2 "):
        read_text(file)
