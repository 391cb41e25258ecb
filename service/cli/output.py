"""Helpers that commands share: opening the records, printing tables or JSON."""

from __future__ import annotations

import getpass
import os
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer
from pydantic_core import to_json
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from service.operations.command import Command, Confirmation
    from service.operations.roles import Actor
    from service.records.records import Records

SHORTEST_PREFIX = 4
P = ParamSpec("P")
T = TypeVar("T")
Name = Annotated[str, typer.Argument(help="The knowledge base's name.")]
"""The name of a knowledge base."""
Task = Annotated[str, typer.Argument(help="knowledge_base.task, or knowledge_base.task@version.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
PlanFile = Annotated[Path, typer.Argument(help="The plan, a YAML file.", exists=True, dir_okay=False)]
TaskName = Annotated[str | None, typer.Option(help="Name of the plan's task. [default: the first]")]
SignedBy = Annotated[str | None, typer.Option(help="Name of the person who signs. [default: your user name]")]


@cache
def records() -> Records:
    """The database and key that the environment names, until the command ends.

    Raises:
        service.records.database.MissingDatabaseError: there is no such database, and only :func:`create_database`
            makes one.
    """
    # An analyst's commands do without all of this, and its time to import.
    from service.records.database import MissingDatabaseError
    from service.records.records import open_records
    from service.records.telemetry.logs import configure_logs
    from service.settings import Settings

    configure_logs()
    try:
        return open_records(Settings(), create=False)
    except MissingDatabaseError as error:
        if "DPICL_URL" not in os.environ:
            raise
        ignored = "this command works on the database of the service's machine, and does not ask the one at DPICL_URL"
        raise MissingDatabaseError(f"{error} ({ignored})") from None


def create_database() -> None:
    """Create the database that the environment names, if there is none: for commands that a first session begins with.

    Its key is checked first, so that a command that cannot go on leaves no empty database.
    """
    from service.records.database import MissingDatabaseError
    from service.records.records import open_records
    from service.settings import Settings

    try:
        records()
    except MissingDatabaseError:
        open_records(Settings()).database.dispose()


def close_records() -> None:
    """Close the records when a command ends: its changes to the ledger are witnessed before the prompt comes back."""
    if records.cache_info().currsize:
        opened = records()
        records.cache_clear()
        if opened.witness is not None:
            opened.witness.catch_up()
        opened.database.dispose()


def who() -> str:
    """The name of the user's account, for the audit trail; its number where it has no name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the latter since Python 3.13
        return f"uid-{os.getuid()}"


def actor(signed_by: str | None = None) -> Actor:
    """The actor for the user who runs the command: an account on the service's machine may do everything.

    Args:
        signed_by: name of the user in the audit trail; None: the account's name.
    """
    from service.operations.roles import Actor

    name = signed_by or who()
    return Actor(name, name, "account", "admin")


def do(command: Command[Concatenate[Records, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do an operation's command on the records, as the user who runs the command line."""
    return command(actor(), records(), *args, **kwargs)


def agreed(question: str, *, yes: bool) -> None:
    """Ask whether to go on, unless ``yes``; end the command if not."""
    if yes:
        return
    with redirect_stdout(sys.stderr):  # what the command prints may go to a file
        agrees = typer.confirm(question)
    if not agrees:
        raise typer.Exit(1)


def confirmed(attempt: Callable[[Collection[Confirmation]], T], *, yes: bool, again: bool = False) -> T:
    """Do something, asking about each of its doubts.

    Args:
        attempt: a function that does it, given the confirmations so far; raises
            :class:`service.operations.command.UnconfirmedError`.
        yes: whether to confirm everything, but :attr:`service.operations.command.Confirmation.AGAIN`.
        again: whether to confirm that, too.
    """
    from service.operations.command import Confirmation, UnconfirmedError

    given = set(Confirmation) - {Confirmation.AGAIN} if yes else set()
    if again:
        given.add(Confirmation.AGAIN)
    while True:
        try:
            return attempt(given)
        except UnconfirmedError as error:
            if yes:
                raise ValueError(f"{error} To do it once more, add --again") from None
            for doubt in error.doubts:
                agreed(f"{doubt} Go on?", yes=False)
            given.add(error.confirmation)


def whole_id(written: str, known: Iterable[str]) -> str:
    """The id that the user wrote in full or by its beginning; the text as written if there is no such id.

    Args:
        written: an id, or at least its first four characters.
        known: the existing ids.

    Raises:
        ValueError: several ids begin with the text.
    """
    ids = sorted(known)
    meant = [one for one in ids if one.startswith(written)]
    if written in ids or len(written) < SHORTEST_PREFIX or not meant:
        return written
    if len(meant) > 1:
        raise ValueError(f"{written!r} begins several ids: {', '.join(meant)}; write more of the one that you mean")
    return meant[0]


def counted(values: Mapping[str, int]) -> str:
    """Values with their counts; characters that a terminal would not show are escaped."""

    def shown(value: str) -> str:
        plain = value.isprintable() and value == unicodedata.normalize("NFC", value).strip()
        return value if plain else ascii(value)

    return ", ".join(f"{shown(value)} {count}" for value, count in values.items())


def state_folder() -> Path:
    """The folder of the user's own ledgers."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "dpicl"


def progress(*further: ProgressColumn, disable: bool = False, **settings: Any) -> Progress:
    """Progress bars with the done and total amounts, further columns, and the time left; settings as for rich's.

    On standard error, and only if that is a terminal.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    counted = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    hidden = disable or not console.is_terminal
    return Progress(*counted, *further, TimeRemainingColumn(), console=console, disable=hidden, **settings)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show what takes seconds until the block ends: on standard error, and only if that is a terminal."""
    console = Console(stderr=True)
    with console.status(what) if console.is_terminal else nullcontext():
        yield


def print_text(text: object, style: str = "") -> None:
    """Print a text for people as it is, perhaps in bold or a colour."""
    Console().print(text, style=style, markup=False, highlight=False)


def write(lines: Iterable[str], file: Path | None) -> None:
    """Write text to a file, as its owner's alone, or to standard output; whatever goes wrong leaves the one before.

    Args:
        lines: the text, in parts.
        file: the file, which is replaced if it exists; None: standard output.
    """
    if file is None:
        sys.stdout.writelines(lines)
        return
    file = file.resolve()
    if file.exists() and not file.is_file():  # such as a pipe
        with file.open("w", encoding="utf-8") as stream:
            stream.writelines(lines)
        return
    new = file.with_name(f".{file.name}.new")
    try:
        with new.open("w", encoding="utf-8") as stream:
            stream.writelines(lines)
        os.replace(new, file)
    finally:
        new.unlink(missing_ok=True)


def print_json(value: Any) -> None:
    """Print JSON on standard output, undecorated."""
    typer.echo(to_json(value, indent=2, fallback=str).decode())


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, unbroken: Collection[str] = ()
) -> None:
    """Print a table for people, in which no word is cut, however narrow the terminal.

    Args:
        title: title above the table.
        columns: names of the columns.
        rows: rows with a cell for each column.
        unbroken: names of the columns that stay as wide as their cells, however narrow the terminal.
    """
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, no_wrap=column in unbroken)
    written = [[str(cell) for cell in row] for row in rows]
    for row in written:
        table.add_row(*row)
    console = Console()
    _keep_words_whole(table, [list(columns), *written], console)
    console.print(table)


def _keep_words_whole(table: Table, written: Sequence[Sequence[str]], console: Console) -> None:
    """Widen the console for a table, if need be: users copy ids and addresses from it, and rich would cut them."""
    lines = [[line for cell in cells for line in cell.splitlines()] for cells in zip(*written, strict=True)]
    most = [max((cell_len(line) for line in of), default=0) for of in lines]
    words = [max((cell_len(word) for line in of for word in line.split()), default=0) for of in lines]
    least = [all_ if column.no_wrap else word for column, all_, word in zip(table.columns, most, words, strict=True)]
    room = console.width - 3 * len(least) - 1
    if sum(most) <= room:
        return
    console.width += max(0, sum(least) - room)
    spare = max(0, room - sum(least))
    for column, narrow, wide in zip(table.columns, least, most, strict=True):
        column.width = narrow + min(spare, wide - narrow)
        spare -= column.width - narrow


def print_list(title: str, listed: Sequence[T], columns: Mapping[str, Callable[[T], object]], *, json: bool) -> None:
    """Print the result of a list command: as JSON, or in a table with a function for the cells of each column."""
    if json:
        print_json(listed)
    else:
        print_table(title, list(columns), ([show(view) for show in columns.values()] for view in listed))


def print_engine(engine: Mapping[str, Any] | None) -> None:
    """Print the engine that answers, and how it keeps slots apart.

    Args:
        engine: the engine as REST shows it; None: none has answered yet.
    """
    if engine is None:
        typer.echo("Engine: none has answered from this database yet (start one with `dpicl serve`)")
    else:
        typer.echo(f"Engine: {engine['name']}. {engine['notice']}\nIsolation of slots: {engine['isolation']}")
