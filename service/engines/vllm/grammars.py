"""Public grammars of answers, by xgrammar, as vLLM ships and calls it."""

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


class Matcher(Grammar):
    """A grammar that reads an answer (:class:`service.engines.lock_step.Grammar`)."""

    def __init__(self, grammar: StructuredOutputGrammar, mask: Any, possible: np.ndarray) -> None:
        self._grammar, self._mask, self._possible = grammar, mask, possible

    @override
    def allowed(self) -> np.ndarray:
        self._grammar.fill_bitmask(self._mask, 0)
        bits = np.unpackbits(self._mask.numpy().view(np.uint8)[0], bitorder="little")
        return bits[: self._possible.size].astype(bool) & self._possible

    @override
    def read(self, token: int) -> None:
        if not self._grammar.accept_tokens("", [token]):
            raise RuntimeError("xgrammar takes no token that it allowed")


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
        self._printable = np.array([min(text, default=" ") >= " " for text in texts])

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
        # xgrammar lets strings of a limited length have line breaks, and JSON does not.
        possible = self._printable if writing.json_schema else np.ones_like(self._printable)
        return Matcher(grammar, self._backend.allocate_token_bitmask(1), possible)
