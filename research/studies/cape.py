"""Cape (arXiv 2505.05922) in context on SST-2 and QNLI: the paper's table 5 and figure 8, with a local model.

Texts are sanitised word by word while the context model reads, and a chat model labels them with the paper's prompts
(appendix D): the likelier of two answers. Each row is one mechanism: as corrected at a true ε, which reads what was
released, or as published at a nominal ε, which reads the raw text. It has the accuracy, and of the known words that
were drawn the shares that were kept and that are among the ten words nearest to the output (the paper's KNN attack);
after each its standard error over texts. For a published row ``true_epsilon`` is the largest in eight public contexts,
a lower bound of it in all, and ``next_word`` what each later word costs beyond, between two of these contexts.

    python -m research.studies.cape DATA sst2 --rows 60 > sst2.csv                # some minutes on two cores
    python -m research.studies.cape DATA qnli --rows 872 --epsilon 8 12 16 --nominal 6 14 \\
        --logit-power 0 0.2 0.5 1 1.2 1.5 --buckets 20 50 100 150 200 --context-model FOLDER --reader FOLDER
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from research.sanitization.sanitised_texts import Share
from sanitization.audit import audit
from sanitization.causal_model import CausalModel
from sanitization.contextual import ContextualSanitizer, InContext, Shape, Step, in_contexts, open_contextual
from sanitization.mechanisms import serve
from sanitization.text import TextSanitizer
from sanitization.tokens import Partition
from sanitization.vocabulary import IntArray
from service.engines.embedding.words import cache_folder, embedder_here, local_words
from service.engines.vllm.model_folder import model_folder

KEEP = ("stopwords", "punctuation")
_LOOKED_AT = 64


class Form(NamedTuple):
    """A data set's fields, its prompt, and what the reader answers for each label."""

    fields: tuple[str, ...]
    system: str
    prompt: str
    answers: Mapping[str, str]


FORMS = {
    "sst2": Form(
        ("text",),
        "You are a helpful assistant. Classify if the sentence is positive or negative sentiment. Just gives the "
        "answer in positive, negative.",
        '"Content": {}',
        {"positive": "positive", "negative": "negative"},
    ),
    "qnli": Form(
        ("question", "sentence"),
        "You are a helpful assistant trained to determine whether a given context sentence contains the information "
        'needed to answer the given question. If the context answers the question, respond "Yes". Otherwise, respond '
        '"No".',
        '"Question": {}\n"Context": {}',
        {"entailment": "Yes", "not_entailment": "No"},
    ),
}


class RawCape(ContextualSanitizer):
    """Cape as published: its model reads the raw text, so nothing it writes is protected as it claims."""

    def _shown(self, step: Step) -> str:
        return step.token.text


class Chat:
    """A chat model that chooses between answers by their first piece.

    From their scores it takes away the mean over all texts, since a small model prefers one answer whatever it reads
    (Zhou et al. 2023, "Batch calibration"); no label has a part in this.
    """

    def __init__(self, folder: Path, form: Form) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        loaded = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
        self._model, self._form = loaded.train(False), form
        self._first = [self._tokenizer.encode(a, add_special_tokens=False)[0] for a in form.answers.values()]

    def __call__(self, texts: Sequence[Sequence[str]]) -> list[str]:
        """The label of each."""
        scores = np.array([self._scores(parts) for parts in texts])
        return [list(self._form.answers)[at] for at in (scores - scores.mean(axis=0)).argmax(axis=1)]

    def _scores(self, parts: Sequence[str]) -> Any:
        import torch

        turns = [
            {"role": "system", "content": self._form.system},
            {"role": "user", "content": self._form.prompt.format(*parts)},
        ]
        text = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        pieces = self._tokenizer(text, return_tensors="pt", add_special_tokens=False)
        with torch.inference_mode():
            return self._model(**pieces).logits[0, -1, self._first].double().numpy()


class Sanitised(NamedTuple):
    """A text's parts, and the known words of it with what came out for each."""

    parts: list[str]
    pairs: list[tuple[int, int]]


def published(nominal: float) -> Callable[[InContext, int], int]:
    """Draws of Cape as published, in the context of a channel."""
    generator = np.random.default_rng(0)

    def choose(channel: InContext, place: int) -> int:
        law = channel.shape.cape(channel.vocabulary, nominal, channel.logits).rows(np.array([place]))[0]
        return int(generator.choice(len(law), p=law))

    return choose


def published_epsilon(sanitizer: ContextualSanitizer, nominal: float) -> tuple[float, float]:
    """The largest true ε in the public contexts, and what one word costs through the context of a later one."""
    capes = [channel.shape.cape(channel.vocabulary, nominal, channel.logits) for channel in in_contexts(sanitizer)]
    n = len(sanitizer.served.vocabulary)
    logs = np.log([cape.rows(np.linspace(0, n - 1, _LOOKED_AT).astype(np.int64)) for cape in capes])
    return max(audit(cape).epsilon for cape in capes), float((logs.max(axis=0) - logs.min(axis=0)).max())


def traced(
    sanitizer: ContextualSanitizer, rows: Sequence[list[str]], choose: Callable[[InContext, int], int] | None = None
) -> list[Sanitised]:
    done = []
    for parts in rows:
        texts, pairs = [], []
        for part in parts:
            sanitised, steps = sanitizer.trace(part, choose)
            texts.append(sanitised.text)
            pairs += [(step.place, step.output) for step in steps if known(sanitizer, step.token.text)]
        done.append(Sanitised(texts, pairs))
    return done


def drawn(sanitizer: TextSanitizer, rows: Sequence[list[str]]) -> list[Sanitised]:
    """Of a channel without a context; its pairs are drawn once more."""
    vocabulary, channel = sanitizer.served.vocabulary, sanitizer.served.channel
    outputs = np.array([vocabulary.index[word] for word in channel.outputs])
    done = []
    for parts in rows:
        words = [token.text for part in parts for token in sanitizer.partition.tokens(part)[0] if token.kind == "word"]
        places = [vocabulary.index[word.lower()] for word in words if known(sanitizer, word)]
        came = outputs[channel.draw(np.array(places, dtype=np.int64))]
        done.append(
            Sanitised([one.text for one in sanitizer.sanitize_all(parts)], list(zip(places, came, strict=True)))
        )
    return done


def known(sanitizer: TextSanitizer, word: str) -> bool:
    return word.lower() in sanitizer.served.vocabulary.index


def figures(texts: Sequence[Sanitised], near: IntArray, labels: Sequence[str], chat: Chat) -> dict[str, Any]:
    counts = [len(text.pairs) for text in texts]
    said = chat([text.parts for text in texts])
    shares = {
        "accuracy": Share.of([a == b for a, b in zip(said, labels, strict=True)], [1] * len(texts)),
        "kept": Share.of([sum(x == y for x, y in text.pairs) for text in texts], counts),
        "near_10": Share.of([sum(x in near[y] for x, y in text.pairs) for text in texts], counts),
    }
    return {
        key: f"{100 * value:.1f}"
        for name, share in shares.items()
        for key, value in ((name, share.value), (f"{name}_error", share.error))
    }


def measured(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    form = FORMS[arguments.data]
    lines = (arguments.folder / arguments.data / "dev.jsonl").read_text().splitlines()
    chosen = np.random.default_rng(0).permutation(len(lines))[: arguments.rows]
    rows = [json.loads(lines[at]) for at in chosen]
    texts, labels = [[row[field] for field in form.fields] for row in rows], [row["label"] for row in rows]
    chat = Chat(Path(model_folder(arguments.reader, exact=True)), form)
    vocabulary, embed = local_words(arguments.words, cache_folder()), embedder_here()
    known_words = Partition(KEEP).replaceable(vocabulary)
    near = known_words.nearest(np.arange(len(known_words)), 10)

    @cache
    def model(words: tuple[str, ...]) -> CausalModel:
        return CausalModel(Path(model_folder(arguments.context_model, exact=True)), words)

    def opened(shape: Shape, epsilon: float) -> ContextualSanitizer:
        load = lambda words: model(tuple(words))  # noqa: E731
        return open_contextual(load, vocabulary, epsilon, cache_folder(), keep=KEEP, embed=embed, shape=shape)

    def row(name: str, done: Sequence[Sanitised], **about: Any) -> dict[str, Any]:
        return {"mechanism": name, "n": len(rows), **about, **figures(done, near, labels, chat)}

    yield row("clear", [Sanitised(text, []) for text in texts])
    for epsilon in arguments.epsilon:
        served = serve("medoid_rr", known_words, epsilon, cache_folder())
        plain = TextSanitizer("medoid_rr", served, Partition(KEEP), embed)
        yield row("medoid_rr", drawn(plain, texts), epsilon=epsilon, true_epsilon=f"{plain.epsilon:.2f}")
    for shape in shapes(arguments):
        about = {"logit_power": shape.logit_power, "buckets": shape.buckets}
        for epsilon in arguments.epsilon:
            sanitizer = opened(shape, epsilon)
            said = {**about, "epsilon": epsilon, "true_epsilon": f"{sanitizer.epsilon:.2f}"}
            yield row("cape, corrected", traced(sanitizer, texts), **said)
        for nominal in arguments.nominal:
            base = opened(shape, 1.0)
            raw = RawCape(**{field.name: getattr(base, field.name) for field in fields(base)})
            true, cost = published_epsilon(base, nominal)
            said = {**about, "nominal": nominal, "true_epsilon": f"{true:.2f}", "next_word": f"{cost:.2f}"}
            yield row("cape, as published", traced(raw, texts, published(nominal)), **said)


def shapes(arguments: argparse.Namespace) -> list[Shape]:
    """Each λ_L with the first N_b, and the default λ_L with every other N_b, as in the paper's figure 8."""
    base = Shape(buckets=arguments.buckets[0])
    found = [replace(base, logit_power=power) for power in arguments.logit_power]
    return found + [replace(base, buckets=buckets) for buckets in arguments.buckets[1:]]


COLUMNS = ["mechanism", "epsilon", "nominal", "logit_power", "buckets", "true_epsilon", "next_word", "n"]
COLUMNS += [f"{name}{end}" for name, end in itertools.product(("accuracy", "kept", "near_10"), ("", "_error"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DATA")
    parser.add_argument("data", choices=FORMS)
    parser.add_argument("--rows", type=int, default=872)
    parser.add_argument("--words", type=int, default=3000)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[8.0])
    parser.add_argument("--nominal", type=float, nargs="*", default=[14.0])
    parser.add_argument("--logit-power", type=float, nargs="+", default=[0.5, 0.0, 1.5])
    parser.add_argument("--buckets", type=int, nargs="+", default=[50, 20, 200])
    parser.add_argument("--context-model", default="smollm2")
    parser.add_argument("--reader", default="smollm2")
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for line in measured(parser.parse_args()):
        writer.writerow(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
