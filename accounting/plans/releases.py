"""How a mechanism's answers are released: each by itself, or all from one release that is made at signing."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from typing_extensions import override

REFUSE = "refuse"
"""Of ``when_spent``: no release answers in the task's place."""

OneRelease = Literal["made", "being made", "not made", "lost"]
"""What became of a release that is made once."""

ONE: Mapping[str, int] = {"shots": 1, "ensemble": 1, "answers": 1}
"""What a release that is made once has of these unless they are written: it is charged one answer."""


class Releases(ABC):
    """What follows for a task from how its answers are released.

    Attributes:
        written: what a plan says of it under ``release``.
        unset: settings that a plan leaves out, and what they then are.
        refusal: what is wrong with a plan that writes the other, after the mechanism's type.
        compares_exemplars: whether a question is compared with exemplars by the field that is embedded of them.
    """

    written: ClassVar[Literal["each", "once"]]
    unset: ClassVar[Mapping[str, Any]] = {}
    refusal: str
    compares_exemplars: ClassVar[bool] = True

    def check(self, settings: Mapping[str, Any]) -> None:  # noqa: B027  (nothing, unless it says otherwise)
        """Whether a task's settings fit.

        Raises:
            ValueError: they do not; the message begins with the setting's key.
        """

    @abstractmethod
    def probability(self, drawn: int, public_size: int) -> float:
        """The chance of a unit, or a block, to be drawn.

        Args:
            drawn: exemplars that all slots of an answer expect to draw.
            public_size: the knowledge base's public number of exemplars.
        """

    @abstractmethod
    def told(self, answers: int) -> int | None:
        """A number of answers as people are told it; None: any number."""

    @abstractmethod
    def one_release(self, charges: Mapping[str, int]) -> OneRelease | None:
        """What became of the task's one release; None: it has none.

        Args:
            charges: the number of the task's charges by their state.
        """


class Each(Releases):
    """Each answer is released and charged by itself.

    Args:
        unless: when the mechanism is released once, a clause; empty: never.
    """

    written = "each"

    def __init__(self, unless: str = ""):
        self.refusal = f"is released for each answer, not once{unless}"

    @override
    def probability(self, drawn: int, public_size: int) -> float:
        return drawn / public_size  # above 1 if the knowledge base is too small

    @override
    def told(self, answers: int) -> int | None:
        return answers

    @override
    def one_release(self, charges: Mapping[str, int]) -> OneRelease | None:
        return None


class Once(Releases):
    """One release is made of the whole knowledge base when the plan is signed. It answers for ever, at no further cost.

    So there are no slots, and no number of answers.
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
    refusal = "is made once: write `release: once`"

    @override
    def check(self, settings: Mapping[str, Any]) -> None:
        for name, value in self.unset.items():
            if settings[name] != value:
                raise ValueError(f"{name}: a release that is made once draws no slots; leave it out")
        if settings.get("when_spent", REFUSE) != REFUSE:
            raise ValueError("when_spent: a release that is made once is never used up")

    @override
    def probability(self, drawn: int, public_size: int) -> float:
        return 1.0  # all units are read

    @override
    def told(self, answers: int) -> int | None:
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
            raise ValueError("ensemble: say to how many slots the units of a topic are dealt")
