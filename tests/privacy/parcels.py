"""A small task whose slots the light engine answers: all units but the attacker's canary say one label."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

from exemplar_store import ExemplarStore, Layout, read_json_lines
from service.embedding.embedder import Embedder
from service.engines.protocol import Prompt, TaskSpec

QUERY = {"text": "The parcel arrived with a broken lid."}
LABELS = ("delivery", "music")
TASK = TaskSpec("audit.task", LABELS, Prompt("", "{text}: {label}", "{text}:"))


def ingest(store: ExemplarStore, units: Sequence[str], canary: str | None, embedder: Embedder) -> None:
    """An exemplar of each unit; the canary's is the query itself, with the other label."""
    rows = [{"unit_id": u, "text": f"Where is my parcel number {i}?", "label": LABELS[0]} for i, u in enumerate(units)]
    if canary is not None:
        rows.append({"unit_id": canary, **QUERY, "label": LABELS[1]})
    stream = io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())
    store.ingest("audit", read_json_lines(stream, Layout(("text", "label"))), embedder.embed)
