"""YAML that holds what JSON can hold, and means the same to every reader; of a bounded size.

YAML 1.1 reads ``yes`` as true, ``2020-01-01`` as a date and ``12:30`` as 750, which people who write labels and schemas
do not expect, and newer readers do not. So such scalars are refused unless they are quoted. Aliases may repeat a value,
as far as all of it together stays within the bound, and may not lead back into it.
"""

import math
import re
from typing import Any, NamedTuple

import yaml

LONGEST = 1024 * 1024
"""Of a text, and of all scalars in it, in characters, with aliases written out and one more for each value."""
DEEPEST = 64
LARGEST_NUMBER = 2**63 - 1
_MOST_PROBLEMS = 20
_YAML = "tag:yaml.org,2002:"
_COLLECTIONS, _SCALARS = {f"{_YAML}map", f"{_YAML}seq"}, {f"{_YAML}str", f"{_YAML}null", f"{_YAML}bool"}
_OTHER_THAN_IT_SEEMS = re.compile(r"[-+]?(0[0-9_]+|.*:.*)")
"""Of a number: octal, or to the base of 60."""


class Problem(NamedTuple):
    """Something in a text that is not plain: its dotted key, what is wrong, and its line, counted from 1."""

    key: str
    message: str
    line: int | None


class NotPlainError(ValueError):
    """A text that is not YAML, or not plain.

    Attributes:
        problems: what is wrong, in the order of the text; the first ones of many.
    """

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = problems


def load(text: str) -> Any:
    """Read a YAML document (JSON is YAML too) into mappings, lists, texts, numbers, truth values and None.

    Raises:
        NotPlainError: it cannot be.
    """
    if len(text) > LONGEST:
        raise NotPlainError(Problem("", f"has {len(text):,} characters; at most {LONGEST:,} are read", None))
    loader = _UniqueKeyLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        seen = _Seen(loader)
        seen.measure(node, ())
        if seen.problems:
            raise NotPlainError(*seen.problems[:_MOST_PROBLEMS])
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise NotPlainError(Problem("", f"not valid YAML: {error}", mark and mark.line + 1)) from None
    except RecursionError:
        raise NotPlainError(Problem("", f"is nested more than {DEEPEST} levels deep", None)) from None
    finally:
        loader.dispose()


class _Size(NamedTuple):
    """Of a node with its aliases written out: characters and values together, and levels."""

    amount: int
    levels: int


class _Seen:
    """The nodes of a document that were looked at, each once, however often aliases repeat it."""

    def __init__(self, loader: "_UniqueKeyLoader") -> None:
        self.problems: list[Problem] = []
        self._loader = loader
        self._sizes: dict[int, _Size] = {}
        self._open: set[int] = set()

    def measure(self, node: yaml.Node, path: tuple[str, ...]) -> _Size:
        """The size of a node, noting what is wrong with it."""
        if id(node) in self._open:
            self._wrong(node, path, "contains itself by an alias")
            return _Size(1, 1)
        if (known := self._sizes.get(id(node))) is None:
            self._open.add(id(node))
            before = len(self.problems)
            known = self._measured(node, path)
            self._open.remove(id(node))
            self._sizes[id(node)] = known
            inside_is_wrong = len(self.problems) > before
        else:
            inside_is_wrong = known.amount > LONGEST  # said already
        if known.amount > LONGEST and not inside_is_wrong:
            self._wrong(node, path, f"is longer than {LONGEST:,} characters with its aliases written out")
        if len(path) + known.levels > DEEPEST and not self.problems:
            self._wrong(node, path, f"is nested more than {DEEPEST} levels deep")
        return known

    def _measured(self, node: yaml.Node, path: tuple[str, ...]) -> _Size:
        if isinstance(node, yaml.ScalarNode):
            self._check_scalar(node, path)
            return _Size(1 + len(node.value), 1)
        if node.tag not in _COLLECTIONS:
            self._wrong(node, path, f"{_short(node.tag)} is not a list or a mapping that JSON has; leave the tag out")
        if isinstance(node, yaml.SequenceNode):
            inner = [self.measure(member, (*path, str(place))) for place, member in enumerate(node.value)]
        else:
            inner = [one for key, value in node.value for one in self._pair(key, value, path)]
        return _Size(1 + sum(one.amount for one in inner), 1 + max((one.levels for one in inner), default=0))

    def _pair(self, key: yaml.Node, value: yaml.Node, path: tuple[str, ...]) -> tuple[_Size, _Size]:
        if not isinstance(key, yaml.ScalarNode):
            self._wrong(key, path, "a key is a text, and not a list or a mapping")
            return self.measure(key, path), self.measure(value, path)
        inside = (*path, key.value[:100])
        if key.tag == f"{_YAML}merge":
            self._wrong(key, inside, "merges a mapping, which some readers do not know: write its keys out")
        elif key.tag != f"{_YAML}str":
            self._wrong(key, inside, f"this key is {_what(key.tag)} in YAML: quote it")
        return _Size(1 + len(key.value), 1), self.measure(value, inside)

    def _check_scalar(self, node: yaml.ScalarNode, path: tuple[str, ...]) -> None:
        written = node.value if len(node.value) <= 40 else f"{node.value[:40]}…"
        if node.tag in (f"{_YAML}int", f"{_YAML}float"):
            try:
                number = self._loader.construct_object(node)
            except (ValueError, OverflowError):
                self._wrong(node, path, f"{written} is not a number")
                return
            if not math.isfinite(number):
                self._wrong(node, path, f"{written} is not a finite number; quote it if it is a text")
            elif abs(number) > LARGEST_NUMBER and isinstance(number, int):
                self._wrong(node, path, f"{written} is beyond {LARGEST_NUMBER:,}; quote it if it is a text")
            elif _OTHER_THAN_IT_SEEMS.fullmatch(node.value):
                self._wrong(node, path, f"{written} is {number:g} in YAML: quote it if it is a text")
        elif node.tag == f"{_YAML}bool" and node.value.lower() not in ("true", "false"):
            value = "true" if self._loader.construct_object(node) else "false"
            self._wrong(node, path, f"{written} is {value} in YAML: quote it if it is a text, or write {value}")
        elif node.tag not in _SCALARS:
            self._wrong(node, path, f"{written} is {_what(node.tag)} in YAML, which JSON does not have: quote it")

    def _wrong(self, node: yaml.Node, path: tuple[str, ...], message: str) -> None:
        self.problems.append(Problem(".".join(path), message, node.start_mark.line + 1))


_NAMED = {"timestamp": "a date", "int": "a number", "float": "a number", "null": "nothing", "binary": "binary"}


def _what(tag: str) -> str:
    short = _short(tag)
    return "true or false" if short == "!!bool" else _NAMED.get(short.removeprefix("!!"), f"of the type {short}")


def _short(tag: str) -> str:
    return f"!!{tag.removeprefix(_YAML)}" if tag.startswith(_YAML) else tag


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML's safe loader, refusing repeated keys, of which YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"repeated key {key!r}", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


# YAML 1.1 reads 1e-4 as a string, which nobody writing a delta expects.
_UniqueKeyLoader.add_implicit_resolver(
    f"{_YAML}float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)
