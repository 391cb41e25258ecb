"""``dpicl plan candidates``: public candidates for ``synthetic_exemplars``, written by the engine."""

from __future__ import annotations

import asyncio
import json as to_json
from pathlib import Path
from typing import Annotated

import typer

from accounting.plan import load_plan
from accounting.tasks import ClassifyTask
from service.cli.gathering import gathered
from service.cli.output import PlanFile
from service.cli.trying import EngineConfigFile, engine_of, stages_of
from service.engines.configs import EngineConfig
from service.plans.candidates import write_candidates
from service.sources.typed import read_file


@gathered
def candidates(
    file: PlanFile,
    task: str | None = None,
    per_label: Annotated[int, typer.Option(min=1, max=100)] = 12,
    vary: Annotated[Path | None, typer.Option(exists=True, dir_okay=False)] = None,
    engine_config: EngineConfigFile = None,
) -> None:
    """Let the engine write candidates for `synthetic_exemplars`: it is shown the plan, and nothing private.

    Prints YAML to put below `candidates:`. Read it before you sign: what is chosen of it is shown with every question.

    Args:
        task: For the labels of which task. [default: the first with any]
        per_label: At most so many of each label, or of each text that is varied.
        vary: Vary these public exemplars: what `dpicl plan export` wrote.
    """
    plan = load_plan(file.read_text())
    labelled = {name: planned for name, planned in plan.tasks.items() if isinstance(planned, ClassifyTask)}
    name = task or next(iter(labelled), "")
    if name not in labelled:
        raise ValueError(f"{file} has no task {name!r} with labels")
    varied = [] if vary is None else list(read_file(vary))
    config = engine_of(engine_config)
    if not config.is_llm:
        raise ValueError(f"{config.name} writes no texts: name a language model's config with --engine-config")
    for candidate in asyncio.run(_write(config, name, labelled[name], per_label, varied)):
        typer.echo(f"- {to_json.dumps(candidate, ensure_ascii=False)}")


async def _write(
    config: EngineConfig, name: str, task: ClassifyTask, per_label: int, varied: list[dict[str, str]]
) -> list[dict[str, str]]:
    with stages_of(config) as stages:
        return await write_candidates(stages.engine, name, task, per_label, varied)
