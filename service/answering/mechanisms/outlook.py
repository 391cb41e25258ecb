"""What must hold for a good release of one task: how many slots must agree, and what that buys.

Public figures only: the task, its noise, and what the plan guesses of queries.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

RELIABLE = 0.95
"""The chance of a good release that the figures are stated for."""

DEMANDING = 0.6
"""The share of the slots above which so many seldom agree."""

REMEDIES = "more ε, fewer answers, fewer shots, a larger ensemble"
"""What helps against too much noise, whatever the mechanism."""


@dataclass(frozen=True)
class Outlook:
    """One task's noise, and what it takes to be heard above it.

    Attributes:
        noise: the mechanism's public numbers, by name.
        noise_words: the most telling of them, for a table.
        head: what happens to the slots' outputs.
        needed: with how many slots the release is good in 95 of 100 cases; may exceed the ensemble.
        slots_mean: what these slots must do, beginning with "slots".
        outcome: what a good release is, a clause.
        chance: of that, at a number of slots.
        rule: when a release is good, a clause for people, with ``{needed}`` and ``{all}`` for numbers of slots.
        remedies: what to change if the slots needed are too many.
        notes: further sentences.
        demanding: the share of the slots above which so many seldom agree.
        drowned: whether noise leaves the slots little say; unless given, whether too many of them are needed.
        instead: what leaves then, a sentence.
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

    def warning(self, ensemble: int) -> str | None:
        """Why the task's answers are not expected to be worth their price; None if they may be.

        Args:
            ensemble: how many slots there are.
        """
        drowned = self.needed > self.demanding * ensemble if self.drowned is None else self.drowned
        return self.instead if drowned else None

    def gives(self, answers: int | None, ensemble: int, topics: int | None = None) -> str:
        """What a person gets of the task: how many answers, and when they are good.

        Args:
            answers: how many the plan grants; None: any number, from one release.
            ensemble: how many slots there are, or of what else ``needed`` counts.
            topics: on how many topics it grants so many each; None: it has no topics.
        """
        given = _granted(answers, topics)
        if self.needed > ensemble:
            return f"{given}. The noise drowns all {ensemble:,} {self.slots_mean.split()[0]}."
        rule = self.rule.format(needed=f"{math.ceil(self.needed):,}", all=f"{ensemble:,}")
        return f"{given}. {rule[0].upper()}{rule[1:]}."

    def in_words(self, answers: int | None, ensemble: int, topics: int | None = None) -> str:
        """A few sentences an admin can decide by.

        Args:
            answers: how many the plan grants; None: any number, from one release.
            ensemble: how many slots there are, or of what else ``needed`` counts.
            topics: on how many topics it grants so many each; None: it has no topics.
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
                says += f" Few questions bring so many together. What helps: {self.remedies}."
        given = "One release for any number of answers" if answers is None else _granted(answers, topics)
        return f"{given}: {self.head}. {says}{self.notes}"


def _granted(answers: int | None, topics: int | None) -> str:
    if answers is None:
        return "Any number of answers"
    given = f"{answers:,} answer{'s' if answers > 1 else ''}"
    if topics is None:
        return given
    return f"{given} on each of {topics} topics, {topics * answers:,} in all, for the price of those on one"
