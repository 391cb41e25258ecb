from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from service.records.rate_limits import RateLimits
from service.records.tables import metadata
from tests.conftest import Clock


@pytest.fixture
def rates(engine: sa.Engine, clock: Clock) -> RateLimits:
    metadata.create_all(engine)
    return RateLimits(engine, clock=lambda: clock.now.timestamp())


def test_a_burst_and_then_one_per_interval(rates: RateLimits, clock: Clock):
    assert [rates.take("ana", 60, burst=3).left for _ in range(3)] == [2, 1, 0]
    refused = rates.take("ana", 60, burst=3)
    assert (refused.left, refused.full_in_s, refused.wait_s) == (0, 3, 1)
    assert rates.take("ana", 60, burst=3) == refused  # a refused request costs nothing
    clock.advance(1)
    assert rates.take("ana", 60, burst=3).wait_s is None
    assert rates.take("ana", 60, burst=3).wait_s == 1
    clock.advance(100)
    assert rates.take("ana", 60, burst=3).left == 2


def test_a_clock_that_ran_ahead_locks_no_caller_out(rates: RateLimits, clock: Clock):
    clock.advance(7 * 3600)
    rates.take("ana", 60, burst=3)
    clock.advance(-7 * 3600)
    assert [rates.take("ana", 60, burst=3).left for _ in range(3)] == [2, 1, 0]
    assert rates.take("ana", 60, burst=3).wait_s == 1


def test_clocks_that_differ_a_little_give_no_burst_back(rates: RateLimits, clock: Clock):
    for _ in range(3):
        rates.take("ana", 60, burst=3)
    clock.advance(-5)
    assert rates.take("ana", 60, burst=3).wait_s == 6


def test_callers_do_not_share(rates: RateLimits):
    assert rates.take("ana", 1).wait_s is None
    assert rates.take("ana", 1).wait_s == 60
    assert rates.take("bo", 1).wait_s is None


def test_racing_requests_get_no_more_than_the_burst(rates: RateLimits):
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: rates.take("ana", 60, burst=5), range(20)))
    assert sum(rate.wait_s is None for rate in taken) == 5


def test_those_as_good_as_new_are_cleared_away(rates: RateLimits, engine: sa.Engine, clock: Clock):
    rates.take("ana", 60, burst=3)
    clock.advance(1)
    rates.take("bo", 60, burst=3)
    rates.forget_idle()
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT name FROM rate_limits").scalars().all() == ["bo"]
