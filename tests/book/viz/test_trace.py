"""The sums that say why a token is likely: they are the model's own, checked by taking parts out of it."""

import pytest
import torch

from caracal_book.viz.trace import in_the_page, rounded_to, trace
from caracal_min.locate import shipped_models
from caracal_min.model import Caracal
from caracal_min.modules import MultiHeadFourier

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


def test_numbers_for_a_page_have_some_digits():
    assert rounded_to(3, {"a": [1.23456, "text", 12345.6, 7]}) == {"a": [1.23, "text", 12300.0, 7]}
