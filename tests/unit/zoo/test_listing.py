"""The paper's listing, executed from its source, and our model compute the same with the same weights."""

import re
import sys
import types

import pytest
import torch
import torch.nn.functional as F

from caracal_min import Caracal, CaracalConfig
from caracal_min.zoo import from_listing, to_listing

CONFIG = CaracalConfig(50, 24, 6, 3, window_size=5)
TOKENS = torch.randint(50, (2, 23), generator=torch.Generator().manual_seed(0))


def windowed_attention(q, k, v, dropout_p, softmax_scale, causal, window_size):
    """What the listing asks of flash attention: `[B, L, H, d]` in and out, by a mask."""
    assert (dropout_p, softmax_scale, causal, window_size[1]) == (0.0, None, True, 0)
    behind = torch.arange(q.shape[1])[:, None] - torch.arange(q.shape[1])
    mask = (behind >= 0) & (behind <= window_size[0])
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


@pytest.fixture(scope="session")
def listing(root, report_missing) -> dict:
    """The names of the listing, in float64 throughout."""
    paper = root.parent / "shared" / "paper" / "caracal.tex"
    if not paper.is_file():
        report_missing("no ../shared/paper/caracal.tex beside the checkout: the listing is executed from it",
                       shared=True)
    (code,) = re.findall(r"\\begin\{lstlisting\}\[.*?\]\n(.*?)\\end\{lstlisting\}", paper.read_text(), re.DOTALL)
    for cast in ("torch.bfloat16", "torch.float32"):
        assert cast in code
        code = code.replace(cast, "torch.float64")
    flash = types.ModuleType("flash_attn")
    flash.flash_attn_func = windowed_attention
    names: dict = {"__name__": "listing"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "flash_attn", flash)
        exec(compile(code, str(paper), "exec"), names)
    return names


def build(listing, config):
    return listing["Caracal"](config.d_model, config.n_layers, config.n_heads, config.vocab_size,
                              config.attention_layers, config.window_size).double()


def shaken(model):
    """Every weight drawn anew, biases and norms too: none of them may be lost in zeros and ones."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
    return model


@pytest.mark.parametrize("ratio", [2, 1, None])
def test_the_listing_and_ours_give_equal_logits_both_ways(listing, ratio):
    config = CaracalConfig(50, 24, 6, 3, window_size=5, fourier_per_attention=ratio)
    theirs = shaken(build(listing, config))
    ours = from_listing(theirs.state_dict(), window_size=5)
    with torch.no_grad():
        wanted = theirs(TOKENS)[0]
        torch.testing.assert_close(ours(TOKENS)[0], wanted, rtol=0, atol=1e-11)
        assert wanted.std() > 0.1
        other = shaken(Caracal(config).double())
        back = build(listing, config)
        back.load_state_dict(to_listing(other))
        torch.testing.assert_close(back(TOKENS)[0], other(TOKENS)[0], rtol=0, atol=1e-11)


def test_there_and_back_is_the_same_and_owns_its_memory(listing):
    theirs = shaken(build(listing, CONFIG)).state_dict()
    ours = from_listing(theirs, window_size=5)
    again = to_listing(ours)
    assert again.keys() == theirs.keys()
    assert all(torch.equal(again[name], theirs[name]) for name in theirs)
    with torch.no_grad():
        ours.embedding.weight.zero_()
    assert theirs["model.wte.weight"].abs().sum() > 0
    inner = {name.removeprefix("model."): t for name, t in theirs.items() if not name.endswith("lm_head.weight")}
    assert torch.equal(from_listing(inner, 5).norm.weight, ours.norm.weight)


def test_weights_that_are_only_renamed_load_and_are_wrong(listing):
    """Why the rows are put in order: without it nothing complains, and the logits are others."""
    theirs = shaken(build(listing, CONFIG))
    ours = from_listing(theirs.state_dict(), window_size=5)
    for i in CONFIG.attention_layers:
        renamed = theirs.state_dict()[f"model.h.{i}.mixer.c_attn.weight"]
        ours.load_state_dict({f"blocks.{i}.mixer.to_qkv.weight": renamed}, strict=False)
    with torch.no_grad():
        assert (ours(TOKENS)[0] - theirs(TOKENS)[0]).abs().max() > 0.1


@pytest.mark.parametrize("change, message", [
    (lambda s: s.pop("model.h.1.ln_2.bias"), "the weights lack 'h.1.ln_2.bias'"),
    (lambda s: s.pop("model.wte.weight"), "the weights lack 'wte.weight'"),
    (lambda s: s.update({"model.h.1.extra": torch.ones(1)}), "the weights hold 'h.1.extra'"),
    (lambda s: s.update({"model.h.0.mixer.W_V.bias": torch.ones(5)}),
     r"h.0.mixer.W_V.bias has shape \(5,\); the listing has \(24,\)"),
    (lambda s: s.update({"model.lm_head.weight": torch.zeros(50, 24)}), "lm_head.weight differs from wte.weight"),
])
def test_other_weights_are_refused(change, message):
    state = to_listing(Caracal(CONFIG))
    change(state)
    with pytest.raises(ValueError, match=message):
        from_listing(state)


def test_attention_elsewhere_is_refused(listing):
    theirs = listing["Caracal"](24, 6, 3, 50, (2, 4), 5)
    with pytest.raises(ValueError, match="attention in layers 2, 4; this package .* as in 2, 5$"):
        from_listing(theirs.state_dict())


@pytest.mark.parametrize("field, value", [("pre_conv", False), ("gate", "single_stage"),
                                          ("positional_encoding", "learned")])
def test_a_variant_that_the_listing_does_not_have_is_refused(field, value):
    model = Caracal(CaracalConfig(50, 24, 3, 3, **{field: value}))
    with pytest.raises(ValueError, match=f"the model has {field}="):
        to_listing(model)
