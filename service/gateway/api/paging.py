"""Lists, page by page: the same three members in all responses, and the same two parameters in all requests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from fastapi import Depends, Query, Request
from pydantic import BaseModel, Field

from service.gateway.api.problems import Problem
from service.operations.fields import WrittenWhole
from service.problem_kinds import ProblemKind

T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    """A page of a list. Follow `next` until it is null."""

    data: list[T]
    has_more: bool
    next: str | None = Field(examples=[None], description="Address of the next page, if there is one.")


@dataclass(frozen=True)
class Window:
    """The requested part of a list: a dependency of every endpoint that lists.

    Attributes:
        request: request, whose address the next page has except for ``after``.
        after: name of the last entry of the page before; None: the first page is requested.
        limit: largest number of entries on a page.
    """

    request: Request
    after: Annotated[
        str | None, Query(pattern=r"^[!-~]{1,200}$", description="Continue after this entry, as `next` does.")
    ] = None
    limit: Annotated[WrittenWhole, Query(ge=1, le=200, description="Entries on a page, at most.")] = 50

    def page(self, entries: Sequence[T], name: Callable[[T], str]) -> Page[T]:
        """The page, made from its entries and the next one if there is one.

        Args:
            entries: entries behind ``after``, up to ``limit + 1`` of them.
            name: function that returns the name of an entry for ``after``.
        """
        data = list(entries[: self.limit])
        has_more = len(entries) > self.limit
        further = self.request.url.include_query_params(after=name(data[-1])) if has_more else None
        return Page(data=data, has_more=has_more, next=further and f"{further.path}?{further.query}")

    def cut(self, everything: Sequence[T], name: Callable[[T], str]) -> Page[T]:
        """The page, made from the whole list.

        Raises:
            Problem: 422, no entry has the name ``after``.
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
