"""The engine of tests without a model: real votes, nothing to load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from exemplar_store import Slot
from service.engines.errors import EngineUnavailableError
from service.engines.protocol import EngineInfo
from service.engines.task import Sentence, TaskSpec, ZeroShot


class MajorityEngine:
    """Answers with the label, or the response, that is most frequent in a slot; public answers are its candidates.

    Attributes:
        down: whether its probe fails.
        mute: number of times that :meth:`reconstruct` fails.
        shown: task, question and slots of each call.
        asked: words that were to become a sentence, and whether they were ranked.
    """

    info = EngineInfo("majority", "each slot by itself", False, "for tests")

    def __init__(self) -> None:
        self.down = False
        self.mute = 0
        self.shown: list[tuple[TaskSpec, Mapping[str, str], Sequence[Slot]]] = []
        self.asked: list[tuple[tuple[str, ...], bool]] = []

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        await self.health()
        if task.kind == "generate":
            return ZeroShot(texts=task.public_answers[: task.candidates])
        return ZeroShot(np.full(len(task.labels), 1 / len(task.labels)))

    async def work(self, slots: Sequence[Slot]) -> None:
        """Work that a test wants done before slots are answered."""

    async def contributions(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> list[np.ndarray | str | None]:
        self.shown.append((task, query, slots))
        await self.work(slots)
        return [self._answer(task, slot) for slot in slots]

    def _answer(self, task: TaskSpec, slot: Slot) -> np.ndarray | str | None:
        answers = Counter(exemplar.fields.get(task.answer_field) for exemplar in slot)
        known = task.labels if task.kind == "classify" else [one for one in answers if isinstance(one, str) and one]
        usable = [one for one, _ in answers.most_common() if one in known]
        if not usable:
            return None
        return np.eye(len(task.labels))[task.labels.index(usable[0])] if task.kind == "classify" else usable[0]

    async def reconstruct(
        self, task: TaskSpec, query: Mapping[str, str], keywords: Sequence[str], ordered: bool, zero_shot: ZeroShot
    ) -> Sentence:
        self.asked.append((tuple(keywords), ordered))
        if self.mute:
            self.mute -= 1
            raise EngineUnavailableError("down")
        return Sentence(f"about {' and '.join(keywords)}", "repeated")

    async def describe(self) -> EngineInfo:
        return self.info

    async def health(self) -> None:
        if self.down:
            raise EngineUnavailableError("down")

    def close(self) -> None:
        pass
