"""The schedule of relaxed multiplication, as the figure of chapter 10 and an exercise have it."""

import pytest

from caracal_book.viz.schedule import pairs_by_time


@pytest.mark.parametrize("length", [1, 3, 64])
def test_every_pair_of_the_schedule_is_counted_after_it_has_arrived_and_before_it_is_read(length):
    after = pairs_by_time(length)
    assert set(after) == {(i, j) for i in range(length) for j in range(length - i)}
    for (i, j), n in after.items():
        assert max(i, j) < n <= i + j + (min(i, j) == 0)
