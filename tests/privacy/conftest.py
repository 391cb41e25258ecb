"""Audits are not traced by coverage: they draw tens of thousands of answers along lines that other tests cover."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import coverage
import pytest

from tests.service.engines.conftest import embedder, engine  # noqa: F401  (fixtures)


def untraced() -> Generator[None, Any, Any]:
    """Pause coverage while a fixture or a test runs."""
    tracer = coverage.Coverage.current()
    if tracer is None:
        return (yield)
    tracer.stop()
    try:
        return (yield)
    finally:
        tracer.start()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    return (yield from untraced())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    return (yield from untraced())
