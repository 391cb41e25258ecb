"""Lists, page by page: the same three members everywhere, and the same two parameters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from fastapi import Depends, Query, Request
from pydantic import BaseModel, Field

from service.gateway.api.problems import Problem
from service.problem_kinds import ProblemKind

T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    """A page of a list. Follow `next` until it is null."""

    data: list[T]
    has_more: bool
    next: str | None = Field(examples=[None], description="Address of the next page, if there is one.")


@dataclass(frozen=True)
class Window:
    """Which page is wanted: a dependency of every endpoint that lists.

    Attributes:
        request: whose address the next page has, but for ``after``.
        after: the last entry of the page before, None for the first page.
        limit: how many entries a page has at most.
    """

    request: Request
    after: Annotated[
        str | None, Query(pattern=r"^[!-~]{1,200}$", description="Continue after this entry, as `next` does.")
    ] = None
    limit: Annotated[int, Query(ge=1, le=200, description="Entries on a page, at most.")] = 50

    def page(self, entries: Sequence[T], name: Callable[[T], str]) -> Page[T]:
        """The page, from its entries and one more if there is one.

        Args:
            entries: what was read behind ``after``: up to ``limit + 1`` entries.
            name: what ``after`` calls an entry.
        """
        data = list(entries[: self.limit])
        has_more = len(entries) > self.limit
        further = self.request.url.include_query_params(after=name(data[-1])) if has_more else None
        return Page(data=data, has_more=has_more, next=further and f"{further.path}?{further.query}")

    def cut(self, everything: Sequence[T], name: Callable[[T], str]) -> Page[T]:
        """The page, from a list that was read whole.

        Raises:
            Problem: 422, no entry is called ``after``.
        """
        start = 0
        if self.after is not None:
            names = [name(entry) for entry in everything]
            if self.after not in names:
                detail = f"{self.after!r} names no entry to continue after; omit `after` to begin"
                raise Problem(ProblemKind.UNKNOWN_CURSOR, detail)
            start = names.index(self.after) + 1
        return self.page(everything[start : start + self.limit + 1], name)


Paging = Annotated[Window, Depends()]
