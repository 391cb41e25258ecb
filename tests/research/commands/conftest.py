"""Words as files hold them."""

from tests.sanitization.causal import llama  # noqa: F401  (fixture)
from tests.service.cli.test_sanitize import cache, glove  # noqa: F401  (fixtures)
