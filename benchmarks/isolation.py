"""Does a slot change another's output in vLLM? Every bit of every other output is compared, in every circumstance.

For N slots and each kind of output, the same prompts are asked again: with one slot changed or removed, in reverse
order, with a warm or cold cache, with blocks kept in it, each prompt alone, and beside another query. Their tokens and
log-probabilities must stay the same, bit for bit. Finally, the same checks must find differences in texts sampled
without seeds, which no engine of the service does. The exit status is 1 if any bit differs, or if none does without
seeds.

    python benchmarks/isolation.py                                          # a tiny model, here
    python benchmarks/isolation.py --quick                                  # the same with ten slots only
    python benchmarks/isolation.py --hidden 4096 --layers 32 --dummy        # on a GPU: the shape of a 7B model
    python benchmarks/isolation.py --model smollm2                           # real weights
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from aggregation.token_ensemble import TokenEnsemble
from examples.tiny_model import make_tiny_model
from exemplar_store import Exemplar, Slot
from service.engines.configs import VllmConfig
from service.engines.task import Prompt, TaskSpec, Writing, ZeroShot
from service.engines.vllm.isolation import isolate
from service.engines.vllm.model_folder import model_folder

TICKETS = Path(__file__).parents[1] / "examples" / "support" / "tickets.jsonl"
QUERY = {"text": "My parcel was left in the rain."}
OTHER_QUERY = {"text": "Please cancel my contract."}
LABELS = TaskSpec(
    "support.team@1",
    ("Payments", "Shipping", "Security", "Garden", "Members"),
    Prompt("Say which team answers.", "Ticket: {text}\nTeam: {team}", "Ticket: {text}\nTeam:"),
    "team",
    knowledge_base="support",
)
TEXTS = TaskSpec(
    "support.reply@1",
    (),
    Prompt("Answer the ticket.", "Ticket: {text}\nReply: {reply}", "Ticket: {text}\nReply:"),
    "reply",
    kind="generate",
    knowledge_base="support",
)


class Likeliest(TokenEnsemble):
    """Takes the token that is likeliest without exemplars, so that the same answer is written in every circumstance."""

    def draw(self, public: np.ndarray, opinions: Iterable[np.ndarray | None]) -> int:
        """Draw a token."""
        return int(np.argmax(public))


WRITTEN = replace(TEXTS, candidates=1, writing=Writing(Likeliest(0.1, 2.0, 1.0), 16, 16, 50, 1.0))
KINDS: dict[str, tuple[TaskSpec, float]] = {
    "labels": (LABELS, 0.0),
    "texts, greedy": (TEXTS, 0.0),
    "texts, sampled": (TEXTS, 1.0),
    "written together": (WRITTEN, 0.0),
}
UNSEEDED = "texts, unseeded"

ALONE = 8
"""Number of slots that are also asked alone."""

Seen = dict[tuple[int, ...], tuple[object, ...]]


@dataclass(frozen=True)
class Finding:
    """How many of the compared prompts' outputs differ in a circumstance."""

    slots: int
    kind: str
    circumstance: str
    compared: int
    tokens_differ: int
    logprobs_differ: int


def open_observed(config: VllmConfig) -> Any:
    """Open the service's engine, which here also records each prompt's output, and can sample without seeds."""
    isolation = isolate(config)
    from service.engines.vllm.engine import VllmEngine
    from service.engines.vllm.sessions import SlotSession

    class Noted(SlotSession):
        def __init__(self, engine, prompt, salt, name, **same):
            super().__init__(engine._llm, prompt, salt, name, **same)
            self.engine, self.prompt = engine, tuple(prompt)

        async def opinion(self, read, tokens, voices):
            before, logprobs = self.engine.seen.get(self.prompt, ((), ()))
            if self.prompt == self.engine.failing and len(before) == 4:
                del self.engine.seen[self.prompt]
                raise RuntimeError("it fails midway")
            said = await super().opinion(read, tokens, voices)
            self.engine.seen[self.prompt] = ((*before, *read), (*logprobs, tuple(said)))
            return said

    class Observed(VllmEngine):
        seen: Seen
        seeded = True
        failing: tuple[int, ...] | None = None  # the prompt of a slot that fails while it writes

        def _session(self, task, prompt, **same):
            return Noted(self, prompt, self._salt(task.knowledge_base), str(next(self._number)), **same)

        async def _ask(self, task, prompt, parameters):
            if task.writing:  # the model without exemplars
                return await super()._ask(task, prompt, parameters)
            if parameters.logprob_token_ids is None:
                parameters.logprobs = 5
            if not self.seeded:
                parameters.seed = None
            output = await super()._ask(task, prompt, parameters)
            logprobs = tuple(
                tuple(sorted((token, entry.logprob) for token, entry in step.items())) for step in output.logprobs
            )
            self.seen[tuple(prompt)] = (tuple(output.token_ids), logprobs)
            return output

        async def outcome(self, work: Callable[[], Awaitable[object]], cold: bool) -> Seen:
            """Do the work, and return the output of each of its prompts."""
            if cold:
                await self._llm.reset_prefix_cache()
            self.seen = {}
            await work()
            return self.seen

        def at(self, temperature: float) -> None:
            self._config = self._config.model_copy(update={"temperature": temperature})

    return Observed(config, isolation)


async def check(engine: Any, number: int, kind: str) -> list[Finding]:
    """Compare the outputs of ``number`` slots in all circumstances."""
    engine.seeded = kind != UNSEEDED
    task, temperature = KINDS[kind if engine.seeded else "texts, sampled"]
    engine.at(temperature)
    slots = make_slots(number, 4, seed=number)
    changed = [*slots[: number // 2], *make_slots(1, 7, seed=-number), *slots[number // 2 + 1 :]]
    others = make_slots(number, 3, seed=number + 1)

    def ask(some: Sequence[Slot], query: dict[str, str] = QUERY, task: TaskSpec = task) -> Awaitable[object]:
        return (engine.write if task.writing else engine.contributions)(task, query, some, ZeroShot())

    async def alone() -> None:
        for slot in slots[:ALONE]:
            await ask([slot])

    async def fails() -> None:
        engine.failing = next(iter(expected))
        await ask(slots)
        engine.failing = None

    async def kept(*some: Sequence[Slot]) -> None:
        known = replace(task, kept=await engine.keep(task, slots))
        await ask(others, OTHER_QUERY)
        for one in some:
            await ask(one, task=known)
        await engine.keep(task, [])

    expected = await engine.outcome(lambda: ask(slots), cold=True)
    if len(expected) != number:
        raise SystemExit(f"{number - len(expected)} of {number} prompts were not answered")
    if task.writing and len({len(logprobs) for _, logprobs in expected.values()}) > 1:
        raise SystemExit("a slot fell silent before the others")
    circumstances: dict[str, Callable[[], Awaitable[object]]] = {
        "asked again, warm": lambda: ask(slots),
        "asked again, cold": lambda: ask(slots),
        "one slot changed, warm": lambda: ask(changed),
        "one slot changed, cold": lambda: ask(changed),
        "one slot removed, cold": lambda: ask(slots[: number // 2] + slots[number // 2 + 1 :]),
        "in reverse order, cold": lambda: ask(slots[::-1]),
        "each alone, cold": alone,
        "beside another query, cold": lambda: asyncio.gather(ask(slots), ask(others, OTHER_QUERY)),
        "read ahead and kept, cold": lambda: kept(slots),
        "kept, each alone, cold": lambda: kept(*([slot] for slot in slots[:ALONE])),
    }
    if task.writing:
        circumstances["one slot fails midway, cold"] = fails
    findings = []
    for circumstance, work in circumstances.items():
        seen = await engine.outcome(work, cold=circumstance.endswith("cold"))
        both = expected.keys() & seen.keys()
        least = min(number, ALONE) if "each alone" in circumstance else number - circumstance.startswith("one slot")
        if len(both) < least:
            raise SystemExit(f"{circumstance}: only {len(both)} of {number} prompts were answered again")
        findings.append(
            Finding(
                number,
                kind,
                circumstance,
                len(both),
                sum(expected[prompt][0] != seen[prompt][0] for prompt in both),
                sum(expected[prompt][1] != seen[prompt][1] for prompt in both),
            )
        )
    return findings


def make_slots(number: int, size: int, seed: int) -> list[Slot]:
    """Slots of tickets, all of them different."""
    rows = [json.loads(line) for line in TICKETS.read_text(encoding="utf-8").splitlines()]
    drawn = iter(random.Random(seed).sample(rows, number * size))
    return [tuple(Exemplar(next(drawn), None) for _ in range(size)) for _ in range(number)]


def run(config: VllmConfig, numbers: Sequence[int]) -> Iterator[Finding]:
    """Open the engine, check everything, close it."""
    engine = open_observed(config)
    loop = asyncio.new_event_loop()
    try:
        for number in numbers:
            for kind in KINDS:
                yield from loop.run_until_complete(check(engine, number, kind))
        yield from loop.run_until_complete(check(engine, min(numbers), UNSEEDED))
    finally:
        engine.close()
        loop.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="model, as for `dpicl serve` (default: a new one with random weights)")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dummy", action="store_true", help="let vLLM make up the weights (no file to write and read)")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--slots", type=int, nargs="+", default=[10, 44, 100])
    parser.add_argument("--isolation", choices=["strict", "best_effort"], default="strict")
    parser.add_argument("--quick", action="store_true", help="ten slots only")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.slots = [10]
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or str(
            make_tiny_model(Path(folder), hidden=arguments.hidden, layers=arguments.layers, weights=not arguments.dummy)
        )
        config = VllmConfig(
            name="vllm",
            model=model_folder(model),
            dtype=arguments.dtype,
            load_format="dummy" if arguments.dummy else "auto",
            max_model_len=2048,
            max_answer_tokens=16,
            timeout_s=3600,
            isolation=arguments.isolation,
        )
        print(describe(config), flush=True)
        wrong = unseeded = 0
        print(f"{'N':>4}  {'output':15}  {'circumstance':28}  {'compared':>8}  {'tokens':>6}  {'logprobs':>8}")
        for f in run(config, arguments.slots):
            told = f"{f.slots:4}  {f.kind:15}  {f.circumstance:28}"
            print(f"{told}  {f.compared:8}  {f.tokens_differ:6}  {f.logprobs_differ:8}", flush=True)
            if f.kind == UNSEEDED:
                unseeded += f.tokens_differ
            else:
                wrong += f.tokens_differ + f.logprobs_differ
    print("every bit is the same" if not wrong else "a slot's output depends on what it shares a batch with")
    print("sampling without seeds was found" if unseeded else "sampling without seeds was not found: nothing is shown")
    sys.exit(wrong > 0 or unseeded == 0)


def describe(config: VllmConfig) -> str:
    """The software, device and isolation that are measured."""
    isolation = isolate(config)
    import torch
    import vllm

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    dtype = isolation.arguments.get("dtype", config.dtype)
    return f"vLLM {vllm.__version__} on {device}, dtype {dtype}; isolation: {isolation.sentence}"


if __name__ == "__main__":
    main()
