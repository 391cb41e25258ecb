"""The command line, ``dpicl``.

Admin commands (``kb``, ``plan``, ``keys``, ``audit``, ``ledger``, ``encryption``, ``migrate``, ``serve``) work on the
database that ``DPICL_DATABASE_URL`` names. ``ask`` and ``batch`` are an analyst's and speak HTTP.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import httpx
import typer
from pydantic import ValidationError
from rich.console import Console

from accounting.accountants import AccountantsDisagreeError
from accounting.compatibility import SchemaError
from accounting.ledger import LedgerError
from accounting.plan import PlanError
from exemplar_store import ExemplarStoreError
from service.cli import ask, audit, budget, encryption, evaluate, keys, knowledge_bases, ledger, migrate, plans, serve
from service.cli.output import tell_witnesses

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help=(
        "Answers from an LLM informed by private examples, under a privacy budget that cannot be overspent.\n\n"
        "A first session: `dpicl kb create`, `dpicl kb ingest`, `dpicl plan preview`, `dpicl plan sign`, "
        "`dpicl keys create`, `dpicl serve`, and from another terminal `dpicl ask`."
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dpicl {version('dp-icl')}")
        raise typer.Exit


@app.callback()
def _begin(
    context: typer.Context,
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    context.call_on_close(tell_witnesses)


app.command("serve")(serve.serve)
app.command("migrate")(migrate.migrate_)
app.add_typer(knowledge_bases.app, name="kb")
app.add_typer(plans.app, name="plan")
app.command("ask")(ask.ask)
app.command("batch")(ask.batch)
app.command("budget")(budget.budget)
app.add_typer(keys.app, name="keys")
app.add_typer(audit.app, name="audit")
app.add_typer(ledger.app, name="ledger")
app.add_typer(encryption.app, name="encryption")
app.command("eval")(evaluate.evaluate)


def main() -> None:
    """Run the command line; what a user can mend is one line on standard error and exit status 1."""
    try:
        app()
    except (
        LedgerError,
        SchemaError,
        ExemplarStoreError,
        PlanError,
        AccountantsDisagreeError,
        LookupError,
        ValueError,
    ) as error:
        _fail(_explain(error))
    except httpx.HTTPError as error:
        _fail(f"the service does not answer: {error}. Is `dpicl serve` running, and is --url right?")
    except OSError as error:
        _fail(str(error))


def _explain(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, e['loc'])) or error.title}: {e['msg']}" for e in error.errors())
    return str(error)


def _fail(message: str) -> None:
    Console(stderr=True, soft_wrap=True).print(f"error: {message}", style="red", markup=False, highlight=False)
    sys.exit(1)
