"""What a language model said, kept on disk: noise and mechanisms are compared again without asking it again.

A reply is kept under a digest of all that it depends on: the engine's configuration and the files of a local model, the
task as the engine sees it, and what it was shown or the data that slots were drawn from. What a model behind a name
becomes elsewhere (a remote one, a repository without ``revision``) nobody here can see.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sanitization.cache import DamagedFileError
from service.engines.configs import OpenAiCompatibleConfig, VllmConfig
from service.engines.protocol import (
    Engine,
    EngineInfo,
    EngineUnavailableError,
    Output,
    Sentence,
    TaskSpec,
    UnanswerableQueryError,
    ZeroShot,
)

if TYPE_CHECKING:
    from exemplar_store import Slot

_LAYOUT = 1
"""To be raised when engines ask or calibrate otherwise."""
_CHANGES_NOTHING = {"kv_cache_gib", "gpu_memory_utilization", "max_queued_prompts", "max_concurrency"}
"""Settings of which no reply depends."""


class Replies:
    """What one language model said, in a file of a folder; several runs may share it.

    Args:
        folder: where; made unless it exists. It holds what the model said in clear text.
        config: the model's.

    Raises:
        sanitization.cache.DamagedFileError: as any method: the file is not what was stored.
        OSError: likewise: it cannot be read or written.
    """

    def __init__(self, folder: Path, config: VllmConfig | OpenAiCompatibleConfig):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = folder / "replies.sqlite"
        self._engine = config.model_dump(mode="json", exclude=_CHANGES_NOTHING)
        if isinstance(config, VllmConfig) and Path(config.model).exists():
            self._engine["model"] = _digest(Path(config.model))
        with self._explained():
            self._database = sqlite3.connect(self._file, timeout=60, isolation_level=None)
            self._database.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, said BLOB NOT NULL)")

    def key(self, *asked: object) -> str:
        """A digest of the model and what it was asked: what JSON can say, and dataclasses."""
        document = json.dumps([_LAYOUT, self._engine, *asked], sort_keys=True, default=asdict)
        return hashlib.sha256(document.encode()).hexdigest()

    def get(self, key: str) -> Any:
        """What was kept under a key; None if nothing was."""
        with self._explained():
            row = self._database.execute("SELECT said FROM replies WHERE key = ?", [key]).fetchone()
            return None if row is None else json.loads(zlib.decompress(row[0]))

    def keep(self, key: str, said: object) -> None:
        """Store it durably: all of it, or, if this is cut off, nothing."""
        with self._explained():
            content = zlib.compress(json.dumps(said).encode())  # its checksum shows damage
            self._database.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", [key, content])

    def row(self, key: str) -> tuple[ZeroShot, list[Output | None]] | None:
        """What was said to a test row: zero-shot, and by each of its slots; None if it was not kept."""
        if (said := self.get(key)) is None:
            return None
        probabilities, texts, tokens, outputs = said
        return ZeroShot(_output(probabilities), tuple(texts), tokens=tokens), [_output(one) for one in outputs]

    def keep_row(self, key: str, zero_shot: ZeroShot, outputs: Sequence[Output | None]) -> None:
        """Store what :meth:`row` is to find."""
        written = [_written(zero_shot.probabilities), zero_shot.texts, zero_shot.tokens, [*map(_written, outputs)]]
        self.keep(key, written)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise OSError(f"{self._file} cannot be used: {error}") from error
        except (sqlite3.DatabaseError, zlib.error, ValueError, TypeError) as error:
            raise DamagedFileError(self._file) from error


class KeptEngine:
    """A language model that starts when it is first asked something that is not kept.

    Args:
        start: starts it.
        replies: keeps what it says of single exemplars that are shown with every question, and its sentences. What
            drawn slots say is kept with their test row (:mod:`.dataset`).
    """

    def __init__(self, start: Callable[[], Engine], replies: Replies):
        self._start = start
        self._replies = replies

    @cached_property
    def _engine(self) -> Engine:
        return self._start()

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        """See :meth:`service.engines.protocol.Engine.zero_shot`."""
        return await self._engine.zero_shot(task, query)

    async def contributions(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> Sequence[Output | None]:
        """See :meth:`service.engines.protocol.Engine.contributions`."""
        if len(slots) != 1:
            return await self._engine.contributions(task, query, slots, zero_shot)
        key = self._replies.key("shown", task, query, [exemplar.fields for exemplar in slots[0]])
        if (said := self._replies.get(key)) is not None:
            return [_output(said)]
        (output,) = await self._engine.contributions(task, query, slots, zero_shot)
        if output is not None:
            self._replies.keep(key, _written(output))
        return [output]

    async def reconstruct(
        self, task: TaskSpec, query: Mapping[str, str], keywords: Sequence[str], ordered: bool, zero_shot: ZeroShot
    ) -> Sentence:
        """See :meth:`service.engines.protocol.Engine.reconstruct`; words of which no sentence is made stay words."""
        key = self._replies.key("sentence", task, query, keywords, ordered)
        if (said := self._replies.get(key)) is not None:
            return Sentence(*said)
        try:
            sentence = await self._engine.reconstruct(task, query, keywords, ordered, zero_shot)
        except (EngineUnavailableError, UnanswerableQueryError):
            await self._engine.health()
            sentence = Sentence(" ".join(keywords), "the released words as they are")
        self._replies.keep(key, [sentence.text, sentence.method])
        return sentence

    async def describe(self) -> EngineInfo:
        """See :meth:`service.engines.protocol.Engine.describe`."""
        return await self._engine.describe()

    async def health(self) -> None:
        """See :meth:`service.engines.protocol.Engine.health`."""
        await self._engine.health()

    def close(self) -> None:
        """See :meth:`service.engines.protocol.Engine.close`."""
        self._replies.close()
        if "_engine" in self.__dict__:
            self._engine.close()


def _digest(model: Path) -> list[tuple[str, str]]:
    """Names and contents of a local model's files."""
    found = []
    for file in sorted(model.rglob("*")) if model.is_dir() else [model]:
        if file.is_file():
            with file.open("rb") as content:
                found.append((file.relative_to(model).as_posix(), hashlib.file_digest(content, "sha256").hexdigest()))
    return found


def _written(output: Output | None) -> list[float] | str | None:
    assert output is None or isinstance(output, np.ndarray | str)  # noqa: S101  (no model says embeddings)  # nosec B101
    return output.tolist() if isinstance(output, np.ndarray) else output


def _output(written: list[float] | str | None) -> Any:
    return np.array(written) if isinstance(written, list) else written
