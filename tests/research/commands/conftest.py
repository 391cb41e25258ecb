"""Words as files hold them."""

from tests.service.cli.test_sanitize import cache, glove  # noqa: F401  (fixtures)
