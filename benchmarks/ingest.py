"""Rows per second of `dpicl kb ingest`, in batches of fixed shapes and one text at a time.

The same tickets are ingested into a new SQLite database, by one thread and by one thread per core. The ratio compares
processor time, since other work on the machine hardly affects it. `DPICL_EMBEDDING_MODEL` names the model.

    python benchmarks/ingest.py            # about a minute
    python benchmarks/ingest.py --quick    # 40 rows instead of 900: seconds, most of them imports
"""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from exemplar_store import ExemplarStore, Layout, Row, read_json_lines
from service.engines.embedding.embedder import Embed, Embedder, cores
from service.records.database import open_database
from service.records.schema import migrate

TICKETS = Path(__file__).parents[1] / "examples" / "support" / "tickets.jsonl"
FIELDS = ("text", "team", "desk", "reply")
BOUNDED = (10, 40, 100)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of processor time."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def ingest(rows: list[Row], embed: Embed) -> tuple[float, float]:
    """Seconds for all rows, by the clock and of processor time."""
    with TemporaryDirectory() as folder:
        database = open_database(f"sqlite:///{folder}/ingest.sqlite")
        migrate(database)
        store = ExemplarStore(database, secrets.token_bytes(32))
        with database.begin() as connection:
            store.create(connection, "support", public_size=900, fields=list(FIELDS), embedded_field="text")
        took = timed(lambda: store.ingest("support", rows, embed))
        database.dispose()
    return took


def main() -> None:
    """Measure ingest and bounded texts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    quick = parser.parse_args().quick
    count, bounded = (40, BOUNDED[:1]) if quick else (900, BOUNDED[1:])
    with TICKETS.open("rb") as stream:
        rows = list(read_json_lines(stream, Layout(FIELDS)))[:count]
    texts = [row.fields["text"] for row in rows]
    embedder, parallel = Embedder(), Embedder(threads=cores())
    for warmed in (embedder, parallel):
        warmed.embed(texts[:20])
        warmed.embed_many(texts)  # a process tries out every shape once
    print(f"{count} rows; processor time is that of one core")
    for threads, these in ((1, embedder), (cores(), parallel)):
        alone, batches = ingest(rows, these.embed), ingest(rows, these.embed_many)
        for how, (clock, processor) in (("one at a time", alone), ("in batches", batches)):
            each = f"{count / clock:6.0f} rows/s, {1000 * processor / count:5.1f} ms of processor time a row"
            print(f"{threads:>3} threads, {how + ':':14} {each}, {alone[1] / processor:.2f} times as fast")
    for n in bounded:
        some = (texts * n)[:n]
        shown = (timed(lambda: embedder.embed_bounded(some)), timed(lambda: embedder.embed_bounded([None] * n)))  # noqa: B023
        print(f"{n} bounded texts: {shown[0][1]:.2f} s of processor time; {n} times no text: {shown[1][1]:.2f} s")


if __name__ == "__main__":
    main()
