"""Documents in one window: each equals itself alone, in logits, loss and gradients, whatever stands beside it."""

import pytest
import torch
import torch.nn.functional as F

from caracal_min import Caracal, CaracalConfig
from caracal_min.packing import PackedDocuments, document_ids, micro_batches

SIZE = dict(vocab_size=64, d_model=32, n_layers=3, n_heads=2, window_size=5, init_std=0.2, embedding_std=0.5)
VARIANTS = [{}, {"gate_length": 4}, {"positional_encoding": "learned", "max_positions": 21},
            {"fourier_per_attention": None, "pre_conv": False, "gate": "single_stage"}]
LENGTHS = [[1, 12, 3, 9, 15], [21, 19], [40]]  # of the documents of three windows


def model(dtype=torch.float64, **changes):
    torch.manual_seed(0)
    return Caracal(CaracalConfig(**SIZE | changes)).to(dtype)


def packed(windows=2, seed=1):
    """Tokens, targets and documents `[windows, 40]`, and where each document stands."""
    ids = torch.randint(64, (windows, 41), generator=torch.Generator().manual_seed(seed))
    lengths = LENGTHS[:windows]
    documents = torch.stack([torch.repeat_interleave(torch.tensor(row)) for row in lengths])
    places = [(row, sum(ns[:i]), sum(ns[:i + 1])) for row, ns in enumerate(lengths) for i in range(len(ns))]
    return ids[:, :-1], ids[:, 1:], documents, places


def gradients(of, loss):
    of.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in of.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("changes", VARIANTS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_every_document_equals_itself_alone(changes, dtype, tolerance):
    m, (x, y, documents, places) = model(dtype, **changes), packed()
    logits, loss = m(x, y, documents=documents)
    for row, a, b in places:
        alone = m.logits(x[row:row + 1, a:b])[0]
        torch.testing.assert_close(logits[row, a:b], alone, rtol=tolerance, atol=tolerance)
    alone = sum(m.loss(x[row:row + 1, a:b], y[row:row + 1, a:b]) * (b - a) for row, a, b in places) / x.numel()
    for found in (loss, m.loss(x, y, documents)):
        torch.testing.assert_close(found, alone, rtol=tolerance, atol=tolerance)
    expected = gradients(m, alone)
    assert len(expected) == len([*m.parameters()])
    for found in (m(x, y, documents=documents)[1], m.loss(x, y, documents)):
        for name, g in gradients(m, found).items():
            torch.testing.assert_close(g, expected[name], rtol=0, atol=tolerance * (1 + expected[name].abs().max()))


@pytest.mark.parametrize("changes", VARIANTS[:2])
def test_other_documents_do_not_move_a_document(changes):
    m, (x, _, documents, places) = model(**changes), packed(3)
    row, a, b = places[2]
    other = (x + 1) % 64
    other[row, a:b] = x[row, a:b]
    before, after = (m.logits(ids, documents=documents)[row, a:b] for ids in (x, other))
    torch.testing.assert_close(before, after, rtol=0, atol=1e-12)
    assert (m.logits(x) - m.logits(other))[row, a:b].abs().max() > 0.1  # as they do in one text


@pytest.mark.parametrize(("documents", "words"), [
    (torch.zeros(2, 39).long(), r"documents have shape \(2, 39\); give \[2, 40\]"),
    (torch.arange(40).flip(0).expand(2, -1), "documents fall along a row"),
    (F.pad(torch.ones(2, 20).long(), (0, 20)), "documents fall along a row"),
])
def test_wrong_documents_are_told_in_one_line(documents, words):
    m, (x, y, _, _) = model(), packed()
    for call in (lambda: m.logits(x, documents=documents), lambda: m.loss(x, y, documents)):
        with pytest.raises(ValueError, match=f"^{words}.*$"):
            call()


def test_each_row_begins_a_document_and_an_end_of_text_is_the_last_of_its_own():
    tokens = torch.tensor([[3, 0, 0, 4, 5], [0, 1, 2, 3, 0], [1, 1, 1, 1, 1]])
    ids = document_ids(tokens, end_of_text=0)
    assert ids.tolist() == [[0, 0, 1, 2, 2], [0, 1, 1, 1, 1], [0, 0, 0, 0, 0]]
    assert PackedDocuments(ids, tokens).lengths == [2, 1, 2, 1, 4, 5]


@pytest.mark.parametrize("few_shapes", [False, True])
def test_micro_batches_hold_every_token_once_and_their_losses_sum_to_the_mean(few_shapes):
    m, draw = model(), torch.Generator().manual_seed(3)
    ids = torch.randint(1, 64, (8, 42), generator=draw)
    ids[torch.rand(8, 42, generator=draw) < 0.08] = 0
    batch = torch.stack([ids[:, :-1], ids[:, 1:]])
    documents = document_ids(batch[0], 0)
    parts = micro_batches(batch, 2, 0, few_shapes)
    assert all(x.numel() <= 2 * 41 + 3 and x.shape == y.shape for (x, y), _ in parts) and len(parts) > 4
    if few_shapes:
        assert {tuple(x.shape) for (x, _), _ in parts} == {(2, 41), (3, 21), (7, 11)}
    else:
        assert sum(x.numel() for (x, _), _ in parts) < 1.3 * ids[:, 1:].numel()
    pairs = [torch.stack([x[y != -100], y[y != -100]], 1) for (x, y), _ in parts]
    assert sorted(torch.cat(pairs).tolist()) == sorted(batch.flatten(1).t().tolist())
    total = sum(m.loss(x, y) / times for (x, y), times in parts)
    torch.testing.assert_close(total, m.loss(*batch, documents), rtol=1e-12, atol=0)


def test_without_documents_micro_batches_are_the_rows():
    batch = torch.arange(48).view(2, 6, 4)
    parts = micro_batches(batch, 2)
    assert torch.equal(torch.cat([part for part, _ in parts], 1), batch) and [times for _, times in parts] == [3.0] * 3
