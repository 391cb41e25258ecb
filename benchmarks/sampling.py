"""The cost of drawing one query's slots, by the size of the knowledge base and by the size of the sample.

    python benchmarks/sampling.py                       # 10,000, 1,000,000 and 10,000,000 units: about 16 GB of disk
    python benchmarks/sampling.py --no-embeddings       # about 5 GB
    python benchmarks/sampling.py --sizes 10000 100000
    python benchmarks/sampling.py --quick               # 2,000 and 10,000 units

Builds SQLite databases of encrypted exemplars (one a unit, 200 characters, a 384-dimensional embedding) in a temporary
folder, times ``ExemplarStore.sample_slots`` and ``sample_blocks`` as a whole, including decryption, and removes them.
The knowledge bases take turns, query by query, so that other work on the machine affects all alike. "Warm" comes after
reading the files through once, so that the operating system's cache holds as much of them as memory allows; "cold"
drops a file from that cache before every query, so that every page comes from the disk. CPU time is the process's own,
including system calls.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exemplar_store import ExemplarStore, Nearest
from exemplar_store.encryption import place
from exemplar_store.exemplar import content, embeddings_of, halved, pack
from exemplar_store.nearness import rounded
from exemplar_store.tables import knowledge_bases, metadata
from service.records.database import open_database

NAME = "benchmark"
CHARACTERS = 200
DIMENSION = 384
ENSEMBLE = 100
MAX_EXEMPLARS = 8
SHOTS = 4  # units in a block
VARIETY = 1000  # different exemplars; still, each row is encrypted by itself


def build(path: Path, size: int, *, embeddings: bool) -> ExemplarStore:
    """Build a knowledge base of ``size`` units with one exemplar each, bypassing the checks of ingest for speed."""
    engine = open_database(f"sqlite:///{path}")
    metadata.create_all(engine)
    store = ExemplarStore(engine, os.urandom(32))
    with engine.begin() as connection:
        store.create(connection, NAME, public_size=size, fields=["text", "label"], embedded_field="text")
        keys = store.keyring.of(connection.execute(knowledge_bases.select()).one())
        dimension = DIMENSION if embeddings else 0
        filled = {"next_position": size, "uploads": 1, "embedding_dimension": dimension}
        connection.execute(knowledge_bases.update().values(filled))
    engine.dispose()  # only a sole connection can switch off the journal
    packed = list(_exemplars(embeddings))

    vectors = rounded(embeddings_of(packed, DIMENSION)) if embeddings else None

    def rows() -> Iterator[tuple[int, bytes, bytes | None, bytes]]:
        for position in range(size):
            number, tag = position % VARIETY, os.urandom(16)
            here = place(position, tag)
            vector = None if vectors is None else keys.encrypt_vector(vectors[number].tobytes(), here)
            yield position, tag, vector, keys.encrypt(packed[number], here)

    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA synchronous=OFF")
    raw.execute("PRAGMA journal_mode=OFF")
    raw.execute("PRAGMA cache_size=-500000")
    raw.execute("BEGIN")
    raw.executemany("INSERT INTO units VALUES (1, ?, ?)", ((position, os.urandom(16)) for position in range(size)))
    raw.executemany("INSERT INTO exemplars VALUES (1, ?, ?, 1, 0, ?, ?)", rows())
    raw.execute("COMMIT")
    raw.execute("PRAGMA journal_mode=WAL")
    raw.close()
    return store


def _exemplars(embeddings: bool) -> Iterator[bytes]:
    generator = np.random.default_rng(0)
    for _ in range(VARIETY):
        text = os.urandom(CHARACTERS).hex()[:CHARACTERS]
        vector = generator.normal(size=DIMENSION)
        yield pack(
            content({"text": text, "label": "Science"}, ["text", "label"]),
            *(halved(vector[None] / np.linalg.norm(vector)) if embeddings else []),
        )


def seconds(store: ExemplarStore, probability: float) -> tuple[float, float]:
    """Wall-clock and CPU time of one query."""
    started, cpu = time.perf_counter(), time.process_time()
    slots = store.sample_slots(NAME, probability=probability, ensemble=ENSEMBLE, max_exemplars=MAX_EXEMPLARS)
    elapsed = time.perf_counter() - started, time.process_time() - cpu
    assert len(slots) == ENSEMBLE
    return elapsed


def seconds_by_blocks(store: ExemplarStore, probability: float) -> tuple[float, float]:
    """Wall-clock and CPU time of one query that draws blocks."""
    blocks = store.get(NAME).public_size // SHOTS
    started, cpu = time.perf_counter(), time.process_time()
    slots = store.sample_blocks(NAME, probability=probability, blocks=blocks, max_exemplars=MAX_EXEMPLARS)
    elapsed = time.perf_counter() - started, time.process_time() - cpu
    assert slots
    return elapsed


def seconds_by_nearness(store: ExemplarStore, drawn: int, shown: int | None) -> tuple[float, float]:
    """Wall-clock and CPU time of one query whose slots show the nearest of what they drew, or all; with embeddings."""
    size = store.get(NAME).public_size
    nearest = None if shown is None else Nearest(np.ones(DIMENSION), shown)
    drawing = {"ensemble": ENSEMBLE, "max_exemplars": 2 * drawn // ENSEMBLE, "nearest": nearest}
    started, cpu = time.perf_counter(), time.process_time()
    slots = store.sample_slots(NAME, probability=drawn / size, **drawing)
    elapsed = time.perf_counter() - started, time.process_time() - cpu
    assert len(slots) == ENSEMBLE
    return elapsed


def read_through(path: Path) -> None:
    piece = bytearray(1 << 22)
    with path.open("rb", buffering=0) as file:
        while file.readinto(piece):
            pass


def drop_from_cache(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def report(title: str, times: Mapping[Any, list[tuple[float, float]]], unit: str) -> None:
    baseline = np.median(next(iter(times.values())), axis=0)
    print(f"\n{title}\n{unit:>14} {'median ms':>10} {'p95 ms':>8} {'ratio':>6} {'CPU ms':>8} {'ratio':>6}")
    for key, values in times.items():
        (wall, cpu), p95 = np.median(values, axis=0), np.quantile(values, 0.95, axis=0)[0]
        name = f"{key:,}" if isinstance(key, int) else key
        print(
            f"{name:>14} {wall * 1e3:>10.2f} {p95 * 1e3:>8.2f} {wall / baseline[0]:>6.2f}"
            f" {cpu * 1e3:>8.2f} {cpu / baseline[1]:>6.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 1_000_000, 10_000_000], help="units")
    parser.add_argument("--sample", type=int, default=400, help="expected number of units drawn")
    parser.add_argument("--sweep", type=int, nargs="+", default=[100, 400, 1600], help="samples at the largest size")
    parser.add_argument("--queries", type=int, default=200, help="per figure")
    parser.add_argument("--embeddings", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--quick", action="store_true", help="2,000 and 10,000 units, ten queries per figure")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sizes, arguments.queries = [2_000, 10_000], 10

    with tempfile.TemporaryDirectory(prefix="dpicl-benchmark-") as folder:
        stores: dict[int, ExemplarStore] = {}
        paths = {size: Path(folder) / f"{size}.sqlite" for size in arguments.sizes}
        for size, path in paths.items():
            started = time.perf_counter()
            stores[size] = build(path, size, embeddings=arguments.embeddings)
            print(
                f"built {size:,} units in {time.perf_counter() - started:.0f} s: {path.stat().st_size / 1e9:.2f} GB",
                flush=True,
            )

        for size in sorted(paths, reverse=True):  # if memory cannot hold all, the smaller ones stay
            read_through(paths[size])
        warm: dict[int, list[tuple[float, float]]] = {size: [] for size in stores}
        warm_blocks: dict[int, list[tuple[float, float]]] = {size: [] for size in stores}
        for query in range(arguments.queries + 20):
            for size, store in stores.items():
                times = seconds(store, arguments.sample / size), seconds_by_blocks(store, arguments.sample / size)
                if query >= 20:
                    warm[size].append(times[0])
                    warm_blocks[size].append(times[1])
        report(f"{arguments.sample} units drawn, warm", warm, "units")
        report(f"{arguments.sample} units drawn in blocks of {SHOTS}, warm", warm_blocks, "units")

        largest = max(stores)
        read_through(paths[largest])
        sweep: dict[int, list[tuple[float, float]]] = {sample: [] for sample in arguments.sweep}
        for _ in range(arguments.queries):
            for sample, values in sweep.items():
                values.append(seconds(stores[largest], sample / largest))
        report(f"{largest:,} units, warm", sweep, "units drawn")

        if arguments.embeddings:
            drawn = largest // 10
            ranked: dict[str, list[tuple[float, float]]] = {"all of them": [], "the 4 nearest": []}
            for _ in range(max(arguments.queries // 10, 5)):
                for (_, values), shown in zip(ranked.items(), (None, 4), strict=True):
                    values.append(seconds_by_nearness(stores[largest], drawn, shown))
            report(f"{drawn:,} of {largest:,} units drawn, and each of {ENSEMBLE} slots shows", ranked, "shown")

        cold: dict[int, list[tuple[float, float]]] = {size: [] for size in stores}
        for _ in range(max(arguments.queries // 10, 5)):
            for size, store in stores.items():
                drop_from_cache(paths[size])
                cold[size].append(seconds(store, arguments.sample / size))
        report(f"{arguments.sample} units drawn, cold", cold, "units")


if __name__ == "__main__":
    main()
