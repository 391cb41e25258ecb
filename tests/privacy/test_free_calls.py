"""A free call of the engine, made beside private answers, must not show how long their slots take.

The attacker of ``benchmarks/free_calls.py`` makes each kind of free call beside answers of two knowledge bases that
differ in one unit, and must find that unit only where the call takes no turn.
"""

import asyncio

import pytest

from benchmarks.free_calls import CALLS, attack
from benchmarks.latency_attack import judge

pytestmark = pytest.mark.lengthy

ANSWERS = 100
"""Of each knowledge base. If all times differ, the bound on ε is 1.1; it is wrong once in a million runs."""


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_time_of_a_free_call_reveals_no_unit(call) -> None:
    assert judge(*asyncio.run(attack(call, ANSWERS, planted=False))) == 0


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_free_call_that_takes_no_turn_would_reveal_one(call) -> None:
    assert judge(*asyncio.run(attack(call, ANSWERS, planted=True))) > 0
