"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

import inspect
from typing import Any

import typer

from _site.tables import table
from service.cli import app

_HEAD = """# Command line

Admin commands work on the database that `DPICL_DATABASE_URL` names; `ask` and `batch` speak HTTP. `--help` after any of
them says the same.

"""


def page() -> str:
    """Every command with its arguments and options."""
    return _HEAD + "\n".join(_commands(typer.main.get_command(app), ["dpicl"]))


def _commands(command: Any, path: list[str]) -> list[str]:
    inner = getattr(command, "commands", None)
    if inner is not None:
        return [part for name, one in sorted(inner.items()) for part in _commands(one, [*path, name])]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([*path, *(_metavar(p) for p in arguments)])
    rows = [
        [
            f"`{_metavar(p)}`" if p in arguments else ", ".join(f"`{o}`" for o in [*p.opts, *p.secondary_opts]),
            *_meaning(p),
        ]
        for p in [*arguments, *(p for p in command.params if p not in arguments)]
    ]
    text = inspect.cleandoc(command.help or "").replace("\f", "")
    return [
        f"## {usage.split(' ', 1)[1]}\n",
        f"```text\n{usage} [OPTIONS]\n```\n",
        f"{text}\n",
        *([table(["", "default", "meaning"], rows)] if rows else []),
    ]


def _metavar(parameter: Any) -> str:
    return parameter.metavar or parameter.name.upper()


def _meaning(parameter: Any) -> list[str]:
    if parameter.required:
        shown = "required"
    else:
        value = None if callable(parameter.default) else parameter.default
        shown = f"`{value}`" if value not in (None, False, "", ()) else ""
        if parameter.envvar:
            shown = f"${parameter.envvar}" if isinstance(parameter.envvar, str) else f"${parameter.envvar[0]}"
    return [shown, parameter.help or ""]
