"""``dpicl receipt``: what one answer cost, proved by the signed audit trail."""

import json
from pathlib import Path
from typing import Annotated

import typer

from accounting.ledger.inclusion import InclusionProof
from accounting.ledger.notes import NoteError, VerifierKey
from service.cli.ask import RefusedError, Service, connect
from service.cli.gathering import Commands
from service.cli.output import Json, print_json, write

app = Commands()


@app.command()
def get(
    release: Annotated[str, typer.Argument()],
    file: Annotated[Path | None, typer.Argument(dir_okay=False)] = None,
    *,
    service: Service,
) -> None:
    """Fetch the receipt of an answer: its release, task and charge, and the proof that they are in the audit trail.

    Args:
        release: Id of the release, which comes with the answer.
        file: File to write. [default: standard output]
    """
    with connect(service) as client:
        response = client.get(f"/v1/releases/{release}/receipt")
    if response.is_error:
        raise RefusedError(response.json())
    write([response.text], file)


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False)],
    key: Annotated[list[str], typer.Option(metavar="NAME+ID+KEY")],
    as_json: Json = False,
) -> None:
    """Verify a receipt offline, by the service's verifier key alone. Exits with 1 if it is not genuine.

    Args:
        file: The receipt.
        key: Verifier key of the service, from its operator; also of a witness that must have signed. Repeat it.
    """
    try:
        proof = InclusionProof.read(file.read_bytes().decode())
        signers = proof.check([VerifierKey.read(one) for one in key])
        event = json.loads(proof.leaf)
        body = event["body"]
        shown = {
            **{name: body[name] for name in ("release", "task", "charge", "answer_sha256")},
            "at": event["at"],
            "event": event["sequence"],
            "signed_by": [one.name for one in signers],
        }
    except (NoteError, UnicodeDecodeError) as error:
        raise NoteError(f"{file}: {error}") from None
    except (ValueError, KeyError, TypeError):
        raise NoteError(f"{file}: it is genuine, and of another event than an answer") from None
    if as_json:
        print_json(shown)
        return
    for name, value in shown.items():
        typer.echo(f"{name}: {', '.join(value) if isinstance(value, list) else value}")
