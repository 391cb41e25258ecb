"""Sanitise questions in a LangChain chain: ``pip install langchain-core presidio-analyzer``.

One step sanitises the question, another restores the answer. A detector's finds become placeholders, other words are
drawn, and the answer gets its data back. See docs/sanitization.md.

Neither step appears in traces as a run of its own. The chain itself does, with the question as it was asked, so the
steps refuse LangSmith.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import spacy
from langchain_core.callbacks import BaseCallbackManager
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tracers import LangChainTracer
from langsmith.utils import tracing_is_enabled
from presidio_analyzer import AnalyzerEngine
from presidio_analyzer.nlp_engine import SpacyNlpEngine

from sanitization.conversation import Conversation, StreamRestorer
from service.engines.embedding.local import local_sanitizer


class TracedQuestionError(RuntimeError):
    """LangSmith is on: it would get the question as it was asked."""

    def __init__(self) -> None:
        super().__init__("LangSmith traces this chain, and so gets questions in clear text: turn tracing off")


class QuestionSanitizer(Runnable[str, str]):
    """Hands on what may leave.

    Args:
        conversation: keeps what belongs to it.

    Raises:
        TracedQuestionError: LangSmith is on.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        if tracing_is_enabled():
            raise TracedQuestionError

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> str:
        """The question, sanitised. See :meth:`sanitization.conversation.Conversation.sanitize`.

        Raises:
            TypeError: the question is not a text.
            TracedQuestionError: LangSmith is on.
        """
        callbacks = (config or {}).get("callbacks") or []
        handlers = callbacks.handlers if isinstance(callbacks, BaseCallbackManager) else callbacks
        if any(isinstance(handler, LangChainTracer) for handler in handlers):
            raise TracedQuestionError
        if not isinstance(input, str):
            raise TypeError(f"a question is a text, not a {type(input).__name__}: sanitise it before the prompt")
        return self._conversation.sanitize(input).text


class AnswerRestorer(Runnable[str, str]):
    """Puts values back into an answer, also while it is streamed.

    Args:
        conversation: conversation of the question.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> str:
        """The answer with its values put back. See :meth:`sanitization.conversation.Conversation.restore`."""
        return self._conversation.restore(input)

    def transform(self, input: Iterator[str], config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[str]:
        """The same in parts."""
        restoring = StreamRestorer(self._conversation)
        for part in input:
            yield restoring.add(part)
        yield restoring.end()

    async def atransform(
        self, input: AsyncIterator[str], config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[str]:
        """The same in parts."""
        restoring = StreamRestorer(self._conversation)
        async for part in input:
            yield restoring.add(part)
        yield restoring.end()


def ask(question: str) -> str:
    """A model's answer to the sanitised question, with the question's own data put back."""
    patterns = SpacyNlpEngine()
    patterns.nlp = {"en": spacy.blank("en")}  # no names: without this line it downloads a model, which finds them, too
    analyzer = AnalyzerEngine(nlp_engine=patterns)
    talk = Conversation(local_sanitizer(epsilon=8), lambda text: analyzer.analyze(text, language="en"))
    model = FakeListChatModel(responses=["Write to <EMAIL_ADDRESS_1>."])  # any model of LangChain's
    prompt = ChatPromptTemplate.from_template("Answer in one sentence: {question}")
    chain = QuestionSanitizer(talk) | prompt | model | StrOutputParser() | AnswerRestorer(talk)
    return f"{chain.invoke(question)} (ε = {talk.epsilon:.2f})"


if __name__ == "__main__":
    print(ask("My landlord ann@example.org keeps the deposit. What now?"))
