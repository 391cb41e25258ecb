"""Public grammars of answers, by xgrammar, as vLLM ships and calls it.

xgrammar 0.2.8 takes the code points U+D800 to U+DFFF, half of a pair in UTF-16, for characters, in bytes and in JSON's
escapes. No text has them: a decoder makes several characters of one, and a strict reader refuses the answer.
"""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from typing_extensions import override
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar, StructuredOutputOptions
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend, validate_xgrammar_grammar
from xgrammar import GrammarMatcher

from service.engines.errors import UnanswerableQueryError
from service.engines.lock_step import Grammar
from service.engines.task import Writing


class _Unbroken:
    """Tokens that do not complete half of a pair.

    Args:
        vocabulary: each token's bytes.
        escapes: whether answers are JSON, where ``\\ud800`` is one, too.
    """

    def __init__(self, vocabulary: list[bytes], escapes: bool) -> None:
        self._vocabulary = vocabulary
        broken = re.compile(rb"\xed[\xa0-\xbf]" + (rb"|\\u[dD][89a-fA-F]" if escapes else b""))
        self._begun = re.compile(rb"(\xed|\\u?[dD]?)\Z" if escapes else rb"\xed\Z")
        begun = [b"", b"\xed", *([b"\\", b"\\u", b"\\ud"] if escapes else [])]
        self._possible = {said: _where(not broken.search(said + token) for token in vocabulary) for said in begun}

    def after(self, said: bytes, token: int) -> bytes:
        """What is begun behind a token, with what was begun before it."""
        found = self._begun.search(said + self._vocabulary[token])
        return found[0].lower() if found and found[0].lower() in self._possible else b""

    def possible(self, said: bytes) -> np.ndarray:
        """For each token, whether it may come behind what is begun; the array is shared."""
        return self._possible[said]


def _where(holds: Iterable[bool]) -> np.ndarray:
    return np.fromiter(holds, bool)


class Matcher(Grammar):
    """A grammar that reads an answer (:class:`service.engines.lock_step.Grammar`)."""

    def __init__(
        self, grammar: StructuredOutputGrammar, mask: Any, printable: np.ndarray | bool, unbroken: _Unbroken
    ) -> None:
        self._grammar, self._mask, self._printable, self._unbroken = grammar, mask, printable, unbroken
        self._begun = b""

    @override
    def allowed(self) -> np.ndarray:
        possible = self._unbroken.possible(self._begun)
        self._grammar.fill_bitmask(self._mask, 0)
        bits = np.unpackbits(self._mask.numpy().view(np.uint8)[0], bitorder="little")
        return bits[: possible.size].astype(bool) & possible & self._printable

    @override
    def read(self, token: int) -> None:
        if not self._grammar.accept_tokens("", [token]):
            raise RuntimeError("xgrammar takes no token that it allowed")
        self._begun = self._unbroken.after(self._begun, token)


class Grammars:
    """The grammars of answers in one model's tokens.

    Args:
        config: vLLM's.
        tokenizer: the model's.
    """

    def __init__(self, config: Any, tokenizer: Any) -> None:
        self._backend = XgrammarBackend(config, tokenizer, config.model_config.get_vocab_size())
        self._backend.disable_any_whitespace = True  # less to write, and to pay for
        texts = tokenizer.batch_decode([[token] for token in range(self._backend.vocab_size)])
        self._printable = _where(min(text, default=" ") >= " " for text in texts)
        self._unbroken: dict[bool, _Unbroken] = {}

    def open(self, writing: Writing, end: int) -> Matcher | None:
        """The grammar of an answer, before its first token; None if it has none. The first time takes long.

        Args:
            writing: rules with the grammar.
            end: the token that ends an answer.

        Raises:
            service.engines.errors.UnanswerableQueryError: xgrammar cannot keep to it; the message names the reason.
        """
        kind = StructuredOutputOptions.JSON if writing.json_schema else StructuredOutputOptions.REGEX
        text = writing.json_schema or writing.regex
        if not text:
            return None
        try:
            wanted = StructuredOutputsParams(**{kind.name.lower(): text})
            validate_xgrammar_grammar(SamplingParams(structured_outputs=wanted))
            grammar = self._backend.compile_grammar(kind, text)
            grammar.matcher = GrammarMatcher(grammar.ctx, override_stop_tokens=[end])
        except Exception as error:
            why = str(error).partition("\n")[0]
            raise UnanswerableQueryError(f"an admin must change this task's grammar: {why}") from error
        escapes = bool(writing.json_schema)
        if escapes not in self._unbroken:
            self._unbroken[escapes] = _Unbroken(grammar.ctx.tokenizer_info.decoded_vocab, escapes)
        # xgrammar lets strings of a limited length have line breaks, and JSON does not.
        printable = self._printable if escapes else True
        return Matcher(grammar, self._backend.allocate_token_bitmask(1), printable, self._unbroken[escapes])
