"""InferDPT (Tong et al., arXiv 2310.12214): a remote model answers a sanitised text, and a local one extracts.

1. *Perturb*: the text is sanitised, here.
2. *Ask*: the remote model continues the sanitised text. It sees nothing else.
3. *Extract*: a smaller model, here, continues the text as it was written, with the remote model's words in view.

What the local model writes holds words of the text and belongs to its author alone. The privacy of the text is that of
its sanitised text, whatever the models do with it: all else is computed from that, or does not leave.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sanitization.text import Sanitized

Write = Callable[[str], str]
"""A language model: a prompt in, its continuation out."""

INSTRUCTION = """Your task is to extend Prefix Text.
- "Prefix Text": {text}
Provide only your Continuation.
- "Continuation":"""
"""The remote model's prompt."""
_EXTRACTION = """Your task is to extend the "Prefix Text". Use the "Perturbed Generation" as your primary writing \
material for your extension. Extract coherent and consistent text from the "Perturbed Generation" and integrate them \
into your continuation. Ensure a seamless alignment with the context established by the "Prefix Text". Provide only \
your "Extended Text".
- "Prefix Text": {text}
- "Perturbed Generation": {generation}
- "Extended Text":"""
"""The local model's prompt: appendix A of the paper."""
_TEXT = "{text}"


@dataclass(frozen=True)
class Answer:
    """An answer to a text, with the steps to it.

    Attributes:
        text: continuation of the text as it was written. It may hold its words: it must not leave.
        sanitized: text that the remote model saw.
        generation: continuation of that text, by the remote model.
    """

    text: str
    sanitized: Sanitized
    generation: str

    def document(self) -> dict[str, Any]:
        """The answer as values for JSON."""
        return {"text": self.text, "generation": self.generation, "sanitized": self.sanitized.document()}


@dataclass(frozen=True)
class InferDpt:
    """Asks a remote model about texts that it does not see.

    Args:
        sanitize: sanitiser of a text. Repeats cost nothing if it remembers its outputs.
        remote: remote model. It is given the instruction with the sanitised text.
        local: trusted model on this machine.
        instruction: public prompt of the remote model, in which ``{text}`` stands for the text; without it, the text
            follows.

    Raises:
        ValueError: ``{text}`` is in the instruction twice.
    """

    sanitize: Callable[[str], Sanitized]
    remote: Write
    local: Write
    instruction: str = INSTRUCTION

    def __post_init__(self) -> None:
        if self.instruction.count(_TEXT) > 1:
            raise ValueError(f"{_TEXT} stands in the instruction once at most: the text is sent there")

    def ask(self, text: str) -> Answer:
        """The answer to a text.

        Raises:
            sanitization.text.TextError: the text cannot be sanitised. Nothing was sent.
        """
        sanitized = self.sanitize(text)
        generation = self.remote(self.remote_prompt(sanitized.text)).strip()
        extended = self.local(extraction_prompt(text, generation)).strip()
        return Answer(extended, sanitized, generation)

    def remote_prompt(self, text: str) -> str:
        """The remote model's prompt for a sanitised text."""
        instruction = self.instruction if _TEXT in self.instruction else f"{self.instruction}\n\n{_TEXT}"
        return instruction.replace(_TEXT, text)


def extraction_prompt(text: str, generation: str) -> str:
    """The local model's prompt for a text as it was written, and the remote model's continuation."""
    before, between, after = _EXTRACTION.replace("{generation}", _TEXT).split(_TEXT)
    return f"{before}{text}{between}{generation}{after}"
