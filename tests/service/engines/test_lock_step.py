"""An answer that slots write together: its whole law by enumeration, and who is asked when."""

from __future__ import annotations

import asyncio
import itertools
import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from accounting.privacy.token_ensemble import TokenEnsemble as Profile
from aggregation.token_ensemble import GRID, TokenEnsemble
from service.engines.lock_step import UnansweredError, Writing, write

END, A, B = 0, 1, 2
PUBLIC = {END: math.log(0.2), A: math.log(0.5), B: math.log(0.3)}


@dataclass
class Public:
    """Says the same whatever was written, and notes what it read."""

    says: dict[int, float] = field(default_factory=lambda: dict(PUBLIC))
    read: list[list[int]] = field(default_factory=list)

    async def likeliest(self, read, count):
        self.read.append(list(read))
        return dict(itertools.islice(self.says.items(), count))


@dataclass
class Slot:
    """Wants one token first, another then; None fails."""

    wants: list[int | None]
    read: list[list[int]] = field(default_factory=list)

    async def opinion(self, read, tokens):
        self.read.append(list(read))
        wanted = self.wants[min(len(self.read), len(self.wants)) - 1]
        if wanted is None:
            raise RuntimeError("this slot cannot be read")
        return [0.0 if token == wanted else -1e4 for token in tokens]


class Scripted(TokenEnsemble):
    """Takes the places it is told to, and keeps the probability of each."""

    def follow(self, places):
        object.__setattr__(self, "places", list(places))
        object.__setattr__(self, "probability", 1.0)

    def draw(self, public, opinions):
        moved = sum((opinion for opinion in opinions if opinion is not None), np.zeros(public.shape))
        weights = np.exp(public / self.temperature + self.pull / GRID * moved)
        place = self.places.pop(0) if self.places else 0
        object.__setattr__(self, "probability", self.probability * weights[place] / weights.sum())
        return place


def writing(ensemble=None, **changed):
    ensemble = ensemble or TokenEnsemble(0.2, 2.0, 1.0)
    return Writing(**{"ensemble": ensemble, "tokens": 3, "longest": 3, "top_k": 3, "gate": 1.0, **changed})


def written(how, public, slots, **options):
    return asyncio.run(write(how, public, slots, **{"ends": [END], "timeout_s": 10, **options}))


def law(slots, tokens, pull=0.2):
    """The probability of every answer of so many tokens."""
    found = {}
    for places in itertools.product(range(3), repeat=tokens):
        ensemble = Scripted(pull, 2.0, 1.0)
        ensemble.follow(places)
        said = tuple(written(writing(ensemble, tokens=tokens, longest=tokens), Public(), slots()))
        found[said] = ensemble.probability
    assert sum(found.values()) == pytest.approx(1)
    return found


NEIGHBOURS = {
    "insists on a rare word": [B],
    "ends every answer": [END],
    "changes its mind": [A, B, END],
    "fails in the middle": [B, None],
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_an_answer_costs_no_more_than_accounted(name):
    """Against the slot's absence, and against one that insists on something else: all answers, both orders."""
    tokens, pull = 3, 0.2
    profile, losses = Profile(4 * pull, tokens), np.linspace(0, 4 * pull * tokens, 9)
    changed = law(lambda: [Slot([A]), Slot(NEIGHBOURS[name])], tokens, pull)
    for other in (lambda: [Slot([A])], lambda: [Slot([A]), Slot([A])]):
        before = law(other, tokens, pull)
        for p, q in ((changed, before), (before, changed)):
            divergence = [sum(max(p[said] - math.exp(x) * q[said], 0) for said in p) for x in losses]
            assert np.all(divergence <= profile.delta(losses) + 1e-12)


def test_one_that_failed_is_not_asked_again_and_nobody_is_told():
    failing, other = Slot([B, None]), Slot([A])
    ensemble = Scripted(0.2, 2.0, 1.0)
    ensemble.follow([A, A, B])
    assert written(writing(ensemble), Public(), [failing, other]) == [A, A, B]
    assert len(failing.read) == 2
    assert len(other.read) == 3


def test_everybody_reads_what_was_drawn():
    public, slot, ensemble = Public(), Slot([A]), Scripted(0.2, 2.0, 1.0)
    ensemble.follow([A, B, END])
    assert written(writing(ensemble), public, [slot]) == [A, B]
    assert public.read == slot.read == [[], [A], [B]]


def test_a_likely_token_asks_nobody_and_is_read_later():
    """The public model is sure of two tokens; then it is not."""
    public, slot, ensemble = Public({A: math.log(0.97), B: math.log(0.03)}), Slot([A]), Scripted(0.2, 2.0, 1.0)

    async def then_unsure(read, count):
        public.read.append(list(read))
        return public.says if len(public.read) < 3 else PUBLIC

    public.likeliest = then_unsure
    ensemble.follow([0, 0, B])
    assert written(writing(ensemble, gate=0.95), public, [slot]) == [A, A, B]
    assert slot.read == [[A, A]]


def test_slots_have_a_say_in_so_many_tokens_only():
    slot, ensemble = Slot([A]), Scripted(0.2, 2.0, 1.0)
    ensemble.follow([A] * 5)
    assert written(writing(ensemble, tokens=2, longest=5), Public(), [slot]) == [A] * 5
    assert len(slot.read) == 2


def test_an_end_can_always_be_drawn_and_a_banned_token_never():
    ensemble = Scripted(0.2, 2.0, 1.0)
    ensemble.follow([1])  # after A: the end, though it was not among the likeliest
    assert written(writing(ensemble), Public({A: math.log(0.6), B: math.log(0.4)}), [], banned=[B]) == []
    assert ensemble.probability == pytest.approx(0.5)


def test_measuring_asks_as_often_and_writes_as_much_as_can_be():
    slots = [Slot([END]), Slot([A])]
    said = written(writing(tokens=4, longest=6, gate=0.1), Public(), slots, measuring=True)
    assert len(said) == 6
    assert END not in said
    assert [len(slot.read) for slot in slots] == [4, 4]
    with pytest.raises(UnansweredError, match="1 of 2"):
        written(writing(), Public(), [Slot([A]), Slot([None])], measuring=True)


def test_one_that_takes_too_long_is_silent():
    class Hanging(Slot):
        async def opinion(self, read, tokens):
            self.read.append(list(read))
            await asyncio.sleep(3600)

    hanging, ensemble = Hanging([A]), Scripted(0.2, 2.0, 1.0)
    ensemble.follow([A, A, B])
    assert written(writing(ensemble), Public(), [hanging], timeout_s=0.2) == [A, A, B]
    assert len(hanging.read) == 1
