"""InferDPT (arXiv 2310.12214) end to end: a remote model continues a sanitised text, a local one extracts.

Each paragraph's first 50 words are the text; what follows them is the truth. The rows of the table are answers: of the
remote model to the clear text, of the local model alone, and for each ε what the remote model answers to the sanitised
text and what the local one extracts from that. Without ``--url``, one model in this process plays both: small figures
of a small model, which show that the steps work, not what large models can do.

    python -m research.studies.inferdpt DATA/wikitext2/test_paragraphs.jsonl --rows 8
    python -m research.studies.inferdpt DATA/wikitext2/test_paragraphs.jsonl --url http://127.0.0.1:8000/v1 --model NAME

Columns, each a mean with its standard error: ROUGE-1 and ROUGE-L (F1, %) against the answer to the clear text;
diversity, the product over n = 2, 3, 4 of different/all n-grams (the paper prints a sum, but its figures are products);
coherence, the cosine of MiniLM's embeddings of text and answer (the paper has SimCSE's); and the leak, the share of the
text's words and 2-grams, without stopwords, that the answer repeats. Of an extracted answer, which stays here, it
measures how much of the text the answer goes on with.

MAUVE is not measured: ``mauve-text`` had its last release in July 2024, needs faiss and GPT-2, and compares thousands
of texts.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from research.evaluation.text_metrics import similarities
from sanitization.inference import InferDpt, extraction_prompt
from sanitization.published.dp_prompt import DpPrompt
from sanitization.stopwords import STOPWORDS
from sanitization.tokens import Partition
from service.engines.configs import OpenAiCompatibleConfig
from service.engines.embedding.embedder import Embedder, cores
from service.engines.embedding.local import local_sanitizer
from service.engines.local_model import LocalModel
from service.engines.remote.asking import Prompt, ask_all

_WORDS = 50
Write = Callable[[Sequence[str]], list[str]]


def remote_model(arguments: argparse.Namespace, local: LocalModel) -> Write:
    if arguments.url is None:
        return local.write
    config = OpenAiCompatibleConfig(
        name="openai_compatible", isolation="best_effort", base_url=arguments.url, model=arguments.model
    )

    def write(prompts: Sequence[str]) -> list[str]:
        asked = [Prompt(prompt, arguments.tokens) for prompt in prompts]
        return ask_all(config, asked, temperature=arguments.temperature)

    return write


def diversity(text: str) -> float:
    """The product of the shares of different n-grams for n = 2, 3, 4; 0 of a text of fewer than four words."""
    words = text.lower().split()
    grams = [[tuple(words[at : at + n]) for at in range(len(words) - n + 1)] for n in (2, 3, 4)]
    return math.prod(len(set(one)) / len(one) for one in grams) if grams[-1] else 0.0


def leaks(text: str, answer: str) -> tuple[float, float]:
    """Shares of a text's words, and of its pairs of neighbours, that an answer repeats; stopwords count as no words."""
    asked, said = _content(text), _content(answer)
    pairs, repeated = set(pairwise(asked)), set(pairwise(said))
    return len(set(asked) & set(said)) / max(1, len(set(asked))), len(pairs & repeated) / max(1, len(pairs))


def _content(text: str) -> list[str]:
    tokens, _ = Partition(["punctuation"]).tokens(text)
    return [token.text.lower() for token in tokens if token.kind == "word" and token.text.lower() not in STOPWORDS]


def measured(
    texts: Sequence[str], answers: Sequence[str], clear: Sequence[str], embed: Callable[[Sequence[str]], np.ndarray]
) -> dict[str, tuple[float, float]]:
    """Mean and standard error of each column."""
    rouge = np.array([similarities(answer, right) for answer, right in zip(answers, clear, strict=True)])
    leaked = np.array([leaks(text, answer) for text, answer in zip(texts, answers, strict=True)])
    columns = {
        "rouge1": rouge[:, 0],
        "rougeL": rouge[:, 2],
        "diversity": np.array([diversity(answer) for answer in answers]),
        "coherence": np.sum(embed(texts) * embed([answer or " " for answer in answers]), axis=1),
        "words leaked": leaked[:, 0],
        "pairs leaked": leaked[:, 1],
    }
    return {name: (float(c.mean()), float(c.std(ddof=1) / np.sqrt(len(c)))) for name, c in columns.items()}


def run(arguments: argparse.Namespace) -> None:
    rows = [json.loads(line)["text"].split() for line in arguments.file.read_text().splitlines()]
    texts = [" ".join(row[:_WORDS]) for row in rows if len(row) >= 3 * _WORDS][: arguments.rows]
    local = LocalModel(arguments.local_model, arguments.tokens, arguments.temperature)
    remote, embed = remote_model(arguments, local), Embedder(threads=cores()).embed
    steps = InferDpt(local_sanitizer(8.0).sanitize, str, str)

    def answered(given: Sequence[str]) -> list[str]:
        return remote([steps.remote_prompt(text) for text in given])

    clear = answered(texts)

    def show(name: str, answers: Sequence[str], given: Sequence[str]) -> None:
        cells = measured(given, answers, clear, embed)
        print(f"{name:34}" + "".join(f"  {mean:6.3f} ± {error:.3f}" for mean, error in cells.values()), flush=True)
        if arguments.out:
            with arguments.out.open("a") as out:
                out.write(json.dumps({"row": name, "n": len(texts), "answers": list(answers), **cells}) + "\n")

    print(f"n = {len(texts)}" + " " * 30 + "ROUGE-1, ROUGE-L, diversity, coherence, words leaked, pairs leaked")
    show("the remote model, clear text", clear, texts)
    show("the local model alone", local.write([steps.remote_prompt(text) for text in texts]), texts)
    mechanisms: list[tuple[str, Write]] = [
        (f"{name}, ε = {epsilon:g} a word", partial(_sanitised, name, epsilon))
        for name in arguments.mechanism
        for epsilon in arguments.epsilon
    ]
    for temperature in arguments.paraphrase:
        paraphrase = DpPrompt(local, arguments.clip[0], arguments.clip[1], temperature, arguments.tokens)
        mechanisms.append((f"dp_prompt, ε = {paraphrase.true_epsilon:.0f} a text", paraphrase.paraphrase))
    for name, sanitise in mechanisms:
        sanitised = sanitise(texts)
        show(f"{name}: the text", sanitised, texts)
        answers = answered(sanitised)
        show(f"{name}: remote", answers, texts)
        extracted = local.write([extraction_prompt(*pair) for pair in zip(texts, answers, strict=True)])
        show(f"{name}: extracted", extracted, texts)


def _sanitised(name: str, epsilon: float, texts: Sequence[str]) -> list[str]:
    return [done.text for done in local_sanitizer(epsilon, name).sanitize_all(texts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--url", help="the remote model's chat completions; else the local model plays it")
    parser.add_argument("--model", default="", help="the remote model's name")
    parser.add_argument("--local-model", default="smollm2")
    parser.add_argument("--mechanism", nargs="*", default=["medoid_rr"])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[4.0, 8.0, 12.0])
    parser.add_argument("--paraphrase", type=float, nargs="*", default=[], help="temperatures of DP-Prompt")
    parser.add_argument("--clip", type=float, nargs=2, default=[0.0, 30.0], help="limits of DP-Prompt's logits")
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--out", type=Path, help="file that answers and figures are added to")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
