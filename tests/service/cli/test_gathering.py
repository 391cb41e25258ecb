"""Options that are the fields of a model."""

from typing import Annotated

import typer
from pydantic import Field
from typer.testing import CliRunner

from service.cli.gathering import Commands, Options, gathered


class Toy(Options):
    name: str
    weight: float | None
    """What it weighs."""
    colours: list[str] = Field(default=["red"], description="Repeat it.")
    size: Annotated[int | None, typer.Option(min=1)] = None


def test_a_command_takes_a_model_that_leaves_out_options_not_given() -> None:
    made: list[tuple[Toy, set[str]]] = []
    app = typer.Typer()

    @app.command()
    @gathered
    def make(toy: Annotated[Toy, {"name": typer.Argument()}], quick: bool = False) -> None:
        """Make a toy.

        Args:
            quick: Today,
                not tomorrow.
        """
        made.append((toy, toy.model_fields_set))

    for args in (["kite"], ["kite", "--weight", "2", "--colours", "a", "--colours", "b", "--size", "3", "--quick"]):
        assert CliRunner().invoke(app, args).exit_code == 0
    assert made == [
        (Toy(name="kite", weight=None), {"name", "weight", "colours"}),
        (Toy(name="kite", weight=2, colours=["a", "b"], size=3), {"name", "weight", "colours", "size"}),
    ]
    assert CliRunner().invoke(app, ["kite", "--size", "0"]).exit_code == 2
    shown = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output.split())
    assert all(said in shown for said in ("Make a toy.", "What it weighs.", "Repeat it.", "Today, not tomorrow."))
    assert "Args" not in shown


def test_a_text_that_begins_with_a_dash_needs_two_more() -> None:
    said: list[str] = []
    app = Commands()

    @app.command()
    def ask(text: Annotated[str, typer.Argument()], quick: bool = False) -> None:
        said.append(text)

    for text in ("-5 degrees", "-Ü", "--quick answers, please"):
        refused = CliRunner().invoke(app, [text])
        assert refused.exit_code == 2
        assert "Write -- before a text" in refused.output
        assert CliRunner().invoke(app, ["--", text]).exit_code == 0
    assert said == ["-5 degrees", "-Ü", "--quick answers, please"]
    assert "Write --" not in CliRunner().invoke(app, ["--quik"]).output
