"""The comparison of the numbers in the text with the numbers that cells print."""

import pytest

from caracal_book.rules.printed_values import parse_line, printed_values
from caracal_book.rules.prose_numbers import check_notebook


@pytest.mark.parametrize("line, name, number, percent, unit", [
    ("smallest safe N = 2047", "smallest safe N", "2047", False, ""),
    ("leak in float32 = 3.1e-06", "leak in float32", "3.1e-06", False, ""),
    ("direct sum, 4096 tokens = 9.31 ms", "direct sum, 4096 tokens", "9.31", False, "ms"),
    ("tokens seen = 1,024,000", "tokens seen", "1,024,000", False, ""),
    ("accuracy (greedy) = 12.5 % correct", "accuracy (greedy)", "12.5", True, "correct"),
])
def test_a_line_with_a_value_is_read(line, name, number, percent, unit):
    value = parse_line(line)
    assert (value.name, value.number, value.percent, value.unit) == (name, number, percent, unit)


@pytest.mark.parametrize("line", [
    "x == 3", "name = word", "loss = nan", "a = 1 = 2", "loss = 1.5 and then a whole sentence about it",
])
def test_other_lines_are_not_values(line):
    assert parse_line(line) is None


def test_values_come_from_stdout_even_when_a_line_arrives_in_pieces(make_notebook, make_code):
    cell = make_code("print()", prints="lo")
    cell["outputs"] += [{"output_type": "stream", "name": "stderr", "text": "noise = 7\n"},
                        {"output_type": "stream", "name": "stdout", "text": "ss = 1."},
                        {"output_type": "stream", "name": "stdout", "text": "5\nk = 2\n"},
                        {"output_type": "execute_result", "data": {"text/plain": "m = 3"}}]
    values, problems = printed_values(make_notebook(cell))
    assert {name: value.number for name, value in values.items()} == {"loss": "1.5", "k": "2"}
    assert not problems


def test_a_name_printed_twice_is_a_problem(make_notebook, make_code):
    notebook = make_notebook(make_code("a", prints="loss = 1\n"), make_code("b", prints="loss = 2\n"))
    (problem,) = printed_values(notebook)[1]
    assert problem.cell == 3
    assert "printed here and in cell 2" in problem.message


AGREES = [
    ("2047<!-- = x -->", "2047"), ("2,047<!-- = x -->", "2047"), ("**1.92**<!-- = x -->", "1.9168"),
    ("−3.5<!-- = x -->", "-3.52"), (r"$3\times10^{-6}$<!-- = x -->", "3.1e-06"),
    (r"$10^{-6}$<!-- ~ x -->", "1.9e-06"), ("3e-6<!-- ~10 x -->", "2.9e-05"), ("86%<!-- = x -->", "86.4%"),
    ("L = 512<!-- = x -->", "512"),
]
DISAGREES = [
    ("2048<!-- = x -->", "2047"), ("1.862<!-- = x -->", "1.86"), ("3.5<!-- = x -->", "-3.5"),
    (r"$3\times10^{-6}$<!-- = x -->", "3.6e-06"), (r"$10^{-6}$<!-- ~ x -->", "4e-07"),
    ("3e-6<!-- ~10 x -->", "3.1e-05"), ("86%<!-- = x -->", "0.86"),
]


def problems_of(text, printed, make_notebook, make_code):
    return check_notebook(make_notebook(make_code("print()", prints=f"x = {printed}\n"), text))


@pytest.mark.parametrize("text, printed", AGREES)
def test_numbers_that_agree(text, printed, make_notebook, make_code):
    assert problems_of(text, printed, make_notebook, make_code) == []


@pytest.mark.parametrize("text, printed", DISAGREES)
def test_numbers_that_differ(text, printed, make_notebook, make_code):
    (problem,) = problems_of(text, printed, make_notebook, make_code)
    assert problem.cell == 3
    assert f"x = {printed.removesuffix('%')}" in problem.message


def test_a_name_that_nothing_prints(make_notebook, make_code):
    (problem,) = check_notebook(make_notebook(make_code("print()", prints="x = 3\n"), "It is 3<!-- = y -->."))
    assert "'y' that no cell prints" in problem.message
