"""How much of the raw engine's speed the service keeps: HTTP in, released answer out, against `vllm.LLM.generate`.

Both compute the very same prompts: the knowledge base is sampled by blocks with q = 1, so each query asks all of its
blocks, and the baseline renders the same blocks and queries. Prefix caching is off on both sides. The baseline gets all
prompts in one call, tokenized beforehand, once before and once after the service has its turn. The service gets several
queries at once, each with a charge, a sample, a release and two hops between processes.

    python benchmarks/fan_out.py                                                   # two small models, here
    python benchmarks/fan_out.py --quick                                           # a tiny one, and few exemplars
    python benchmarks/fan_out.py --hidden 4096 --layers 32 --dummy --queries 100   # on a GPU: the shape of a 7B model

With `--sentences`, slots write answers together. The baseline is the two forward passes of a token: `vllm.LLM.generate`
writes as many tokens in as many texts, and then in one text, as the model without exemplars does. Prompts are cached on
both sides.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import importlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import torch
import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.isolation import QUERY, WRITTEN, make_slots
from service.engines.configs import VllmConfig
from service.engines.embedding.embedder import Embedder
from service.engines.prompts import render
from service.engines.task import ZeroShot

ROOT = Path(__file__).parents[1]
DPICL = str(Path(sys.executable).parent / "dpicl")
SUPPORT = ROOT / "examples" / "support"
WARM_UP = 4  # queries
TOKENS = 32  # of an answer that slots write together
PLAN: dict[str, Any] = {
    "knowledge_base": "bench",
    "budget": {"epsilon": 8, "delta": 1e-4},
    "tasks": {
        "team": {
            "kind": "classify",
            "labels": ["Payments", "Shipping", "Security", "Garden", "Members"],
            "label_field": "team",
            "prompt": {
                "instruction": "Say which team answers the ticket.",
                "exemplar": "Ticket: {text}\nTeam: {team}",
                "query": "Ticket: {text}\nTeam:",
            },
            "shots": 4,
            "answers": 2000,
            "sampling": "blocks",
            "calibrate": "none",  # else slots also ask public texts: without a cache, each is as much work
            "mechanism": {"type": "rnm_gaussian", "vote": "soft"},
        }
    },
}


def plan(exemplars: int) -> dict:
    """A plan that asks all blocks of the given number of exemplars."""
    team = PLAN["tasks"]["team"]
    return {**PLAN, "tasks": {"team": {**team, "ensemble": exemplars // team["shots"]}}}


@dataclass(frozen=True)
class Speed:
    """Work that one side did, and how long it took."""

    prompts: int
    tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        """Prompts per second."""
        return self.prompts / self.seconds

    def __str__(self) -> str:
        return f"{self.rate:8.0f} prompts/s {self.tokens / self.seconds:10.0f} prompt tokens/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="model, as for `dpicl serve` (default: a new one with random weights)")
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--dummy", action="store_true", help="let vLLM make up the weights (no file to write and read)")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--queries", type=int, nargs="+", default=[96, 16])
    parser.add_argument("--clients", type=int, default=8, help="queries at once")
    parser.add_argument("--isolation", choices=["strict", "best_effort"], default="strict")
    parser.add_argument("--exemplars", type=int, default=400)
    parser.add_argument("--quick", action="store_true", help="the smaller model, 8 queries, 80 exemplars")
    parser.add_argument("--sentences", type=int, metavar="SLOTS", help="number of slots that write together")
    parser.add_argument("--raw", help=argparse.SUPPRESS)  # this script again, as the baseline's process
    arguments = parser.parse_args()
    if arguments.raw:
        task = json.loads(arguments.raw)
        (write_alone if "slots" in task else raw)(task)
        return
    if arguments.quick:
        arguments.hidden, arguments.layers, arguments.queries, arguments.exemplars = [64], [2], [8], 80
    print("DPICL_LATENCY_UNPADDED=true and no prefix cache: see this file")
    shapes = [(0, 0)] if arguments.model else zip(arguments.hidden, arguments.layers, strict=True)
    for (hidden, layers), queries in zip(shapes, arguments.queries, strict=False):
        with tempfile.TemporaryDirectory() as folder:
            name = arguments.model or f"random weights, {layers} layers of {hidden}"
            print(f"{name}; {queries} queries, {arguments.clients} at once", flush=True)
            engine = engine_of(arguments, hidden, layers, Path(folder))
            if arguments.sentences:
                compare_sentences(engine, arguments.sentences)
            else:
                compare(arguments, engine, queries, Path(folder))


def engine_of(arguments: argparse.Namespace, hidden: int, layers: int, folder: Path) -> dict[str, Any]:
    """The engine's configuration."""
    from examples.tiny_model import make_tiny_model
    from service.engines.vllm.model_folder import model_folder

    return {
        "name": "vllm",
        "model": model_folder(arguments.model)
        if arguments.model
        else str(make_tiny_model(folder / "model", hidden=hidden, layers=layers, weights=not arguments.dummy)),
        "dtype": arguments.dtype,
        "load_format": "dummy" if arguments.dummy else "auto",
        "max_model_len": 2048,
        "prefix_caching": bool(arguments.sentences),
        "isolation": arguments.isolation,
        "timeout_s": 280,  # a slot must not abstain, since that makes the service look fast
    }


def compare(arguments: argparse.Namespace, engine: dict[str, Any], number: int, folder: Path) -> None:
    """Measure both sides with one model."""
    os.environ["DPICL_DATABASE_URL"] = f"sqlite:///{folder}/bench.sqlite"
    os.environ["DPICL_ENCRYPTION_KEY"] = base64.b64encode(secrets.token_bytes(32)).decode()
    os.environ |= {"DPICL_QUERY_TIMEOUT_S": "290", "DPICL_LEASE_S": "1300"}
    os.environ["DPICL_LATENCY_UNPADDED"] = "true"  # padding is waiting, not work
    key = fill(folder, arguments.exemplars)
    queries = [f"Where is my parcel number {n}?" for n in range(WARM_UP + number)]
    task = {"engine": engine, "queries": queries, "exemplars": arguments.exemplars}
    before = Speed(**baseline(task))
    seconds = serve(folder, engine, key, queries, arguments.clients)
    after = Speed(**baseline(task))
    service = Speed(before.prompts, before.tokens, seconds)
    print(f"  each query: {before.prompts // number - 1} slots' prompts and one without exemplars, on both sides")
    for name, speed in (("vllm.LLM", before), ("the service", service), ("vllm.LLM again", after)):
        print(f"  {name:16}{speed}")
    print(f"  the service keeps {2 * service.rate / (before.rate + after.rate):.2f} of the engine's speed", flush=True)


def fill(folder: Path, number: int) -> str:
    """Create a knowledge base with a signed plan; return an analyst's key."""
    rows = (SUPPORT / "tickets.jsonl").read_text(encoding="utf-8").splitlines()[:number]
    exemplars = folder / "exemplars.jsonl"
    exemplars.write_text(
        "".join(json.dumps({**json.loads(row), "unit_id": f"u{i}"}) + "\n" for i, row in enumerate(rows))
    )
    fields = [option for name in ("text", "team") for option in ("--field", name)]
    dpicl("kb", "create", "bench", "--epsilon", "8", "--delta", "1e-4", "--public-size", str(number), "--yes", *fields)
    dpicl("kb", "ingest", "bench", str(exemplars))
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan(number)))
    dpicl("plan", "sign", str(folder / "plan.yaml"), "--yes", "--json")
    return dpicl("keys", "create", "bench").strip()


def serve(folder: Path, engine: dict, key: str, queries: list[str], clients: int) -> float:
    """Ask the service; return the seconds from the first question to the last answer."""
    config = yaml.safe_load((ROOT / "service" / "serving" / "serve.yaml").read_text())
    application = config["applications"][0]
    application["args"] = {"engine": engine}
    if torch.cuda.is_available():
        on_gpu = {"name": "EngineDeployment", "ray_actor_options": {"num_cpus": 0.2, "num_gpus": 1}}
        application["deployments"].append(on_gpu)
    (folder / "serve.yaml").write_text(yaml.safe_dump(config))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "serve.log"
    command = [DPICL, "serve", "--config", str(folder / "serve.yaml"), "--port", str(port)]
    with log.open("wb") as sink:
        server = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {key}"}, timeout=300
        ) as client:
            ready(client, server, log)

            def ask(query: str) -> None:
                client.post("/v1/tasks/bench.team/answers", json={"query": query}).raise_for_status()

            for query in queries[:WARM_UP]:
                ask(query)
            with ThreadPoolExecutor(clients) as pool:
                started = time.perf_counter()
                list(pool.map(ask, queries[WARM_UP:]))
                return time.perf_counter() - started
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)


def ready(client: httpx.Client, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the service answers."""
    for _ in range(1200):
        if server.poll() is not None:
            sys.exit(log.read_text())
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    sys.exit(f"not ready in ten minutes:\n{log.read_text()}")


def baseline(task: dict) -> dict[str, Any]:
    """Run the baseline in a process of its own, so that nothing of it is left when the service starts."""
    command = [sys.executable, __file__, "--raw", json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def raw(task: dict) -> None:
    """Compute the prompts that the service computes, with `vllm.LLM.generate`."""
    from service.engines.vllm.isolation import isolate

    config = VllmConfig(**task["engine"])
    isolation = isolate(config)
    from vllm import LLM

    from accounting.plans.plan import parse_plan
    from service.answering.queries import task_spec
    from service.engines.vllm.engine import _next_token
    from service.engines.vllm.label_scoring import LabelTrie
    from service.engines.vllm.tokens import Tokenization
    from service.records.records import open_records
    from service.settings import Settings

    team = parse_plan(plan(task["exemplars"])).tasks["team"]
    spec = task_spec("bench.team", team, "bench", "text", response_field=None, asker="")
    store = open_records(Settings()).store
    slots = store.sample_blocks("bench", probability=1.0, blocks=team.ensemble, max_exemplars=team.slot_cap)
    llm = LLM(
        model=config.model,
        dtype=config.dtype,
        load_format=config.load_format,
        max_model_len=config.max_model_len,
        max_num_seqs=config.max_num_seqs,
        gpu_memory_utilization=config.gpu_memory_utilization,
        enable_prefix_caching=False,
        **isolation.arguments,
    )
    tokens = Tokenization(llm.get_tokenizer(), bool(config.chat), config.chat_template_kwargs)
    trie = LabelTrie(tokens.labels(spec.labels, spec.prompt, spec.answer_field), tokens.ends())
    (question,) = trie.questions
    texts = [
        render(spec.prompt, {"text": query}, slot)
        for query in task["queries"][WARM_UP:]
        for slot in [(), *(slot for slot in slots if slot)]
    ]
    parameters = _next_token(question.tokens)
    texts = [text.rstrip() for text in texts]  # a prompt ends where its answer begins
    llm.generate(texts[:300], parameters, use_tqdm=False)
    started = time.perf_counter()
    outputs = llm.generate(texts, parameters, use_tqdm=False)
    seconds = time.perf_counter() - started
    count = sum(len(output.prompt_token_ids) for output in outputs)
    if [output.prompt_token_ids for output in outputs] != tokens.prompts(texts):
        sys.exit("the baseline's prompts are not the service's")
    print(json.dumps({"prompts": len(texts), "tokens": count, "seconds": seconds}))


def compare_sentences(engine: dict[str, Any], slots: int) -> None:
    """Compare slots that write together with the two forward passes of each of their tokens."""
    together = asyncio.run(write_together(engine, slots))
    alone = baseline({"engine": engine, "slots": slots})
    print(f"  {slots} slots write {TOKENS} tokens: {slots * TOKENS / together:.0f} tokens/s in {together:.2f} s")
    print(f"  vllm.LLM writes {slots} texts: {slots * TOKENS / alone['texts']:.0f} tokens/s in {alone['texts']:.2f} s")
    share = together / (alone["texts"] + alone["text"])
    print(f"  and one in {alone['text']:.2f} s: together takes {share:.2f} times the sum", flush=True)


async def write_together(engine: dict[str, Any], number: int) -> float:
    """Write an answer that does not end early, with its prompts cached; return the seconds that it takes."""
    from service.engines.factory import open_engine

    opened = open_engine(VllmConfig(**engine), Embedder())
    module = importlib.import_module("service.engines.vllm.engine")
    write = module.write

    def write_on(*voices: Any, **rules: Any) -> Coroutine[Any, Any, list[int]]:
        return write(*voices, **{**rules, "measuring": True})  # full length, but slots as they are

    module.write = write_on
    writing = replace(WRITTEN.writing, tokens=TOKENS, longest=TOKENS, top_k=100)
    task = replace(WRITTEN, writing=writing)
    slots = make_slots(number, 4, seed=1)
    try:
        for _ in range(2):
            started = time.perf_counter()
            await opened.write(task, QUERY, slots, ZeroShot())
        return time.perf_counter() - started
    finally:
        opened.close()


def write_alone(task: dict) -> None:
    """Print how long vLLM takes to write as many texts, and one text, with cached prompts."""
    from service.engines.vllm.isolation import isolate

    config = VllmConfig(**task["engine"])
    isolation = isolate(config)
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=config.model,
        dtype=config.dtype,
        load_format=config.load_format,
        max_model_len=config.max_model_len,
        gpu_memory_utilization=config.gpu_memory_utilization,
        enable_prefix_caching=True,
        **isolation.arguments,
    )
    texts = [render(WRITTEN.prompt, QUERY, slot) for slot in make_slots(task["slots"], 4, seed=1)]
    parameters = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False)
    seconds = {}
    for name, some in [("texts", texts), ("texts", texts), ("text", texts[:1])]:
        started = time.perf_counter()
        llm.generate(some, parameters, use_tqdm=False)
        seconds[name] = time.perf_counter() - started
    print(json.dumps(seconds))


def dpicl(*args: str) -> str:
    return subprocess.run([DPICL, *args], stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main()
