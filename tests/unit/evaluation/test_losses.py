"""Held-out losses against the model's own loss, computed another way."""

import numpy as np
import pytest
import torch

from caracal_min import Caracal
from caracal_min.data import sequential_windows
from caracal_min.evaluation import held_out_loss, loss_by_context_length, loss_by_position, losses, token_losses

TOKENS = np.random.default_rng(0).integers(0, 256, 500).astype(np.uint16)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Caracal.from_preset("nano")


def test_losses_agree_with_the_model_and_with_each_other(model):
    windows = sequential_windows(TOKENS, 20)
    _, expected = model(windows[:, :-1], windows[:, 1:])
    losses = token_losses(model, windows, batch_size=7)
    assert losses.shape == (24, 20)
    assert losses.mean().item() == pytest.approx(expected.item(), abs=1e-5)
    assert held_out_loss(model, TOKENS, 20) == pytest.approx(expected.item(), abs=1e-5)
    assert torch.allclose(loss_by_position(model, TOKENS, 20), losses.mean(0))


def test_each_entry_is_the_surprise_of_one_token(model):
    windows = sequential_windows(TOKENS, 20, limit=2)
    logits, _ = model(windows[:, :-1])
    by_hand = -logits[1, 7].log_softmax(-1)[windows[1, 8]]
    assert token_losses(model, windows)[1, 7].item() == pytest.approx(by_hand.item(), abs=1e-5)


def test_the_mode_of_the_model_is_left_as_it_was(model):
    for training in (True, False):
        model.train(training)
        model.blocks[1].eval()
        held_out_loss(model, TOKENS, 20)
        assert model.training is model.blocks[0].training is training and not model.blocks[1].training


def test_bad_windows(model):
    with pytest.raises(ValueError, match=r"shape \(5,\); give \[count, length \+ 1\]"):
        token_losses(model, torch.zeros(5, dtype=torch.int64))


def test_logits_in_parts_give_the_same_losses(model, monkeypatch):
    windows = sequential_windows(TOKENS, 20)
    whole = token_losses(model, windows)
    monkeypatch.setattr(losses, "rows_at_once", lambda vocabulary: 7)  # divides neither a row nor a batch
    sizes = []
    monkeypatch.setattr(model, "unembed", lambda h: sizes.append(len(h)) or Caracal.unembed(model, h))
    assert torch.allclose(token_losses(model, windows), whole, atol=1e-5)
    assert max(sizes) == 7 and sum(sizes) == windows[:, 1:].numel()


def test_context_lengths_predict_the_same_tokens(model):
    """500 tokens hold three windows of 160; each length predicts those 480 targets, and its losses are its own."""
    measured = loss_by_context_length(model, TOKENS, 20, (8, 1, 4))
    assert list(measured) == [20, 80, 160]
    for length, loss in measured.items():
        assert loss == pytest.approx(held_out_loss(model, TOKENS[:481], length), abs=1e-6)
    last = loss_by_context_length(model, TOKENS, 20, (1, 8), limit=1)
    assert last[20] == pytest.approx(held_out_loss(model, TOKENS[:161], 20), abs=1e-6)


class Memory(torch.nn.Module):
    """Knows the token that came `period` before: certain from position period - 1 of a window, else uniform."""

    def __init__(self, period):
        super().__init__()
        self.period, self.embedding = period, torch.nn.Embedding(256, 1)

    def require_tokens(self, ids, name):
        pass

    def hidden(self, tokens):
        return torch.nn.functional.pad(tokens, (self.period - 1, 0), value=-1)[:, :tokens.shape[1], None]

    def unembed(self, ids):
        return 100.0 * (ids == torch.arange(256))


def test_more_context_helps_a_model_that_uses_it():
    text = np.tile(np.arange(10, 40, dtype=np.uint16), 20)
    measured = loss_by_context_length(Memory(30), text, 15, (1, 4, 16))
    ignorant = np.log(256)
    assert measured[15] == pytest.approx(ignorant, abs=1e-5)  # never sees 30 tokens
    assert measured[60] == pytest.approx(ignorant * 29 / 60, abs=1e-5)
    assert measured[240] == pytest.approx(ignorant * 29 / 240, abs=1e-5)


def test_bad_context_lengths(model):
    for multiples in ((), (0, 1), (2, 3)):
        with pytest.raises(ValueError, match=r"^multiples=\(.*\); give numbers >= 1 that all divide the largest$"):
            loss_by_context_length(model, TOKENS, 20, multiples)
    with pytest.raises(ValueError, match="500 tokens are fewer than one window of 512"):
        loss_by_context_length(model, TOKENS, 32)


def test_bad_ids(model):
    with pytest.raises(ValueError, match="windows holds id 300; this model knows 0 to 255"):
        token_losses(model, torch.full((2, 5), 300))
