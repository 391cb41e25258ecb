"""A synthetic database: the knowledge base ``support`` with its tickets, its plans signed, and a key for each role."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from accounting.plans.plan import load_plan
from exemplar_store import ExemplarStore, Layout, read_json_lines
from exemplar_store.knowledge_base import Progress, do_nothing
from service.answering.plans.signing import prepare, sign
from service.engines.embedding.embedder import Embed
from service.records.records import Records, open_records
from service.records.synthetic_store import KEY, KEY_BASE64
from service.settings import Settings, set_operators_aside

KNOWLEDGE_BASE = "support"
FIELDS = ("text", "team", "desk", "reply")
TICKETS = 900
EPSILON, DELTA = 20.0, 4e-4
"""For life; the plans take at most 12 and 2e-4 of it, so that another can be signed."""
_WHO = "dpicl serve --synthetic"
_FOLDER = Path(__file__).parent
PLANS = ("plan.yaml", "replies.yaml")
SMALL_PLANS = ("plan-smollm2.yaml",)
"""For a language model, which may be slow here."""
QUESTIONS = {
    "My parcel never arrived.": "Shipping",
    "The security code is refused every time I try.": "Security",
    "The leaves of my basil turn yellow.": "Garden",
}
"""Questions to ask, and the right answers.

With noise `nearest_exemplar` answers 99.8 % or more of 15,000 times rightly, SmolLM2 95 to 100 % of 600 to 1,200.
"""


@dataclass(frozen=True)
class Synthetic:
    """The database and the keys that a newcomer is given."""

    database_url: str
    admin_token: str
    analyst_token: str


@contextmanager
def synthetic_database(
    embed: Embed, progress: Progress = do_nothing, plans: Sequence[str] = PLANS
) -> Iterator[Synthetic]:
    """A temporary database of made-up data, which this process's environment names until the block ends.

    Args:
        embed: embeds the tickets; takes some fifteen seconds.
        progress: called with the number of tickets embedded, and of all.
        plans: plans to sign.
    """
    before = set_operators_aside()
    with TemporaryDirectory(prefix="dpicl-synthetic-") as folder:
        url = f"sqlite:///{folder}/synthetic.sqlite"
        try:
            os.environ.update(DPICL_DATABASE_URL=url, DPICL_ENCRYPTION_KEY=KEY_BASE64)
            opened = open_records(Settings())
            _fill(opened, embed, progress, plans)
            keys = {role: opened.keys.create(f"synthetic {role}", role)[1] for role in ("admin", "analyst")}
            opened.database.dispose()
            yield Synthetic(url, keys["admin"], keys["analyst"])
        finally:
            set_operators_aside()  # what the block has set
            os.environ.update(before)


def _fill(records: Records, embed: Embed, progress: Progress, plans: Sequence[str]) -> None:
    records.create_knowledge_base(
        KNOWLEDGE_BASE,
        epsilon=EPSILON,
        delta=DELTA,
        public_size=TICKETS,
        fields=FIELDS,
        embedded_field="text",
        response_field="reply",
        by=_WHO,
    )
    # Not by the records' own store, which is sealed.
    unsealed = replace(records, store=ExemplarStore(records.database, KEY, records.store.keyring.embedding_model))
    with (_FOLDER / "tickets.jsonl").open("rb") as file:
        unsealed.ingest(KNOWLEDGE_BASE, read_json_lines(file, Layout(FIELDS)), embed, by=_WHO, progress=progress)
    for name in plans:
        plan = load_plan((_FOLDER / name).read_text(encoding="utf-8"))
        sign(records, prepare(records, plan), _WHO)
