"""The tasks: an oracle solves each, a shortcut does not, and the generator alone decides the batch."""

import pytest
import torch

from caracal_book.experiments.tasks import IGNORED, Mirror, Recall

SMALL = {"recall": Recall(), "zoology": Recall(4, 20, 20, tokens=40), "mirror": Mirror(),
         "anywhere": Mirror(before=5, wait=2)}


def drawn(task, batch=200, seed=0):
    return task.draw(batch, torch.Generator().manual_seed(seed))


def recall_oracle(task, ids, where):
    value = {int(ids[2 * i]): int(ids[2 * i + 1]) for i in range(task.pairs)}
    return [value[int(ids[t])] for t in where]


def mirror_oracle(task, ids, where):
    text = ids[:where[0] - task.wait].tolist()
    text = text[text.index(task.symbols + 4) + 1:] if task.before else text
    return [task.symbols + int(text == text[::-1])]


ORACLES = {"recall": recall_oracle, "zoology": recall_oracle, "mirror": mirror_oracle, "anywhere": mirror_oracle}


@pytest.mark.parametrize("name", SMALL)
def test_batches_have_their_shapes_and_follow_the_generator(name):
    task = SMALL[name]
    batch, again, other = drawn(task), drawn(task), drawn(task, seed=1)
    assert batch.ids.shape == batch.targets.shape == (200, task.length)
    assert batch.ids.dtype == batch.targets.dtype == torch.int64
    assert 0 <= batch.ids.min() and batch.ids.max() < task.vocab_size
    asked = batch.targets[batch.targets != IGNORED]
    assert 0 <= asked.min() and asked.max() < task.vocab_size and (batch.targets != IGNORED).any(1).all()
    assert torch.equal(batch.ids, again.ids) and torch.equal(batch.targets, again.targets)
    assert not torch.equal(batch.ids, other.ids) and 0 < task.chance < 1


@pytest.mark.parametrize("name", ORACLES)
def test_an_oracle_solves_it(name):
    task = SMALL[name]
    for ids, targets in zip(*drawn(task), strict=True):
        where = (targets != IGNORED).nonzero().flatten().tolist()
        assert ORACLES[name](task, ids, where) == targets[where].tolist()


def accuracy(answers, targets):
    asked = targets != IGNORED
    return (answers[asked] == targets[asked]).float().mean().item()


@pytest.mark.parametrize("name", SMALL)
def test_counting_targets_is_at_chance(name):
    """The most frequent answer to anything, whatever the text."""
    task = SMALL[name]
    _, targets = drawn(task, 4000)
    common = targets[targets != IGNORED].mode().values
    assert accuracy(torch.full_like(targets, common), targets) < 1.3 * task.chance + 0.02


def test_recall_by_a_bag_of_values_is_at_chance():
    task = Recall()
    ids, targets = drawn(task, 4000)
    for place in range(task.pairs):  # always the value of one pair
        assert accuracy(ids[:, 2 * place + 1, None].expand_as(ids), targets) == pytest.approx(task.chance, abs=0.02)
    for lag in range(1, task.length):  # what stands at a fixed distance: a static kernel of one tap
        answers = torch.cat([torch.full((4000, lag), IGNORED - 1), ids[:, :-lag]], dim=1)
        assert accuracy(answers, targets) < task.chance + 0.02


def test_the_distance_of_an_answer_leads_to_it():
    task = Recall(4, 20, 20, tokens=40)
    texts = drawn(task, 500)
    text, place = (texts.targets != IGNORED).nonzero(as_tuple=True)
    far = task.distances(texts)
    assert far.dtype == torch.int64 and (texts.ids[text, place - far] == texts.targets[text, place]).all()
    assert (texts.ids[text, place - far - 1] == texts.ids[text, place]).all() and (place - far < 8).all()
    assert Mirror().distances(drawn(Mirror())) is None and Recall().distances(drawn(Recall())) is None


def statistic(ids, half, kernel):
    """Sum of kernel[k] e(x_k) over the text, one entry per symbol, in absolute value."""
    onehot = torch.nn.functional.one_hot(ids[:, :2 * half], 12).double()
    return torch.einsum("k,bks->bs", kernel[:2 * half], onehot).abs().amax(1)


def of_half(batch, half):
    asked = batch.targets != IGNORED
    rows = asked[:, 2 * half]
    return batch.ids[rows], batch.targets[rows, 2 * half] == 9


ALTERNATING = (-1.0) ** torch.arange(40).double()


def test_the_alternating_kernel_finds_a_wrong_symbol_and_no_swap():
    """Every palindrome has an alternating sum of 0; so has every text with a swap at an even distance."""
    swap, symbol = drawn(Mirror(), 4000), drawn(Mirror(wrong="symbol"), 4000)
    for half in range(4, 17):
        ids, right = of_half(swap, half)
        assert statistic(ids, half, ALTERNATING).max() == 0 and 0.4 < right.float().mean() < 0.6
        ids, right = of_half(symbol, half)
        assert torch.equal(statistic(ids, half, ALTERNATING) == 0, right)


def test_a_swap_changes_two_symbols_an_even_distance_apart():
    ids, targets = drawn(Mirror(), 2000)
    for row, asked in zip(ids, targets, strict=True):
        n = (asked != IGNORED).nonzero().item()
        u, w = row[:n // 2], row[n // 2:n].flip(0)
        wrong = (u != w).nonzero().flatten().tolist()
        assert asked[n] == 9 if not wrong else asked[n] == 8 and len(wrong) == 2 and (wrong[1] - wrong[0]) % 2 == 0
        assert row[n] == 10 and (row[n + 1:] == 11).all()
