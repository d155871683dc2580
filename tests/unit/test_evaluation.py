"""Losses on held-out text: the model's own, computed another way."""

import math

import numpy as np
import pytest
import torch

from caracal_min import Caracal
from caracal_min.data import ByteTokenizer, sequential_windows
from caracal_min.evaluation import (
    bits_per_byte,
    bytes_of_targets,
    held_out_loss,
    loss_by_context_length,
    loss_by_position,
    token_losses,
)

TOKENS = np.random.default_rng(0).integers(1, 256, 500).astype(np.uint16)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Caracal.from_preset("nano")


def test_each_entry_is_the_surprise_of_one_token(model):
    windows = sequential_windows(TOKENS, 20)
    logits, mean = model(windows[:, :-1], windows[:, 1:])
    by_hand = -logits.log_softmax(-1).gather(-1, windows[:, 1:, None]).squeeze(-1)
    losses = token_losses(model, windows, batch_size=7)
    assert losses.shape == (24, 20) and torch.allclose(losses, by_hand, atol=1e-5)
    assert held_out_loss(model, TOKENS, 20) == pytest.approx(mean.item(), abs=1e-5)
    assert torch.allclose(loss_by_position(model, TOKENS, 20), by_hand.mean(0), atol=1e-5)


def test_documents_of_a_window_are_read_alone(model):
    first, second = TOKENS[:9].astype(np.int64), TOKENS[10:21].astype(np.int64)
    window = torch.tensor([[*first, 0, *second]])
    losses = token_losses(model, window, end_of_text=0)[0]
    assert torch.allclose(losses[10:], token_losses(model, window[:, 10:])[0], atol=1e-5)
    assert (losses[10:] - token_losses(model, window)[0, 10:]).abs().max() > 1e-3


def test_context_lengths_predict_the_same_tokens(model):
    """500 tokens hold three windows of 160; each length predicts those 480 targets, and its losses are its own."""
    measured = loss_by_context_length(model, TOKENS, 20, (8, 1, 4))
    assert list(measured) == [20, 80, 160]
    for length, loss in measured.items():
        assert loss == pytest.approx(held_out_loss(model, TOKENS[:481], length), abs=1e-6)
    with pytest.raises(ValueError, match="give numbers that all divide the largest"):
        loss_by_context_length(model, TOKENS, 20, (2, 3))


def test_bits_per_byte_count_the_text_alone():
    tokenizer = ByteTokenizer()
    ids = torch.tensor([[0, *tokenizer.encode("aé"), 0, *tokenizer.encode("\0b")]])
    assert ids.shape == (1, 8) and bytes_of_targets(ids, tokenizer) == 5  # NUL is two ids, and one byte
    assert bits_per_byte(math.log(256), 7, 7) == pytest.approx(8)
