"""An answer that the slots write together: one token after the other, each drawn from the opinions of all of them.

        public model → the likeliest tokens → every slot's opinion of these → one is drawn → all slots read it → ...

What decides how long this goes on is public once the answer is: its tokens, and the public model's view of them. So are
the rules that an answer keeps to: they cost nothing, and where they leave one token, no slot is asked. A slot that
fails, or is not done in time, has no opinion until the answer ends; this is not reported.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from aggregation.token_ensemble import TokenEnsemble
from service.engines.fan_out import all_in_time
from service.engines.task import Writing

MOST_ASKED = 128
"""Tokens whose log-probabilities can be asked for at once."""


class PublicVoice(Protocol):
    """The model without exemplars, reading the answer."""

    async def likeliest(self, read: Sequence[int], count: int, beside: Sequence[int] = ()) -> Mapping[int, float]:
        """The log-probabilities of the likeliest tokens that could come next, and of others.

        Args:
            read: tokens that were added to the answer since the last call.
            count: number of the likeliest.
            beside: the others. Of both at most :data:`MOST_ASKED` are asked for.
        """
        ...


class Voice(Protocol):
    """The model with a slot's exemplars, reading the answer."""

    async def opinion(self, read: Sequence[int], tokens: Sequence[int], voices: int) -> Sequence[float]:
        """The log-probabilities of these tokens as the next one; whatever it raises is this slot's alone.

        Args:
            read: tokens that were added to the answer since the last call.
            tokens: tokens, in any order.
            voices: number of slots that are asked at the same time.
        """
        ...


class Grammar(Protocol):
    """The rules of what may be written; it reads the answer."""

    def allowed(self) -> np.ndarray:
        """Whether each token may come next, bool (tokens,); an end may where the answer is complete."""
        ...

    def read(self, token: int) -> None:
        """Go on behind a token that may come next."""
        ...


@dataclass
class _Obeying:
    """A public voice that keeps to a grammar.

    Those that may come next are asked for if they are at most 128; else the first 128 of them, which in most
    vocabularies are characters and the commonest pieces of words, beside those among the 128 likeliest of all.
    """

    public: PublicVoice
    grammar: Grammar
    ends: Sequence[int]
    measuring: bool
    unread: list[int] = field(default_factory=list)

    async def likeliest(self, read: Sequence[int], count: int, beside: Sequence[int] = ()) -> Mapping[int, float]:
        """The likeliest tokens that may come next, and the end if it may; none at a dead end. They add up to 1."""
        for token in read if not self.measuring else ():
            self.grammar.read(token)
        self.unread += read
        mask = self.grammar.allowed()
        allowed = np.flatnonzero(mask)
        if len(allowed) < 2 and not self.measuring:
            return {int(token): 0.0 for token in allowed}
        first = allowed[np.argsort(~np.isin(allowed, self.ends), kind="stable")][:MOST_ASKED].tolist()
        said = await self.public.likeliest(self.unread, MOST_ASKED, first)
        self.unread = []
        likely = sorted((token for token in said if mask[token] or self.measuring), key=lambda t: -said[t])
        chosen = [token for place, token in enumerate(likely) if place < count or token in self.ends]
        whole = np.logaddexp.reduce([said[token] for token in chosen])
        return {token: float(said[token] - whole) for token in chosen}


class UnansweredError(RuntimeError):
    """A made-up slot did not answer, so the time of the largest ones is unknown."""


async def write(
    writing: Writing,
    public: PublicVoice,
    voices: Sequence[Voice],
    *,
    ends: Sequence[int],
    banned: Collection[int] = (),
    forbids: Callable[[Sequence[int]], bool] = lambda said: False,
    grammar: Grammar | None = None,
    timeout_s: float,
    measuring: bool = False,
) -> list[int]:
    """The tokens of an answer, without its end.

    Args:
        writing: rules of the answer.
        public: model without exemplars; its failures are raised.
        voices: models with the exemplars of the slots that are not empty.
        ends: tokens that end an answer, but no empty one. Where none of them is likely, the first is as likely as the
            least likely one. A grammar decides otherwise.
        banned: tokens that no answer has.
        forbids: whether no answer begins with these tokens.
        grammar: grammar that answers keep to as far as they get; at a dead end they are over.
        timeout_s: limit for the slots, all tokens together.
        measuring: whether slots are made up, to measure the most work: the answer gets as long as it can, and asks them
            as often as it can, whatever the rules.

    Raises:
        UnansweredError: a made-up slot did not answer.
    """
    said: list[int] = []
    voice = public if grammar is None else _Obeying(public, grammar, ends, measuring)
    heard, paid = 0, 0
    silent: set[int] = set()
    deadline = asyncio.get_running_loop().time() + timeout_s
    while len(said) < writing.longest:
        may_end = not measuring and (bool(said) or grammar is not None)
        count = writing.top_k if may_end else min(writing.top_k + len(ends), MOST_ASKED)
        likely = await voice.likeliest(said[-1:], count)
        known = {
            token: value
            for token, value in likely.items()
            if token not in banned and (not forbids([*said, token]) or measuring) and (token not in ends or may_end)
        }
        if grammar is None and may_end and not any(end in known for end in ends):
            known[ends[0]] = min(known.values(), default=0.0)
        if not known:
            break
        tokens, alone = list(known), np.array(list(known.values()))
        opinions: Sequence[np.ndarray | None] = ()
        asked = (len(known) > 1 and alone.max() < math.log(writing.gate)) or measuring
        if asked and paid < writing.tokens:
            live = [number for number in range(len(voices)) if number not in silent]
            left = deadline - asyncio.get_running_loop().time()
            work = [
                _opinion(writing.ensemble, voices[number].opinion(said[heard:], tokens, len(live)), alone)
                for number in live
            ]
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


async def _opinion(ensemble: TokenEnsemble, asked: Awaitable[Sequence[float]], public: np.ndarray) -> np.ndarray | None:
    try:
        return ensemble.opinion(np.array(await asked, np.float64), public)
    except Exception:  # this slot's alone
        return None
