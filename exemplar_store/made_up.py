"""Made-up slots that are as large as private ones can be, opened as those are: to measure what the largest take."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from exemplar_store.encryption import SALT_BYTES, TAG_BYTES, KnowledgeBaseKeys, place
from exemplar_store.exemplar import Slot, content, pack
from exemplar_store.reading import fill


def made_up_slots(
    contents: Sequence[Mapping[str, str]], dimension: int, *, response: bool, exemplars: int
) -> Callable[[], list[Slot]]:
    """What opens slots of made-up exemplars: each is decrypted and unpacked by itself as a drawn one is.

    Args:
        contents: of each slot's exemplars, which are equal; all with the same fields.
        dimension: of their embeddings, 0 for none.
        response: whether they have one of their responses, too.
        exemplars: in each slot.
    """
    keys = KnowledgeBaseKeys(os.urandom(32), os.urandom(SALT_BYTES))
    vectors = [np.full(dimension, dimension**-0.5, np.float32)] * (1 + response) if dimension else []
    names, tag = list(contents[0]), bytes(TAG_BYTES)
    payloads = [keys.encrypt(pack(content(fields, names), *vectors), place(0, tag)) for fields in contents]
    found = {number: (0, tag, payloads[number // exemplars]) for number in range(len(contents) * exemplars)}
    kept = list(np.arange(len(found)).reshape(-1, exemplars))
    return lambda: fill(keys, names, dimension, found, kept, response=response)
