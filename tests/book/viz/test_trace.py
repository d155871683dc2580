"""The sums that say why a token is likely: they are the model's own, checked by taking parts out of it."""

import math

import pytest
import torch

from caracal_book.experiments.surgery import gate_as, gate_up_to, mean_gates, without
from caracal_book.viz.trace import compare, in_the_page, read, trace
from caracal_min.layers import MultiHeadFourier, SlidingWindowAttention
from caracal_min.model import Caracal, shipped_models

IDS = [5, 80, 7, 1, 200, 33, 80]


@pytest.fixture(scope="module")
def model():
    if "micro" not in shipped_models():
        pytest.skip("micro is not in this package")
    return in_the_page(Caracal.from_pretrained("micro", device="cpu")).double()


def score(model, token, final, scale):
    """The logit of a token less the mean, of the last position before the last norm, whose scale is held."""
    normed = (final - final.mean()) * scale * model.norm.weight + model.norm.bias
    logits = model.embedding.weight @ normed
    return (logits[token] - logits.mean()).item()


def before_the_norm(model, ids):
    kept = []
    hook = model.norm.register_forward_hook(lambda _, given, __: kept.append(given[0][0, -1]))
    logits = model.logits(torch.tensor([ids]))[0, -1]
    hook.remove()
    return kept[0], logits


def test_the_parts_of_a_score_sum_to_it(model):
    final, logits = before_the_norm(model, IDS)
    best = logits.softmax(-1).topk(5)
    for one, token, p in zip(trace(model, IDS)["next"], best.indices.tolist(), best.values.tolist(), strict=True):
        assert one["p"] == pytest.approx(p)
        assert one["logit"] == pytest.approx((logits[token] - logits.mean()).item(), abs=1e-9)
        assert sum(one["parts"]) + one["rest"] == pytest.approx(one["logit"], abs=1e-9)


@pytest.mark.parametrize("layer", [3, 5])
def test_a_term_is_what_the_score_loses_without_it(layer, model):
    """Without token j in the last sum of a layer, the residual stream lacks W times the products."""
    found, mixer, j = trace(model, IDS)["next"][1], model.blocks[layer].mixer, 2
    final, logits = before_the_norm(model, IDS)
    token = logits.topk(2).indices[1].item()
    scale = (final.var(correction=0) + model.norm.eps).rsqrt()
    given = []
    hook = model.blocks[layer].mixer_norm.register_forward_hook(lambda *all: given.append(all[2]))
    model.logits(torch.tensor([IDS]))
    hook.remove()
    if isinstance(mixer, MultiHeadFourier):
        v, g = mixer.streams(given[0])
        products = v[0, :, j] * g[0, :, len(IDS) - 1 - j]
        unit = found["layers"][layer]["units"][0]
        assert unit["content"][j] == pytest.approx(v[0, unit["name"], j].item())
    else:
        q, k, v = (s[0].unflatten(-1, (mixer.n_heads, -1)) for s in mixer.to_qkv(given[0]).chunk(3, -1))
        weights = (torch.einsum("hc,jhc->hj", q[-1], k) / q.shape[-1] ** 0.5).softmax(-1)
        products = (weights[:, j, None] * v[j]).flatten()
    less = score(model, token, final - mixer.to_out.weight @ products, scale)
    whole = score(model, token, final, scale)
    assert found["layers"][layer]["terms"][j] == pytest.approx(whole - less, abs=1e-9)
    assert abs(whole - less) > 1e-4


def bits(model, ids):
    """What each token but the first costs, by the package."""
    logs = model.logits(torch.tensor([ids]))[0].log_softmax(-1)
    return [-logs[t, id].item() / math.log(2) for t, id in enumerate(ids[1:])]


def compared(model, *takes):
    return compare(*(read(model, *take) for take in takes))


def test_an_edit_is_the_ablation_of_the_experiments(model):
    texts = [[9, 8, 77, 6, 5, 4, 300], [7, 70, 700, 7, 70, 700, 7]]
    windows = [f"blocks.{i}.mixer" for i in model.config.attention_layers]
    for edit, ablation in (({"lags": 3}, gate_up_to(model, 2)),
                           ({"off": windows}, without(model, SlidingWindowAttention)),
                           ({"texts": texts}, gate_as(model, mean_gates(model, torch.tensor(texts))))):
        found = compared(model, (IDS, {}), (IDS, edit))
        with ablation:
            expected = bits(model, IDS)
        assert found["bits"][0] == pytest.approx(bits(model, IDS), abs=1e-5)
        assert found["bits"][1] == pytest.approx(expected, abs=1e-5)
        assert found["bits"][0] != pytest.approx(expected, abs=1e-3) and max(found["moved"]) > 1e-3


def test_only_without_the_mask_do_earlier_predictions_know_a_later_word(model):
    other = [*IDS[:-1], 90]
    unmasked = {"points": 1, "ahead": True}
    causal, leaking = (compared(model, (IDS, edit), (other, edit)) for edit in ({}, unmasked))
    assert causal["same"] == leaking["same"] == len(IDS) - 1
    assert max(causal["moved"][:-1]) < 1e-9 < 1e-2 < causal["moved"][-1]
    assert min(leaking["moved"]) > 1e-6 and max(leaking["moved"][:-1]) > 1e-2
    wrapped = compared(model, (IDS, {"points": 1}), (IDS, {"points": 2}))
    assert max(wrapped["moved"]) > 1e-3 and compared(model, (IDS, {}), (IDS, {"points": 1.9}))["moved"][0] < 1e-9
