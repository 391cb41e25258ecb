"""An answer that slots write together: its whole law by enumeration, and which slots are asked when."""

from __future__ import annotations

import asyncio
import itertools
import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from accounting.privacy.token_ensemble import TokenEnsembleProfile as Profile
from aggregation.token_ensemble import GRID, TokenEnsemble
from service.engines import lock_step
from service.engines.lock_step import UnansweredError
from service.engines.task import Writing

A, B, END = 0, 1, 2
PUBLIC = {A: math.log(0.5), B: math.log(0.3), END: math.log(0.2)}


@dataclass
class Public:
    """Gives the same probabilities whatever was written, and notes what it read."""

    says: dict[int, float] = field(default_factory=lambda: dict(PUBLIC))
    read: list[list[int]] = field(default_factory=list)

    async def likeliest(self, read, count, beside=()):
        self.read.append(list(read))
        return dict(itertools.islice(self.says.items(), count)) | {token: self.says[token] for token in beside}


@dataclass
class Slot:
    """Wants these tokens one after the other, and then the last one only; fails at None."""

    wants: list[int | None]
    read: list[list[int]] = field(default_factory=list)

    async def opinion(self, read, tokens, voices):
        self.read.append(list(read))
        wanted = self.wants[min(len(self.read), len(self.wants)) - 1]
        if wanted is None:
            raise RuntimeError("this slot cannot be read")
        return [0.0 if token == wanted else -1e4 for token in tokens]


class Torn(Slot):
    """Moves log-odds as far as one slot can: for A against B, or for B against A."""

    async def opinion(self, read, tokens, voices):
        wanted = await super().opinion(read, tokens, voices)
        against = A if wanted[tokens.index(B)] == 0 else B
        return [-1e4 if token == against else 1e4 * (value == 0) for token, value in zip(tokens, wanted, strict=True)]


class Scripted(TokenEnsemble):
    """Draws the given places, and keeps the probability of each."""

    def follow(self, places):
        object.__setattr__(self, "places", list(places))
        object.__setattr__(self, "probability", 1.0)
        object.__setattr__(self, "sizes", [])

    def draw(self, public, opinions):
        self.sizes.append(len(public))
        moved = sum((opinion for opinion in opinions if opinion is not None), np.zeros(public.shape))
        weights = np.exp(public / self.temperature + self.pull / GRID * moved)
        place = self.places.pop(0) if self.places else 0
        object.__setattr__(self, "probability", self.probability * weights[place] / weights.sum())
        return place


def following(places, pull=0.2):
    ensemble = Scripted(pull, 2.0, 1.0)
    ensemble.follow(places)
    return ensemble


def writing(ensemble=None, **changed):
    ensemble = ensemble or TokenEnsemble(0.2, 2.0, 1.0)
    return Writing(**{"ensemble": ensemble, "tokens": 3, "longest": 3, "top_k": 3, "gate": 1.0, **changed})


def written(how, public, slots, **options):
    return asyncio.run(lock_step.write(how, public, slots, **{"ends": [END], "timeout_s": 10, **options}))


def law(slots, tokens, pull=0.2, longest=None, **rules):
    """The probability of every answer with the given number of paid tokens."""
    found, left = {}, [()]
    while left:  # each answer is tried by the places that it draws, and those after them
        ensemble = following(places := left.pop(), pull)
        how = writing(ensemble, tokens=tokens, longest=longest or tokens)
        said = tuple(written(how, Public(), slots(), **{name: rule() for name, rule in rules.items()}))
        if len(ensemble.sizes) > len(places):
            left += [(*places, place) for place in range(ensemble.sizes[len(places)])]
        else:
            found[said] = ensemble.probability
    assert sum(found.values()) == pytest.approx(1)
    return found


NEIGHBOURS = {
    "insists on a rare word": [B],
    "ends every answer": [END],
    "changes its mind": [A, B, END],
    "fails in the middle": [B, None],
}


def excess(changed, before, tokens, pull):
    """How much more the answers of neighbours differ than the given number of tokens may cost, in either order."""
    profile, losses = Profile(4 * pull, tokens), np.linspace(0, 4 * pull * tokens, 9)
    divergences = [
        [sum(max(p[said] - math.exp(x) * q.get(said, 0.0), 0) for said in p) for x in losses]
        for p, q in ((changed, before), (before, changed))
    ]
    return np.max(divergences - profile.delta(losses))


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_an_answer_costs_no_more_than_accounted(name):
    """Neighbours without the slot, or with one that wants something else: all answers are compared, in both orders."""
    changed = law(lambda: [Slot([A]), Slot(NEIGHBOURS[name])], 3)
    for other in (lambda: [Slot([A])], lambda: [Slot([A]), Slot([A])]):
        assert excess(changed, law(other, 3), 3, 0.2) <= 1e-12


class Grammar:
    """Answers that match a regular expression whole, a letter for a token."""

    def __init__(self, *answers, tokens=3):
        self.answers, self.tokens, self.said = [[*answer, END] for answer in answers], tokens, []

    def allowed(self):
        here = len(self.said)
        following = {answer[here] for answer in self.answers if answer[:here] == self.said and len(answer) > here}
        return np.isin(np.arange(self.tokens), list(following))

    def read(self, token):
        assert self.allowed()[token]
        self.said.append(token)


ANSWERS = [(A, A, B), (A, B, B), (A, B, B, A), (B, A)]


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_a_grammar_is_kept_to_and_costs_nothing(name):
    """Every answer that it allows is written, and no other. All tokens are read, but only choices are paid for."""
    before, changed = (  # there are three choices: A or B; then A or B; then the end or A
        law(slots, 3, longest=9, grammar=lambda: Grammar(*ANSWERS))
        for slots in (lambda: [Slot([A])], lambda: [Slot([A]), Slot(NEIGHBOURS[name])])
    )
    assert before.keys() == changed.keys() == {*ANSWERS}
    assert excess(changed, before, 3, 0.2) <= 1e-12


def let_slots_change_rules(change, monkeypatch):
    """Let the opinions of slots on its tokens change the rules of an answer while it is written."""
    right = lock_step.write

    def write(how, *arguments, **options):
        draw = how.ensemble.draw

        def changing(public, opinions):
            for name, value in change(how, opinions).items():
                object.__setattr__(how, name, value)
            return draw(public, opinions)

        object.__setattr__(how.ensemble, "draw", changing)
        return right(how, *arguments, **options)

    monkeypatch.setattr(lock_step, "write", write)


BUGS = {
    "slots have a say in a token that is not paid for": lambda how, _: {"tokens": 2},
    "where slots agree nothing is paid": lambda how, opinions: {
        "tokens": how.tokens + (len({repr(opinion) for opinion in opinions}) == 1)
    },
    "an answer ends where a slot fails": lambda how, opinions: {
        "longest": 0 if any(opinion is None for opinion in opinions) else how.longest
    },
}


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize("rules", [{}, {"grammar": lambda: Grammar(*ANSWERS)}], ids=["free", "grammar"])
def test_planted_bugs_are_caught(rules, bug, monkeypatch):
    """The same laws show them, in answers with one paid token, or with one paid choice of a grammar."""

    def worst():
        before = law(lambda: [Slot([A]), Torn([A])], 1, longest=3, **rules)
        neighbours = ([B], [B, A, B], [None])
        changed = [law(lambda n=n: [Slot([A]), Torn(n)], 1, longest=3, **rules) for n in neighbours]
        return max(excess(answers, before, 1, 0.2) for answers in changed)

    assert worst() <= 1e-12
    let_slots_change_rules(BUGS[bug], monkeypatch)
    assert worst() > 0.005


def test_a_token_without_a_choice_asks_no_slot():
    public, slot, ensemble = Public(), Slot([A]), following([0, 0, 1, 0])
    said = written(writing(ensemble, tokens=2, longest=9), public, [slot], grammar=Grammar((A, A, B), (A, A, A)))
    assert said == [A, A, B]
    assert public.read == slot.read == [[A, A]]
    assert ensemble.sizes == [1, 1, 2, 1]


def test_a_token_is_as_likely_as_the_allowed_ones_make_it():
    """The gate compares it with the allowed ones only, and an answer cannot end before it is complete."""
    public, slot, ensemble = Public({END: -0.01, A: -5.0, B: -9.0}), Slot([B]), following([0])
    assert written(writing(ensemble, gate=0.9), public, [slot], grammar=Grammar((A, A), (B, B))) == [A, A]
    assert not slot.read
    assert ensemble.probability == pytest.approx(1 / (1 + math.exp(-4)))


def test_allowed_tokens_that_are_unlikely_are_found():
    """If none is among the likeliest 128, the end and the likeliest of the first 128 allowed ones are drawn from."""
    many = 1000
    says = {token: -0.1 * token for token in range(500, 900)} | {token: -1e3 + token for token in range(500)}
    public, ensemble = Public(says), following([2])
    answers = [(), *((token,) for token in range(200, 450)), *((token,) for token in range(500, 502))]
    grammar = Grammar(*answers, tokens=many)
    assert written(writing(ensemble, top_k=4), public, [], grammar=grammar) == [326]
    assert ensemble.sizes[0] == 5  # 500, 501, 326, 325 and the end


def test_a_dead_end_ends_an_answer_and_so_does_its_greatest_length():
    grammar = Grammar((A, B, A))
    assert written(writing(longest=2), Public(), [Slot([A])], grammar=grammar) == [A, B]
    assert written(writing(), Public(), [Slot([A])], grammar=Grammar((A, B, A)), banned=[B]) == [A]


def test_what_would_complete_a_banned_text_is_not_drawn():
    def ends_in_bb(said):
        return said[-2:] == [B, B]

    answers = law(lambda: [Slot([B])], 3, forbids=lambda: ends_in_bb)
    assert {(A, B, A), (B, A, B), (B,)} < answers.keys()
    assert not any(f"{B}{B}" in "".join(map(str, said)) for said in answers)
    assert Writing(TokenEnsemble(0.2, 2.0, 1.0), 3, 3, 3, 1.0, banned=("no way",)).forbids("There is NO WAY!")


def test_a_slot_that_failed_is_not_asked_again_and_no_other_notices():
    failing, other = Slot([B, None]), Slot([A])
    ensemble = following([A, A, B])
    assert written(writing(ensemble), Public(), [failing, other]) == [A, A, B]
    assert len(failing.read) == 2
    assert len(other.read) == 3


def test_the_public_model_and_all_slots_read_what_was_drawn():
    public, slot, ensemble = Public(), Slot([A]), following([A, B, END])
    assert written(writing(ensemble), public, [slot]) == [A, B]
    assert public.read == slot.read == [[], [A], [B]]


def test_a_likely_token_asks_no_slot_and_is_read_later():
    """The public model is sure of two tokens; then it is not."""
    public, slot, ensemble = Public({A: math.log(0.97), B: math.log(0.03)}), Slot([A]), Scripted(0.2, 2.0, 1.0)

    async def then_unsure(read, count, beside=()):
        public.read.append(list(read))
        return public.says if len(public.read) < 3 else PUBLIC

    public.likeliest = then_unsure
    ensemble.follow([0, 0, B])
    assert written(writing(ensemble, gate=0.95), public, [slot]) == [A, A, B]
    assert slot.read == [[A, A]]


def test_slots_influence_only_the_paid_tokens():
    slot, ensemble = Slot([A]), following([A] * 5)
    assert written(writing(ensemble, tokens=2, longest=5), Public(), [slot]) == [A] * 5
    assert len(slot.read) == 2


def test_an_end_can_always_be_drawn_and_a_banned_token_never():
    ensemble = following([0, 1])  # after A: the end, though it was not among the likeliest
    assert written(writing(ensemble), Public({A: math.log(0.6), B: math.log(0.4)}), [], banned=[B]) == [A]
    assert ensemble.probability == pytest.approx(0.5)


def test_no_answer_is_empty():
    """Here all slots want an end, and only one token is considered."""
    public = Public({END: math.log(0.9), A: math.log(0.06), B: math.log(0.04)})
    ensemble = following([0, 0])
    assert written(writing(ensemble, top_k=1), public, [Slot([END])]) == [A]
    assert ensemble.sizes == [1, 1]


def test_measuring_asks_as_often_and_writes_as_much_as_can_be():
    slots = [Slot([END]), Slot([A])]
    said = written(writing(tokens=4, longest=6, gate=0.1), Public(), slots, measuring=True)
    assert len(said) == 6
    assert END not in said
    assert [len(slot.read) for slot in slots] == [4, 4]
    slots = [Slot([END]), Slot([A])]
    rules = {"grammar": Grammar((A, B)), "forbids": lambda said: True}
    assert len(written(writing(tokens=4, longest=6, gate=0.1), Public(), slots, measuring=True, **rules)) == 6
    assert [len(slot.read) for slot in slots] == [4, 4]
    with pytest.raises(UnansweredError, match="1 of 2"):
        written(writing(), Public(), [Slot([A]), Slot([None])], measuring=True)


def test_a_slot_that_takes_too_long_is_silent():
    class Hanging(Slot):
        async def opinion(self, read, tokens, voices):
            self.read.append(list(read))
            await asyncio.sleep(3600)

    hanging, ensemble = Hanging([A]), following([A, A, B])
    assert written(writing(ensemble), Public(), [hanging], timeout_s=0.2) == [A, A, B]
    assert len(hanging.read) == 1
