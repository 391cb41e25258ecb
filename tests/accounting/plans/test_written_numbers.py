"""Numbers as people write them: what can mean two things is refused, with the ways to write it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.plans.plan import PlanError, load_plan
from accounting.plans.written_numbers import number_in, read_as, read_number


@pytest.mark.parametrize(
    ("written", "number"), [("0.5", 0.5), (" 8 ", 8), ("1e-4", 1e-4), (".5", 0.5), ("5.", 5), ("+2", 2), ("-1", -1)]
)
def test_digits_with_a_decimal_point_are_read(written: str, number: float) -> None:
    assert read_number(written) == number


@pytest.mark.parametrize(
    ("written", "ways"),
    [
        ("0,5", "write 0.5"),
        ("0,0001", "write 0.0001"),
        ("1,000", "write 1000 or 1.000, whichever you mean"),
        ("1.000,5", "write 1000.5"),
        ("1,000.5", "write 1000.5"),
        ("1.000.000", "write 1000000"),
        ("1_000", "write 1000"),
        ("1 000", "write 1000"),
        ("1’000", "write 1000"),
        ("1·10⁻⁴", "write 1e-4"),
        ("10^-5", "write 1e-5"),
        ("1,5e-4", "write 0.00015"),
        ("5 %", "write 0.05"),
        ("2‰", "write 0.002"),
        ("０．５", "write 0.5"),
        ("٠٫٥", "write 0.5"),
        ("−1", "write -1"),
        ("-0", "write 0"),
        ("∞", "such as 0.5"),
        ("nan", "such as 0.5"),
        ("inf", "such as 0.5"),
        ("1e400", "such as 0.5"),
        ("0x10", "such as 0.5"),
        ("1/2", "such as 0.5"),
        ("0.5;", "such as 0.5"),
        ("", "such as 0.5"),
        ("9" * 5000, "such as 0.5"),
    ],
)
def test_other_spellings_are_refused_with_the_right_one(written: str, ways: str) -> None:
    with pytest.raises(ValueError, match="is not a number") as refused:
        read_number(written)
    assert ways in str(refused.value)


@pytest.mark.parametrize(
    ("written", "way"),
    [("1.000", "write 1000"), ("1,000", "write 1000"), ("1e3", "write 1000"), ("5.0", "write 5"), ("0,5", "such as")],
)
def test_a_whole_number_has_digits_alone(written: str, way: str) -> None:
    with pytest.raises(ValueError, match=way):
        read_number(written, whole=True)
    assert read_number("600", whole=True) == 600


@given(st.text(max_size=20) | st.from_regex(r"[-+]?[0-9.,_ '%eE]{1,12}", fullmatch=True), st.booleans())
def test_what_is_read_is_what_python_reads_and_what_is_advised_is_read(text: str, whole: bool) -> None:
    try:
        number = read_number(text, whole=whole)
    except ValueError as refused:
        for way in str(refused).rpartition(": write ")[2].removesuffix(", whichever you mean").split(" or "):
            if "write" in str(refused):
                read_number(way, whole=whole)
    else:
        assert number == float(text)
        assert math.isfinite(number)
        assert not set(text.strip()) - set("0123456789+-.eE")


def test_fields_take_the_numbers_of_their_annotations() -> None:
    kinds = [number_in(one) for one in (int, float | None, list[float], str, int | str, bool)]
    assert kinds == [int, float, float, None, None, None]
    assert read_as(float | None, "0.5") == 0.5
    assert read_as(str, "0,5") == "0,5"
    assert read_as(int, None) is None


@pytest.mark.parametrize(
    ("budget", "key", "way"),
    [
        ("{epsilon: 2,5, delta: 1e-4}", "budget.epsilon", "2.5"),
        ("{epsilon: 2, delta: 1,5e-4}", "budget.delta", "0.00015"),
        ("{epsilon: '2,5', delta: 1e-4}", "budget.epsilon", "2.5"),
        ("{epsilon: 1_0, delta: 1e-4}", "budget.epsilon", "10"),
        ("\n  epsilon: 2,5\n  delta: 1e-4", "budget.epsilon", "2.5"),
    ],
)
def test_a_plan_with_a_decimal_comma_is_refused_with_the_number(budget: str, key: str, way: str) -> None:
    with pytest.raises(PlanError) as refused:
        load_plan(f"knowledge_base: t\nbudget: {budget}\ntasks: {{}}\n")
    problem = refused.value.problems[0]
    assert problem.key == key
    assert f"write {way}" in problem.message
