"""What a prompt's form favours beside exemplars: a model's label scores beside public texts under every label in turn.

Beside exemplars a model tends to repeat a label that it is shown, above all the last one. That is what exemplars teach,
and must stay. It also favours some labels whatever it is shown, and that is to be divided out. Over all labels in turn
the pull of a shown label cancels, and the rest is left.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from exemplar_store import Exemplar, Slot
from service.engines.prompts import exemplar_fields
from service.engines.task import TaskSpec
from service.engines.vllm.label_scoring import reference

_ENOUGH = 128
"""Prompts that a reference is made of, unless there are more labels; fewer where texts are few.

With SmolLM2 and the demo's eight public texts, logarithms of its scores are within 0.06 of those from all 280 prompts.
"""


@dataclass(frozen=True)
class PublicSlot:
    """A question beside public texts.

    Attributes:
        query: public text that is asked about.
        slot: others as exemplars.
        label: number of the last one's label.
    """

    query: Mapping[str, str]
    slot: Slot
    label: int


@dataclass(frozen=True, eq=False)
class BalancedReference:
    """A task's reference, all of it public.

    Attributes:
        scores: geometric mean of the label scores of :func:`public_slots`, float64 (L,).
        repeats: share of these whose likeliest label is that of the last exemplar, from 0 to 1.
    """

    scores: np.ndarray
    repeats: float


def public_slots(task: TaskSpec) -> list[PublicSlot]:
    """Pairs of a task's public texts, one asked about and one shown last, this one under every label.

    Before the last exemplar stand other texts under the other labels, so that there are as many as a slot expects to
    show, or as there are texts.

    Args:
        task: task with at least two public texts.
    """
    texts, labels = task.calibration, range(len(task.labels))
    pairs = [(at, (at + by) % len(texts)) for by in range(1, len(texts)) for at in range(len(texts))]
    slots = []
    for number, (asked, last) in enumerate(pairs[: max(1, _ENOUGH // len(labels))]):
        around = [at % len(texts) for at in range(last + 1, last + len(texts))]
        before = [at for at in around if at != asked][: task.shots - 1]
        for label in labels:
            others = [*labels[label + 1 :], *labels[:label]]
            shown = [(text, others[(number + place) % len(others)]) for place, text in enumerate(before)]
            slot = tuple(_under(task, texts[text], its) for text, its in [*shown, (last, label)])
            slots.append(PublicSlot(texts[asked], slot, label))
    return slots


def balanced(slots: Sequence[PublicSlot], scores: Sequence[np.ndarray]) -> BalancedReference:
    """The reference.

    Args:
        slots: public slots, the same number for every label.
        scores: label probabilities of each, float64 (L,).
    """
    repeated = [int(said.argmax()) == slot.label for slot, said in zip(slots, scores, strict=True)]
    return BalancedReference(reference(scores), float(np.mean(repeated)))


def _under(task: TaskSpec, text: Mapping[str, str], label: int) -> Exemplar:
    """A public text as an exemplar of a label; what exemplars show and questions do not have is empty."""
    empty = dict.fromkeys(exemplar_fields(task.prompt), "")
    return Exemplar({**empty, **text, task.answer_field: task.labels[label]})
