"""The figure of chapter 10 as Python makes it: what its still says, what it holds, what it refuses."""

import re

import pytest
from figure_stills import still_of

from caracal_book import viz
from caracal_book.viz.schedule import pairs_by_time


def test_the_still_tells_the_facts_of_its_own_frame():
    figure = viz.schedule(32, 12)
    assert figure.model == {"length": 32, "n": 12}
    text = still_of(figure)
    assert "added now: v[8:12]*g[0:8] + g[8:12]*v[0:8]" in text
    assert "for results 12 to 15; result 11 is read: 12 of 12 pairs are in" in text
    assert "After 12 tokens, 34 pairs are added" in figure.alt and "result 11 is outlined" in figure.alt


@pytest.mark.parametrize("n, said", [
    (1, "v[0:1]*g[0:1]"), (8, "v[0:8]*g[0:8]"), (16, "no block"), (15, "for result 15"),
])
def test_the_block_in_words(n, said):
    assert said in still_of(viz.schedule(16, n))


@pytest.mark.parametrize("length", [4, 11, 16, 32])
def test_the_still_draws_every_pair_and_colours_the_new_ones(length):
    for n in range(1, length + 1):
        text = still_of(viz.schedule(length, n))
        m = n & -n
        fed = range(n, min(n + m, length))
        blue = 1 + sum(t - j < (m if n == m else 2 * m) for t in fed for j in range(n - m, n))
        squares = re.findall(r'<rect x="[\d.]+" y="[\d.]+" width="[\d.]+" height="[\d.]+" fill="([^"]+)"', text)
        cores = (n == 1) + (n == m) * (blue - 1)
        assert squares.count(viz.palette.content) == blue, n
        assert squares.count(viz.palette.gate) == (n > 1) + (blue - 1) * (n > m) + cores, n
        assert len(squares) - cores == length * (length + 1) // 2


@pytest.mark.parametrize("length, n, message", [
    (3, 1, "length=3; give 4 to 32"), (33, 1, "give 4 to 32"),
    (16, 0, "n=0 tokens of a text of 16"), (16, 17, "give 1 to 16"),
])
def test_bad_arguments_are_refused(length, n, message):
    with pytest.raises(ValueError, match=message):
        viz.schedule(length, n)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 31, 64])
def test_every_pair_of_the_schedule_is_counted_after_it_has_arrived_and_before_it_is_read(length):
    after = pairs_by_time(length)
    assert set(after) == {(i, j) for i in range(length) for j in range(length - i)}
    for (i, j), n in after.items():
        assert max(i, j) < n <= i + j + (min(i, j) == 0)
