"""The steps in chains of the real library."""

import asyncio
import re
from collections.abc import Iterator

import pytest
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableGenerator
from langchain_core.tracers import LangChainTracer
from langsmith import Client
from langsmith.run_helpers import tracing_context

from examples.sanitising.with_langchain import AnswerRestorer, QuestionSanitizer, TracedQuestionError
from sanitization.conversation import Conversation
from sanitization.text import TextSanitizer
from tests.sanitization.made_up import Entity, keeping_placeholders


@pytest.fixture(scope="module")
def sanitizer(tmp_path_factory: pytest.TempPathFactory) -> TextSanitizer:
    return keeping_placeholders(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def talk(sanitizer: TextSanitizer) -> Conversation:
    return Conversation(sanitizer, lambda text: [Entity("PERSON", *one.span()) for one in re.finditer("Ann|Bo", text)])


def test_a_chain_that_answers_with_its_prompt(talk: Conversation) -> None:
    """The model's prompt and the restored answer, streamed letter by letter."""
    seen: list[str] = []

    def model(prompts: Iterator[PromptValue]) -> Iterator[str]:
        for prompt in prompts:
            seen.append(prompt.to_string())
            yield from seen[-1]

    prompt = ChatPromptTemplate.from_template("Answer {question}")
    chain = QuestionSanitizer(talk) | prompt | RunnableGenerator(model) | StrOutputParser() | AnswerRestorer(talk)
    question = "Bo and Ann: bcd. Bo?"
    answer = chain.invoke(question)
    assert re.fullmatch(r"Human: Answer Bo and Ann: [a-z]{3}\. Bo\?", answer)
    parts = list(chain.stream(question))
    assert "".join(parts) == answer
    assert len(parts) > 10
    assert re.fullmatch(r"Human: Answer <PERSON_1> and <PERSON_2>: [a-z]{3}\. <PERSON_1>\?", seen[0])
    assert seen == [seen[0]] * 2, "the same question is sent in the same words"
    assert talk.epsilon == pytest.approx(talk.sanitize(question).epsilon_token)
    assert chain.batch(["Ann", "Bo"]) == ["Human: Answer Ann", "Human: Answer Bo"]


def test_asynchronous_streams(talk: Conversation) -> None:
    async def ask() -> list[str]:
        chain = QuestionSanitizer(talk) | AnswerRestorer(talk)
        assert await chain.ainvoke("Bo") == "Bo"
        return [part async for part in chain.astream("Bo and Ann")]

    assert "".join(asyncio.run(ask())) == "Bo and Ann"


def test_refusals(talk: Conversation) -> None:
    with pytest.raises(TypeError, match="ChatPromptValue"):
        (ChatPromptTemplate.from_template("{q}") | QuestionSanitizer(talk)).invoke({"q": "Bo"})
    step = QuestionSanitizer(talk)
    tracer = LangChainTracer(client=Client("http://127.0.0.1:9", auto_batch_tracing=False))
    with pytest.raises(TracedQuestionError):
        step.invoke("Bo", {"callbacks": [tracer]})
    with tracing_context(enabled=True), pytest.raises(TracedQuestionError):
        QuestionSanitizer(talk)
    assert step.invoke("Bo") == "<PERSON_1>"
