"""The figure of chapter 10 as Python makes it: what its still says, what it holds."""

import re

import pytest
from figure_stills import still_of

from caracal_book import viz
from caracal_book.viz.schedule import pairs_by_time


@pytest.mark.parametrize("length", [4, 11])
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


@pytest.mark.parametrize("length", [1, 3, 64])
def test_every_pair_of_the_schedule_is_counted_after_it_has_arrived_and_before_it_is_read(length):
    after = pairs_by_time(length)
    assert set(after) == {(i, j) for i in range(length) for j in range(length - i)}
    for (i, j), n in after.items():
        assert max(i, j) < n <= i + j + (min(i, j) == 0)
