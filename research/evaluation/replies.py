"""Replies of a language model, kept on disk: noise and mechanisms are compared again without asking it again.

A reply is kept under a digest of all that it depends on: the engine's configuration and the files of a local model, the
task as the engine sees it, and what it was shown or the data that slots were drawn from. What a model behind a name
becomes elsewhere (a remote one, a repository without ``revision``) cannot be seen here.
"""

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from service.engines.configs import EngineConfig, VllmConfig
from service.engines.embedding.embedder import TextEmbedder
from service.engines.errors import EngineUnavailableError
from service.engines.factory import open_engine
from service.engines.protocol import Engine
from service.engines.task import Output, Sentence, TaskSpec, ZeroShot

_LAYOUT = 3
"""Version of the layout, to be raised when engines ask or calibrate otherwise."""
_CHANGES_NOTHING = {"kv_cache_gib", "gpu_memory_utilization", "max_queued_prompts", "max_concurrency"}
"""Settings that no reply depends on."""


class KeptEngine:
    """An :class:`service.engines.protocol.Engine` that starts when it is first asked something that is not kept.

    It keeps its sentences itself, and its replies to test rows if :mod:`.dataset` asks it to, with their draw.

    Args:
        config: configuration of a language model.
        embedder: embedder as of :func:`service.engines.factory.open_engine`.
        folder: folder of the file, which several runs may share; made unless it exists. It holds clear text.

    Raises:
        OSError: the file cannot be read or written, or is damaged; from any method.
    """

    def __init__(self, config: EngineConfig, embedder: TextEmbedder, folder: Path):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._config, self._embedder, self._file = config, embedder, folder / "replies.sqlite"
        self._known = config.model_dump(mode="json", exclude=_CHANGES_NOTHING)
        if isinstance(config, VllmConfig) and (model := Path(config.model)).exists():
            files = (file for file in (model, *model.rglob("*")) if file.is_file())
            self._known["model"] = {str(file.relative_to(model)): _digest(file) for file in files}
        with self._explained():
            self._database = sqlite3.connect(self._file, timeout=60, isolation_level=None)
            self._database.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, said BLOB NOT NULL)")

    @cached_property
    def _engine(self) -> Engine:
        return open_engine(self._config, self._embedder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def key(self, *asked: object) -> str:
        """A digest of the model and of what it was asked: values that JSON can express, and dataclasses."""
        document = json.dumps([_LAYOUT, self._known, *asked], sort_keys=True, default=asdict)
        return hashlib.sha256(document.encode()).hexdigest()

    def get(self, key: str) -> Any:
        """The value kept under a key, arrays as lists; None if there is none."""
        with self._explained():
            row = self._database.execute("SELECT said FROM replies WHERE key = ?", [key]).fetchone()
            return None if row is None else json.loads(zlib.decompress(row[0]))

    def store(self, key: str, said: object) -> None:
        """Store it durably: all of it, or, if this is cut off, nothing."""
        content = zlib.compress(json.dumps(said, default=np.ndarray.tolist).encode())  # its checksum shows damage
        with self._explained():
            self._database.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", [key, content])

    def row(self, key: str) -> tuple[ZeroShot, list[Output | None]] | None:
        """The replies to a test row: zero-shot, and of each of its slots; None if they were not kept."""
        if (said := self.get(key)) is None:
            return None
        probabilities, texts, tokens, outputs = said
        return ZeroShot(_output(probabilities), tuple(texts), tokens=tokens), [_output(output) for output in outputs]

    def keep_row(self, key: str, zero_shot: ZeroShot, outputs: Sequence[Output | None]) -> None:
        """Store the replies to a row, for :meth:`row`."""
        self.store(key, [zero_shot.probabilities, zero_shot.texts, zero_shot.tokens, outputs])

    async def reconstruct(
        self, task: TaskSpec, query: Mapping[str, str], keywords: Sequence[str], ordered: bool, zero_shot: ZeroShot
    ) -> Sentence:
        """A sentence (:meth:`service.engines.protocol.Engine.reconstruct`), or the words where none can be made."""
        key = self.key("sentence", task, query, keywords, ordered)
        if (said := self.get(key)) is None:
            try:
                said = asdict(await self._engine.reconstruct(task, query, keywords, ordered, zero_shot))
            except (EngineUnavailableError, ValueError):
                await self._engine.health()
                said = {"text": " ".join(keywords), "method": "the released words as they are"}
            self.store(key, said)
        return Sentence(**said)

    def close(self) -> None:
        """Close the file of replies, and the engine if it was started."""
        self._database.close()
        if "_engine" in self.__dict__:
            self._engine.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, zlib.error, ValueError, TypeError) as error:
            raise OSError(f"{self._file} cannot be used ({error}): delete it, or name another --replies") from error


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _output(said: list[float] | str | None) -> Any:
    return np.array(said) if isinstance(said, list) else said
