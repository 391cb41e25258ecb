"""Keywords by the joint exponential mechanism, attacked with the worst pair of neighbours by its proof.

One slot stops naming the leading word and the rare ones, and starts naming all the middling ones. Then the losses of
sequences with a rare word in second place rise by 2, those of sequences that begin with a middling word fall by 2, and
there are enough of the latter for the normalisation to fall almost as far. The attacker checks whether the answer's
loss rose by 2, or fell by 2. An answer's privacy loss is at most ε = 1.5; that of the first event is 0.95.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pytest

import aggregation.keyword_joint_em
from accounting.privacy.profiles import BoundedRange
from aggregation.keyword_joint_em import JointExponentialMechanism
from tests.privacy.audit import Counts, caught, claim, judge, observe

EPSILON = 1.5
CLAIM = claim(BoundedRange(EPSILON))
LOSSES = (0.0, 0.9, 1.35)

LEADER, MIDDLING, RARE = ["leader"], [f"middling{i}" for i in range(30)], [f"rare{i}" for i in range(40)]
DOMAIN = [*LEADER, *MIDDLING, *RARE]
OTHERS = [{*LEADER, *(MIDDLING if i < 7 else ()), *(RARE if i < 2 else ())} for i in range(9)]
BEFORE, AFTER = {*LEADER, *RARE}, set(MIDDLING)
Slot = set[str] | None


def loss(slot: Slot, sequence: Iterable[str]) -> int:
    counts = {word: sum(word in (s or ()) for s in [*OTHERS, slot]) for word in DOMAIN}
    top = sorted(counts.values(), reverse=True)
    return max(top[i] - counts[word] for i, word in enumerate(sequence))


def counts(one: Slot, other: Slot, trials: int) -> Counts:
    """How often the answer is one whose loss rises most, falls most, or neither."""
    mechanism = JointExponentialMechanism(EPSILON, k=2)

    @cache
    def change(answer: tuple[str, ...]) -> int:
        return loss(other, answer) - loss(one, answer)

    def draw(slot: Slot) -> int:
        by = change(mechanism.release([*OTHERS, slot], DOMAIN))
        return by if abs(by) == most else 0

    most = 2 if one and other else 1
    return observe(lambda: draw(one), lambda: draw(other), trials)


def test_the_claim_survives_a_strong_attack() -> None:
    """A claim for a quarter of ε escapes with probability 7e-15."""
    found = counts(BEFORE, AFTER, trials=4_000)
    assert not caught(found, CLAIM, LOSSES), judge(found, CLAIM, LOSSES)
    assert caught(found, claim(BoundedRange(EPSILON / 4)), LOSSES), found


@pytest.mark.parametrize(("one", "other"), [(BEFORE, None), (None, AFTER)])
def test_the_claim_survives_a_slot_removed_or_added(one: Slot, other: Slot) -> None:
    found = counts(one, other, trials=1_500)
    assert not caught(found, CLAIM, LOSSES), judge(found, CLAIM, LOSSES)


def test_a_sensitivity_of_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """DP-ICL's theorem 9 has this sensitivity; it is missed with probability 3e-10."""
    monkeypatch.setattr(aggregation.keyword_joint_em, "LOSS_SENSITIVITY", 1)
    found = counts(BEFORE, AFTER, trials=4_000)
    assert caught(found, CLAIM, LOSSES), judge(found, CLAIM, LOSSES)
