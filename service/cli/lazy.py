"""A command line that imports a command when it is called: all of them together take two seconds of processor time.

``pip install dp-icl`` alone is a client. Whatever else a command needs is brought by an extra, and without it the
command is a sentence that names the extra.
"""

from collections.abc import Mapping
from copy import copy
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from service.cli.gathering import Commands

SETTINGS: dict[str, Any] = {"rich_markup_mode": "markdown", "pretty_exceptions_enable": False}

_BRINGS = {"server": "ray", "research": "rapidfuzz"}
"""A module of each extra, which shows whether the extra is installed."""


class Place(NamedTuple):
    """The place of a command, the extra that it needs, and the help that is shown of it before it is imported.

    Attributes:
        name: ``module:attribute`` below ``service.cli``, or an entry point of the group ``dpicl.commands``.
        extra: extra that must be installed; empty for commands of a client.
        sentence: first sentence of its own help (see the test).
    """

    name: str
    extra: Literal["", "server", "research"]
    sentence: str

    def load(self) -> Any:
        """The command, or several.

        Raises:
            MissingExtraError: the extra that it needs is not installed.
        """
        module, _, attribute = self.name.partition(":")
        found = [] if attribute else [*entry_points(group="dpicl.commands", name=self.name)]
        if self.extra and (find_spec(_BRINGS[self.extra]) is None or not (attribute or found)):
            raise MissingExtraError(
                f"this command comes with the extra {self.extra}, which is not installed", self.extra
            )
        return getattr(import_module(f"service.cli.{module}"), attribute) if attribute else found[0].load()


class MissingExtraError(RuntimeError):
    """A command needs an extra that is not installed."""

    def __init__(self, why: str, extra: str) -> None:
        super().__init__(f"{why}: pip install 'dp-icl[{extra}]'")


class LazyGroup(TyperGroup):
    """A group with commands that are imported when they are called. Until then each knows its first sentence only."""

    lazy: ClassVar[Mapping[str, Place]] = {}

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self.commands.update({name: TyperCommand(name, help=place.sentence) for name, place in self.lazy.items()})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, imported."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        place = self.lazy[cmd_name]
        loaded = place.load()
        app = Commands(add_completion=False, **SETTINGS)
        if isinstance(loaded, typer.Typer):
            app.add_typer(loaded, name=cmd_name, help=loaded.info.help or place.sentence)
        else:
            app.command(cmd_name)(loaded)
        return typer.main.get_group(app).commands[cmd_name]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help as every group does, without importing a command."""
        shown = copy(self)
        shown.get_command = super().get_command  # type: ignore[method-assign]
        TyperGroup.format_help(shown, ctx, formatter)


class EveryCommand(LazyGroup):
    """The group of all commands, ``dpicl``."""

    lazy: ClassVar[Mapping[str, Place]] = {
        "serve": Place(
            "serve:serve",
            "server",
            "Run the service until Ctrl-C or SIGTERM; it then finishes its requests, unless it gets a second signal.",
        ),
        "migrate": Place(
            "database:migrate_",
            "server",
            "Bring the schemas of database and witness up to date, and print the revisions before and after.",
        ),
        "kb": Place("knowledge_bases:app", "server", "Create, fill and prune knowledge bases."),
        "cohort": Place(
            "budgets:cohorts",
            "server",
            "Open, close and list cohorts: people by when they arrived, with budgets of their own.",
        ),
        "group": Place(
            "budgets:groups", "server", "Let knowledge bases that may hold the same people share one budget."
        ),
        "plan": Place("plans:app", "server", "Preview, try and sign plans: grants of budget to tasks."),
        "ask": Place("ask:ask", "", "Ask one question. A repeated question is answered for free."),
        "batch": Place("ask:batch", "", "Answer a file of questions, with a progress bar."),
        "budget": Place("budget:budget", "", "Show every knowledge base's budget and the answers left to each task."),
        "keys": Place("keys:app", "server", "Create, list, rotate and revoke API keys."),
        "audit": Place("audit:app", "server", "Export the audit trail, and replay an export."),
        "receipt": Place("receipts:app", "", "Fetch and verify receipts of answers."),
        "ledger": Place("database:ledger", "server", "Back up the database, and continue after a restore."),
        "encryption": Place("database:encryption", "server", "Change the encryption key."),
        "sanitize": Place("sanitize:app", "", "Replace the words of a text at random, before it leaves your machine."),
        "restore": Place("restore:app", "", "Ask about a text without showing its sensitive spans."),
        "eval": Place(
            "eval",
            "research",
            "Measure, offline, how good answers are: zero-shot, aggregated without noise, and at each ε.",
        ),
        "attack": Place(
            "attack",
            "research",
            "Attack a plan's answers on a copy with made-up people: what leaks without noise, and what as signed.",
        ),
    }
