"""The accountants by name, and their comparison."""

import pytest

from accounting.privacy.accountants import (
    ACCOUNTANTS,
    AccountantsDisagreeError,
    EpsilonBounds,
    compare,
    get_accountant,
    require_agreement,
)
from accounting.privacy.events import Event
from accounting.privacy.profiles import BoundedRange, Gaussian
from tests.accounting.privacy.contract import BLOCKS, DELTA, UNITS

pytestmark = pytest.mark.slow


class TestComparison:
    def test_all_three_agree_on_gaussians(self):
        found = compare([Event(Gaussian(1.0), UNITS, 100)], DELTA)
        assert list(found) == ["pld", "prv", "rdp"]
        assert found["prv"].lower <= found["pld"].upper <= found["prv"].upper
        assert found["pld"].upper < found["rdp"].upper

    def test_those_that_do_not_support_the_events_are_left_out(self):
        assert list(compare([Event(BoundedRange(1.0), UNITS, 10)], DELTA)) == ["pld", "rdp"]
        assert list(compare([Event(Gaussian(1.0), BLOCKS, 10)], DELTA)) == ["pld", "rdp"]

    def test_so_are_those_whose_numerics_do_not_reach_that_delta(self):
        assert list(compare([Event(Gaussian(1.0), UNITS, 10)], 1e-12)) == ["pld", "rdp"]

    def test_an_unknown_name_lists_the_known(self):
        assert set(ACCOUNTANTS) == {"pld", "prv", "rdp"}
        with pytest.raises(ValueError, match="pld, prv, rdp"):
            get_accountant("moments")

    def test_an_upper_bound_below_anothers_lower_is_a_contradiction(self):
        with pytest.raises(AccountantsDisagreeError, match=r"^rdp .* 0\.8"):
            require_agreement({"prv": EpsilonBounds(0.9, 1.0), "rdp": EpsilonBounds(0.0, 0.8)})
        require_agreement({"prv": EpsilonBounds(0.9, 1.0), "rdp": EpsilonBounds(0.0, 0.95)})

    def test_prv_and_pld_may_be_two_percent_apart(self):
        require_agreement({"pld": EpsilonBounds(0.0, 1.01), "prv": EpsilonBounds(0.98, 1.0)})
        with pytest.raises(AccountantsDisagreeError, match="2%"):
            require_agreement({"pld": EpsilonBounds(0.0, 1.03), "prv": EpsilonBounds(0.98, 1.0)})
