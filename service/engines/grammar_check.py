"""Whether answers can be kept to a grammar, told where a plan is signed: without a model, and without vLLM."""

import json
from typing import Any


def grammar_problem(kind: str, written: str | dict[str, Any] | None) -> str:
    """Why xgrammar makes no grammar of it; empty if it does, or is not installed here. An engine checks again.

    Args:
        kind: ``regex`` or ``json_schema``.
        written: in a plan; None: nothing.
    """
    if written is None:
        return ""
    try:
        from xgrammar import Grammar  # seconds, and few plans need it

        if kind == "regex":
            Grammar.from_regex(written)
        else:
            Grammar.from_json_schema(json.dumps(written))
    except ImportError:
        return ""
    except RuntimeError as error:
        return str(error).strip().split(": ", 1)[-1]
    return ""
