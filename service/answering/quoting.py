"""Outputs of slots that quote: each the response, or the label, of its exemplar that is nearest to the question.

No model is asked for them. Each is a function of the slot and of the question, as a model's output is.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np

from accounting.plans.labels import spellings
from exemplar_store import Slot
from service.engines.task import Output, TaskSpec


def quotes(task: TaskSpec, slots: Sequence[Slot]) -> list[Output | None]:
    """One output per slot; None of an empty slot, and where the nearest exemplar has none of the task's labels.

    Args:
        task: labels of the task, and the field that holds the answer.
        slots: each with its nearest exemplar last.
    """
    return [_quoted(task, slot[-1].fields[task.answer_field]) if slot else None for slot in slots]


def _quoted(task: TaskSpec, said: str) -> Output | None:
    if task.kind == "generate":
        return said or None
    number = spellings(task.labels).number(said)
    return None if number is None else cast(np.ndarray, np.eye(len(task.labels))[number])
