"""``dpicl sanitize ask``: InferDPT in one command. The text stays on this machine, and its sanitised text leaves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from sanitization.inference import INSTRUCTION, InferDpt
from sanitization.text import Sanitized
from service.cli.gathering import Options
from service.cli.output import Json, print_json, waiting
from service.cli.sanitize import OWNER, Context, Sanitising, Words, ledger_document, read_text, require_file, state_cost
from service.engines.configs import OpenAiCompatibleConfig, RealignConfig
from service.engines.remote.asking import Prompt, ask_all

_TIMEOUT_S = 600


class Models(Options):
    """The remote model, which sees the sanitised text only, and the local one, which sees both."""

    endpoint: str
    """URL of the remote model's chat completions, such as https://api.openai.com/v1. DPICL_REMOTE_API_KEY is sent."""
    model: str
    """Name of the remote model."""
    local_model: str = "smollm2"
    """Model on this machine: smollm2, a folder in Hugging Face's format, a GGUF file; with a local endpoint, its name
    there."""
    local_endpoint: str | None = None
    """URL of chat completions on this machine, such as http://127.0.0.1:11434/v1; it sees the text as it is."""
    instruction: str | None = None
    """Public prompt of the remote model, in which {text} stands for the sanitised text. [default: continue the text]"""
    most_tokens: Annotated[int, typer.Option(min=1, max=100_000)] = 256
    """Longest answer of each model, in tokens."""
    temperature: Annotated[float, typer.Option(min=0, max=2)] = 0.7
    """Temperature of both; 0 takes the likeliest token."""

    def remote(self) -> Callable[[str], str]:
        """The remote model."""
        return partial(self._ask, _config(self.endpoint, self.model, "endpoint"), True)

    def local(self) -> Callable[[str], str]:
        """The local model, loaded: if it cannot be, nothing leaves.

        Raises:
            ValueError: it cannot be loaded, or the local endpoint is not on this machine.
        """
        if self.local_endpoint is None:
            from service.engines.local_model import LocalModel

            model = LocalModel(self.local_model, self.most_tokens, self.temperature)
            with waiting("Loading the local model"):
                model.load()
            return model
        try:
            RealignConfig(base_url=self.local_endpoint, model=self.local_model)
        except ValidationError:
            raise typer.BadParameter(
                "the local endpoint sees the text as it is, so it must be on this machine: http://127.0.0.1:PORT/v1"
            ) from None
        return partial(self._ask, _config(self.local_endpoint, self.local_model, "local endpoint"), False)

    def _ask(self, config: OpenAiCompatibleConfig, with_key: bool, prompt: str) -> str:
        asked = [Prompt(prompt, self.most_tokens)]
        return ask_all(config, asked, temperature=self.temperature, with_key=with_key)[0]


def _config(url: str, model: str, what: str) -> OpenAiCompatibleConfig:
    try:
        return OpenAiCompatibleConfig(
            name="openai_compatible",
            base_url=url,
            model=model,
            isolation="best_effort",
            request_timeout_s=_TIMEOUT_S,
        )
    except ValidationError:
        raise typer.BadParameter(
            f"the {what} is a URL such as https://api.openai.com/v1, without a name or password, and needs the name of "
            "a model"
        ) from None


def ask(
    file: Annotated[Path, typer.Argument()] = Path("-"),
    *,
    models: Models,
    on: Sanitising,
    words: Words,
    context: Context,
    json: Json = False,
) -> None:
    """Ask a remote model about a text that it does not see, and fit its answer here.

    The text is sanitised as by `dpicl sanitize`, at the same cost, and a repeat is free. The remote model continues the
    sanitised text. A local model then continues the text itself, out of what the remote one wrote (InferDPT). The
    answer holds words of your text.

    Args:
        file: File with one text, of any number of lines; - or nothing reads standard input.
    """
    require_file(file)
    text, remote, local = read_text(file), models.remote(), models.local()
    sanitizer, texts = on.sanitizer(words, context), on.texts()
    drawn, charged = 0, 0.0

    def sanitize(asked: str) -> Sanitized:
        nonlocal drawn, charged
        (done,), cost = texts.sanitize(sanitizer, [asked], owner=OWNER, conversation=on.conversation)
        drawn, charged = cost.words, cost.epsilon
        return done

    asking = InferDpt(sanitize, remote, local, models.instruction or INSTRUCTION)
    with waiting("Asking the remote model, then the local one"):
        answer = asking.ask(text)
    if json:
        print_json({**answer.document(), **sanitizer.document(), "ledger": ledger_document(texts, charged)})
        return
    typer.echo(answer.text.encode(errors="replace"))
    state_cost(sanitizer, texts, drawn, charged)
