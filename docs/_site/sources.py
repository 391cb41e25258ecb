"""Pages for the source files and folders that the documentation links to, so that the site needs no other place."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_LINK = re.compile(r"\]\(([^)\s#:]+)((?:#[^)\s]*)?)\)")
_FENCE = "~" * 12
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".sh": "bash"}


def pages(root: Path, texts: Mapping[str, str]) -> dict[str, str]:
    """A page for each file or folder outside ``docs/`` that one of the pages links to.

    Args:
        root: the repository.
        texts: the pages' Markdown, by their path in ``docs/``.
    """
    linked = {
        path
        for uri, text in texts.items()
        for target, _ in _LINK.findall(text)
        if (path := _outside(root, uri, target))
    }
    linked |= {file for folder in linked if (root / folder).is_dir() for file in _files(root, folder)}
    return {_uri(root, path): _page(root, path) for path in sorted(linked)}


def relinked(root: Path, uri: str, markdown: str) -> str:
    """A page's Markdown with its links to such files leading to their pages."""

    def relink(match: re.Match[str]) -> str:
        path = _outside(root, uri, match[1])
        if path is None:
            return match[0]
        return f"]({os.path.relpath(_uri(root, path), os.path.dirname(uri) or '.')}{match[2]})"

    return _LINK.sub(relink, markdown)


def _outside(root: Path, uri: str, target: str) -> str | None:
    """The path from ``root`` of an existing link target outside ``docs/``; None if the target is another."""
    path = os.path.normpath(os.path.join("docs", os.path.dirname(uri), target))
    return None if path.startswith(("docs", "..")) or not (root / path).exists() else path


def _files(root: Path, folder: str) -> list[str]:
    return [str(file.relative_to(root)) for file in sorted((root / folder).iterdir()) if file.suffix in _LANGUAGES]


def _uri(root: Path, path: str) -> str:
    return f"source/{path}/index.md" if (root / path).is_dir() else f"source/{path}.md"


def _page(root: Path, path: str) -> str:
    head = f"---\nsearch: {{exclude: true}}\nhide: [navigation, toc]\n---\n\n# {path}\n\n"
    if (root / path).is_dir():
        return head + "\n".join(f"- [{file}]({os.path.basename(file)}.md)" for file in _files(root, path))
    language = _LANGUAGES.get(Path(path).suffix, "text")
    return f'{head}{_FENCE}{{.{language} linenums="1"}}\n{(root / path).read_text()}\n{_FENCE}\n'
