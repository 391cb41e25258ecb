"""A small task for the embedded engine. All units but the attacker's canary have the same label."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Sequence

import numpy as np

from exemplar_store import ExemplarStore, Layout, Slot, read_json_lines
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.engines.embedding.embedder import Embedder
from service.engines.task import Prompt, TaskSpec

QUERY = {"text": "The parcel arrived with a broken lid."}
LABELS = ("delivery", "music")
TASK = TaskSpec("audit.task", LABELS, Prompt("", "{text}: {label}", "{text}:"))


def ingest(store: ExemplarStore, units: Sequence[str], canary: str | None, embedder: Embedder) -> None:
    """Ingest one exemplar of each unit. The canary's is the query itself, with the other label."""
    rows = [{"unit_id": u, "text": f"Where is my parcel number {i}?", "label": LABELS[0]} for i, u in enumerate(units)]
    if canary is not None:
        rows.append({"unit_id": canary, **QUERY, "label": LABELS[1]})
    stream = io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())
    store.ingest("audit", read_json_lines(stream, Layout(("text", "label"))), embedder.embed_many)


Slots = Sequence[np.ndarray | None]


def voting(engine: NearestExemplarEngine) -> Callable[[Sequence[Slot]], Slots]:
    """A function that asks the engine about a sample, as the service does, but only once about equal slots."""
    zero_shot = asyncio.run(engine.zero_shot(TASK, QUERY))
    known: dict[tuple[str, ...], np.ndarray | None] = {}

    def vote(slot: Slot) -> np.ndarray | None:
        texts = tuple(exemplar.fields["text"] for exemplar in slot)
        if texts not in known:
            (known[texts],) = asyncio.run(engine.contributions(TASK, QUERY, [slot], zero_shot))
        return known[texts]

    return lambda slots: [vote(slot) for slot in slots]
