"""InferDPT (arXiv 2310.12214) end to end: a remote model continues a sanitised text, a local one fits what comes back.

Both are asked over HTTP: the same server may play both. Each paragraph's first words are the question; what follows
them is the truth. Compared are the continuation of the clear text, of the sanitised one, and that one realigned.

    python -m research.studies.inferdpt DATA/wikitext2/test_paragraphs.jsonl http://127.0.0.1:8000/v1 smollm2
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from research.evaluation.text_metrics import similarities
from service.answering.realigning import Realigner
from service.engines.configs import OpenAiCompatibleConfig, RealignConfig
from service.engines.embedding.embedder import Embedder, cores
from service.engines.embedding.local import local_sanitizer
from service.engines.remote.chat_endpoint import ChatEndpoint
from service.engines.remote.completion import Reply

_ASK = "Continue this text with one paragraph. Reply with the new paragraph alone.\n\n{text}"
_WORDS, _TOKENS = 50, 100


async def continued(endpoint: ChatEndpoint, texts: Sequence[str]) -> list[str]:
    replies = await asyncio.gather(
        *(endpoint.ask(_ASK.format(text=text), temperature=0.0, max_tokens=_TOKENS) for text in texts)
    )
    return [reply.text if isinstance(reply, Reply) else "" for reply in replies]


async def run(arguments: argparse.Namespace) -> None:
    rows = [json.loads(line)["text"].split() for line in arguments.file.read_text().splitlines()]
    rows = [row for row in rows if len(row) >= 3 * _WORDS][: arguments.rows]
    asked, truth = ([" ".join(row[a:b]) for row in rows] for a, b in ((0, _WORDS), (_WORDS, 3 * _WORDS)))
    server = {"base_url": arguments.url, "model": arguments.model}
    remote = ChatEndpoint(OpenAiCompatibleConfig(name="openai_compatible", isolation="best_effort", **server))
    realigner = Realigner(RealignConfig(**server, max_answer_tokens=_TOKENS, timeout_s=arguments.timeout_s))
    embed = Embedder(threads=cores()).embed

    def measured(name: str, texts: Sequence[str]) -> None:
        cosines = np.sum(embed(asked) * embed(texts), axis=1)
        rouges = np.array([similarities(text, right)[0] for text, right in zip(texts, truth, strict=True)])
        errors = [values.std(ddof=1) / np.sqrt(len(values)) for values in (cosines, rouges)]
        empty = sum(not text for text in texts)
        print(f"{name:24} {cosines.mean():.3f} ± {errors[0]:.3f}  {rouges.mean():5.1f} ± {errors[1]:.1f}  {empty:3}")

    print(f"{len(rows)} paragraphs     cosine to question  ROUGE-1 to truth  empty")
    measured("clear", await continued(remote, asked))
    for epsilon in arguments.epsilon:
        sanitizer = local_sanitizer(epsilon)
        sanitised = [one.text for one in sanitizer.sanitize_all(asked)]
        measured(f"ε = {epsilon:g}, the question", sanitised)
        answers = await continued(remote, sanitised)
        measured(f"ε = {epsilon:g}, the answer", answers)
        fitted = await asyncio.gather(*(realigner(*pair) for pair in zip(asked, answers, strict=True)))
        measured(f"ε = {epsilon:g}, realigned", [text or "" for text in fitted])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[4.0, 8.0, 12.0])
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--timeout-s", type=float, default=300.0)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
