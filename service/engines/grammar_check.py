"""Whether answers can be kept to a grammar, found where a plan is signed: without a model, and without vLLM.

xgrammar is written in C++ and reads what admins write, so it is asked in a process of its own, which has few seconds
and little memory. That one loads the part of xgrammar that reads grammars, without torch and transformers, which the
rest of it wants.
"""

import json
import resource
import subprocess
import sys
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_WITHIN_S = 30.0
_PROCESSOR_S = 10
_MEMORY_BYTES = 1024**3
_TOO_MUCH = f"takes more than {_PROCESSOR_S} seconds or {_MEMORY_BYTES // 1024**2} MiB to be read: write a simpler one"


def grammar_problem(kind: str, written: str | dict[str, Any] | None) -> str:
    """Why xgrammar makes no grammar of a text; empty if it does, or is not installed here. An engine checks again.

    Args:
        kind: ``regex`` or ``json_schema``.
        written: regular expression or schema in a plan; None: there is none.
    """
    if written is None or not _is_installed():
        return ""
    return _found(kind, written if isinstance(written, str) else json.dumps(written))


def _is_installed() -> bool:
    try:
        return find_spec("xgrammar") is not None
    except ValueError:  # it is loaded, without a spec
        return False


@lru_cache(maxsize=64)
def _found(kind: str, written: str) -> str:
    asked = [sys.executable, "-m", __name__, kind]
    try:
        done = subprocess.run(  # noqa: S603
            asked, input=written, capture_output=True, text=True, encoding="utf-8", timeout=_WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired:
        return _TOO_MUCH
    if done.returncode < 0:  # killed by a limit, or for want of memory
        return _TOO_MUCH
    if done.returncode:
        raise RuntimeError(f"the process that reads grammars failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout.strip()


def _read(kind: str, written: str) -> str:
    """Why a text is not a grammar; in a process of its own."""
    package = ModuleType("xgrammar")
    spec = find_spec("xgrammar")
    package.__path__ = list((spec and spec.submodule_search_locations) or ())
    sys.modules["xgrammar"] = package  # so that its parts can be loaded, and not all that it loads
    sys.modules["torch"] = None  # type: ignore[assignment]
    import_module("xgrammar.load_binding")
    from xgrammar.grammar import Grammar

    resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR_S, _PROCESSOR_S))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    try:
        if kind == "regex":
            Grammar.from_regex(written)
        else:
            Grammar.from_json_schema(written)
    except MemoryError:
        return _TOO_MUCH
    except RuntimeError as error:
        return str(error).strip().split(": ", 1)[-1]
    return ""


if __name__ == "__main__":
    sys.stdout.write(_read(sys.argv[1], sys.stdin.read()))
