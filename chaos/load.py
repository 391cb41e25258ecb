"""Callers that keep asking during any fault, and a record of every response."""

import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

from chaos.toys import QUESTION_CANARY

NOTHING_CHARGED = frozenset(
    {"engine-unavailable", "unusable-reply", "busy", "invalid-query", "rate-limited", "answers-exhausted"}
)
"""Kinds of problems that promise that the question cost nothing."""
_TASKS = ("toys.colour", "toys.colour", "toys.colour", "toys.story", "toys.scarce")


@dataclass(frozen=True)
class Received:
    """A question that a caller asked, and the response.

    Attributes:
        at: time when the question was sent, in monotonic seconds.
        until: time when the response had arrived.
        task: address of the task, without a version.
        question: text of the question.
        status: HTTP status; 0 if no response came.
        slug: kind of problem; empty if the response is not a problem document.
        release: whole document of the answer; None if there is no answer.
    """

    at: float
    until: float
    task: str
    question: str
    status: int
    slug: str = ""
    release: dict[str, Any] | None = None


@dataclass
class Load:
    """Callers, each in a thread of its own.

    Args:
        url: address of the service.
        token: token of an analyst's key.
        callers: number of callers at once.
        seed: seed of the random choice of questions.
        twins: probability that a question repeats an earlier one, of any caller.
        forbidden: strings that no response may hold.

    Attributes:
        received: questions that were asked, with the responses.
        leaks: descriptions of responses that held a forbidden string.
    """

    url: str
    token: str
    callers: int
    seed: int
    twins: float = 0.3
    forbidden: tuple[str, ...] = ()
    received: list[Received] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._asked: list[tuple[str, str]] = []
        self._threads = [threading.Thread(target=self._ask_on, args=(n,), daemon=True) for n in range(self.callers)]

    def start(self) -> None:
        """Start all callers."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop all callers, and wait for responses that are still due."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(120)

    def statuses(self) -> Counter[int]:
        """Number of responses by status; 0 counts questions without a response."""
        return Counter(one.status for one in self.received)

    def answered_after(self, moment: float) -> float | None:
        """Seconds from this moment until a question asked after it had a newly charged answer; None if none had."""
        return next(
            (
                one.until - moment
                for one in sorted(self.received[-5000:], key=lambda one: one.until)
                if one.at >= moment and one.status == 200 and one.release and one.release["cost"]["charged"]
            ),
            None,
        )

    def ask(self, client: httpx.Client, task: str, question: str) -> Received:
        """Ask one question, and record the response."""
        began = time.monotonic()
        try:
            response = client.post(f"{self.url}/v1/tasks/{task}/answers", json={"query": question})
        except httpx.HTTPError:
            return self._remember(Received(began, time.monotonic(), task, question, 0))
        self.look(f"an answer of {response.status_code}", response.content)
        document = _document(response)
        if response.status_code == 200:
            told = Received(began, time.monotonic(), task, question, 200, release=document)
        else:
            slug = str((document or {}).get("type", "")).rpartition("/")[2]
            told = Received(began, time.monotonic(), task, question, response.status_code, slug)
        return self._remember(told)

    def look(self, where: str, content: bytes) -> None:
        """Note the forbidden strings that a response holds."""
        self.leaks += [f"{where} holds {secret}" for secret in self.forbidden if secret.encode() in content]

    def client(self) -> httpx.Client:
        """A client with the analyst's key."""
        return httpx.Client(headers={"Authorization": f"Bearer {self.token}"}, timeout=60, trust_env=False)

    def _ask_on(self, number: int) -> None:
        draw = random.Random(f"{self.seed} {number}")
        with self.client() as client:
            while not self._stopping.is_set():
                if self._asked and draw.random() < self.twins:
                    task, question = draw.choice(self._asked[-200:])
                else:
                    task, question = draw.choice(_TASKS), f"{QUESTION_CANARY} {draw.getrandbits(64):x}"
                    self._asked.append((task, question))
                told = self.ask(client, task, question)
                self._stopping.wait(0.5 if told.status not in (200, 402) else draw.random() * 0.1)

    def _remember(self, told: Received) -> Received:
        self.received.append(told)
        return told


def _document(response: httpx.Response) -> dict[str, Any] | None:
    try:
        read = json.loads(response.content)
    except ValueError:
        return None
    return read if isinstance(read, dict) else None
