"""The work that an action causes in a database, in the database's own terms."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa


@contextmanager
def listening(engine: sa.Engine, event: str, listener: Callable[..., None]) -> Iterator[None]:
    sa.event.listen(engine, event, listener)
    try:
        yield
    finally:
        sa.event.remove(engine, event, listener)


def sqlite_steps(engine: sa.Engine, action: Callable[[], Any]) -> int:
    """The number of virtual-machine instructions that SQLite executes for an action."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    def checkout(connection, record, proxy) -> None:
        connection.set_progress_handler(step, 1)

    def checkin(connection, record) -> None:
        connection.set_progress_handler(None, 1)

    with listening(engine, "checkout", checkout), listening(engine, "checkin", checkin):
        action()
    return steps


def postgresql_rows(engine: sa.Engine, action: Callable[[], Any], selected: str = "SELECT") -> int:
    """The number of rows that the executor reports as touched, over all statements that contain ``selected``."""
    statements = []

    def remember(connection, cursor, statement, parameters, context, many) -> None:
        statements.append((statement, parameters))

    with listening(engine, "before_cursor_execute", remember):
        action()
    total = 0
    with engine.begin() as connection:
        for statement, parameters in statements:
            if selected not in statement:
                continue
            explained = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar()
            plans = [(json.loads(explained) if isinstance(explained, str) else explained)[0]["Plan"]]
            while plans:
                node = plans.pop()
                plans += node.get("Plans", [])
                removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Join Filter", 0)
                total += node["Actual Loops"] * (node["Actual Rows"] + removed)
    return total
