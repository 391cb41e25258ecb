"""``dpicl sanitize``: what mechanisms that replace words really protect, and how much of a text they keep. Local."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.output import Json, print_json, print_table

if TYPE_CHECKING:
    from sanitization.vocabulary import Vocabulary

app = typer.Typer(
    no_args_is_help=True, help="Audit and attack mechanisms that replace the words of a question at random."
)

_NOMINAL = [1.0, 6.0, 10.0]
_ATTACKED = [4.0, 8.0]

Words = Annotated[int, typer.Option(min=50, help="How many words: the first, which are the most frequent.")]
Vectors = Annotated[
    Path | None,
    typer.Option(
        help="GloVe or word2vec text, .npy, or a Hugging Face folder; MiniLM's words without it.", exists=True
    ),
]
WordList = Annotated[Path | None, typer.Option(help="With .npy: a file with one word a line.", exists=True)]
Cache = Annotated[Path | None, typer.Option(help="Keeps embeddings and tables; ~/.cache/dpicl without it.")]


@app.command("audit")
def audit_(
    nominal: Annotated[list[float], typer.Option(min=0, help="ε of the papers' formulas.")] = _NOMINAL,
    epsilon: Annotated[float, typer.Option(min=0.001, max=25, help="True ε for the corrected mechanisms.")] = 8.0,
    words: Words = 3000,
    vectors: Vectors = None,
    word_list: WordList = None,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Print the true ε of every mechanism, as published and corrected.

    The true ε compares every word with every other one, and one unknown word, by enumeration.
    """
    from sanitization.mechanisms import PUBLISHED, RESPONSES, serve

    vocabulary, folder = _open(words, vectors, word_list, cache)
    published = [_published(name, vocabulary, one) for name in PUBLISHED for one in nominal]
    served = {name: serve(name, vocabulary, epsilon, folder) for name in (*PUBLISHED, *RESPONSES)}
    corrected = [{"mechanism": name, "parameters": one.parameters, **asdict(one.audit)} for name, one in served.items()]
    if json:
        print_json(_finite({"words": len(vocabulary), "published": published, "corrected": corrected}))
        return
    print_table(
        f"As published, {len(vocabulary):,} words and one unknown",
        ["mechanism", "nominal", "claimed ε", "true ε", "of known words", "outputs that rule words out"],
        [
            (
                row["mechanism"],
                f"{row['nominal']:g}",
                row["claim"],
                *(_number(value) for value in (row["epsilon"], row["by_class"]["known"])),
                f"{row['zero_outputs']:,}",
            )
            for row in published
        ],
    )
    print_table(
        f"Corrected, at most ε = {epsilon:g}",
        ["mechanism", "chosen", "true ε", "inputs audited"],
        [(name, one.parameters, f"{one.audit.epsilon:.5f}", f"{one.audit.inputs:,}") for name, one in served.items()],
    )


@app.command()
def attack(
    epsilon: Annotated[list[float], typer.Option(min=0.001, max=25, help="True ε.")] = _ATTACKED,
    mechanism: Annotated[list[str] | None, typer.Option(help="Only these.")] = None,
    words: Words = 3000,
    vectors: Vectors = None,
    word_list: WordList = None,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Print what the corrected mechanisms keep and what an attacker learns, at equal true ε.

    All by enumeration over the 1,500 most frequent words, but for ten copies of a word, which are drawn.
    """
    from sanitization.attacks import attack as attack_
    from sanitization.attacks import repeated
    from sanitization.mechanisms import PUBLISHED, RESPONSES, serve

    vocabulary, folder = _open(words, vectors, word_list, cache)
    rows = []
    for one in epsilon:
        for name in mechanism or (*RESPONSES, *PUBLISHED):
            served = serve(name, vocabulary, one, folder)
            found = asdict(attack_(served.channel, vocabulary))
            ten = repeated(served.channel, vocabulary, 10)
            rows.append({"epsilon": one, "mechanism": name, "true_epsilon": served.audit.epsilon, **found, "ten": ten})
    if json:
        print_json({"words": len(vocabulary), "attacks": rows})
        return
    percent = ["kept", "inversion", "bayes", "bayes_top", "ten", "prior"]
    print_table(
        f"At equal true ε, {len(vocabulary):,} words; in %, but the cosine",
        ["ε", "mechanism", "cosine", "word kept", "nearest 10", "Bayes", "Bayes 10", "Bayes, 10 copies", "no output"],
        [
            (
                f"{row['epsilon']:g}",
                row["mechanism"],
                f"{row['cosine']:.2f}",
                *(f"{100 * row[c]:.0f}" for c in percent),
            )
            for row in rows
        ],
    )


def _open(count: int, vectors: Path | None, word_list: Path | None, cache: Path | None) -> tuple[Vocabulary, Path]:
    from service.embedding.words import cache_folder, minilm_words

    folder = cache or cache_folder()
    if vectors is None:
        return minilm_words(count, folder), folder
    from sanitization.embeddings import load

    return load(vectors, words=word_list, most=count), folder


def _published(name: str, vocabulary: Vocabulary, nominal: float) -> dict[str, Any]:
    from sanitization.audit import audit
    from sanitization.channel import UNKNOWN
    from sanitization.mechanisms import PUBLISHED

    mechanism = PUBLISHED[name]
    channel = mechanism.published(vocabulary, nominal)
    found = audit(channel, classes=["unknown" if one == UNKNOWN else "known" for one in channel.inputs])
    return {"mechanism": name, "nominal": nominal, "claim": mechanism.claim(vocabulary, nominal), **asdict(found)}


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return "infinite" if isinstance(value, float) and math.isinf(value) else value


def _number(epsilon: float) -> str:
    return "infinite" if math.isinf(epsilon) else f"{epsilon:.2f}"
