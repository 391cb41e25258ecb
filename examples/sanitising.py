"""Sanitise questions in LangChain, and what Presidio finds: ``pip install '.[langchain,presidio]'``.

Both run in this process. A detector's finds become placeholders, other words are drawn, and the answer gets its data
back. See docs/sanitization.md.
"""

from __future__ import annotations

import spacy
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from presidio_analyzer import AnalyzerEngine
from presidio_analyzer.nlp_engine import SpacyNlpEngine
from presidio_anonymizer import AnonymizerEngine
from presidio_anonymizer.entities import OperatorConfig, RecognizerResult

from sanitization.conversation import Conversation
from service.adapters.langchain import AnswerRestorer, QuestionSanitizer
from service.adapters.presidio import DpSanitize
from service.embedding.local import local_sanitizer


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


def replace_cities(text: str, start: int, end: int) -> str:
    """The text with the city found at these offsets replaced by one of three public ones."""
    engine = AnonymizerEngine()
    engine.add_anonymizer(DpSanitize)
    cities = OperatorConfig("dp_sanitize", {"values": ["Boston", "Paris", "Tokyo"], "epsilon": 2, "remembered": {}})
    return str(engine.anonymize(text, [RecognizerResult("CITY", start, end, 1.0)], {"CITY": cities}).text)


if __name__ == "__main__":
    print(ask("My landlord ann@example.org keeps the deposit. What now?"))
    print(replace_cities("I live in Lyon.", 10, 14))
