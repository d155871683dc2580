"""Held-out losses against the model's own loss, computed another way."""

import numpy as np
import pytest
import torch

from caracal_min import Caracal
from caracal_min.data import sequential_windows
from caracal_min.evaluation import held_out_loss, loss_by_position, token_losses

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
        held_out_loss(model, TOKENS, 20)
        assert model.training is training


def test_bad_windows(model):
    with pytest.raises(ValueError, match=r"shape \(5,\); give \[count, length \+ 1\]"):
        token_losses(model, torch.zeros(5, dtype=torch.int64))
