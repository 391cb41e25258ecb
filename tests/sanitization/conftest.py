"""Fixtures of the sanitisers' tests."""

from tests.sanitization.causal import llama  # noqa: F401  (fixture)
