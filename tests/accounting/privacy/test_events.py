import pytest

from accounting.privacy.events import Event, Sampling, merge
from accounting.privacy.profiles import Gaussian


@pytest.mark.parametrize(
    ("kind", "q", "count", "named"),
    [
        *(("units", q, 1, "shots") for q in (0.0, -0.1, 1.0001, float("nan"))),
        ("shuffled", 0.1, 1, "'blocks'"),
        *(("units", 0.1, count, "count") for count in (-1, 2.0, True)),
    ],
)
def test_an_invalid_event_is_refused_with_the_reason(kind, q, count, named):
    with pytest.raises(ValueError, match=named):
        Event(Gaussian(1.0), Sampling(kind, q), count)


def test_equal_events_are_counted_together():
    one, other = Event(Gaussian(1.0), Sampling("units", 0.1), 3), Event(Gaussian(2.0), Sampling("units", 0.1))
    never = Event(Gaussian(3.0), Sampling("units", 0.1), 0)
    assert merge([one, other, never, one]) == [Event(Gaussian(1.0), Sampling("units", 0.1), 6), other]
