"""The command line, ``dpicl``.

Admin commands (``kb``, ``plan``, ``keys``, ``audit``, ``ledger``, ``encryption``, ``migrate``, ``serve``) work on the
database that ``DPICL_DATABASE_URL`` names. ``ask`` and ``batch`` are an analyst's and speak HTTP.
"""

import errno
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer

from accounting.plans.written_numbers import advice_on
from service.cli.lazy import SETTINGS, EveryCommand, MissingExtraError
from service.cli.output import close_records
from service.connections import leave_proxies, proxy_for
from service.problem_kinds import RefusalError
from service.settings import check_setting_names

app = typer.Typer(
    cls=EveryCommand,
    no_args_is_help=True,
    **SETTINGS,
    help=(
        "Answers from an LLM informed by private examples, under a privacy budget that cannot be overspent.\n\n"
        "A first session: `dpicl kb create`, `dpicl kb ingest`, `dpicl plan preview`, `dpicl plan sign`, "
        "`dpicl keys create`, `dpicl serve`, and from another terminal `dpicl ask`.\n\n"
        "`ask` and `batch` speak HTTP. Admin commands work on the database that `DPICL_DATABASE_URL` names."
    ),
)

_HELP = {"--help", "--version"}
_EXTRAS = {"matplotlib": "research", "psycopg": "postgres", "vllm": "vllm"}
"""The extra for each package that a command may find missing; all others come with the extra server."""
_OURS = ("accounting", "aggregation", "exemplar_store", "research", "sanitization", "service", "spelling")
"""The packages whose own errors have messages for users."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dpicl {version('dp-icl')}")
        raise typer.Exit


@app.callback()
def _begin(
    context: typer.Context,
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    if not _HELP & set(sys.argv):
        check_setting_names()
    context.call_on_close(close_records)


def main() -> None:
    """Run the command line; an error that a user can mend becomes one line on standard error and exit status 1."""
    gc.set_threshold(100_000, 50, 100)  # else a tenth of the time goes into looking through modules, which stay
    os.umask(0o077)  # databases, backups, exports and answers are their owner's alone
    left: list[str] = []
    try:
        left = leave_proxies()
        app()
    except Exception as error:
        message = _explain(error, left)
        if message is None:
            raise
        from rich.console import Console

        Console(stderr=True, soft_wrap=True).print(f"error: {message}", style="red", markup=False, highlight=False)
        sys.exit(1)


def _explain(error: Exception, proxies: Sequence[str]) -> str | None:
    """The message for the user; None: the error is not one that the user can mend.

    Args:
        error: the error.
        proxies: variables that name proxies, which were not used.
    """
    import httpx
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        return "; ".join(_in_words(problem) for problem in error.errors())
    if isinstance(error, ModuleNotFoundError) and (name := str(error.name).partition(".")[0]) not in _OURS:
        return str(MissingExtraError(f"this command needs {name}, which is not installed", _EXTRAS.get(name, "server")))
    if isinstance(error, (httpx.HTTPError, httpx.InvalidURL)):
        unused = f" {proxies[0]} is not used: to go through a proxy, set DPICL_PROXY_URL." if proxies else ""
        request = getattr(error, "_request", None)  # the property raises where there is none
        if request is not None and proxy_for(str(request.url)):
            unused = " It was asked through the proxy that DPICL_PROXY_URL names: does that run?"
        return f"the service does not answer: {error}. Is `dpicl serve` running, and is --url right?{unused}"
    sqlalchemy = sys.modules.get("sqlalchemy.exc")
    if sqlalchemy and isinstance(error, sqlalchemy.SQLAlchemyError):
        from service.records.database import advice_on as what_to_do

        cause = getattr(error, "orig", None) or error
        said = " ".join(str(cause).split()).rstrip(".")
        return f"the database cannot be used: {said}{'' if said.endswith('?') else '.'} {what_to_do(cause)}"
    if type(error).__module__ == "builtins" and isinstance(error, OSError) and error.strerror:
        if error.filename is None and error.errno == errno.ENOENT:  # asked for where it is
            return "the folder that this command was started in is gone: change to another folder"
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    if isinstance(error, RefusalError) and error.hint:
        return f"{error}: {error.hint}"
    if remedy := getattr(error, "remedy", None):
        name, value = remedy
        option = "map" if name == "columns" else name.replace("_", "-")
        return f"{error} (--{option}{'' if value is True else f' {value}'})"
    ours = type(error).__module__.partition(".")[0] in _OURS
    return str(error) if ours or isinstance(error, (LookupError, ValueError, OSError)) else None


def _in_words(problem: Mapping[str, Any]) -> str:
    said = advice_on(problem) or problem["msg"].removeprefix("Value error, ")
    return f"{'.'.join(map(str, problem['loc']))}: {said}" if problem["loc"] else said
