"""The requirements for a good release of one task: how many slots must agree, and what that buys.

Public figures only: the task, its noise, and what the plan guesses of queries.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aggregation.rnm_gaussian import probability_correct, required_margin

RELIABLE = 0.95
"""The chance of a good release that the figures are stated for."""

DEMANDING = 0.6
"""The share of the slots above which agreement is rare."""

_FEW = 10.0
"""A tenth of the units needed still beats zero-shot: close questions are lost, clear ones are not."""

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


def of_embeddings(noise: float, labels: int, lead: float, *, head: str, noise_words: str) -> Outlook:
    """The requirements of a one-time release that a question's embedding is compared with.

    Args:
        noise: noise multiplier.
        labels: number of labels.
        lead: guess of how far a unit moves a question's score towards its own label, in units of sensitivity.
        head: see :class:`Outlook`.
        noise_words: likewise.
    """
    return Outlook(
        noise={"noise_multiplier": noise},
        noise_words=noise_words,
        head=head,
        needed=required_margin(noise, labels, RELIABLE) / lead,
        slots_mean="units of each label",
        outcome="noise leaves even a close question its label",
        chance=lambda units: probability_correct(lead * units, noise, labels),
        rule="even a close question gets its label if each label has {needed} units; it has about {all}",
        remedies="more ε, fewer labels, more exemplars before it is signed",
        notes=" Made when the plan is signed, from the exemplars stored then. A label with few units stays near its "
        "sentence, as in zero-shot.",
        demanding=_FEW,
        instead="The labels' sentences mostly decide: most answers are expected to be those of zero-shot, which are "
        "free.",
    )


def _granted(answers: int | None, topics: int | None) -> str:
    if answers is None:
        return "Any number of answers"
    given = f"{answers:,} answer{'s' if answers > 1 else ''}"
    if topics is None:
        return given
    return f"{given} on each of {topics} topics, {topics * answers:,} in all, for the price of those on one"
