"""What a caller may do beside a change to the store."""

from collections.abc import Callable

import sqlalchemy as sa

Progress = Callable[[int, int], None]
"""Called with the number done so far, and of all."""
BeforeCommit = Callable[[sa.Connection], None]
"""Something else to do last in the transaction of a change, so both are committed or neither."""


def do_nothing(*_: object) -> None:
    """The default."""
