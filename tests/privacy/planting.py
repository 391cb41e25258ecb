"""Bugs planted by hand: a function, or one passage of its source, replaced wherever it is used."""

from __future__ import annotations

import importlib
import inspect
import itertools
import linecache
import sys
import textwrap
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

_NUMBERS = itertools.count(1)
OURS = ("accounting.", "aggregation.", "exemplar_store.", "service.", "tests.privacy.")


@dataclass(frozen=True)
class Edit:
    """One passage of one function.

    Attributes:
        where: ``module:function``, ``module:Class.method`` or ``module:Class.property``.
        passage: stands there exactly once.
        instead: what stands there with the bug.
    """

    where: str
    passage: str
    instead: str


def plant(edit: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the passage.

    Raises:
        AssertionError: the code has changed, so this is no longer the bug that it was: write it anew.
    """
    module_name, _, path = edit.where.partition(":")
    module: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    owner = module
    for parent in parents:
        owner = getattr(owner, parent)
    original = inspect.getattr_static(owner, name)
    source = textwrap.dedent(inspect.getsource(original.fget if isinstance(original, property) else original))
    assert source.count(edit.passage) == 1, f"{edit.where} does not say {edit.passage!r} once: write this bug anew"
    code = "from __future__ import annotations\n" + source.replace(edit.passage, edit.instead)
    file = f"<bug {next(_NUMBERS)} in {edit.where}>"
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)  # for another edit of the function
    made: dict[str, Any] = {}
    exec(compile(code, file, "exec"), vars(module), made)  # noqa: S102
    changed = made[name]
    assert _code(changed) != _code(original), f"{edit.where}: nothing has changed"
    replace_function(owner, name, changed, monkeypatch)


def replace_function(owner: Any, name: str, changed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a function in the place of a module's or a class's, also where it was imported by name."""
    original = inspect.getattr_static(owner, name)
    monkeypatch.setattr(owner, name, changed)
    if isinstance(owner, ModuleType):
        for user in [user for key, user in sys.modules.items() if key.startswith(OURS)]:
            for alias in [alias for alias, value in vars(user).items() if value is original]:
                monkeypatch.setattr(user, alias, changed)


def _code(function: Any) -> bytes:
    function = inspect.unwrap(function.fget if isinstance(function, property) else function)
    return repr((function.__code__.co_code, function.__code__.co_consts, function.__code__.co_names)).encode()
