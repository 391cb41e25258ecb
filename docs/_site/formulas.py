"""Powers and indices, which Markdown writes ``e^{x/2}`` and ``H_α``, raised and lowered."""

from __future__ import annotations

import re

_TERM = re.compile(
    r"`[^`]*`|\]\([^)]*\)|\^(?:\{([^}]+)\}|([A-Za-zα-ω]))|_\{([^}]+)\}|(?:(?<=[A-Z])|(?<=\b[a-z]))_([A-Za-zα-ω]+)"
)


def typeset(markdown: str) -> str:
    """A page's Markdown with its formulas as HTML; code and the targets of links stay as they are."""

    def term(match: re.Match[str]) -> str:
        powers, indices = match.groups()[:2], match.groups()[2:]
        for tag, found in (("sup", powers), ("sub", indices)):
            if any(found):
                return f"<{tag}>{''.join(filter(None, found))}</{tag}>"
        return match[0]

    return _TERM.sub(term, markdown)
