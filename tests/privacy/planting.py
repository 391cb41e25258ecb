"""Bugs planted by hand: a function replaced wherever it is used."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

import pytest

OURS = ("accounting.", "aggregation.", "exemplar_store.", "service.", "tests.privacy.")


def replace_function(owner: Any, name: str, changed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace a function of a module or a class, also where it was imported by name."""
    original = inspect.getattr_static(owner, name)
    monkeypatch.setattr(owner, name, changed)
    if isinstance(owner, ModuleType):
        for user in [user for key, user in sys.modules.items() if key.startswith(OURS)]:
            for alias in [alias for alias, value in vars(user).items() if value is original]:
                monkeypatch.setattr(user, alias, changed)
