"""Weights of spans, equal against by attention: trains one bundle with each, for several seeds, and compares.

    python -m research.studies.span_weights train.yaml FOLDER [--seeds 3]

A seed splits the people anew, so standard errors are over seeds: of each figure, and of the difference within a seed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from research.restore.data import TrainConfig
from research.restore.job import Job

Weights = Literal["equal", "attention"]
FIGURES = ("restored", "own_profile")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("folder", type=Path, help="folder of the jobs; run again to continue")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    config = TrainConfig.read(arguments.config)
    found = {how: [measure(config, how, seed, arguments.folder) for seed in range(arguments.seeds)] for how in WEIGHTS}
    for figure in FIGURES:
        by_seed = {how: np.array([100 * report[figure] for report in reports]) for how, reports in found.items()}
        for how, values in by_seed.items():
            print(f"{figure}, {how}: {summary(values)}")
        print(f"{figure}, attention - equal: {summary(by_seed['attention'] - by_seed['equal'])}")


WEIGHTS: tuple[Weights, ...] = get_args(Weights)


def measure(config: TrainConfig, how: Weights, seed: int, folder: Path) -> dict[str, float]:
    """The controls of a bundle that is trained with these weights."""
    one = config.model_copy(update={"weights": how, "seed": seed})
    job = Job(folder / f"{how}-{seed}", one, lambda stage, done: print(f"{how}, seed {seed}, {stage}: {done}"))
    controls: dict[str, float] = job.run()["controls"]
    return controls


def summary(values: np.ndarray) -> str:
    """Mean and standard error, in percent of answers."""
    return f"{values.mean():.1f} % ± {values.std(ddof=1) / np.sqrt(len(values)):.1f} ({len(values)} seeds)"


if __name__ == "__main__":
    main()
