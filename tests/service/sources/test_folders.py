"""The files of a folder that count, and tables whose files also hold deleted rows."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet
import pytest

from exemplar_store import Layout
from service.sources.files import open_file
from tests.service.sources.contract import FileContract, Record

LAYOUT = Layout(("text",))


def read(where: object) -> list[str]:
    with open_file(str(where)) as source:
        return [row.unit_id for row in source.rows(LAYOUT)]


def rows(*units: str) -> pa.Table:
    return pa.table({"unit_id": list(units), "text": ["a text"] * len(units)})


def write(file: Path, *units: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(rows(*units), file)
    return file


class TestFolder(FileContract):
    name = "parts"

    def put(self, records: Sequence[Record], path: Path) -> None:
        """Write three records to one file, and the others to the next."""
        for number, some in enumerate(filter(None, (records[:3], records[3:]))):
            file = path / f"year=202{number}" / f"part-{number}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            pyarrow.parquet.write_table(pa.Table.from_pylist(some), file)


class TestSavedDataset(FileContract):
    name = "train"

    def put(self, records: Sequence[Record], path: Path) -> None:
        save(path, pa.Table.from_pylist(records))


def mark(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}")


DELETED: dict[str, Callable[[Path], object]] = {
    "Delta": lambda table: mark(table / "_delta_log/00000000000000000000.json"),
    "an empty Delta": lambda table: (table / "_delta_log").mkdir(parents=True),
    "Hudi": lambda table: mark(table / ".hoodie/hoodie.properties"),
    "Iceberg": lambda table: mark(table / "metadata/v2.metadata.json"),
}


@pytest.mark.parametrize("kind", DELETED)
def test_people_who_were_deleted_from_a_table_do_not_come_back(tmp_path: Path, kind: str) -> None:
    """The path may be that of the table, of a folder that holds it, of a partition, or of one of its files."""
    table = tmp_path / "lake" / "tickets"
    file = write(table / "year=2025" / "part-0.parquet", "ana", "bo")
    assert read(table) == ["ana", "bo"]
    DELETED[kind](table)
    for where in (tmp_path / "lake", table, file.parent, file):
        with pytest.raises(ValueError, match="--from-sql"):
            read(where)


def test_the_same_at_an_address() -> None:
    """The object store here is in memory: it has no folders, only names."""
    store = fsspec.filesystem("memory")
    with store.open("/bucket/tickets/part-0.parquet", "wb") as stream:
        pyarrow.parquet.write_table(rows("ana"), stream)
    assert read("memory://bucket/tickets") == read("memory://bucket/tickets/part-0.parquet") == ["ana"]
    store.pipe("/bucket/tickets/_delta_log/00000000000000000000.json", b"{}")
    for where in ("bucket", "bucket/tickets", "bucket/tickets/part-0.parquet"):
        with pytest.raises(ValueError, match="Delta"):
            read(f"memory://{where}")
    store.rm("/bucket", recursive=True)


def test_internal_files_of_programs_are_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    for name in (
        "_temporary/0/part-1.parquet",
        ".ipynb_checkpoints/part-0.parquet",
        "._part-0.parquet",
        "_part.parquet",
    ):
        write(folder / name, "somebody_else")
    (folder / "._a.parquet").write_bytes(b"\x00\x05\x16\x07Mac OS X")
    write(folder / "part-0.parquet", "ana")
    write(folder / "_year=2025" / "part-0.parquet", "bo")  # a partition, to Spark
    assert sorted(read(folder)) == ["ana", "bo"]


@pytest.mark.parametrize("name", ["run[1]", "run*", "what?", "[!a]", "tickets.parquet", "a b"])
def test_a_folder_is_read_as_it_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path / name / "part.parquet", "ana")
    write(tmp_path / "run1" / "part.parquet", "somebody_else")
    assert read(tmp_path / name) == ["ana"]
    assert read(tmp_path / name / "part.parquet") == ["ana"]


def save(folder: Path, table: pa.Table, name: str = "data-00000-of-00001.arrow", **state: object) -> None:
    """Save a table as `datasets` saves a dataset to disk."""
    folder.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}], **state}))


def test_only_the_files_that_the_state_of_a_saved_dataset_names_are_read(tmp_path: Path) -> None:
    """Files from before some people were filtered out may lie beside them."""
    save(tmp_path / "train", rows("ana", "bo"), name="data-00001-of-00002.arrow")
    save(tmp_path / "train", rows("ana"))
    assert read(tmp_path / "train") == ["ana"]
    with pytest.raises(ValueError, match="/train"):
        read(tmp_path)
    save(tmp_path / "train", rows("ana", "bo"), _indices_data_files=[{"filename": "indices.arrow"}])
    with pytest.raises(ValueError, match="datasets"):
        read(tmp_path / "train")
    (tmp_path / "train" / "state.json").write_text("[]")
    with pytest.raises(ValueError, match=r"state\.json"):
        read(tmp_path / "train")
    (tmp_path / "train" / "state.json").unlink()  # a folder of Arrow files, such as a cache
    with pytest.raises(ValueError, match="/train"):
        read(tmp_path / "train")
