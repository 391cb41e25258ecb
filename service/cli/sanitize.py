"""``dpicl sanitize``: replacing the words of texts at random, all on this machine."""

from __future__ import annotations

import codecs
import json as json_
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from pydantic import Field

from sanitization import embeddings, whole
from sanitization.causal_model import CausalModel
from sanitization.contextual import Shape, open_contextual
from sanitization.text import TextSanitizer, open_sanitizer
from sanitization.vocabulary import Vocabulary
from service.cli.gathering import Commands, Options
from service.cli.lazy import LazyGroup, Place
from service.cli.output import Json, print_json, state_folder, waiting
from service.engines.embedding.words import EmbeddedOnDemand, cache_folder, embedded_once, embedder_here, local_words
from service.sources.encodings import UTF8, encoding_of

if TYPE_CHECKING:
    from service.records.text_ledger import TextLedger


class _TextFirst(LazyGroup):
    """A group that passes arguments without a command to ``text``."""

    lazy: ClassVar[Mapping[str, Place]] = {
        "ask": Place(
            "sanitize_asking:ask", "", "Ask a remote model about a text that it does not see, and fit its answer here."
        ),
        "audit": Place(
            "sanitize.audit", "research", "Print the true ε of every mechanism, as published and corrected."
        ),
        "attack": Place(
            "sanitize.attack",
            "research",
            "Print what mechanisms keep and what an attacker learns: corrected at equal true ε, and as published.",
        ),
        "fit": Place(
            "sanitize.fit", "research", "Fit RANTEXT's constants to the words' vectors, by the paper's own rule."
        ),
    }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = args[:1] and (args[0] in self.commands or args[0] in ("--help", *ctx.help_option_names))
        if not known and (args or not sys.stdin.isatty()):
            args = ["text", *args]
        return super().parse_args(ctx, args)


app = Commands(
    cls=_TextFirst,
    help=(
        "Replace the words of a text at random, before it leaves your machine.\n\n"
        "`dpicl sanitize FILE` is short for `dpicl sanitize text FILE`."
    ),
)

OWNER = "local"
"""Owner of all texts in the ledger of this machine."""
_TOGETHER = 256


class Words(Options):
    """The words that replace each other, and the folder that keeps their embeddings between runs."""

    words: Annotated[int, typer.Option(min=50)] = 3000
    """Number of words: the first of the list, which are the most frequent."""
    vectors: Annotated[Path | None, typer.Option(exists=True)] = None
    """GloVe or word2vec text, .npy, or a Hugging Face folder. [default: MiniLM's words]"""
    word_list: Annotated[Path | None, typer.Option(exists=True)] = None
    """File with one word a line, for vectors in .npy."""
    cache: Path | None = None
    """Folder of embeddings and tables. [default: ~/.cache/dpicl]"""

    @property
    def folder(self) -> Path:
        """The folder of embeddings and tables."""
        return self.cache or cache_folder()

    def vocabulary(self) -> Vocabulary:
        """The words with their vectors."""
        if self.vectors is None:
            return local_words(self.words, self.folder)
        return embeddings.load(self.vectors, words=self.word_list, most=self.words)


class Context(Options):
    """Cape with a context: a causal language model reads what is released."""

    context_model: str | None = None
    """Causal language model on this machine, for the mechanism cape: smollm2, a folder or a GGUF file."""
    logit_power: Annotated[list[float], typer.Option(min=0, max=10)] = Field(default=[])
    """With --context-model: λ_L, the weight of the context against that of the distance. [default: 0.5]"""
    buckets: Annotated[list[int], typer.Option(min=2)] = Field(default=[])
    """With --context-model: N_b, the number of buckets. [default: 50]"""

    def shapes(self) -> list[Shape]:
        """Each λ_L with each N_b; none without a model."""
        if self.context_model is None:
            if self.logit_power or self.buckets:
                raise typer.BadParameter("--logit-power and --buckets need --context-model")
            return []
        return [Shape(buckets, power) for power in self.logit_power or [0.5] for buckets in self.buckets or [50]]

    def load(self, words: Sequence[str]) -> CausalModel:
        """The model, with the words that it gives logits to."""
        from service.engines.vllm.model_folder import model_folder

        assert self.context_model is not None  # noqa: S101
        return CausalModel(Path(model_folder(self.context_model, exact=True)), words)


class Sanitising(Options):
    """How texts are sanitised, and what they may cost."""

    epsilon: float = 8.0
    """Greatest true ε of a word: 0.001 to 25."""
    public_texts: Annotated[Path | None, typer.Option(exists=True, dir_okay=False)] = None
    """File of public texts: each text becomes one of its lines, as a whole, for one ε."""
    mechanism: str | None = None
    """Name of a mechanism (see `dpicl sanitize audit`). [default: medoid_rr; with
    --public-texts whole_rr, with --context-model cape]"""
    keep: str | None = None
    """Classes of tokens to release as they are, of stopwords, punctuation, placeholders, case. [default: the first
    two]"""
    conversation: str = ""
    """Name to count these texts under, too."""
    cap: Annotated[float | None, typer.Option(min=0)] = None
    """Greatest ε of all texts together; texts above it are refused."""
    ledger: Path | None = None
    """File of the texts' costs and outputs. [default: ~/.local/state/dpicl/texts.sqlite]"""

    def sanitizer(self, words: Words, context: Context) -> TextSanitizer:
        """The sanitiser; the first time, its words are embedded."""
        shapes = context.shapes()
        if len(shapes) > 1 or (shapes and (self.mechanism not in (None, "cape") or self.public_texts)):
            raise typer.BadParameter(
                "--context-model is for the mechanism cape alone, with one --logit-power and --buckets"
            )
        usual = "cape" if shapes else "medoid_rr" if self.public_texts is None else whole.NAME
        mechanism = self.mechanism or usual
        public = whole.kept(mechanism, None if self.keep is None else kept_of(self.keep))
        with waiting("Opening the sanitiser: the first time, its words are embedded"):
            embed = embedder_here() if words.vectors is None else None
            known: dict[str, Any] = {"keep": public, "embed": embed}
            if shapes:
                return open_contextual(
                    context.load, words.vocabulary(), self.epsilon, words.folder, shape=shapes[0], **known
                )
            if mechanism != whole.NAME and self.public_texts is None:
                return open_sanitizer(mechanism, words.vocabulary(), self.epsilon, words.folder, **known)
            if mechanism == whole.NAME and self.public_texts is not None and words.vectors is None:
                outputs = whole.read_public_texts(self.public_texts)
                vectors = embedded_once(outputs, words.folder)
                return whole.open_whole(outputs, vectors, self.epsilon, words.folder, EmbeddedOnDemand())
        raise typer.BadParameter(
            f"{whole.NAME} needs --public-texts, and they go with no other mechanism and no --vectors"
        )

    def texts(self) -> TextLedger:
        """The ledger, on this machine."""
        from service.records.text_ledger import open_local

        return open_local(self.ledger or state_folder() / "texts.sqlite", cap=self.cap)


@app.command()
def text(
    file: Annotated[Path, typer.Argument()] = Path("-"),
    *,
    on: Sanitising,
    words: Words,
    context: Context,
    json: Json = False,
    jsonl: Annotated[bool, typer.Option("--jsonl")] = False,
) -> None:
    """Replace the words of a text at random: each line as it comes, all of it on this machine.

    The same line always becomes the same text, and costs nothing more. An unknown word is treated as the nearest known
    one where the extra server, which brings the model for that, is installed, and as a random one elsewhere.

    Args:
        file: File with a text on each line; - or nothing reads standard input.
        jsonl: Print a line of JSON for each text.
    """
    require_file(file)
    sanitizer, texts = on.sanitizer(words, context), on.texts()
    items, drawn, spent = [], 0, 0.0
    read, size = _lines(file), 1 if str(file) == "-" else _TOGETHER
    while lines := list(islice(read, size)):
        done, cost = texts.sanitize(sanitizer, lines, owner=OWNER, conversation=on.conversation)
        drawn, spent = drawn + cost.words, spent + cost.epsilon
        if json:
            items += [sanitised.document() for sanitised in done]
            continue
        for sanitised in done:
            typer.echo((json_.dumps(sanitised.document(), ensure_ascii=False) if jsonl else sanitised.text).encode())
    if json:
        print_json({"items": items, **sanitizer.document(), "ledger": ledger_document(texts, spent)})
        return
    state_cost(sanitizer, texts, drawn, spent)


def require_file(file: Path) -> None:
    """Refuse a file that is not there.

    Raises:
        ValueError: it is not, so perhaps it is meant as a text.
    """
    if str(file) != "-" and not file.exists():
        raise ValueError(f"no file {file}. A text itself goes to standard input: echo TEXT | dpicl sanitize")


def ledger_document(texts: TextLedger, charged: float) -> dict[str, Any]:
    """The cost of texts, as values for JSON."""
    return {"charged": charged, "epsilon": texts.cost(OWNER).epsilon, "cap": texts.cap}


def state_cost(sanitizer: TextSanitizer, texts: TextLedger, drawn: int, charged: float) -> None:
    """Print the guarantee, and the cost of texts, to the standard error."""
    typer.echo(
        f"{sanitizer.guarantee}\nReleased as it is: {', '.join(sanitizer.released_as_public)}.\n"
        f"New {sanitizer.unit}s: {drawn:,}, together ε = {charged:.6g}. "
        f"All your texts so far: ε = {texts.cost(OWNER).epsilon:.6g}.",
        err=True,
    )


def kept_of(names: str) -> list[str]:
    """The classes of tokens to release as they are, from an option's list."""
    return [name.strip() for name in names.split(",") if name.strip()]


def read_text(file: Path) -> str:
    """All of a file, or of standard input, but the end of its last line.

    Raises:
        ValueError: it is blank, or UTF-16 or UTF-32.
    """
    text = "\n".join(_lines(file))
    if not text.strip():
        raise ValueError("the text is blank: there is nothing to ask")
    return text


def _lines(file: Path) -> Iterator[str]:
    """Lines without their ends. Bytes that are not UTF-8 become half surrogate pairs, and so unknown words.

    Raises:
        ValueError: the text is UTF-16 or UTF-32.
    """
    with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as stream:
        for number, line in enumerate(stream):
            if not number:
                if (encoding := encoding_of(line[:4], None)) != UTF8:
                    raise ValueError(f"{file}: it is {encoding}; save it as UTF-8")
                line = line.removeprefix(codecs.BOM_UTF8)
            yield line.removesuffix(b"\n").decode(errors="surrogateescape")
