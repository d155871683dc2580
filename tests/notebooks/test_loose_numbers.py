"""Loose numbers beside comparisons: found where no assert holds what is printed, and left alone elsewhere."""

import pytest

from caracal_book.rules.loose_numbers import sentences
from caracal_book.rules.notebook_rules import comparisons_are_asserted

FASTER = "The FFT is 3<!-- ~ ratio --> times as fast."
RATIO = 'ratio = slow / fast\nprint(f"ratio = {ratio:.1f} times")\n'
CLOCK = 'for name in clock:\n    print(f"time, {name} = {1e3 * clock[name][64]:.0f} ms")\n'
TIMED = "It takes 4<!-- ~3 time, FFT --> ms, more than one."


def found(notebook):
    return [(problem.cell, problem.message) for problem in comparisons_are_asserted(notebook)]


@pytest.mark.parametrize("code, text", [
    (RATIO, FASTER),
    (RATIO + "assert slow > fast", FASTER),                                 # of the parts, not of the ratio
    (RATIO + "assert other_ratio > 2", FASTER),
    (RATIO + "assert ratios", FASTER),
    (RATIO + "assert True, ratio > 2", FASTER),                             # the message is no test
    (RATIO + "ratio > 2", FASTER),
    ("", FASTER),                                                           # nothing prints it
    ('print(f"my ratio = {ratio}")\nassert ratio > 2', FASTER),             # another name
    (CLOCK + 'assert clock["DFT"][64] > 1', TIMED),                         # of another key
    (CLOCK + 'assert clock["FFT"][32] > 1', TIMED),
    (CLOCK + 'assert clock["FFT"] > 1', TIMED.replace("time, FFT", "time, DFT")),
    ('print(f"ratio = {(slow / fast) ** 2}")\nassert slow / fast > 1', FASTER),
    ('print(f"ratio = {moved[:-1].max()}")\nassert moved[-1] > 1', FASTER),
])
def test_a_loose_number_that_no_assert_names(code, text, make_notebook, make_code):
    ((cell, message),) = found(make_notebook(make_code(code), text))
    assert cell == 3 and "is loose and stands beside '" in message and message.endswith("printed under this name")


@pytest.mark.parametrize("code, text", [
    (RATIO + "assert ratio > 2", FASTER),
    (RATIO + "assert 2 < ratio.item() < 9", FASTER),
    ("assert ratio > 2\n" + RATIO, FASTER),
    (RATIO, FASTER.replace("~", "=")),                                      # exact: the build compares it
    (RATIO, "The ratio is 3<!-- ~ ratio -->. The FFT is faster."),          # in another sentence
    (RATIO, "The ratio is 3<!-- ~ ratio -->\n\nMore than that"),
    (RATIO, r"It is $3\times10^{2}$<!-- ~ ratio --> long."),                # no word
    (CLOCK + "for name in clock:\n    assert clock[name][64] > 1", TIMED),
    (CLOCK + 'assert clock["FFT"][64] > 1e-3', TIMED),
    (CLOCK + "assert max(clock) > 1", TIMED),                               # the whole container
    ('print(f"ratio = {100 * float(a[0] / b):.0f}%")\nassert a[0] / b > 2', FASTER),
])
def test_a_loose_number_that_an_assert_names(code, text, make_notebook, make_code):
    assert found(make_notebook(make_code(code), text)) == []


@pytest.mark.parametrize("cells, problems", [
    ([RATIO, "assert ratio > 2"], 0), (["ratio = 3\nassert ratio > 2", 'print(f"ratio = {ratio}")'], 0),
    ([RATIO, "ratio = 5\nassert ratio > 2"], 1), ([RATIO, "ratio = 5", "assert ratio > 2"], 1),
    ([RATIO, "for ratio in x:\n    pass", "assert ratio > 2"], 1), (["assert ratio > 2", RATIO], 1),
])
def test_an_assert_in_another_cell_counts_until_the_name_is_bound_anew(cells, problems, make_notebook, make_code):
    assert len(found(make_notebook(*map(make_code, cells), FASTER))) == problems


@pytest.mark.parametrize("words", [
    "faster than it", "wins", "does not beat it", "takes half as much, at most", "within", "between 2 and", "agrees to",
    "the crossover lies", "against 2", "up to", "Twice", "hardly any",
])
def test_words_that_compare(words, make_notebook, make_code):
    assert len(found(make_notebook(make_code(RATIO), f"It is {words} 3<!-- ~ ratio -->, here."))) == 1


def test_a_text_falls_into_sentences():
    text = "One 1.5<!-- ~ a. b --> of it. Two?\nThree $x$ e.g.\n\n- four\n- five\n\n| six |\n| seven |"
    assert [" ".join(part.split()) for part in sentences(text)] == [
        "One 1.5<!-- ~ a. b --> of it.", "Two?", "Three $x$ e.g.", "- four", "- five", "| six |", "| seven |"]
