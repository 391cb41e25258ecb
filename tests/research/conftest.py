"""The small service of tests/service, for tests of studies."""

from tests.service.conftest import dpicl, equal_plans_are_calibrated_once, toy_engine  # noqa: F401  (fixtures)
