"""Seconds of processor time that a row takes where all of a knowledge base is read: for a release, and for topics.

A release reads every exemplar with its embedding. Topics are found by a field of it.
"""

from __future__ import annotations

import argparse
import json
import secrets
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from exemplar_store import ExemplarStore, Row
from exemplar_store.topics import TopicList
from service.records.database import open_database
from service.records.schema import migrate

TARGETS = {"row of a release": 2.0, "row of topics": 1.5}
DIMENSION = 384
TEXT = "the parcel that I ordered has not arrived yet and nobody answers my calls about it " * 4


def main() -> None:
    """Read all rows in each way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    count = 1_000 if parser.parse_args().quick else 20_000
    random = np.random.default_rng(1).normal(size=(1024, DIMENSION)).astype(np.float32)
    random /= np.linalg.norm(random, axis=1, keepdims=True)
    with TemporaryDirectory() as folder:
        database = open_database(f"sqlite:///{Path(folder, 'release.sqlite')}")
        migrate(database)
        store = ExemplarStore(database, secrets.token_bytes(32))
        with database.begin() as connection:
            of = {"public_size": count, "fields": ["text", "label"], "embedded_field": "text"}
            store.create(connection, "calls", **of)
        rows = (Row(n, f"person-{n}", {"text": f"{n} {TEXT}", "label": "late"}) for n in range(count))
        store.ingest("calls", rows, lambda texts: random[: len(texts)])

        def release() -> int:
            return sum(1 for unit in store.every_unit("calls") for exemplar in unit if exemplar.embedding is not None)

        def late(exemplar: object) -> int:
            return int(getattr(exemplar, "fields", exemplar)["label"] == "late")  # an earlier commit gives exemplars

        topics = TopicList(1, "sort", 2, late)
        ways = {
            "row of a release": release,
            "row of topics": lambda: int((store.topics_of("calls", topics) > 0).sum()),
        }
        figures = {}
        for name, way in ways.items():
            started = time.process_time()
            if way() != count:
                raise AssertionError("not all rows were read")
            figures[name] = (time.process_time() - started) / count
        database.dispose()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
