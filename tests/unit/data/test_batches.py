"""Batches and windows, of tokens in memory and of shards."""

import numpy as np
import pytest
import torch
from shard_texts import one_line

from caracal_min.data import Batches, sequential_windows, write_shards
from caracal_min.data.chunks import Chunk
from caracal_min.data.manifest import Manifest, ShardSettings
from caracal_min.data.shards import ShardedTokens


def test_targets_are_inputs_shifted():
    batches = Batches(np.arange(1000, dtype=np.uint16), context=16, batch_size=4)
    for i in (0, 5, 500):
        x, y = batches[i]
        assert x.shape == y.shape == (4, 16)
        assert (y == x + 1).all()


def test_no_window_repeats_within_an_epoch_and_epochs_differ():
    batches = Batches(np.arange(1000, dtype=np.uint16), context=10, batch_size=7)
    epochs = [[int(s) for i in range(batches.per_epoch) for s in batches[e * batches.per_epoch + i][0][:, 0]]
              for e in range(3)]
    for starts in epochs:
        assert len(set(starts)) == len(starts) == 7 * batches.per_epoch
        assert len(starts) * 10 > 0.9 * 1000
    assert epochs[0] != epochs[1] != epochs[2]


def test_a_batch_depends_on_its_index_and_seed_only():
    tokens = np.arange(1000, dtype=np.uint16)
    one, two = Batches(tokens, 10, 7, seed=3), Batches(tokens, 10, 7, seed=3)
    for i in range(40):
        one[i]
    for i in (39, 2, 17):
        assert (one[i][0] == two[i][0]).all()
    assert (Batches(tokens, 10, 7, seed=4)[0][0] != two[0][0]).any()


def test_sequential_windows_cover_the_text_once():
    windows = sequential_windows(np.arange(101, dtype=np.uint16), 10)
    assert windows[:, 1:].flatten().tolist() == list(range(1, 101))
    few = sequential_windows(np.arange(101, dtype=np.uint16), 10, limit=3)
    assert few[:, 0].tolist() == [0, 40, 90]


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    """Shards whose tokens tell their place: token i is i, in 7 shards.  Read only."""
    folder = tmp_path_factory.mktemp("counting") / "shards"
    settings = ShardSettings("counting", None, None, "byte", "0" * 64, 65_536, 0, 1500, None, None)
    writer = write_shards._Writer(folder, Manifest(settings))
    writer.add(Chunk(np.arange(10_001, dtype="<u2"), np.array([0, 10_001]), [b"1" * 32]))
    writer.finish()
    return folder


def starts_of(batches, epoch):
    steps = range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)
    return [int(s) for i in steps for s in batches[i][0][:, 0]]


def test_an_epoch_reads_every_window_once_and_the_next_in_another_order(counting):
    batches = Batches(ShardedTokens(counting), context=32, batch_size=8)
    assert batches.windows == 311 and batches.per_epoch == 38
    whole_epochs = Batches(ShardedTokens(counting), context=32, batch_size=1)
    for kind, kept in ((batches, 304), (whole_epochs, 311)):
        epochs = [starts_of(kind, epoch) for epoch in range(3)]
        for starts in epochs:
            assert len(set(starts)) == len(starts) == kept
            assert len({s % 32 for s in starts}) == 1  # windows of one grid: none overlaps another
        ranks = [np.argsort(np.argsort(starts)).tolist() for starts in epochs]  # the order, whatever the offset
        assert ranks[0] != ranks[1] != ranks[2] != ranks[0] and ranks[0] != sorted(ranks[0])
        assert min(epochs[0]) < 32 and max(epochs[0]) > 10_001 - 32 * (2 + 311 - kept) - 32


def test_targets_are_inputs_shifted_across_shards(counting):
    x, y = Batches(ShardedTokens(counting), context=100, batch_size=5)[7]
    assert x.shape == y.shape == (5, 100) and x.dtype == y.dtype == torch.int64
    assert (y == x + 1).all() and (x[:, 1:] == x[:, :-1] + 1).all()


def test_the_same_batches_as_from_memory(counting):
    memory = Batches(np.arange(10_001, dtype=np.uint16), 32, 8, seed=5)
    batches = Batches(ShardedTokens(counting), 32, 8, seed=5)
    assert batches.epochs(19) == memory.epochs(19) == 0.5
    for i in (0, 1, 37, 38, 100, 5):
        for a, b in zip(batches[i], memory[i], strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_partition_the_global_batch(counting, world_size):
    one = Batches(ShardedTokens(counting), 32, 4 * world_size, seed=1)
    ranks = [Batches(ShardedTokens(counting), 32, 4, 1, rank, world_size) for rank in range(world_size)]
    for i in (0, 3, one.per_epoch - 1, one.per_epoch, 3 * one.per_epoch + 2):
        parts = [rank[i] for rank in ranks]
        assert all(len(x) == len(y) == 4 for x, y in parts)
        for k in range(2):
            assert torch.equal(torch.cat([part[k] for part in parts]), one[i][k])
    assert {rank.per_epoch for rank in ranks} == {one.per_epoch}


def test_a_step_is_the_same_after_opening_again_and_another_seed_is_not(counting):
    used = Batches(ShardedTokens(counting), 32, 8, seed=3)
    for i in range(50):
        used[i]
    for i in (49, 2, 40):
        assert torch.equal(used[i][0], Batches(ShardedTokens(counting), 32, 8, seed=3)[i][0])
    assert not torch.equal(used[0][0], Batches(ShardedTokens(counting), 32, 8, seed=4)[0][0])


def test_places_beyond_32_bits():
    class Endless:
        """10B tokens that are their own place."""

        def __len__(self):
            return 10_000_000_000

        def __getitem__(self, where):
            assert 0 <= where.start < where.stop <= len(self)
            return np.arange(where.start, where.stop)

    x, _ = Batches(Endless(), context=100_000, batch_size=64)[3]
    assert x.max() > 2**32 and x.min() >= 0 and len(set(x[:, 0].tolist())) == 64


def test_bad_sizes_get_one_line(whole):
    for words, call in [
        ("hold 0 windows of 99999, fewer than", lambda: Batches(ShardedTokens(whole), 99_999, 1)),
        ("rank=2, world_size=2; give a rank from 0", lambda: Batches(ShardedTokens(whole), 8, 1, 0, 2, 2)),
        ("context=0", lambda: Batches(ShardedTokens(whole), 0, 1)),
    ]:
        with pytest.raises(ValueError, match=words) as caught:
            call()
        one_line(caught)
    with pytest.raises(ValueError, match="20 tokens hold 1 windows of 10, fewer than batch_size=4"):
        Batches(np.zeros(20, dtype=np.uint16), 10, 4)
    with pytest.raises(ValueError, match="5 tokens are fewer than one window of 10"):
        sequential_windows(np.zeros(5, dtype=np.uint16), 10)
