"""Ingest without embedding: seconds of processor time for a row that is new, and for one that is there already.

Embeddings are random, so what is measured is all the rest: reading, checks, tags, encryption and SQL, on SQLite.
"""

from __future__ import annotations

import argparse
import io
import json
import secrets
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from exemplar_store import ExemplarStore, Layout, read_json_lines
from service.records.database import open_database
from service.records.schema import migrate

TARGETS = {"new row": 1.6, "row that is there": 4.5}
DIMENSION = 384
FIELDS = ("text", "label")


def lines(count: int) -> bytes:
    """An upload in JSON Lines: two exemplars a unit."""
    words = "the parcel that I ordered has not arrived yet and nobody answers my calls about it"
    rows = ({"unit_id": f"person-{n // 2}", "text": f"{n} {words}", "label": "late"} for n in range(count))
    return "\n".join(map(json.dumps, rows)).encode()


def main() -> None:
    """Ingest an upload twice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    count = 2_000 if parser.parse_args().quick else 20_000
    random = np.random.default_rng(1).normal(size=(1024, DIMENSION)).astype(np.float32)
    random /= np.linalg.norm(random, axis=1, keepdims=True)
    upload, took = lines(count), []
    with TemporaryDirectory() as folder:
        database = open_database(f"sqlite:///{Path(folder, 'ingest.sqlite')}")
        migrate(database)
        store = ExemplarStore(database, secrets.token_bytes(32))
        with database.begin() as connection:
            store.create(connection, "calls", public_size=count, fields=list(FIELDS), embedded_field="text")
        for new in (count, 0):
            rows = read_json_lines(io.BytesIO(upload), Layout(FIELDS))
            started = time.process_time()
            report = store.ingest("calls", rows, lambda texts: random[: len(texts)])
            took.append((time.process_time() - started) / count)
            if (report.exemplars, report.already_there) != (new, count - new):
                raise AssertionError("the upload was not stored as it should be")
        database.dispose()
    print(json.dumps(dict(zip(TARGETS, took, strict=True))))


if __name__ == "__main__":
    main()
