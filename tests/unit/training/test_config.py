"""The settings of a run, its schedule, and what is told of a likely mistake."""

import numpy as np
import pytest
from small_run import config

from caracal_min.training import TrainConfig, learning_rate
from caracal_min.training.config import VARIANTS


def test_the_schedule_of_the_paper():
    c = TrainConfig()  # 10B tokens in batches of 0.5M
    assert c.batch_size * c.context == 524_288 and c.steps == 19_073
    rates = [learning_rate(s, c) for s in range(c.steps)]
    peak = int(np.argmax(rates))
    assert max(rates) == pytest.approx(9e-4)
    assert peak + 1 == pytest.approx(0.0375 * c.steps, abs=1)
    assert np.allclose(np.diff(rates[:peak]), rates[0])  # linear from zero
    assert (np.diff(rates[peak:]) <= 0).all() and rates[-1] == pytest.approx(9e-5, rel=1e-3)
    middle = peak + (c.steps - peak) // 2
    assert rates[middle] == pytest.approx((9e-4 + 9e-5) / 2, rel=1e-3)


def test_the_budget_that_ends_first_counts_and_a_compiler_is_not_in_the_warm_up():
    timed, plain = TrainConfig.for_preset("nano", minutes=1.0), TrainConfig.for_preset("nano")
    assert learning_rate(700, timed, seconds=0) == learning_rate(700, plain)
    assert learning_rate(0, timed, seconds=60) == pytest.approx(0.1 * 3e-3)
    assert learning_rate(0, timed, seconds=30) == pytest.approx(learning_rate(384, plain), rel=1e-3)
    # 20 seconds in which kernels were built: the schedule is at its beginning, and ends in time.
    assert learning_rate(1, timed, seconds=20, first=20) == learning_rate(1, plain)
    assert learning_rate(1, timed, seconds=60, first=20) == pytest.approx(0.1 * 3e-3)


@pytest.mark.parametrize("changes, words", [
    (dict(preset="huge"), ["huge", "nano, micro, tiny"]),
    (dict(variant="2:2"), ["unknown variant '2:2'", "no-swa", "5:1"]),
    (dict(optimizer="moun"), ["unknown optimizer 'moun'", "adamw, muon"]),
    (dict(model=("wings=2",)), ["no setting 'wings'", "window_size"]),
    (dict(batch_size=10, micro_batch_size=4), ["batch_size=10 is no multiple of 4"]),
    (dict(learning_rate=-1.0), ["learning_rate=-1.0; give a positive number"]),
    (dict(eval_every=0), ["eval_every=0"]),
])
def test_a_likely_mistake_gets_one_line(changes, words):
    with pytest.raises(ValueError) as caught:
        config(**changes)
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_and_fields_of_the_model_change_its_shape(variant):
    made = TrainConfig(variant=variant, model=("n_layers=4", "gate_length=8"), context=64)
    shape = made.model_config(vocab_size=300)
    assert (shape.vocab_size, shape.n_layers, shape.gate_length, shape.d_model) == (300, 4, 8, 512)
    assert {name: getattr(shape, name) for name in VARIANTS[variant]} == VARIANTS[variant]
    assert shape.max_positions == (2048 if variant == "pe" else 64)
