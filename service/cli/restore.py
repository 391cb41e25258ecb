"""``dpicl restore``: ask about a text without showing its sensitive spans; publish bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import typer

from service.cli.ask import Service, connect
from service.cli.gathering import Commands
from service.cli.lazy import LazyGroup, Place
from service.cli.output import Json, actor, create_database, print_json, print_text, records, state_folder

if TYPE_CHECKING:
    from sanitization.restore.client import RestoreClient


class _AndTrain(LazyGroup):
    lazy: ClassVar[Mapping[str, Place]] = {
        "train": Place(
            "restore.train",
            "research",
            "Train a bundle: probes, heads, restoration vectors, books of profiles, and a report with controls.",
        )
    }


app = Commands(cls=_AndTrain)


class RestoreQuestion(Service):
    """The bundle, ε and ledger that the owner of a text asks with."""

    bundle: Annotated[str, typer.Option("--bundle")]
    """Address of the bundle, name@version."""
    epsilon: float = 4.0
    """ε of each new question: above 0, at most 20."""
    budget: Annotated[float, typer.Option(min=0)] = 40
    """The ε that all questions in the ledger may cost together."""
    ledger: Path | None = None
    """File of the numbers that were drawn. [default: ~/.local/state/dpicl/restore.sqlite]"""

    def client(self, mode: Literal["text", "steer"] = "text", *, free_text: bool = False) -> RestoreClient:
        """A client with these options."""
        from sanitization.restore.client import RestoreClient

        options = self.model_dump(exclude={"url", "key"}) | {"ledger": self.ledger or state_folder() / "restore.sqlite"}
        options |= {"mode": mode, "free_text": free_text}
        return RestoreClient(self.checked_url(), self.checked_key(), http=connect(self), **options)


Text = Annotated[str, typer.Argument(help="The text, with its sensitive spans.")]
Span = Annotated[list[str] | None, typer.Option("--span", help="A sensitive span; repeat it for each.")]
Find = Annotated[bool, typer.Option("--find", help="Take out what the bundle has a type for, too: see preview.")]


@app.command()
def ask(
    text: Text,
    span: Span = None,
    *,
    find: Find = False,
    asking: RestoreQuestion,
    mode: Literal["text", "steer"] = "text",
    free_text: Annotated[bool, typer.Option("--free-text")] = False,
    json: Json = False,
) -> None:
    """Ask about a text. Its spans stay here; the redacted text and one random number leave.

    The same question sends the same number again, and costs nothing more.

    Args:
        mode: Use of a profile: text puts its spans back as text; steer steers the model.
        free_text: Have the model write an answer, instead of choosing one of the bundle's options.
    """
    with asking.client(mode, free_text=free_text) as client:
        spans = _spans(client, text, span, find)
        answer = client.ask(text, spans)
        cost = client.preview(text, spans)
    if json:
        print_json({"answer": answer.text, "redacted": answer.redacted, "spent": cost.spent, "budget": cost.budget})
        return
    print_text(answer.text, "bold")
    typer.echo(f"Sent: {answer.redacted}\nε spent: {cost.spent:g} of {cost.budget:g}", err=True)
    if cost.unknown:
        typer.echo(_not_restored(client, cost.unknown), err=True)


@app.command()
def preview(text: Text, span: Span = None, *, find: Find = False, asking: RestoreQuestion, json: Json = False) -> None:
    """Show the text that a question would send, its cost, and what it would reveal. Sends nothing about the text."""
    with asking.client() as client:
        seen = client.preview(text, _spans(client, text, span, find))
        report = client.bundle.manifest.report
    if json:
        print_json(vars(seen))
        return
    typer.echo(seen.redacted)
    if seen.types:
        typer.echo(f"Taken out: {', '.join(_as(span, name) for span, name in seen.types.items())}")
    if seen.unknown:
        typer.echo(_not_restored(client, seen.unknown))
    typer.echo(
        f"Costs ε = {seen.cost:g}; {seen.spent:g} of {seen.budget:g} spent. "
        f"One of {seen.profiles} profiles leaves: the true one with {seen.truth:.0%}, each other one with "
        f"{(1 - seen.truth) / (seen.profiles - 1):.2%}."
    )
    if controls := report.get("controls"):
        typer.echo(f"On the publisher's test data, {leak(controls)}.")


@app.command()
def publish(
    job: Annotated[Path, typer.Argument(exists=True, file_okay=False)],
    signing_key: Annotated[Path, typer.Option(exists=True, dir_okay=False)],
    margin: Annotated[float, typer.Option(min=0.01, max=1)] = 0.2,
    by: str | None = None,
) -> None:
    """Sign a bundle and put it into the folder `DPICL_RESTORE_BUNDLES`, for services to serve.

    Refused unless profiles restore more answers than a constant vector, another person's vector, and the redacted text.

    Args:
        job: A finished job's folder.
        signing_key: An Ed25519 private key, PEM.
        margin: Share of answers by which profiles must beat their controls.
        by: Name of the person who publishes. [default: your user name]
    """
    from service.operations.publishing import publish as publish_

    create_database()
    made = publish_(actor(by), records(), job, signing_key, margin)
    typer.echo(f"{made.address}, SHA-256 {made.sha256}, published by {made.signature.publisher}")


def _spans(client: RestoreClient, text: str, marked: list[str] | None, find: bool) -> list[str]:
    return [*(marked or ()), *(client.find(text) if find else ())]


def _as(span: str, name: str) -> str:
    return span if span.casefold() == name.casefold() else f"{span} (as {name})"


def _not_restored(client: RestoreClient, spans: Sequence[str]) -> str:
    types = client.bundle.span_types
    missing = types.meaning is not None and not types.by_meaning
    advice = ". To know spans by their meaning: pip install 'dp-icl[server]'" if missing else ""
    return f"Taken out, and not restored: {', '.join(spans)}{advice}"


def leak(controls: dict[str, float]) -> str:
    """A sentence on the answers that are known without asking."""
    return (
        f"the redacted text alone reveals {controls['redacted_attacker']:.1%} of answers, and the commonest one is "
        f"right for {controls['option_prior']:.1%}"
    )
