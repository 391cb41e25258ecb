"""An answer that the slots write together: one token after the other, each drawn from what all of them say.

    public model → the likeliest tokens → every slot's opinion of these → one is drawn → everybody reads it → ...

What decides how long this goes on is public once the answer is: its tokens, and the public model's view of them. A slot
that fails, or is not done in time, has no opinion until the answer ends; nobody is told.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from aggregation.token_ensemble import TokenEnsemble
from service.engines.fan_out import all_in_time


@dataclass(frozen=True)
class Writing:
    """How an answer is written; all of it is public.

    Attributes:
        ensemble: the mechanism that draws a token.
        tokens: how many the slots have a say in, and are paid for.
        longest: most tokens of an answer.
        top_k: from how many of the likeliest tokens one is drawn.
        gate: a token that is at least as probable as this without exemplars is drawn without asking the slots.
    """

    ensemble: TokenEnsemble
    tokens: int
    longest: int
    top_k: int
    gate: float


class PublicVoice(Protocol):
    """The model without exemplars, reading the answer."""

    async def likeliest(self, read: Sequence[int], count: int) -> Mapping[int, float]:
        """The log-probabilities of the likeliest tokens that could come next.

        Args:
            read: what was added to the answer since the last call.
            count: how many tokens.
        """
        ...


class Voice(Protocol):
    """The model with a slot's exemplars, reading the answer."""

    async def opinion(self, read: Sequence[int], tokens: Sequence[int]) -> Sequence[float]:
        """The log-probabilities of these tokens as the next one; whatever it raises is this slot's alone.

        Args:
            read: what was added to the answer since the last call.
            tokens: in any order.
        """
        ...


class UnansweredError(RuntimeError):
    """A made-up slot did not answer, so nobody knows how long the largest ones take."""


async def write(
    writing: Writing,
    public: PublicVoice,
    voices: Sequence[Voice],
    *,
    ends: Sequence[int],
    banned: Collection[int] = (),
    timeout_s: float,
    measuring: bool = False,
) -> list[int]:
    """The tokens of an answer, without its end.

    Args:
        writing: how.
        public: its failures are raised.
        voices: of the slots that are not empty.
        ends: tokens that end an answer. Where none of them is likely, the first is as likely as the least likely one.
        banned: tokens that no answer has.
        timeout_s: slots have so long, all tokens together.
        measuring: whether slots are made up, to measure the most work: the answer gets as long as it can, and asks them
            as often as it can.

    Raises:
        UnansweredError: a made-up slot did not answer.
    """
    said: list[int] = []
    heard, paid = 0, 0
    silent: set[int] = set()
    deadline = asyncio.get_running_loop().time() + timeout_s
    while len(said) < writing.longest:
        likely = await public.likeliest(said[-1:], writing.top_k)
        known = {token: value for token, value in likely.items() if token not in banned}
        if measuring:
            known = {token: value for token, value in known.items() if token not in ends}
        elif not any(end in known for end in ends):
            known[ends[0]] = min(known.values(), default=0.0)
        tokens, alone = list(known), np.array(list(known.values()))
        opinions: Sequence[np.ndarray | None] = ()
        asked = alone.max() < math.log(writing.gate) or measuring
        if asked and paid < writing.tokens:
            live = [number for number in range(len(voices)) if number not in silent]
            left = deadline - asyncio.get_running_loop().time()
            work = [_opinion(writing.ensemble, voices[number], said[heard:], tokens, alone) for number in live]
            opinions = await all_in_time(work, max(left, 0.0))
            silent.update(number for number, opinion in zip(live, opinions, strict=True) if opinion is None)
            heard, paid = len(said), paid + 1
            if measuring and silent:
                raise UnansweredError(f"{len(silent)} of {len(voices)} of the largest slots were not answered")
        token = tokens[writing.ensemble.draw(alone, opinions)]
        if token in ends:
            break
        said.append(token)
    return said


async def _opinion(
    ensemble: TokenEnsemble, voice: Voice, read: Sequence[int], tokens: Sequence[int], public: np.ndarray
) -> np.ndarray | None:
    try:
        return ensemble.opinion(np.array(await voice.opinion(read, tokens), np.float64), public)
    except Exception:  # this slot's alone
        return None
