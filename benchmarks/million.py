"""A knowledge base as it grows to a million exemplars: what an admin waits for, and what a caller does.

    python benchmarks/million.py [--sizes 10000 100000 1000000] [--database URL] [--callers 10 100] [--quick]

Every row is a unit with 200 characters and a random embedding, so what is measured is all but embedding. Each size has
a database of its own: a SQLite file, or an empty PostgreSQL database that ``--database`` names. Everything goes
through the service's own functions, with padded latency and a chosen grain. A cold start has an open service answer
after the operating system has dropped the file from its cache, which cannot be asked of PostgreSQL here.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import structlog

sys.path.insert(0, str(Path(__file__).parents[1]))

from accounting.plans.plan import load_plan
from benchmarks.sampling import drop_from_cache
from exemplar_store import Row
from service.answering.answering import BusyError
from service.answering.plans.signing import prepare, sign
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.operations.services import Services, open_services
from service.records.records import open_records
from service.settings import Settings

DIMENSION = 384
TEXT = "the parcel that I ordered has not arrived yet and nobody answers my calls about it, please help me soon " * 2
PLAN = """
knowledge_base: calls
budget: {epsilon: 3, delta: 1.0e-7}
tasks:
  NAME:
    kind: classify
    labels: [late, lost, broken, other]
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
"""
VOTES = f"""{PLAN.replace("NAME", "topic")}    order: nearest
    drawn: 16
    shots: 1
    max_exemplars: 32
    ensemble: 100
    answers: 1000
    mechanism: {{type: rnm_gaussian, vote: soft}}
"""
ONCE = f"{PLAN.replace('NAME', 'alone')}    release: once\n    mechanism: {{type: softmax_regression}}\n"
LABELS = ("late", "lost", "broken", "other")
OVERRAN = Counter[str]()


class RandomVectors:
    """An embedder whose embeddings mean nothing: one of 4,096 unit vectors."""

    def __init__(self) -> None:
        vectors = np.random.default_rng(1).normal(size=(4096, DIMENSION)).astype(np.float32)
        self._vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def embed(self, texts: Sequence[str | None]) -> np.ndarray:
        """Unit vectors, float32 (texts, 384)."""
        return np.resize(self._vectors, (len(texts), DIMENSION))

    embed_many = embed_bounded = embed


@contextmanager
def timed(what: str, rows: int = 0) -> Iterator[None]:
    """Print how long the block took, by the clock and of the processor, and the most memory so far."""
    clock, processor = time.perf_counter(), time.process_time()
    yield
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    a_row = f"{1e6 * processor / rows:9.1f}" if rows else " " * 9
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"  {what:<44}{clock:10.3f}{processor:10.3f}{a_row}{most:9.0f}", flush=True)


def people(size: int) -> Iterator[Row]:
    """One exemplar of each person."""
    return (Row(n, f"person-{n}", {"text": f"{n} {TEXT}", "label": LABELS[n % 4]}) for n in range(size))


def open_with(url: str) -> Services:
    """The service on a database, with the engine that compares sentences."""
    vectors = RandomVectors()
    return open_services(
        open_records(Settings(database_url=url, development=True, witness_url="none")),
        NearestExemplarEngine(vectors),
        vectors,
    )


async def ask(services: Services, key: str, callers: int, questions: int, first: int) -> None:
    """Ask questions, some callers at once, and print what they met."""
    took, refused = list[float](), 0

    async def call(caller: int) -> None:
        nonlocal refused
        for number in range(questions):
            text = f"question {first + caller * questions + number}"
            began = time.perf_counter()
            while True:
                try:
                    await services.answering.answer("calls.topic", {"text": text}, key_id=key)
                    break
                except BusyError as error:
                    refused += 1
                    await asyncio.sleep(error.retry_after_s)
            took.append(time.perf_counter() - began)

    before, began = OVERRAN["answer_overran"], time.perf_counter()
    await asyncio.gather(*map(call, range(callers)))
    late, rate = OVERRAN["answer_overran"] - before, len(took) / (time.perf_counter() - began)
    waited = f"median {statistics.median(took):.2f} s, most {max(took):.2f} s, {rate:.2f} answers/s"
    print(f"  {callers} callers: {waited}, {late} of {len(took)} overran, {refused} refused for a time", flush=True)


async def measure(url: str, size: int, callers: Sequence[int]) -> None:
    """One size, from an empty database to a cold start."""
    print(f"\n{size:,} exemplars{'seconds':>42}{'processor':>10}{'µs a row':>9}{'MiB':>9}")
    services = open_with(url)
    records = services.records
    records.create_knowledge_base(
        "calls",
        epsilon=8,
        delta=1e-6,
        public_size=size,
        fields=["text", "label"],
        embedded_field="text",
        max_exemplar_bytes=4096,
    )
    with timed("an upload", size):
        records.ingest("calls", people(size), services.embedder.embed_many, by="benchmark")
    with timed("the same upload again", size):
        records.ingest("calls", people(size), services.embedder.embed_many, by="benchmark")
    with timed("sign a plan of votes"):
        sign(records, prepare(records, load_plan(VOTES)), "benchmark")
    with timed("measure its grain"):
        (measured,) = await services.grains.all()
    print(f"  {'grain':<44}{measured.grain_s:10.3f}")
    key, _ = records.keys.create("callers", "analyst")
    with timed("the first answer"):
        await services.answering.answer("calls.topic", {"text": "the first question"}, key_id=key.id)
    for number in callers:
        await ask(services, key.id, number, 3, 1_000 * number)
    with timed("forget a person"):
        records.forget("calls", "person-0", by="benchmark")
    with timed("sign a release, made once", size):
        prepared = prepare(records, load_plan(ONCE))
        await asyncio.to_thread(sign, records, prepared, "benchmark", make=services.make)
    grains = await services.grains.all()
    print(f"  grains: {', '.join(f'{one.task} {one.grain_s:g} s' for one in grains)}")
    with timed("the first answer of the release"):
        await services.answering.answer("calls.alone", {"text": "the first question"}, key_id=key.id)
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        back_up(path)
        records.database.dispose()
        drop_from_cache(Path(path))
        with timed("a cold start: open, measure"):
            services = open_with(url)
            measured = (await services.grains.all())[0]
        drop_from_cache(Path(path))
        before = OVERRAN["answer_overran"]
        with timed(f"its first answer, grain {measured.grain_s:g} s"):
            await services.answering.answer("calls.topic", {"text": "a cold question"}, key_id=key.id)
        print(f"  {'answers that overran in the cold':<44}{OVERRAN['answer_overran'] - before:10}")
    services.records.database.dispose()


def back_up(path: str) -> None:
    """Copy a SQLite database by SQLite's own backup."""
    with timed("a backup"), closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(f"{path}.copy")) as copy:
        source.backup(copy)
    print(f"  {'size of the file, MiB':<44}{os.path.getsize(path) / 2**20:10.0f}")


def main() -> None:
    """Measure each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--database", help="an empty PostgreSQL database, for one size")
    parser.add_argument("--callers", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--quick", action="store_true", help="2,000 exemplars and 4 callers")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.callers = [2_000], [4]
    if options.database and len(options.sizes) > 1:
        parser.error("--database is for one size: name it with --sizes")

    def count(_logger: object, _name: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
        OVERRAN[str(event["event"])] += 1
        raise structlog.DropEvent

    structlog.configure(processors=[count])
    logging.disable(logging.WARNING)
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(options.database or f"sqlite:///{folder}/million.sqlite", size, options.callers))


if __name__ == "__main__":
    main()
