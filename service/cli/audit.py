"""``dpicl audit``: the audit trail, exported and replayed."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from accounting.ledger.cosigning import Cosigner
from accounting.ledger.notes import LOG, WITNESS, Checkpoint, NoteError, VerifierKey
from accounting.replay.trail import Report, verify
from service.answering.plans.exported import problems
from service.cli.gathering import Commands
from service.cli.output import Json, do, print_json, print_table, write
from service.operations import audit
from service.records.audit_key import make_signer, read_signer
from service.records.witness import open_witness_alone
from service.settings import Settings

app = Commands()
CheckpointFile = Annotated[Path, typer.Argument(exists=True, dir_okay=False)]
Keys = Annotated[list[str], typer.Option("--key", metavar="NAME+ID+KEY")]


@app.command()
def export(file: Annotated[Path | None, typer.Argument()] = None) -> None:
    """Write every event as a line of JSON, and a last line that shows where the trail ended.

    Where the trail is signed, the last line also holds a signed checkpoint.

    Args:
        file: File to write. [default: standard output]
    """
    write(do(audit.export), file)


@app.command()
def checkpoint(file: Annotated[Path | None, typer.Argument()] = None) -> None:
    """Sign a checkpoint: the number of events and the root over them. Keep it elsewhere.

    Given to `dpicl audit verify`, it shows whether an export was rewritten, cut or forked since.

    Args:
        file: File to write. [default: standard output]
    """
    write([str(do(audit.checkpoint))], file)


@app.command()
def key(
    file: Annotated[Path, typer.Argument(dir_okay=False)],
    name: Annotated[str, typer.Argument()],
    witness: bool = False,
) -> None:
    """Make a key that signs checkpoints, unless the file has one, and print its verifier key, NAME+ID+KEY.

    For the service name the file in DPICL_AUDIT_KEY_FILE, and NAME in DPICL_AUDIT_ORIGIN. Auditors need the verifier
    key alone.

    Args:
        file: File of the private key, in PEM.
        name: Name that it signs by: an address without https://, such as dp-icl.example.org/audit.
        witness: The key is a witness's, for `dpicl audit cosign`.
    """
    typer.echo(str(make_signer(file, name).verifier(WITNESS if witness else LOG)))


@app.command()
def cosign(
    checkpoint: CheckpointFile,
    key_file: Annotated[Path, typer.Option(exists=True, dir_okay=False)],
    name: Annotated[str, typer.Option()],
    keys: Keys,
) -> None:
    """Add the witness's signature to a checkpoint, if the witness's own copy of the trail is what it names.

    For the keeper of the witness: it needs DPICL_WITNESS_URL and the witness's key, and neither the ledger nor its key.

    Args:
        checkpoint: File with the checkpoint, which is changed.
        key_file: File of the witness's private key, from `dpicl audit key --witness`.
        name: Name of the witness's key.
        keys: Verifier key of the service that signed the checkpoint. Repeat it.
    """
    signed = _checkpoint(checkpoint)
    database = open_witness_alone(Settings())
    try:
        cosigner = Cosigner(database, read_signer(key_file, name))
        cosigned = cosigner.cosign(signed, map(VerifierKey.read, keys))
    finally:
        database.dispose()
    write([str(cosigned)], checkpoint)
    typer.echo(f"{name} cosigned {cosigned.origin} up to event {cosigned.size}")


@app.command("verify")
def verify_(
    file: Annotated[Path | None, typer.Argument(exists=True)] = None,
    head: list[str] | None = None,
    key: Annotated[list[str] | None, typer.Option(metavar="NAME+ID+KEY")] = None,
    checkpoint: Annotated[list[Path] | None, typer.Option(exists=True, dir_okay=False)] = None,
    exemplars: list[Path] | None = None,
    json: Json = False,
) -> None:
    """Replay the trail: is it whole, was every budget, plan and quota kept, do other accountants agree with each plan?

    An export needs neither database nor key. Without one, the database's trail is replayed and compared with the
    ledger's counters and tables. Exits with 1 if anything is wrong. Keep the printed hash, or a signed checkpoint,
    somewhere else: with --head or --checkpoint a later replay shows whether the trail was rewritten or cut since.

    Args:
        file: An export. [default: the service's own database]
        head: A hash noted from an earlier replay; this trail must contain it.
        key: Verifier key of the service that signed the export's checkpoint, or of a witness that must have cosigned
            one. Repeat it.
        checkpoint: A signed checkpoint that was kept; this trail must continue it. Repeat it.
        exemplars: A file from `dpicl plan export`, to check that a release in this trail chose its exemplars.
    """
    console = Console(stderr=True, quiet=json)
    with console.status("Replaying") as status:

        def progress(plan: str) -> None:
            status.update(f"Computing plan {plan} again")

        trail: Callable[[], Iterable[str]]
        heads, keys = head or [], [VerifierKey.read(one) for one in key or []]
        kept = [_checkpoint(one) for one in checkpoint or []]
        if file is None:
            report = do(audit.replay, heads, keys=keys, checkpoints=kept, progress=progress)
            trail = partial(do, audit.export)
        else:
            report = verify(_lines(file), heads=heads, keys=keys, checkpoints=kept, progress=progress)
            trail = partial(_lines, file)
        if not report.problems:  # a trail with problems vouches for nothing
            report.problems += [
                f"{chosen}: {wrong}" for chosen in exemplars or () for wrong in problems(chosen, trail())
            ]
    _show(report, json)
    if report.problems:
        raise typer.Exit(1)


def _checkpoint(file: Path) -> Checkpoint:
    try:
        return Checkpoint.read(file.read_bytes().decode())
    except (NoteError, UnicodeDecodeError) as error:
        raise NoteError(f"{file}: {error}") from None


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
    for head in report.signatures:
        at = f" at {head.cosigned_at:%Y-%m-%d %H:%M} UTC" if head.cosigned_at else ""
        typer.echo(f"{head.signed_by} {'cosigned' if at else 'signed'} the trail up to event {head.size}{at}")
    if report.unchecked:
        typer.echo("There is a signed checkpoint, and no signature was checked: give its verifier key with --key")
    for problem in report.problems:
        typer.echo(f"WRONG: {problem}")
    if not report.problems:
        typer.echo(f"{report.events} events, nothing wrong. The newest event's hash, to be noted: {report.head}")
