"""Ways to release a mechanism's answers: each by itself, or all from one release that is made at signing."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from typing_extensions import override

REFUSE = "refuse"
"""The value of ``when_spent`` with which no release answers in the task's place."""

OneRelease = Literal["made", "being made", "not made", "lost"]
"""The states of a one-time release."""

ONE: Mapping[str, int] = {"shots": 1, "ensemble": 1, "answers": 1}
"""The settings of a one-time release unless they are written: it is charged one answer."""


class Releases(ABC):
    """A way in which a task's answers are released, and its consequences for the task.

    Attributes:
        written: value of ``release`` in a plan.
        unset: settings that a plan leaves out, with the values that they then have.
        refusal: message for a plan with the other value, to stand behind the mechanism's type.
        compares_exemplars: whether a question is compared with exemplars by the field that is embedded of them.
    """

    written: ClassVar[Literal["each", "once"]]
    unset: ClassVar[Mapping[str, Any]] = {}
    refusal: str
    compares_exemplars: ClassVar[bool] = True

    def check(self, settings: Mapping[str, Any]) -> None:  # noqa: B027  (nothing to check by default)
        """Check that a task's settings fit.

        Raises:
            ValueError: a setting does not; the message begins with its key.
        """

    @abstractmethod
    def probability(self, drawn: int, public_size: int) -> float:
        """The chance of a unit, or a block, to be drawn.

        Args:
            drawn: number of exemplars that all slots of an answer expect to draw.
            public_size: public number of exemplars of the knowledge base.
        """

    @abstractmethod
    def shown(self, answers: int) -> int | None:
        """A number of answers as people see it; None: any number."""

    @abstractmethod
    def one_release(self, charges: Mapping[str, int]) -> OneRelease | None:
        """The state of the task's one-time release; None: it has none.

        Args:
            charges: number of the task's charges, by state.
        """


class Each(Releases):
    """Each answer is released and charged by itself.

    Args:
        unless: clause on when the mechanism is released once; empty: never.
    """

    written = "each"

    def __init__(self, unless: str = ""):
        self.refusal = f"is released for each answer, not once{unless}"

    @override
    def probability(self, drawn: int, public_size: int) -> float:
        return drawn / public_size  # above 1 if the knowledge base is too small

    @override
    def shown(self, answers: int) -> int | None:
        return answers

    @override
    def one_release(self, charges: Mapping[str, int]) -> OneRelease | None:
        return None


class Once(Releases):
    """One release is made of the whole knowledge base when the plan is signed. It then answers at no further cost.

    So there are no slots, and the number of answers has no limit.
    """

    written = "once"
    unset: ClassVar[Mapping[str, Any]] = {
        **ONE,
        "sampling": "units",
        "max_exemplars": None,
        "drawn": None,
        "order": "random",
        "slots": "model",
        "topics": None,
    }
    refusal = "is a one-time release: write `release: once`"

    @override
    def check(self, settings: Mapping[str, Any]) -> None:
        for name, value in self.unset.items():
            if settings[name] != value:
                raise ValueError(f"{name}: a one-time release draws no slots; leave it out")
        if settings.get("when_spent", REFUSE) != REFUSE:
            raise ValueError("when_spent: a one-time release is never used up")

    @override
    def probability(self, drawn: int, public_size: int) -> float:
        return 1.0  # all units are read

    @override
    def shown(self, answers: int) -> int | None:
        return None

    @override
    def one_release(self, charges: Mapping[str, int]) -> OneRelease | None:
        if charges["released"]:
            return "made"
        if charges["charged"]:
            return "being made"
        return "lost" if charges["lost"] else "not made"


class OnceBySlots(Once):
    """One release of texts that slots write: all units are dealt to these. A question is compared with the texts."""

    unset: ClassVar[Mapping[str, Any]] = {
        name: value for name, value in Once.unset.items() if name not in ("shots", "ensemble", "max_exemplars")
    }
    compares_exemplars = False

    @override
    def check(self, settings: Mapping[str, Any]) -> None:
        super().check(settings)
        if settings["ensemble"] == 1:
            raise ValueError("ensemble: needs the number of slots that the units of a topic are dealt to")
