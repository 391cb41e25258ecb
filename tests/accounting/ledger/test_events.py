"""Sentences about events name only particulars that the events have."""

from __future__ import annotations

import re

import pytest

from accounting.ledger.events import KINDS, Particulars


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_sentences_name_existing_particulars(kind: type[Particulars]):
    said = [kind.lost or "", "" if "sentence" in vars(kind) else kind.says]
    assert set(re.findall(r"{(.*?)}", "".join(said))) <= kind.model_fields.keys()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_each_kind_has_a_rule(kind: type[Particulars]):
    assert kind.replay is not Particulars.replay
