"""The steps through a layer in a real browser: every tensor, what each number is made of, keys and pointer."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from figure_pages import data, focused, tensor

from caracal_book import viz
from caracal_min.convolution import causal_conv_direct
from caracal_min.layers import MultiHeadFourier

pytestmark = pytest.mark.browser

WORDS = "the cat sat on the mat".split()
STEPS = ["x", "xt", "xh", "v", "h", "g", "r", "y"]
L, D, H = 6, 4, 2
torch.manual_seed(6)
LAYER = MultiHeadFourier(D, H).double().requires_grad_(False)
for norm in (LAYER.norm.weight, LAYER.norm.bias):
    norm.add_(torch.randn(D) / 3)
X = torch.randn(L, D, dtype=torch.float64)
FIGURE = viz.fourier_shapes(LAYER, X, WORDS)


def computed():
    """Every tensor of the layer by torch's own operations, (L, D) each."""
    xt = F.conv1d(F.pad(X.T, (2, 0)), LAYER.pre_conv.weight, groups=D).T
    xh = LAYER.norm(xt)
    v = F.linear(xh, LAYER.to_value.weight, LAYER.to_value.bias)
    h = F.silu(F.linear(xh, LAYER.to_gate.weight, LAYER.to_gate.bias))
    g = F.conv1d(h.T, LAYER.gate_mix.weight, LAYER.gate_mix.bias, groups=H).T
    return {"x": X, "xt": xt, "xh": xh, "v": v, "h": h, "g": g, "r": causal_conv_direct(v.T, g.T).T,
            "y": LAYER(X[None])[0]}


TENSORS = computed()


def button(page, step):
    return page.locator(".fs-steps button").nth(STEPS.index(step))


def cell(page, token, channel):
    return page.locator(f".fs-cell[aria-label*='token {token}, channel {channel}:']")


def depends_on(step, t, c):
    """What the number (t, c) of a step depends on in the step before, by autograd: (tensor, token, channel)."""
    own = slice(c - c % 2, c - c % 2 + 2)
    if step == "r":
        return {("v", j, c) for j in range(t + 1)} | {("g", j, c) for j in range(t + 1)}
    source = {"xt": "x", "xh": "xt", "v": "xh", "h": "xh", "g": "h", "y": "r"}[step]
    functions = {
        "xt": lambda s: F.conv1d(F.pad(s.T, (2, 0)), LAYER.pre_conv.weight, groups=D).T,
        "xh": LAYER.norm, "v": lambda s: s @ LAYER.to_value.weight.T,
        "h": lambda s: F.silu(s @ LAYER.to_gate.weight.T),
        "g": lambda s: F.conv1d(s.T, LAYER.gate_mix.weight, groups=H).T, "y": LAYER.to_out}
    s = TENSORS[source].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(functions[step](s)[t, c], s)
    found = {(source, int(a), int(b)) for a, b in gradient.nonzero()}
    assert step != "g" or {k for _, _, k in found} == set(range(D)[own])
    return found


def lit(page):
    """The texts of the numbers that are lit, in the order of the page."""
    return page.locator(".fs-lit + text").all_text_contents()


def shown(number):
    return f"{number:.2f}".replace("-0.00", "0.00").replace("-", "−")


def test_every_tensor_is_the_one_that_torch_computes(page):
    tensors = data(page)["tensors"]
    assert list(tensors) == STEPS
    for step, expected in TENSORS.items():
        assert torch.allclose(tensor(tensors[step]), expected, atol=1e-12), step


def test_each_number_is_made_of_what_it_depends_on_and_of_nothing_else(page):
    for step, (t, c) in itertools.product(STEPS, ((0, 3), (1, 0), (5, 2))):
        button(page, step).click()
        cell(page, t, c).click()
        frame = data(page)
        assert (frame["step"], frame["token"], frame["channel"]) == (step, t, c)
        assert frame["again"] == pytest.approx(TENSORS[step][t, c].item(), abs=1e-12)
        inside = {(name, s, k) for name, s, k, _ in frame["sources"] if s >= 0}
        if step == "x":
            assert inside == set() and lit(page) == [shown(X[t, c])]
            continue
        assert inside == depends_on(step, t, c)
        values = [shown(TENSORS[name][s, k].item()) for name, s, k in inside] + [shown(TENSORS[step][t, c].item())]
        zeros = ["0"] * (len(frame["sources"]) - len(inside))
        assert sorted(lit(page)) == sorted(values + zeros)


def test_keys_on_the_steps_and_on_the_table(page):
    button(page, "r").focus()
    for key, step in (("ArrowLeft", "g"), ("Home", "x"), ("ArrowLeft", "x"), ("End", "y"), ("ArrowLeft", "r")):
        page.keyboard.press(key)
        assert data(page)["step"] == step and button(page, step).get_attribute("aria-pressed") == "true"
    page.keyboard.press("Tab")
    assert focused(page).startswith("r, on, token 3, channel 1: ")
    for key, place in (("ArrowRight", (4, 1)), ("ArrowDown", (4, 2)), ("End", (5, 2)), ("ArrowRight", (5, 2)),
                       ("ArrowLeft", (4, 2)), ("Home", (0, 2)), ("ArrowUp", (0, 1)), ("ArrowLeft", (0, 1))):
        page.keyboard.press(key)
        assert (data(page)["token"], data(page)["channel"]) == place
        assert data(page)["again"] == pytest.approx(TENSORS["r"][place].item(), abs=1e-12)
