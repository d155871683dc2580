"""The paper's listing, executed from its source, and our model compute the same with the same weights."""

import re
import sys
import types

import pytest
import torch
import torch.nn.functional as F

from caracal_min import Caracal, CaracalConfig

OUTSIDE = {"wte": "embedding", "ln_f": "norm"}
INSIDE = {"ln_1": "mixer_norm", "ln_2": "mlp_norm",
          "mixer.pre_conv": "mixer.pre_conv", "mixer.ln": "mixer.norm", "mixer.W_V": "mixer.to_value",
          "mixer.W_G1": "mixer.to_gate", "mixer.W_G2": "mixer.gate_mix", "mixer.linear": "mixer.to_out",
          "mixer.c_attn": "mixer.to_qkv", "mixer.c_proj": "mixer.to_out",
          "pos_ffn.fc_1": "mlp.to_value", "pos_ffn.fc_gate": "mlp.to_gate", "pos_ffn.fc_2": "mlp.to_out"}
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


def renamed(state: dict, heads: int | None) -> dict:
    """The weights of the listing under our names, without the output matrix, which is the embedding.

    The rows of `c_attn` are stacked head by head (q, k and v of head 0, then of head 1, ...), those of `to_qkv` by kind
    (q of all heads, then k, then v).  heads=None leaves them so: the weights load, and compute something else.
    """
    ours = {}
    for name, tensor in state.items():
        stem, kind = name.removeprefix("model.").rsplit(".", 1)
        inside = re.fullmatch(r"h\.(\d+)\.(.+)", stem)
        if heads and stem.endswith("c_attn"):
            tensor = tensor.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2)
        if stem != "lm_head":
            ours[f"blocks.{inside[1]}.{INSIDE[inside[2]]}.{kind}" if inside else f"{OUTSIDE[stem]}.{kind}"] = tensor
    return ours


@pytest.mark.parametrize("ratio", [2, 1, None])
def test_the_listing_and_ours_give_equal_logits(listing, ratio):
    config = CaracalConfig(50, 24, 6, 3, window_size=5, fourier_per_attention=ratio)
    theirs, ours = shaken(build(listing, config)), Caracal(config).double()
    ours.load_state_dict(renamed(theirs.state_dict(), config.n_heads))
    with torch.no_grad():
        wanted = theirs(TOKENS)[0]
        torch.testing.assert_close(ours(TOKENS)[0], wanted, rtol=0, atol=1e-11)
        assert wanted.std() > 0.1 and torch.equal(theirs.state_dict()["model.lm_head.weight"], ours.embedding.weight)
