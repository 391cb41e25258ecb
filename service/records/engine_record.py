"""The engines a database has been served by, noted so that admins see isolation where they decide about budgets."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from pydantic import BaseModel

from accounting.ledger.dialects import reading
from service.engines.protocol import EngineInfo
from service.records.tables import engines


class EngineView(BaseModel):
    """The engine that answers, and its limits.

    Attributes:
        remote: whether exemplars leave the deployment.
        writes_together: whether it can answer by `token_ensemble`.
        writing_slots: greatest number of slots that may write an answer together.
        cache_tokens: number of tokens that its cache has room for.
        model_tokens: greatest number of tokens of a prompt and its answer.
    """

    name: str
    isolation: str
    is_llm: bool
    notice: str
    remote: bool = False
    writes_together: bool = False
    writing_slots: int = 0
    cache_tokens: int = 0
    model_tokens: int = 0

    @classmethod
    def of(cls, info: EngineInfo) -> EngineView:
        """An engine's own description."""
        return cls.model_validate(info, from_attributes=True)


def note_engine(database: sa.Engine, info: EngineInfo) -> None:
    """Note the engine that serves now, unless it is the one noted last."""
    seen = EngineView.of(info)
    if last_engine(database) != seen:
        with database.begin() as connection:
            connection.execute(sa.insert(engines).values(first_seen_at=datetime.now(UTC), **seen.model_dump()))


def engines_since(database: sa.Engine, moment: datetime) -> list[tuple[datetime, EngineView]]:
    """The engines that have served since a moment, oldest first, each with the time from which on it served."""
    seen = sa.select(engines.c.first_seen_at, *(engines.c[field] for field in EngineView.model_fields))
    with reading(database) as connection:
        rows = connection.execute(seen.order_by(engines.c.id)).all()
    before = sum(row.first_seen_at <= moment for row in rows)
    return [(row.first_seen_at, EngineView(**row._mapping)) for row in rows[max(0, before - 1) :]]


def last_engine(database: sa.Engine) -> EngineView | None:
    """The engine that serves, or served last; None if none ever did."""
    latest = sa.select(*(engines.c[field] for field in EngineView.model_fields)).order_by(engines.c.id.desc()).limit(1)
    with reading(database) as connection:
        row = connection.execute(latest).first()
    return None if row is None else EngineView(**row._mapping)
