"""YAML 1.2 that holds what JSON can hold, of a bounded size.

A date, which JSON does not have, is refused unless it is quoted. Aliases may repeat a value, as far as all of it,
written out, stays within the bounds.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml as pyyaml
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from accounting.plans.written_numbers import advise

LONGEST = 1024 * 1024
"""Length of a text, and of all scalars in it, in characters, with aliases written out and one more for each value."""
DEEPEST = 64
LARGEST_NUMBER = 2**63 - 1
_MOST_PROBLEMS = 20
_OTHER_BREAKS = frozenset("\x85\u2028\u2029")
_NOT_YAML = (YAMLError, AssertionError)
"""Errors of the parser; the latter is for a version in ``%YAML`` that it does not know."""
_YAML = "tag:yaml.org,2002:"
_COLLECTIONS = (f"{_YAML}map", f"{_YAML}seq")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(_\d{3})+(\.\d*)?", re.ASCII)
_UNSURE = re.compile(r"[-+]?0[0-9_xob]|.*_", re.ASCII)
"""The beginning of a number that other readers of YAML take for another one, such as 010, which YAML 1.1 has as 8."""
_NUMBERS = (f"{_YAML}int", f"{_YAML}float")
_SCALARS = {
    f"{_YAML}str": "a text",
    f"{_YAML}null": "nothing",
    f"{_YAML}bool": "true or false",
    f"{_YAML}int": "a number",
    f"{_YAML}float": "a number",
}
"""Kinds of values that JSON has, in words, by tag."""


class YamlProblem(NamedTuple):
    """Something in a text that is not plain: its dotted key, what is wrong, and its line, counted from 1."""

    key: str
    message: str
    line: int | None


class NotPlainError(ValueError):
    """A text that is not YAML, or not plain.

    Attributes:
        problems: problems in the order of the text; the first ones of many.
    """

    def __init__(self, *problems: YamlProblem) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = problems


def load(text: str) -> Any:
    """Read a YAML document (JSON is YAML too) into mappings, lists, texts, numbers, truth values and None.

    Raises:
        NotPlainError: it cannot be.
    """
    if len(text) > LONGEST:
        raise NotPlainError(YamlProblem("", f"has {len(text):,} characters; at most {LONGEST:,} are read", None))
    yaml = _reader()
    try:
        node = yaml.compose(text)
        if (version := yaml.resolver.processing_version) != (1, 2):  # 1.1 has other numbers, and on is true
            advice = f"leave out %YAML {'.'.join(map(str, version))}"
            raise NotPlainError(YamlProblem("", f"is read as YAML 1.2: {advice}", None))
        if node is None:
            return None
        walk = _Walk(yaml)
        walk.see(node, ())
        if walk.problems:
            raise NotPlainError(*[*walk.problems.values()][:_MOST_PROBLEMS])
        return yaml.constructor.construct_document(node)
    except _NOT_YAML as error:
        said = (getattr(error, "context", None), getattr(error, "problem", None))
        what = ", ".join(filter(None, said)) or str(error)
        mark = getattr(error, "problem_mark", None)
        short = what.partition(" with value")[0]  # of a duplicate key: half-read
        raise NotPlainError(YamlProblem("", f"not valid YAML: {short}", mark and mark.line + 1)) from None
    except RecursionError:
        raise _too_deep() from None


def compose(text: str) -> Node | None:
    """The nodes of a document with their places, as far as it is YAML; unchecked."""
    try:
        return _reader().compose(text)
    except (*_NOT_YAML, RecursionError):
        return None


def dump(document: Mapping[str, Any], *, in_line: bool = False, width: int = 80) -> str:
    """Write a document that :func:`load` reads.

    Args:
        document: values that JSON can hold.
        in_line: whether a list or a mapping that holds no other is written on a line.
        width: width of a line, in characters; longer ones are folded.
    """
    flow = None if in_line else False
    written: str = pyyaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width, default_flow_style=flow
    )
    return written


def _reader() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.composer.warn_double_anchors = False  # they are allowed, and a warning would print the text
    return yaml


class _Dumper(pyyaml.SafeDumper):
    """Writes texts of several lines as such. PyYAML's, as ruamel.yaml's does not quote a carriage return, for one."""

    def represent_str(self, text: str) -> pyyaml.ScalarNode:
        lines = "|" if "\n" in text else None
        return self.represent_scalar(f"{_YAML}str", text, style=lines if _OTHER_BREAKS.isdisjoint(text) else '"')


_Dumper.add_representer(str, _Dumper.represent_str)
# Quoted where they are texts: what is a number in YAML 1.2 and not in 1.1, which PyYAML knows, such as 08.
_Dumper.add_implicit_resolver(f"{_YAML}float", re.compile(r"[-+.]?[0-9_.][-+0-9_.eEo]*$"), list("-+._0123456789"))


class _Walk:
    """A walk over a document with its aliases written out, as far as the bounds allow.

    Attributes:
        problems: problem of each node, by the node's identity.
    """

    def __init__(self, yaml: YAML) -> None:
        self.problems: dict[int, YamlProblem] = {}
        self._yaml = yaml
        self._left = LONGEST
        self._around: set[int] = set()

    def see(self, node: Node, path: tuple[str, ...]) -> None:
        """Note what is wrong with a node, or in it.

        Raises:
            NotPlainError: it exceeds a bound.
        """
        if len(path) >= DEEPEST:
            raise _too_deep()
        self._spend(1)
        if isinstance(node, ScalarNode):
            self._see_scalar(node, path)
            return
        if id(node) in self._around:
            raise NotPlainError(YamlProblem(".".join(path), "contains itself by an alias", node.start_mark.line + 1))
        self._around.add(id(node))
        if node.tag not in _COLLECTIONS:
            self._wrong(node, path, f"{_what(node)} is not a list or a mapping that JSON has; leave the tag out")
        if isinstance(node, MappingNode):
            before: tuple[Node, Node] | None = None
            for key, value in node.value:
                if not (node.flow_style and before and self._see_comma(before, key, value, path)):
                    self._see_key(key, path)
                    self.see(value, (*path, str(key.value)[:100]))
                before = key, value
        else:
            for place, member in enumerate(node.value):
                self.see(member, (*path, str(place)))
        self._around.remove(id(node))

    def _see_comma(self, before: tuple[Node, Node], key: Node, value: Node, path: tuple[str, ...]) -> bool:
        """Note a decimal comma, as in ``{epsilon: 2,5}``, which is a number and a key without a value."""
        name, number = before
        digits = isinstance(key, ScalarNode) and key.tag in _NUMBERS
        alone = isinstance(value, ScalarNode) and value.value == "" and value.tag == f"{_YAML}null"
        if not (digits and alone and isinstance(number, ScalarNode) and number.tag in _NUMBERS):
            return False
        self._spend(2)
        self._wrong(key, (*path, str(name.value)[:100]), advise(f"{number.value},{key.value}"[:60]))
        return True

    def _see_key(self, node: Node, path: tuple[str, ...]) -> None:
        if not isinstance(node, ScalarNode):
            self._wrong(node, path, "a key is a text, and not a list or a mapping")
            return
        self._spend(1 + len(node.value))
        if node.tag != f"{_YAML}str":
            self._wrong(node, (*path, node.value[:100]), f"this key is {_what(node)} in YAML: quote it")

    def _see_scalar(self, node: ScalarNode, path: tuple[str, ...]) -> None:
        self._spend(len(node.value))
        written = node.value if len(node.value) <= 40 else f"{node.value[:40]}…"
        if node.tag not in _SCALARS:
            self._wrong(node, path, f"{written} is {_what(node)} in YAML, which JSON does not have: quote it")
            return
        try:
            value = self._yaml.constructor.construct_object(node)
        except (ValueError, LookupError):
            self._wrong(node, path, f"{written} is not {_what(node)}")
            return
        if node.tag in _NUMBERS and _UNSURE.match(node.value) and not _THOUSANDS.fullmatch(node.value):
            self._wrong(node, path, f"{advise(node.value)}; quote it if it is a text")
        elif isinstance(value, float) and not math.isfinite(value):
            self._wrong(node, path, f"{written} is not a finite number; quote it if it is a text")
        elif isinstance(value, int) and abs(value) > LARGEST_NUMBER:
            self._wrong(node, path, f"{written} is beyond {LARGEST_NUMBER:,}; quote it if it is a text")

    def _spend(self, amount: int) -> None:
        self._left -= amount
        if self._left < 0:
            long = f"is longer than {LONGEST:,} characters with its aliases written out"
            raise NotPlainError(YamlProblem("", long, None))

    def _wrong(self, node: Node, path: tuple[str, ...], message: str) -> None:
        self.problems.setdefault(id(node), YamlProblem(".".join(path), message, node.start_mark.line + 1))


def _too_deep() -> NotPlainError:
    return NotPlainError(YamlProblem("", f"is nested more than {DEEPEST} levels deep", None))


def _what(node: Node) -> str:
    tag = str(node.tag)[:60]
    short = f"!!{tag.removeprefix(_YAML)}" if tag.startswith(_YAML) else tag
    return "a date" if short == "!!timestamp" else _SCALARS.get(tag, f"of the type {short}")
