"""The requirements for a good release of one task: how many slots must agree, and what that buys.

Public figures only: the task, its noise, and what the plan guesses of queries.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from typing_extensions import override

RELIABLE = 0.95
"""The chance of a good release that the figures are stated for."""

DEMANDING = 0.6
"""The share of the slots above which agreement is rare."""

Reach = Literal["in reach", "hard to reach", "out of reach"]
"""Whether good releases can be expected."""

REMEDIES = "more ε, fewer answers, fewer shots, a larger ensemble"
"""Remedies against too much noise, whatever the mechanism."""


@dataclass(frozen=True)
class Outlook:
    """One task's noise, and the requirements for a release that stands out from it.

    Attributes:
        noise: the mechanism's public numbers, by name.
        noise_words: the most telling of them, for a table.
        head: the step that the slots' outputs go through, in words.
        needed: number of slots with which the release is good in 95 of 100 cases; may exceed the ensemble.
        slots_mean: requirement that these slots meet, beginning with "slots".
        outcome: description of a good release, a clause.
        chance: probability of a good release, given a number of slots.
        rule: when a release is good, a clause for people, with ``{needed}`` and ``{all}`` for numbers of slots.
        remedies: advice if the slots needed are too many.
        notes: further sentences.
        demanding: the share of the slots above which agreement is rare.
        drowned: whether noise outweighs the slots; unless given, whether too many of them are needed.
        instead: description of what leaves then, a sentence.
    """

    noise: Mapping[str, float]
    noise_words: str
    head: str
    needed: float
    slots_mean: str
    outcome: str
    chance: Callable[[int], float]
    rule: str
    remedies: str = REMEDIES
    notes: str = ""
    demanding: float = DEMANDING
    drowned: bool | None = None
    instead: str = "Answers are expected to be worse than the engine's own without exemplars, which are free."

    def reach(self, ensemble: int) -> Reach:
        """Whether good releases can be expected.

        Args:
            ensemble: number of slots.
        """
        if self.needed > ensemble:
            return "out of reach"
        return "hard to reach" if self.warning(ensemble) else "in reach"

    def warning(self, ensemble: int) -> str | None:
        """Why the task's answers are not expected to be worth their price; None if they may be.

        Args:
            ensemble: number of slots.
        """
        drowned = self.needed > self.demanding * ensemble if self.drowned is None else self.drowned
        return self.instead if drowned else None

    def gives(self, answers: int | None, ensemble: int, topics: int | None = None) -> str:
        """A promise to a person: the number of answers, and when they are good.

        Args:
            answers: number of answers that the plan grants; None: any number, from one release.
            ensemble: number of slots, or of whatever else ``needed`` counts.
            topics: number of topics, each with ``answers`` of its own; None: the task has no topics.
        """
        given = _granted(answers, topics)
        if self.needed > ensemble:
            return f"{given}. The noise drowns all {ensemble:,} {self.slots_mean.split()[0]}."
        rule = self.rule.format(needed=f"{math.ceil(self.needed):,}", all=f"{ensemble:,}")
        return f"{given}. {rule[0].upper()}{rule[1:]}."

    def in_words(self, answers: int | None, ensemble: int, topics: int | None = None) -> str:
        """A few sentences an admin can decide by.

        Args:
            answers: number of answers that the plan grants; None: any number, from one release.
            ensemble: number of slots, or of whatever else ``needed`` counts.
            topics: number of topics, each with ``answers`` of its own; None: the task has no topics.
        """
        if self.needed > ensemble:
            best = math.floor(100 * self.chance(ensemble))
            few = f"only {best}" if best else "fewer than 1"
            says = (
                f"Out of reach: even with all {ensemble} {self.slots_mean}, {self.outcome} in {few} of 100 cases. "
                f"What helps: {self.remedies}."
            )
        else:
            says = f"With {math.ceil(self.needed)} of {ensemble} {self.slots_mean}, {self.outcome} in 95 of 100 cases."
            if self.needed > self.demanding * ensemble:
                says += f" Few questions reach that number. What helps: {self.remedies}."
        given = "One release for any number of answers" if answers is None else _granted(answers, topics)
        return f"{given}: {self.head}. {says}{self.notes}"


@dataclass(frozen=True)
class OutlookOfUnits(Outlook):
    """The outlook of one release that questions are compared with: good if noise leaves what exemplars add.

    A release is good for a question that zero-shot gets wrong, and the release without noise right, if it still gets it
    right. With n units of each label and the noise multiplier z, that is so for a share n / (n + h·z) of them. What h
    is depends on how clearly labels differ; it was measured on public sets (docs/evaluation.md, one-time releases).
    """

    @classmethod
    def of(cls, noise: float, *, head: str, noise_words: str) -> "OutlookOfUnits":
        """The outlook of a release.

        Args:
            noise: noise multiplier.
            head: see :class:`Outlook`.
            noise_words: likewise.
        """
        return cls(
            noise={"noise_multiplier": noise},
            noise_words=noise_words,
            head=head,
            needed=_TYPICAL * noise * RELIABLE / (1 - RELIABLE),
            slots_mean="units of each label",
            outcome="noise leaves a question that exemplars help",
            chance=lambda units: _left(units, noise, _TYPICAL),
            rule="",
            remedies="more ε, fewer labels, more exemplars before it is signed",
            notes=" Made when the plan is signed, from the exemplars stored then. A label with few units stays near "
            "its sentence, as in zero-shot.",
            instead="The labels' sentences mostly decide: most answers are expected to be those of zero-shot, which "
            "are free.",
        )

    @override
    def reach(self, ensemble: int) -> Reach:
        if _left(ensemble, self.noise["noise_multiplier"], _CLEAR) < _SOME:
            return "out of reach"
        return "in reach" if self.chance(ensemble) >= _MOST else "hard to reach"

    @override
    def warning(self, ensemble: int) -> str | None:
        return self.instead if self.reach(ensemble) == "out of reach" else None

    @override
    def gives(self, answers: int | None, ensemble: int, topics: int | None = None) -> str:
        return f"{_granted(answers, topics)}. {self._leaves(ensemble)}"

    @override
    def in_words(self, answers: int | None, ensemble: int, topics: int | None = None) -> str:
        helps = "" if self.reach(ensemble) == "in reach" else f" What helps: {self.remedies}."
        return f"One release for any number of answers: {self.head}. {self._leaves(ensemble)}{helps}{self.notes}"

    def _leaves(self, units: int) -> str:
        least, most, usual = (
            f"{100 * _left(units, self.noise['noise_multiplier'], half):.0f}" for half in (_HARD, _CLEAR, _TYPICAL)
        )
        return (
            f"With about {units:,} units of each label, noise leaves {least} to {most} % of what exemplars add to "
            f"zero-shot's answers, typically {usual} %: least where labels are tones, most where they differ clearly."
        )


_CLEAR, _TYPICAL, _HARD = 0.3, 30.0, 80.0
"""Units of each label, for each 1 of z, with which noise leaves half of what exemplars add: for DDXPlus' diagnoses, for
the kinds of TREC's questions and AG News' sections, and for the tone of SST-2's reviews."""
_MOST, _SOME = 0.5, 0.2
"""Shares of what exemplars add: most of it, on typical data; and so little, even where labels differ clearly, that it
hardly shows."""


def _left(units: int, noise: float, half: float) -> float:
    return units / (units + half * noise)


def _granted(answers: int | None, topics: int | None) -> str:
    if answers is None:
        return "Any number of answers"
    given = f"{answers:,} answer{'s' if answers > 1 else ''}"
    if topics is None:
        return given
    return f"{given} on each of {topics} topics, {topics * answers:,} in all, for the price of those on one"
