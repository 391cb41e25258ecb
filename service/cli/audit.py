"""``dpicl audit``: the audit trail, exported and replayed."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from accounting.replay.trail import Report, verify
from service.answering.plans.exported import problems
from service.cli.gathering import Commands
from service.cli.output import Json, do, print_json, print_table, write
from service.operations import audit

app = Commands()


@app.command()
def export(file: Annotated[Path | None, typer.Argument()] = None) -> None:
    """Write every event as a line of JSON, and a last line that shows where the trail ended.

    Args:
        file: File to write. [default: standard output]
    """
    write(do(audit.export), file)


@app.command("verify")
def verify_(
    file: Annotated[Path | None, typer.Argument(exists=True)] = None,
    head: list[str] | None = None,
    exemplars: list[Path] | None = None,
    json: Json = False,
) -> None:
    """Replay the trail: is it whole, was every budget, plan and quota kept, do other accountants agree with each plan?

    An export needs neither database nor key. Without one, the database's trail is replayed and compared with the
    ledger's counters and tables. Exits with 1 if anything is wrong. Keep the printed hash somewhere else: with --head,
    a later replay shows whether the trail was rewritten or cut since.

    Args:
        file: An export. [default: the service's own database]
        head: A hash noted from an earlier replay; this trail must contain it.
        exemplars: A file from `dpicl plan export`, to check that a release in this trail chose its exemplars.
    """
    console = Console(stderr=True, quiet=json)
    with console.status("Replaying") as status:

        def progress(plan: str) -> None:
            status.update(f"Computing plan {plan} again")

        trail: Callable[[], Iterable[str]]
        if file is None:
            report, trail = do(audit.replay, head or [], progress=progress), partial(do, audit.export)
        else:
            report, trail = verify(_lines(file), heads=head or [], progress=progress), partial(_lines, file)
        if not report.problems:  # a trail with problems vouches for nothing
            report.problems += [
                f"{chosen}: {wrong}" for chosen in exemplars or () for wrong in problems(chosen, trail())
            ]
    _show(report, json)
    if report.problems:
        raise typer.Exit(1)


def _lines(file: Path) -> Iterator[str]:
    with file.open(encoding="utf-8", errors="replace") as lines:
        yield from lines


def _show(report: Report, json: bool) -> None:
    epsilons = {
        plan: {name: [bounds.lower, bounds.upper] for name, bounds in by_accountant.items()}
        for plan, by_accountant in report.plans.items()
    }
    if json:
        print_json({**vars(report), "plans": epsilons})
        return
    if report.charged:
        answers = [(task, charged, report.released.get(task, 0)) for task, charged in sorted(report.charged.items())]
        print_table("Answers", ["task", "charged", "released"], answers)
    if epsilons:
        rows = [
            (plan, name, f"{lower:.4g} to {upper:.4g}")
            for plan, by_accountant in epsilons.items()
            for name, (lower, upper) in by_accountant.items()
        ]
        print_table("ε of each plan, computed again", ["plan", "accountant", "ε"], rows)
    for problem in report.problems:
        typer.echo(f"WRONG: {problem}")
    if not report.problems:
        typer.echo(f"{report.events} events, nothing wrong. The newest event's hash, to be noted: {report.head}")
