"""A training job: a folder whose stages are done once. Run it again and it goes on where it stopped."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from research.restore.data import RedactedRows, Split, TrainConfig, read
from research.restore.evaluation import Evaluation
from research.restore.model import Head, SteeredModel
from research.restore.orpo import Examples, Vectors, train
from research.restore.probes import common_heads, probe
from sanitization.digests import file_digest, model_digest
from sanitization.restore.profiles import make_book, unit_rows
from sanitization.restore.publishing import JOB, REPORT, RESULT, JobError, read_report
from sanitization.vocabulary import FloatArray

_HEADS = "heads.json"

Progress = Callable[[str, str], None]
"""Called with the stage, and the progress in it."""


@dataclass(frozen=True)
class Job:
    """A folder, and the training in it.

    Args:
        folder: folder, made if it does not exist.
        config: configuration of the training.
        progress: called with the stage and the progress in it.

    Raises:
        JobError: the folder holds a job with other settings, data or model.
    """

    folder: Path
    config: TrainConfig
    progress: Progress

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        said = {
            "settings_and_data": self.config.digest,
            "data_sha256": file_digest(self.config.data),
            "model": {"name": self.config.model.name, "sha256": model_digest(self.config.model)},
            "config": self.config.model_dump(mode="json", exclude={"model", "data"}),
        }
        file = self.folder / JOB
        if not file.exists():
            _write(file, said)
        elif json.loads(file.read_text()) != said:
            raise JobError(f"{self.folder} holds a job with other settings, data or model: use another folder")

    def run(self) -> dict[str, Any]:
        """Do what is left to be done.

        Returns:
            The report.
        """
        if (self.folder / REPORT).exists():
            return read_report(self.folder)
        config = self.config
        self.progress("data", "reading")
        split = read(config)
        self.progress("data", f"{len(split.train):,} rows to train with, {len(split.types)} types of spans")
        check_sizes(config.profiles, split.train.weights)
        model = SteeredModel(config.model, config.prompt, config.options)
        heads = self._heads(model, split)
        train_set = split.train.with_spans
        examples = Examples(
            train_set.redacted, train_set.weights, model.choose(train_set.texts), model.choose(train_set.redacted)
        )
        vectors = self._vectors("vectors", model, heads, examples)
        same = Examples(examples.redacted, np.ones((len(train_set), 1)), examples.wanted, examples.unwanted)
        constant = self._vectors("constant", model, heads, same)
        return self._finish(model, split, heads, vectors, constant)

    def _heads(self, model: SteeredModel, split: Split) -> list[Head]:
        file = self.folder / _HEADS
        if not file.exists():
            self.progress("probes", f"{len(model.layers) * model.heads} heads")
            train, choose = split.train, split.choose
            quality = probe(
                model.states(train.texts), train.weights > 0, model.states(choose.texts), choose.weights > 0
            )
            count = min(self.config.heads, len(quality))
            chosen = [divmod(head, model.heads) for head in common_heads(quality, count)]
            _write(file, {"heads": chosen, "mean_auc": float(quality.max(axis=0).mean())})
        return [(layer, head) for layer, head in json.loads(file.read_text())["heads"]]

    def _vectors(self, name: str, model: SteeredModel, heads: list[Head], examples: Examples) -> Vectors:
        def step(done: int, loss: float) -> None:
            self.progress(name, f"step {done} of {self.config.steps}, loss {loss:.3f}")

        return train(model, heads, examples, self.config, self.folder / f"{name}.pt", step)

    def _finish(
        self, model: SteeredModel, split: Split, heads: list[Head], vectors: Vectors, constant: Vectors
    ) -> dict[str, Any]:
        config = self.config
        self.progress("books", ", ".join(map(str, config.profiles)))
        gram = vectors.flat @ vectors.flat.T
        types = list(split.types)
        books = [
            make_book(types, gram, split.train.weights, split.train.spans, k, config.seed) for k in config.profiles
        ]

        def on(data: RedactedRows) -> Evaluation:
            return Evaluation(model, heads, vectors, split.train, data, len(config.options), config.placeholder)

        choosing = on(split.choose)
        chosen = [asdict(choosing.profiles_at(made, config.epsilon)) for made in books]
        best = books[int(np.argmax([cell["steered"] for cell in chosen]))]
        testing = on(split.test)
        self.progress("controls", f"{len(split.test):,} rows")
        controls = testing.controls(best, constant, config.seed)
        cells = testing.table(books, config.epsilons, config.seed, lambda said: self.progress("table", said))
        table = (best.mixture @ vectors.flat).reshape(best.book.k, *vectors.types.shape[1:])
        result: dict[str, np.ndarray] = {"affinity": best.book.affinity, "table": table.astype(np.float32)}
        _replace(self.folder / RESULT, safetensors.numpy.save(result))
        report = {
            "rows": {name: len(part) for name, part in vars(split).items() if isinstance(part, RedactedRows)},
            "types": split.types,
            "profiles": best.book.k,
            "medoids": best.book.medoids,
            "chosen_for_epsilon": config.epsilon,
            "chosen_among": chosen,
            "heads": heads,
            "scale": vectors.scale,
            "controls": asdict(controls),
            "table": [asdict(cell) for cell in cells],
        }
        _write(self.folder / REPORT, report)
        return read_report(self.folder)


def check_sizes(profiles: Sequence[int], weights: FloatArray) -> None:
    """Return if books of these sizes may be made; training, which takes long, cannot add different queries.

    Args:
        profiles: sizes of books.
        weights: weights of types in each query, (N, t).

    Raises:
        ValueError: there are fewer different queries with spans than profiles.
    """
    different = len(np.unique(unit_rows(weights[weights.sum(axis=1) > 0]).round(9), axis=0))
    if max(profiles) - 1 > different:
        raise ValueError(
            f"{max(profiles)} profiles need {max(profiles) - 1} rows with different spans to train with, and there are "
            f"{different}: ask for fewer profiles"
        )


def _write(file: Path, value: object) -> None:
    _replace(file, json.dumps(value, indent=1, ensure_ascii=False).encode())


def _replace(file: Path, content: bytes) -> None:
    partial = file.with_suffix(".partial")
    partial.write_bytes(content)
    os.replace(partial, file)
