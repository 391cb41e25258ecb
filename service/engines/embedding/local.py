"""A sanitiser of this process, on the built-in words; no server, nothing stored but what can be computed again."""

from collections.abc import Iterable
from pathlib import Path

from sanitization.text import TextSanitizer, open_sanitizer
from service.engines.embedding.words import cache_folder, embedder_here, local_words

KEEP = ("stopwords", "punctuation", "placeholders")


def local_sanitizer(
    epsilon: float = 8.0,
    mechanism: str = "medoid_rr",
    *,
    keep: Iterable[str] = KEEP,
    words: int = 3000,
    cache: Path | None = None,
) -> TextSanitizer:
    """A sanitiser whose audited ε for a word is at most ``epsilon``.

    Args:
        epsilon: 0.001 to 25.
        mechanism: see ``dpicl sanitize audit``.
        keep: text that is public and stays as it is.
        words: number of words that it knows. More than 3,000 are embedded the first time.
        cache: folder that keeps embeddings and tables; ``~/.cache/dpicl`` without it.

    Raises:
        ValueError: ε is not attainable, or something cannot be kept.
        LookupError: no such mechanism.
    """
    folder = cache or cache_folder()
    known = local_words(words, folder)
    return open_sanitizer(mechanism, known, epsilon, folder, keep=keep, embed=embedder_here())
