"""The base of all kinds of audit event."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from accounting.ledger.events.replayed import Replayed

Names = Callable[[str], str]
"""A function from the actor in the trail (a key's id, a person, a name of the command line, or nothing) to its name."""


KINDS: dict[str, type[Particulars]] = {}
"""Every kind by its name in the trail."""


class Particulars(BaseModel, ABC):
    """The particulars of one kind of event: public quantities only.

    Attributes:
        kind: name of the kind in the trail, at most 40 characters.
        title: the kind in words.
        lost: sentence for an admin on a restore that lost such an event, with its particulars in braces; None where
            it means nothing, or the charges show it.
        binds: whether it promised or spent something, or brought units. A knowledge base that has such events in two
            histories ends (:mod:`accounting.ledger.restoring`).
    """

    model_config = ConfigDict(frozen=True, strict=True)

    kind: ClassVar[str]
    title: ClassVar[str]
    says: ClassVar[str]
    lost: ClassVar[str | None] = None
    binds: ClassVar[bool] = True

    def __init_subclass__(cls, kind: str, words: str, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.kind, cls.title = kind, words
        KINDS[kind] = cls

    def sentence(self, named: Names) -> str:
        """A sentence of what happened: :attr:`says`, unless the kind has a longer one."""
        actors = {field: named(value) for field, value in self if field in ("by", "key")}
        return self.says.format(**{**dict(self), **actors})

    @abstractmethod
    def replay(self, past: Replayed) -> Iterable[str]:
        """Take the event into account.

        Args:
            past: events before this one, to which it is added.

        Yields:
            Problems with it, in words.
        """

    def if_lost(self) -> str | None:
        """The sentence for an admin on a restore that lost this event: :attr:`lost` with its particulars."""
        return self.lost and self.lost.format(**dict(self))


def read(kind: str, body: str) -> Particulars | None:
    """An event's particulars, or None for a kind that only a newer version knows.

    Args:
        kind: name of the kind in the trail.
        body: body of the event, from :func:`accounting.ledger.trail.canonical`.

    Raises:
        ValueError: the body does not fit this kind.
    """
    known = KINDS.get(kind)
    if known is None:
        return None
    try:
        return known.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def plural(count: int, one: str) -> str:
    """A number of things, in words."""
    return f"{count:,} {one if count == 1 else one + 's'}"


def spaced(reason: str) -> str:
    """A reason, in words."""
    return reason.replace("-", " ")
