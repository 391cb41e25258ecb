"""The page of modules: every room with one line for each of its modules, the first sentence of its docstring.

    python docs/_site/modules.py

It writes ``docs/modules.md``, which is committed, so that its links work in the repository; a test compares it.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "modules.md"
PACKAGES = ("service", "accounting", "aggregation", "exemplar_store", "sanitization", "spelling", "research")

_HEAD = """# Modules

For developers: one line for each module, in the words of its docstring.
[Architecture](architecture.md) draws how the rooms stand on each other.
`make reference` writes this page.
"""


def page() -> str:
    """The page in Markdown."""
    rooms = [
        folder for package in PACKAGES for folder in sorted({file.parent for file in (ROOT / package).rglob("*.py")})
    ]
    return _HEAD + "".join(map(_room, rooms))


def _room(folder: Path) -> str:
    lines = [f"- [`{file.stem}`](../{file.relative_to(ROOT)}): {_first_sentence(file)}\n" for file in _modules(folder)]
    about = _first_sentence(folder / "__init__.py") if (folder / "__init__.py").exists() else ""
    return f"\n## {folder.relative_to(ROOT)}\n\n{about}\n\n{''.join(lines)}" if lines else ""


def _modules(folder: Path) -> list[Path]:
    return [
        file for file in sorted(folder.glob("*.py")) if file.name != "__init__.py" and "migrations" not in file.parts
    ]


def _first_sentence(file: Path) -> str:
    paragraph = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
    sentence = " ".join(paragraph.split()).partition(". ")[0].rstrip(".:")
    return re.sub(r":\w+:(?=`)", "", sentence).replace("``", "`") + "."


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
