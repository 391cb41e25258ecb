"""``dpicl sanitize audit`` and ``attack``: what mechanisms really protect, and keep. All local."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from research.sanitization.as_published import UNKNOWN, Published, on_known, published
from research.sanitization.copies import repeated
from sanitization import attacks, whole
from sanitization.audit import audit
from sanitization.contextual import ContextualSanitizer, Shape, in_contexts, open_contextual
from sanitization.mechanisms import CORRECTED, RESPONSES, serve
from sanitization.published.rantext_fit import WORD
from sanitization.tokens import Partition
from sanitization.vocabulary import Vocabulary
from service.cli.gathering import Options
from service.cli.output import Json, print_json, print_table, waiting
from service.cli.reading import read_whole
from service.cli.sanitize import Context, Words, kept_of
from service.sources.reading import Reading

if TYPE_CHECKING:
    from research.sanitization.sanitised_texts import Guesser

_NOMINAL = [1.0, 6.0, 10.0]
_ATTACKED = [4.0, 8.0]
_ATTACKED_NOMINAL = [2.0, 6.0, 10.0]


def audit_(
    nominal: Annotated[list[float], typer.Option(min=0)] = _NOMINAL,
    epsilon: Annotated[float, typer.Option(min=0.001, max=25)] = 8.0,
    *,
    words: Words,
    json: Json = False,
) -> None:
    """Print the true ε of every mechanism, as published and corrected.

    The true ε compares every word with every other one, and one unknown word, by enumeration.

    Args:
        nominal: ε of the papers' formulas.
        epsilon: True ε for the corrected mechanisms.
    """
    with waiting("Comparing every word with every other one"):
        vocabulary, folder = words.vocabulary(), words.folder
        named = published(vocabulary)
        audited = [_audited(name, named[name], vocabulary, value) for name in named for value in nominal]
        served = {name: serve(name, vocabulary, epsilon, folder) for name in (*CORRECTED, *RESPONSES)}
    corrected = [
        {"mechanism": name, "parameters": chosen.parameters, **asdict(chosen.audit)} for name, chosen in served.items()
    ]
    if json:
        print_json(_finite({"words": len(vocabulary), "published": audited, "corrected": corrected}))
        return
    print_table(
        f"As published, {len(vocabulary):,} words and one unknown",
        ["mechanism", "nominal", "claimed ε", "true ε", "of known words", "outputs that rule words out"],
        [
            (
                row["mechanism"],
                f"{row['nominal']:g}",
                row["claim"],
                *(_number(value, row["upper_bound"]) for value in (row["epsilon"], row["by_class"]["known"])),
                "" if row["zero_outputs"] is None else f"{row['zero_outputs']:,}",
            )
            for row in audited
        ],
    )
    print_table(
        f"Corrected, at most ε = {epsilon:g}",
        ["mechanism", "chosen", "true ε", "inputs audited"],
        [
            (name, chosen.parameters, f"{chosen.audit.epsilon:.5f}", f"{chosen.audit.inputs:,}")
            for name, chosen in served.items()
        ],
    )


class TextAttackOptions(Options):
    """Texts to attack, and attackers with a model."""

    texts: Annotated[Path | None, typer.Option(exists=True)] = None
    """Rows of `text`, perhaps `label`, as of `kb ingest`. The last are sanitised, the others known to attackers."""
    keep: str = "stopwords,punctuation"
    """Parts of the texts that are released as they are."""
    most_texts: Annotated[int, typer.Option(min=2)] = 500
    """Number of texts to sanitise, at most half."""
    masked_model: Annotated[Path | None, typer.Option(exists=True, file_okay=False)] = None
    """With --texts: a folder in Hugging Face's format, with a masked language model that guesses each word."""
    endpoint: str | None = None
    """With --texts: URL of chat completions; its --model is asked to guess the words."""
    model: str = ""
    """Model of the endpoint."""

    def guessers(self) -> dict[str, Guesser]:
        """Attackers with a model, by what tables call them."""
        from research.sanitization.chat_attack import ChatModel
        from research.sanitization.masked_attack import MaskedModel
        from service.engines.configs import OpenAiCompatibleConfig

        guessers: dict[str, Guesser] = {}
        if self.masked_model is not None:
            guessers["masked model"] = MaskedModel(self.masked_model)
        if self.endpoint is not None:
            config = OpenAiCompatibleConfig(
                name="openai_compatible",
                base_url=self.endpoint,
                model=self.model,
                isolation="best_effort",
                request_timeout_s=600,  # no caller waits for the answer, and a model on a CPU writes long ones slowly
            )
            guessers["chat model"] = ChatModel(config)
        return guessers


def attack(
    epsilon: Annotated[list[float], typer.Option(min=0.001, max=25)] = _ATTACKED,
    nominal: Annotated[list[float], typer.Option(min=0)] = _ATTACKED_NOMINAL,
    mechanism: list[str] | None = None,
    *,
    on: TextAttackOptions,
    context: Context,
    reading: Reading,
    words: Words,
    json: Json = False,
) -> None:
    """Print what mechanisms keep and what an attacker learns: corrected at equal true ε, and as published.

    All by enumeration over the 1,500 most frequent words, but for ten copies of a word, which are drawn. With --texts
    the corrected ones on these, after ±: standard errors. An endpoint sees sanitised texts only, and
    DPICL_REMOTE_API_KEY. With --context-model also Cape in context, for each --logit-power and --buckets; its words
    alone are attacked in eight public contexts.

    Args:
        epsilon: True ε of the corrected mechanisms.
        nominal: ε of the papers' formulas, for the mechanisms as published.
        mechanism: Only these. whole_rr, with --texts: each becomes one of the others.
    """
    names, shapes = mechanism or [*RESPONSES, *CORRECTED], context.shapes()
    if on.texts is not None:
        given = [row for _, row in read_whole(on.texts, ["text"], reading)]
        _attack_texts(epsilon, names, on, given, words, context, json)
        return
    if on.masked_model or on.endpoint:
        raise typer.BadParameter("attackers with a model need --texts")
    if whole.NAME in names:
        raise typer.BadParameter(f"{whole.NAME} needs --texts")
    rows: list[dict[str, Any]] = []
    with waiting("Attacking every word"):
        vocabulary = words.vocabulary()
        named = {name: one for name, one in published(vocabulary).items() if one.on_words}
        unknown = sorted(set(names) - {*RESPONSES, *CORRECTED, *named})
        if unknown:
            why = f"; rantext_fitted needs a vocabulary with the word {WORD!r}" if WORD not in vocabulary.index else ""
            raise LookupError(f"no mechanism {unknown[0]!r}: {', '.join([*RESPONSES, *named])}{why}")
        for value in epsilon:
            for name in names:
                if name not in (*RESPONSES, *CORRECTED):
                    continue
                served = serve(name, vocabulary, value, words.folder)
                figures = asdict(attacks.attack(served.channel, vocabulary))
                ten = repeated(served.channel, vocabulary, 10)
                rows.append(
                    {"epsilon": value, "mechanism": name, "true_epsilon": served.audit.epsilon, **figures, "ten": ten}
                )
            for name, sanitizer in _contextual(context, shapes, vocabulary, value, words).items():
                channels = in_contexts(sanitizer)
                figures = asdict(attacks.mean([attacks.attack(channel, vocabulary) for channel in channels]))
                ten = repeated(channels[0], vocabulary, 10)
                rows.append(
                    {"epsilon": value, "mechanism": name, "true_epsilon": sanitizer.epsilon, **figures, "ten": ten}
                )
        as_published = [
            {
                **_audited(name, named[name], vocabulary, value),
                **asdict(attacks.attack(on_known(named[name].channel(vocabulary, value)), vocabulary)),
            }
            for value in nominal
            for name in named
            if mechanism is None or name in mechanism
        ]
    if json:
        print_json(_finite({"words": len(vocabulary), "attacks": rows, "published": as_published}))
        return
    percent = ["kept", "inversion", "bayes", "bayes_top"]
    headings = ["cosine", "kept", "near 10", "Bayes", "Bayes 10"]
    print_table(
        f"At equal true ε, {len(vocabulary):,} words; in %, but the cosine",
        ["ε", "mechanism", *headings, "10 copies", "prior"],
        [
            (
                f"{row['epsilon']:g}",
                row["mechanism"],
                f"{row['cosine']:.2f}",
                *(f"{100 * row[c]:.0f}" for c in (*percent, "ten", "prior")),
            )
            for row in rows
        ],
        unbroken=["ε", "mechanism", "cosine"],
    )
    if as_published:
        print_table(
            f"As published, {len(vocabulary):,} words; in %, but ε and the cosine",
            ["nominal", "mechanism", "true ε", *headings],
            [
                (
                    f"{row['nominal']:g}",
                    row["mechanism"],
                    _number(row["epsilon"], row["upper_bound"]),
                    f"{row['cosine']:.2f}",
                    *(f"{100 * row[c]:.0f}" for c in percent),
                )
                for row in as_published
            ],
            unbroken=["nominal", "mechanism", "true ε", "cosine"],
        )


def _contextual(
    context: Context, shapes: list[Shape], vocabulary: Vocabulary, epsilon: float, words: Words, **options: Any
) -> dict[str, ContextualSanitizer]:
    """Cape in context of each shape, by what tables call it."""
    return {
        f"cape λ_L {shape.logit_power:g}, {shape.buckets} buckets": open_contextual(
            context.load, vocabulary, epsilon, words.folder, shape=shape, **options
        )
        for shape in shapes
    }


def _attack_texts(
    epsilon: list[float],
    names: list[str],
    on: TextAttackOptions,
    rows: list[dict[str, Any]],
    words: Words,
    context: Context,
    json: bool,
) -> None:
    from research.sanitization import sanitised_texts
    from service.engines.embedding.embedder import Embedder, cores
    from service.engines.embedding.memory import EmbeddingMemory

    partition, folder = Partition(kept_of(on.keep)), words.folder
    vocabulary = partition.replaceable(words.vocabulary())
    embed = EmbeddingMemory(Embedder(threads=cores())).embed
    unknown = embed if words.vectors is None else None
    texts, guessers = (
        sanitised_texts.TextFile(rows, vocabulary, partition, on.most_texts, embed, unknown),
        on.guessers(),
    )

    def measured(name: str, value: float) -> sanitised_texts.OnTexts:
        if name == whole.NAME:
            return texts.whole(value, folder)
        return texts.measure(name, serve(name, vocabulary, value, folder), guessers)

    with waiting("Attacking every text"):
        results = [(value, name, measured(name, value)) for value in epsilon for name in names]
        results += [
            (value, name, texts.in_context(sanitizer, guessers))
            for value in epsilon
            for name, sanitizer in _contextual(
                context, context.shapes(), vocabulary, value, words, keep=partition.keep, embed=unknown
            ).items()
        ]
        clean = texts.clean()
    if json:
        attacked = [{"epsilon": value, "mechanism": name, **asdict(on)} for value, name, on in results]
        print_json({"texts": len(texts.texts), "clean_accuracy": clean, "attacks": attacked})
        return

    def shown(share: sanitised_texts.Share | None, scale: float = 100, digits: int = 0) -> str:
        return "" if share is None else f"{scale * share.value:.{digits}f} ± {scale * share.error:.{digits or 1}f}"

    print_table(
        f"{len(texts.texts):,} sanitised texts" + (f"; accuracy on clean ones {shown(clean)} %" if clean else ""),
        ["ε", "mechanism", "cosine of texts", "accuracy, %", "Bayes, %", "Bayes with context, %"]
        + [f"{who}, % (answered)" for who in guessers],
        [
            (
                *(f"{value:g}", name, shown(m.cosine, 1, 2), shown(m.accuracy), shown(m.bayes), shown(m.context)),
                *(f"{shown(by.right)} ({100 * by.answered.value:.0f})" for by in m.models.values()),
            )
            for value, name, m in results
        ],
    )


def _audited(name: str, mechanism: Published, vocabulary: Vocabulary, nominal: float) -> dict[str, Any]:
    row = {"mechanism": name, "nominal": nominal, "claim": mechanism.claim(vocabulary, nominal)}
    if mechanism.bound is not None:
        bound = mechanism.bound(vocabulary, nominal)
        return {**row, "epsilon": bound, "upper_bound": True, "by_class": {"known": bound}, "zero_outputs": None}
    channel = mechanism.channel(vocabulary, nominal)
    audited = audit(channel, classes=["unknown" if word == UNKNOWN else "known" for word in channel.inputs])
    return {**row, "upper_bound": False, **asdict(audited)}


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    if isinstance(value, dict):
        return {key: _finite(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(member) for member in value]
    return "infinite" if isinstance(value, float) and math.isinf(value) else value


def _number(epsilon: float, bound: bool) -> str:
    return "infinite" if math.isinf(epsilon) else f"{'≤ ' * bound}{epsilon:.2f}"
