"""How much work blocks spare vLLM: ``sampling: units`` against ``sampling: blocks`` and blocks that are read ahead.

Slots are drawn from a knowledge base on SQLite and passed to the service's engine, as in a query: first the probe, then
all slots. The cache is emptied, filled by queries until every block has been drawn, and then measured. A block's
exemplars must come in the same order each time it is drawn, otherwise nothing could be cached; this is checked first.
Queries of blocks that are read ahead take turns with vLLM alone, which gets the prompts of another question to as many
blocks.

    python benchmarks/prefix_cache.py                                     # a tiny model, here
    python benchmarks/prefix_cache.py --quick                             # a tinier one, asked less
    python benchmarks/prefix_cache.py --hidden 4096 --layers 32 --dummy   # on a GPU: the shape of a 7B model
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from examples.tiny_model import make_tiny_model
from exemplar_store import ExemplarStore, Row, Slot
from exemplar_store.tables import metadata
from service.engines.configs import VllmConfig
from service.engines.prompts import render
from service.engines.task import Prompt, TaskSpec
from service.engines.vllm.isolation import isolate
from service.engines.vllm.model_folder import model_folder
from service.records.database import open_database

TICKETS = Path(__file__).parents[1] / "examples" / "support" / "tickets.jsonl"
TASK = TaskSpec(
    "bench.team@1",
    ("Payments", "Shipping", "Security", "Garden", "Members"),
    Prompt("Say which team answers the ticket.", "Ticket: {text}\nTeam: {team}", "Ticket: {text}\nTeam:"),
    "team",
    knowledge_base="bench",
    slot_tokens=220,
    calibration=tuple({"text": text} for text in ("N/A", "", "[MASK]")),
)
Sample = Callable[[], Sequence[Slot]]


@dataclass(frozen=True)
class Cost:
    """The cost of a number of queries."""

    queries: int
    prompt_tokens: int
    cached_tokens: int
    seconds: float

    @property
    def computed(self) -> float:
        """Prompt tokens computed per query."""
        return (self.prompt_tokens - self.cached_tokens) / self.queries

    @property
    def rate(self) -> float:
        """Queries per second."""
        return self.queries / self.seconds

    def __str__(self) -> str:
        share = self.cached_tokens / self.prompt_tokens
        return f"{self.prompt_tokens / self.queries:9.0f}  {share:6.1%}  {self.computed:9.0f}  {self.rate:9.2f}"


def open_counted(config: VllmConfig, **cache: int | None) -> Any:
    """Open the service's engine, which here also counts its prompts' tokens and those that were cached."""
    isolation = isolate(config)
    given = {name: value for name, value in cache.items() if value}
    isolation = replace(isolation, arguments={**isolation.arguments, **given})
    from vllm import SamplingParams
    from vllm.inputs import tokens_input

    from service.engines.vllm.engine import VllmEngine

    class Counted(VllmEngine):
        prompt_tokens = cached_tokens = 0
        computed: tuple[int, ...] = ()

        async def empty(self) -> None:
            await self._llm.reset_prefix_cache()

        def count(self) -> None:
            generate = self._llm.generate

            async def counted(*args: Any, **options: Any) -> Any:
                async for result in generate(*args, **options):
                    self.prompt_tokens += len(result.prompt_token_ids)
                    self.cached_tokens += result.num_cached_tokens
                    self.computed += (len(result.prompt_token_ids) - result.num_cached_tokens,)
                    yield result

            self._llm.generate = counted

        async def bare(self, name: str, prompts: Sequence[Sequence[int]]) -> None:
            """Ask vLLM alone for the labels' log-probabilities after these prompts, with a knowledge base's salt."""

            async def one(prompt: Sequence[int], wanted: tuple[int, ...]) -> None:
                given = tokens_input(list(prompt), cache_salt=self._salt(name))
                parameters = SamplingParams(temperature=0.0, max_tokens=1, logprob_token_ids=list(wanted))
                async for _ in self._llm.generate(given, parameters, str(next(self._number))):
                    pass

            asked = self._trie(TASK.labels, TASK.prompt, TASK.answer_field).questions
            await asyncio.gather(*(one([*prompt, *part.prefix], part.tokens) for prompt in prompts for part in asked))

        def describe_cache(self) -> str:
            """The cache's size in tokens, and the number of tokens in each piece."""
            cache = self._llm.vllm_config.cache_config
            return f"a cache of {cache.num_gpu_blocks * cache.block_size} tokens in pieces of {cache.block_size}"

    engine = Counted(config, isolation)
    engine.count()
    return engine


def fill(folder: Path, number: int) -> ExemplarStore:
    """Create a knowledge base of tickets, one per customer; those beyond 900 repeat texts after other first words."""
    tickets = [json.loads(line) for line in TICKETS.read_text(encoding="utf-8").splitlines()]

    def rows() -> Iterator[Row]:
        for at in range(number):
            ticket = tickets[at % len(tickets)]
            again = f"Case {at}. " if at >= len(tickets) else ""
            yield Row(at + 1, f"u{at}", {"text": again + ticket["text"], "team": ticket["team"]})

    database = open_database(f"sqlite:///{folder}/bench.sqlite")
    metadata.create_all(database)
    store = ExemplarStore(database, os.urandom(32))
    with database.begin() as connection:
        store.create(connection, "bench", public_size=number, fields=["text", "team"], embedded_field="text")
    store.ingest("bench", rows())
    return store


def check_order(sample_blocks: Callable[..., Sequence[Slot]]) -> list[Slot]:
    """Draw all blocks; exit if their exemplars do not come in the same order the second time."""
    once, again = list(sample_blocks(probability=1.0)), sample_blocks(probability=1.0)
    if any([one.fields for one in a] != [one.fields for one in b] for a, b in zip(once, again, strict=True)):
        sys.exit("a block's exemplars come in another order each time it is drawn")
    return once


def ask_about(words: int | None) -> Iterator[str]:
    """Endless queries, all different: tickets from the end of the file, cut to ``words`` words."""
    tickets = [json.loads(line)["text"].split() for line in TICKETS.read_text(encoding="utf-8").splitlines()[-100:]]
    for number, ticket in enumerate(cycle(tickets)):
        yield " ".join([f"Number {number}.", *ticket[:words]])


async def cost(engine: Any, sample: Sample, texts: Iterator[str], warm_up: int, queries: int, clients: int) -> Cost:
    """Measure ``queries`` queries after ``warm_up`` others, ``clients`` at once."""

    async def ask(some: Sequence[str]) -> None:
        for text in some:
            zero_shot = await engine.zero_shot(TASK, {"text": text})
            slots = await asyncio.to_thread(sample)
            outputs = await engine.contributions(TASK, {"text": text}, slots, zero_shot)
            if any(output is None for output, slot in zip(outputs, slots, strict=True) if slot):
                sys.exit("a slot was not answered in ten minutes: ask fewer at once (--clients)")

    async def ask_all(number: int) -> None:
        some = list(islice(texts, number))
        await asyncio.gather(*(ask(some[client::clients]) for client in range(clients)))

    await engine.empty()
    await ask_all(warm_up)
    engine.prompt_tokens = engine.cached_tokens = 0
    started = time.perf_counter()
    await ask_all(queries)
    return Cost(queries, engine.prompt_tokens, engine.cached_tokens, time.perf_counter() - started)


async def read_ahead(
    engine: Any, sample: Sample, blocks: Sequence[Slot], most: int, texts: Iterator[str], queries: int, pinned: bool
) -> str:
    """Measure queries of kept blocks, each followed by one to vLLM alone; return a report of the figures."""
    from service.engines.vllm import keeping

    if problem := await engine.room(TASK, 60, len(blocks), most):
        return problem
    started = time.perf_counter()
    with mock.patch.object(keeping, "PIN", keeping.PIN if pinned else "nothing"):
        task = replace(TASK, kept=await engine.keep(TASK, blocks))
    read_s = time.perf_counter() - started
    question = own = raw = 0.0
    engine.prompt_tokens = engine.cached_tokens = slots = evicted = 0
    for number in range(queries + 1):
        text, other = ({"text": next(texts)} for _ in range(2))
        drawn, engine.computed = [slot for slot in sample() if slot], ()
        prompts = engine._keeper.continued(task, other, drawn)
        started = time.perf_counter()
        zero_shot = await engine.zero_shot(task, text)
        outputs = await engine.contributions(task, text, drawn, zero_shot)
        took = time.perf_counter() - started
        counted = engine.prompt_tokens, engine.cached_tokens
        evicted += sum(computed > zero_shot.tokens + engine._block_size for computed in engine.computed)
        if any(output is None for output in outputs):
            sys.exit("a kept block was not answered")
        started = time.perf_counter()
        public = engine._tokens[TASK.kind].prompts([render(TASK.prompt, other)])
        await engine.bare(f"questions to {TASK.knowledge_base}", public)
        await engine.bare(TASK.knowledge_base, [prompt for (prompt,), _ in prompts])
        if number:  # the first one warms up what both use
            own, raw = own + took, raw + time.perf_counter() - started
            slots, question = slots + len(drawn), question + len(drawn) * zero_shot.tokens
            engine.prompt_tokens, engine.cached_tokens = counted
        else:
            engine.prompt_tokens = engine.cached_tokens = 0
    await engine.keep(TASK, [])
    computed = (engine.prompt_tokens - engine.cached_tokens) / question
    return (
        f"kept: {len(blocks)} blocks read ahead in {read_s:.0f} s; {slots / queries:.0f} slots a query, "
        f"{question / slots:.0f} tokens a question; computed {computed:.2f} times slots × tokens of the question "
        f"(goal 1.3), {evicted} slots' blocks evicted; {queries / own:.2f} queries/s, {raw / own:.2f} times vLLM "
        "alone (goal 0.95)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="model, as for `dpicl serve` (default: a new one with random weights)")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dummy", action="store_true", help="let vLLM make up the weights (no file to write and read)")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--isolation", choices=["strict", "best_effort"], default="strict")
    parser.add_argument("--kv-gib", type=int, default=3, help="GiB of cache on a CPU; on a GPU, what is left")
    parser.add_argument("--kept-only", action="store_true", help="only the blocks that are read ahead")
    parser.add_argument("--unpinned", type=int, help="leave blocks to vLLM's own cache, with this number of pieces")
    parser.add_argument("--block-size", type=int, help="tokens that vLLM caches together")
    parser.add_argument("--exemplars", type=int, default=800)
    parser.add_argument("--ensemble", type=int, default=40)
    parser.add_argument("--shots", type=int, default=4)
    parser.add_argument("--query-words", type=int, help="cut queries to this number of words (default: uncut)")
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--clients", type=int, default=4, help="queries at once")
    parser.add_argument("--quick", action="store_true", help="a tinier model, 160 exemplars, 8 queries of 10 slots")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.hidden, arguments.layers = 64, 2
        arguments.exemplars, arguments.ensemble, arguments.queries = 160, 10, 8
    with tempfile.TemporaryDirectory() as folder:
        measure(arguments, Path(folder))


def measure(arguments: argparse.Namespace, folder: Path) -> None:
    """Measure both ways of sampling with one engine."""
    from benchmarks.isolation import describe

    store = fill(folder, arguments.exemplars)
    blocks = arguments.exemplars // arguments.shots
    most = 2 * arguments.shots
    probability = arguments.shots * arguments.ensemble / arguments.exemplars

    def sample_units() -> Sequence[Slot]:
        return store.sample_slots("bench", probability=probability, ensemble=arguments.ensemble, max_exemplars=most)

    def sample_blocks(probability: float = probability) -> Sequence[Slot]:
        return store.sample_blocks("bench", probability=probability, blocks=blocks, max_exemplars=most)

    held = check_order(sample_blocks)
    model = arguments.model or str(
        make_tiny_model(folder / "model", hidden=arguments.hidden, layers=arguments.layers, weights=not arguments.dummy)
    )
    config = VllmConfig(
        name="vllm",
        model=model_folder(model),
        dtype=arguments.dtype,
        load_format="dummy" if arguments.dummy else "auto",
        max_model_len=2048,
        kv_cache_gib=arguments.kv_gib,
        timeout_s=600,
        isolation=arguments.isolation,
    )
    print(describe(config))
    engine = open_counted(config, block_size=arguments.block_size, num_gpu_blocks_override=arguments.unpinned)
    loop = asyncio.new_event_loop()
    try:
        tokens = sum(len(prompt) for prompts in engine._prompts(TASK, {"text": ""}, held) for prompt in prompts[:1])
        print(
            f"{arguments.model or f'random weights, {arguments.layers} layers of {arguments.hidden}'}; "
            f"{engine.describe_cache()}; the {len(held)} blocks hold {tokens}"
        )
        # After these queries, the expected number of blocks that have not been drawn is 0.1.
        warm_up = math.ceil(math.log(0.1 / blocks) / math.log1p(-probability)) if probability < 1 else 1
        texts = ask_about(arguments.query_words)
        largest = round(1.5 * arguments.ensemble)
        pinned = arguments.unpinned is None
        reading = read_ahead(engine, sample_blocks, held, largest, texts, arguments.queries, pinned)
        print(loop.run_until_complete(reading), flush=True)
        if arguments.kept_only:
            return
        print(
            f"{arguments.exemplars} exemplars, {arguments.shots} shots, an ensemble of {arguments.ensemble}; "
            f"{arguments.queries} queries after {warm_up} others, {arguments.clients} at once",
            flush=True,
        )
        print(f"{'sampling':8}  {'prompt tokens':>13}  {'cached':>6}  {'computed':>9}  {'queries/s':>9}   (per query)")
        costs = []
        for name, sample in (("units", sample_units), ("blocks", sample_blocks)):
            work = cost(engine, sample, ask_about(arguments.query_words), warm_up, arguments.queries, arguments.clients)
            costs.append(loop.run_until_complete(work))
            print(f"{name:8}      {costs[-1]}", flush=True)
        units, by_blocks = costs
        print(
            f"blocks compute {units.computed / by_blocks.computed:.1f} times fewer prompt tokens, "
            f"and answer {by_blocks.rate / units.rate:.2f} times as many queries"
        )
    finally:
        engine.close()
        loop.close()


if __name__ == "__main__":
    main()
