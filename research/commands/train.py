"""``dpicl restore train``: a bundle, and what it is worth."""

from pathlib import Path
from typing import Annotated, Any

import typer

from research.restore.data import TrainConfig
from research.restore.job import Job
from service.cli.output import Json, print_json, print_table
from service.cli.restore import leak
from service.operations.restoring import CONTROLS


def train(
    config: Annotated[Path, typer.Argument(exists=True, dir_okay=False)],
    job: Annotated[Path, typer.Option(file_okay=False)],
    plot_file: Annotated[Path | None, typer.Option("--plot", dir_okay=False)] = None,
    json: Json = False,
) -> None:
    """Train a bundle: probes, heads, restoration vectors, books of profiles, and a report with controls.

    Everything that it learns from goes to every client. The data must be public, or consented to.

    Args:
        config: YAML file that describes the training.
        job: Folder of the job. Run the command again to continue.
        plot_file: PNG file to plot the report to.
    """
    report = Job(job, TrainConfig.read(config), lambda stage, done: typer.echo(f"{stage}: {done}", err=True)).run()
    if plot_file is not None:
        from research.restore.plot import plot

        plot(report).savefig(plot_file, dpi=120)
    if json:
        print_json(report)
        return
    _show(report)
    typer.echo(f"Look at it, then: dpicl restore publish {job}")


def _show(report: dict[str, Any]) -> None:
    """Print a report for people: every figure beside what it must be compared with."""
    controls = report["controls"]
    rows = [(control, f"{controls[name]:.1%}") for name, control in CONTROLS.items()]
    print_table(f"Answers right, {report['rows']['test']:,} people held out of training", ["what", "right"], rows)
    print_table(
        f"At equal true ε ({report['profiles']} profiles are best at {report['chosen_for_epsilon']:g})",
        ["ε", "mechanism", "right, steered", "right, as text", "attacker learns the answer"],
        [
            (
                f"{cell['epsilon']:.2f}",
                cell["mechanism"],
                f"{cell['steered']:.1%}",
                "" if cell["as_text"] is None else f"{cell['as_text']:.1%}",
                f"{cell['attacker']:.1%}",
            )
            for cell in report["table"]
        ],
    )
    typer.echo(
        "d_chi is the paper's noise, true ε 150 as the paper runs it; no client asks profiles with more than 20."
    )
    typer.echo(f"Compare with what needs no answer at all: {leak(controls)}.")
