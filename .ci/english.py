"""Check the English that people read: docstrings, comments, names, errors, help of commands, and documentation pages.

    python .ci/english.py [PATH ...]

Prints one line per finding, and exits with 1 if there are any. Paths that are not below :data:`PATHS` are skipped.
A description of an argument, attribute or error begins with a noun phrase, not with a pronoun or a preposition. Some
phrases are refused wherever they stand.
"""

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

PATHS = [
    *("accounting", "aggregation", "exemplar_store", "sanitization", "service", "spelling", "research"),
    *("tests", "chaos", "benchmarks"),
    *("deploy", "docs", "docs_src", "examples", ".ci", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"),
    *("pyproject.toml", "Makefile", ".github"),
]

NO_NOUN = frozenset(
    "as by for how in its of on that to what where which who whom whose with".split()  # noqa: SIM905
)
"""First words of descriptions that point at a thing instead of naming it."""

PHRASES = {
    r"(?<!there )(?<!here )\b(is|are) no (?!longer|more\b)": "write 'is not a', or 'has no'",
    r"(?<!there )\b(is|are) (?-i:none)\b": "write 'is not a', or 'there is none'",
    r"\b(nobody|somebody|anybody|everybody|whoever|whatever asks)\b": "name the actor: caller, admin, operator, unit",
    r"\bfor ever\b": "write 'forever', 'permanently', or leave it out",
    r"\bany more\b(?! than)": "write 'no longer'",
    r"\bnot to be had\b": "write 'not available'",
    r"\bso (many|long)\b(?! as)": "name the number or the time",
    r"\b(tells?|told|says?|said)\b": "programs report, return, show, name or raise",
    r"\bmade once\b": "write 'one-time release'",
}
"""Regular expressions of what is refused, and what to write instead."""

TEXTS = ("help", "description", "short_help", "epilog", "comment")
"""Names of arguments that hold prose."""

SECTION = re.compile(r"(Args|Attributes|Returns|Raises|Yields):")
ENTRY = re.compile(r"    (?P<name>\*{0,2}[\w.]+): (?P<text>.+)")
POINTER = re.compile(r"See :\w+:`[^`]+`\.?")
CODE = re.compile(r"``[^`]*``|`[^`]*`|:\w+:`[^`]*`|\"[^\"]*\"|(?<!\*)\*[^*\n]+\*(?!\*)|^ {4,}\w+:(?= )", re.M)


def main() -> int:
    """Print what is found in the paths of the command line, or in all of them."""
    read = [file for path in PATHS for file in files(Path(path))]
    if paths := sys.argv[1:]:
        chosen = {file for path in paths for file in files(Path(path))}
        read = [file for file in read if file in chosen]
    found = [line for file in read for line in findings(file)]
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


def files(path: Path) -> Iterator[Path]:
    """Python modules, pages in Markdown and files with comments at a path, in order."""
    suffixes = (".py", ".md", ".yaml", ".yml", ".Dockerfile", ".sh")
    yield from [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in suffixes)


def findings(file: Path) -> Iterator[str]:
    """One line per finding in a file."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        for line, prose in sorted([*prose_of(ast.parse(text)), *comments(text)]):
            yield from (f"{file}:{line + at}: {what}" for at, what in [*refused(prose), *nounless(prose)])
        return
    if file.suffix == ".md":
        text = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S)
    else:
        text = re.sub(r"^[^#\n]*", "", text, flags=re.M)  # all but comments
    yield from (f"{file}:{at}: {what}" for at, what in refused(text, 1))


def prose_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Docstrings, names, strings below constants, errors, and values of ``help=`` and the like, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.lineno, node.value.value
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, re.sub(r"_|(?<=[a-z])(?=[A-Z])", " ", node.name)
        if isinstance(node, ast.Raise) or (isinstance(node, ast.keyword) and node.arg in TEXTS):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def comments(code: str) -> Iterator[tuple[int, str]]:
    """Comments, each with its line."""
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def refused(prose: str, first: int = 0) -> Iterator[tuple[int, str]]:
    """Phrases that are refused, each with its line; what is code or quoted is not looked at."""
    flat = CODE.sub(lambda code: re.sub(r"[^\n]", "_", code[0]), prose)
    for phrase, advice in PHRASES.items():
        for match in re.finditer(phrase, flat, flags=re.I):
            yield first + flat.count("\n", 0, match.start()), f"'{match[0].strip()}': {advice}"


def nounless(docstring: str) -> Iterator[tuple[int, str]]:
    """Descriptions that begin without a noun, and docstrings that only point elsewhere, each with its line."""
    if POINTER.fullmatch(docstring.strip()):
        yield 0, "a docstring that only points elsewhere: leave it out, and mark the method with @override"
    section = False
    for at, line in enumerate(inspect.cleandoc(docstring).splitlines()):
        section = bool(SECTION.fullmatch(line.strip())) or (section and (not line or line.startswith(" ")))
        entry = ENTRY.match(line) if section else None
        if entry and entry["text"].split()[0].strip(",.;:").lower() in NO_NOUN:
            yield at, f"'{entry['name']}: {entry['text']}': begin with a noun"


if __name__ == "__main__":
    sys.exit(main())
