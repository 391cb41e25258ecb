import pytest

from accounting.privacy.events import Event, Sampling, merge
from accounting.privacy.profiles import Gaussian


@pytest.mark.parametrize("q", [0.0, -0.1, 1.0001, float("nan")])
def test_a_probability_must_be_one(q):
    with pytest.raises(ValueError, match="lower the shots"):
        Sampling("units", q)


def test_an_unknown_kind_of_sampling_is_refused():
    with pytest.raises(ValueError, match="'units' or 'blocks'"):
        Sampling("shuffled", 0.1)


@pytest.mark.parametrize("count", [-1, 2.0, True])
def test_counts_are_whole_numbers(count):
    with pytest.raises(ValueError, match="count"):
        Event(Gaussian(1.0), Sampling("units", 0.1), count)


def test_equal_events_are_counted_together():
    one, other = Event(Gaussian(1.0), Sampling("units", 0.1), 3), Event(Gaussian(2.0), Sampling("units", 0.1))
    never = Event(Gaussian(3.0), Sampling("units", 0.1), 0)
    assert merge([one, other, never, one]) == [Event(Gaussian(1.0), Sampling("units", 0.1), 6), other]
