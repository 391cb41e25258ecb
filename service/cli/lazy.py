"""A command line that imports a command when it is called: all of them together take two seconds of processor time."""

from copy import copy
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from service.cli.gathering import Commands

SETTINGS: dict[str, Any] = {"rich_markup_mode": "markdown", "pretty_exceptions_enable": False}

COMMANDS = {
    "serve": (
        "serve:serve",
        "Run the service until Ctrl-C or SIGTERM; it then finishes its requests, unless it gets a second signal.",
    ),
    "migrate": (
        "database:migrate_",
        "Bring the schemas of database and witness up to date, and print the revisions before and after.",
    ),
    "kb": ("knowledge_bases:app", "Create, fill and prune knowledge bases."),
    "cohort": (
        "budgets:cohorts",
        "Open, close and list cohorts: people by when they arrived, with budgets of their own.",
    ),
    "group": ("budgets:groups", "Let knowledge bases that may hold the same people share one budget."),
    "plan": ("plans:app", "Preview, try and sign plans: grants of budget to tasks."),
    "ask": ("ask:ask", "Ask one question. A repeated question is answered for free."),
    "batch": ("ask:batch", "Answer a file of questions, with a progress bar."),
    "budget": ("budgets:budget", "Show every knowledge base's budget and the answers left to each task."),
    "keys": ("keys:app", "Create, list, rotate and revoke API keys."),
    "audit": ("audit:app", "Export the audit trail, and replay an export."),
    "ledger": ("database:ledger", "Back up the database, and continue after a restore."),
    "encryption": ("database:encryption", "Change the encryption key."),
    "sanitize": ("sanitize:app", "Replace the words of a text at random, before it leaves your machine."),
    "restore": ("restore:app", "Ask about a text without showing its sensitive spans."),
    "eval": (
        "evaluate:evaluate",
        "Measure, offline, how good answers are: zero-shot, aggregated without noise, and at each ε.",
    ),
}
"""Where each command is, and what `dpicl --help` says of it: the first sentence of its own help (see the test)."""


class LazyGroup(TyperGroup):
    """:data:`COMMANDS` as a group. What stands in for each until it is called knows its first sentence only."""

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=sentence) for name, (_, sentence) in COMMANDS.items()}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, imported."""
        if cmd_name not in COMMANDS:
            return None
        place, sentence = COMMANDS[cmd_name]
        module, attribute = place.split(":")
        loaded = getattr(import_module(f"service.cli.{module}"), attribute)
        app = Commands(add_completion=False, **SETTINGS)
        if isinstance(loaded, typer.Typer):
            app.add_typer(loaded, name=cmd_name, help=loaded.info.help or sentence)
        else:
            app.command(cmd_name)(loaded)
        return typer.main.get_group(app).commands[cmd_name]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As every group's; it imports no command."""
        shown = copy(self)
        shown.get_command = super().get_command  # type: ignore[method-assign]
        TyperGroup.format_help(shown, ctx, formatter)
