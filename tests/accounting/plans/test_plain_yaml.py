"""YAML that means the same to every reader, and keeps to the limits of size and depth."""

import json
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accounting.plans import plain_yaml
from accounting.plans.plain_yaml import DEEPEST, LARGEST_NUMBER, LONGEST, NotPlainError, dump, load


def test_what_json_has_is_read_as_json_reads_it() -> None:
    document = {"a": [1, -2.5, 1e-4, True, False, None, "yes", "2020-01-01", ""], "b": {"c": {}}, "é": "\u2028x"}
    assert load(json.dumps(document)) == document
    assert load("{a: 1e-4, b: 10_000, c: [on call, 2020-01-01T, 1.2.3], d: '2020-01-01', e: !!str 12}") == {
        "a": 1e-4,
        "b": 10_000,
        "c": ["on call", "2020-01-01T", "1.2.3"],
        "d": "2020-01-01",
        "e": "12",
    }
    assert load("no: [yes, Off, y, 12:30, '1:30.5', '010']") == {"no": ["yes", "Off", "y", "12:30", "1:30.5", "010"]}
    assert load("%YAML 1.2\n---\na: 0.5") == {"a": 0.5}
    assert load("a: &a {x: 1}\nb: *a\nc: [*a, *a]") == {"a": {"x": 1}, "b": {"x": 1}, "c": [{"x": 1}, {"x": 1}]}
    assert load("") is None


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("2020-01-01", "2020-01-01 is a date"),
        ("2020-01-01 10:00:00", "is a date"),
        ("2020-13-45", "is a date"),
        (".nan", "finite"),
        ("-.inf", "finite"),
        ("1e999", "finite"),
        (str(2**63), "9,223,372,036,854,775,807"),
        ("9" * 5000, "is not a number"),
        ("=", "quote it"),
        ("010", "write 10; quote it if it is a text"),
        ("-007", "write -7"),
        ("0o17", "such as 0.5"),
        ("0x1F", "such as 0.5"),
        ("0b11", "such as 0.5"),
        ("!!binary aGk=", "!!binary"),
        ("!!set {x, y}", "!!set"),
        ("!!omap [x: 1]", "!!omap"),
        ("!mine x", "!mine"),
        ("!!python/object/apply:os.system [ls]", "python/object"),
        ("!!int many", "many is not"),
        ("!!bool maybe", "maybe is not"),
    ],
)
def test_what_json_does_not_have_is_refused_by_its_key(written: str, says: str) -> None:
    for text, key, line in (
        (f"a:\n- x\n- b: {written}\n", "a.1.b", 3),
        (f"a: &a {written}\nc: *a\n", "a", 1),
    ):
        with pytest.raises(NotPlainError) as refused:
            load(text)
        (problem,) = refused.value.problems
        assert (problem.key, problem.line) == (key, line)
        assert says in problem.message


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("a: {true: 1}", "a.true", "true or false"),
        ("a: {1: x}", "a.1", "a number"),
        ("a: {null: x}", "a.null", "nothing"),
        ("a: {2020-01-01: x}", "a.2020-01-01", "a date"),
        ("? [a, b]\n: c", "", "a text"),
        ("b: &b {x: 1}\na: {<<: *b}", "a.<<", "!!merge"),
        ("a: &a [*a]", "a.0", "itself"),
        ("a: &a {b: {c: *a}, d: *a}", "a.b.c", "itself"),
        ("a: 1\na: 2", "", 'duplicate key "a"'),
        ("a: [", "", "not valid YAML"),
        ("%YAML 1.29\n---\na: 1", "", "not valid YAML"),
        ("%YAML 1.1\n---\na: 1:30", "", "leave out %YAML 1.1"),
        ("a: 1\n---\nb: 2", "", "not valid YAML"),
        ("[" * 1200, "", "nested"),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "", "nested"),
        ("x" * (LONGEST + 1), "", "1,048,576"),
    ],
)
def test_what_other_readers_would_not_read_is_refused(text: str, key: str, says: str) -> None:
    with pytest.raises(NotPlainError) as refused:
        load(text)
    problem = refused.value.problems[0]
    assert says in problem.message
    assert key in ("", problem.key)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(NotPlainError) as refused:
        load("labels: [2020-01-01, .nan, maybe]\ndue: 2020-01-01")
    assert [problem.key for problem in refused.value.problems] == ["labels.0", "labels.1", "due"]


@pytest.mark.slow
@pytest.mark.parametrize("inner", ["[{}]", "{{x: [{}]}}"])
def test_aliases_of_aliases_are_measured_and_not_written_out(inner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten levels of ten aliases would take 10 GB when written out."""
    lines = ["a0: &a0 0123456789"]
    lines += [f"a{n}: &a{n} {inner.format(', '.join([f'*a{n - 1}'] * 10))}" for n in range(1, 10)]
    monkeypatch.setattr(plain_yaml, "LONGEST", LONGEST // 16)  # which takes as many seconds
    tracemalloc.start()
    try:
        with pytest.raises(NotPlainError, match="longer than"):
            load("\n".join(lines))
        assert tracemalloc.get_traced_memory()[1] < 20 * plain_yaml.LONGEST
    finally:
        tracemalloc.stop()


def test_a_chain_of_aliases_is_as_deep_as_it_is_written_out() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, DEEPEST)]
    with pytest.raises(NotPlainError):
        load("\n".join(lines))


NUMBERS = st.integers(-LARGEST_NUMBER, LARGEST_NUMBER) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")) | st.from_regex(
    r"[0-9_.:eox+-]{1,8}|[|>&*!%@`?~=<-]\S?|true|No|null|2020-01-0[1-9]", fullmatch=True
)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)
)


@pytest.mark.slow
@settings(max_examples=30)
@example({"labels": ["08", "0o7", "1e5", "<<", "="], "text": "one\n\n two \n"}, True)
@example({"text": "one\n\u2028two"}, False)
@given(st.dictionaries(TEXTS, DOCUMENTS), st.booleans())
def test_what_is_written_is_read_as_it_was(document: dict[str, object], in_line: bool) -> None:
    assert load(dump(document, in_line=in_line)) == document


def test_texts_of_several_lines_are_written_as_such() -> None:
    assert dump({"b": "one\ntwo\n", "a": {"c": [1, 2]}}) == "b: |\n  one\n  two\na:\n  c:\n  - 1\n  - 2\n"
    assert dump({"a": {"c": [1, 2]}}, in_line=True) == "a:\n  c: [1, 2]\n"
