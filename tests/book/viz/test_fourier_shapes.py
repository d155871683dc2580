"""The figure of chapter 6 as Python makes it: what its still says, what it holds."""

import re

import torch
from figure_stills import still_of

from caracal_book import viz
from caracal_min.convolution import causal_conv_direct
from caracal_min.layers import MultiHeadFourier

WORDS = ["<b>", "&", "sat", "on", "it"]


def layer(**options):
    torch.manual_seed(3)
    return MultiHeadFourier(4, 2, **options).double()


X = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def shown(number):
    return f"{number:.2f}".replace("-0.00", "0.00").replace("-", "−")


def test_the_still_writes_the_streams_and_the_mix_of_the_layer():
    text = still_of(viz.fourier_shapes(layer(), X, WORDS, token=2, channel=3))
    with torch.no_grad():
        v, g = (s[0] for s in layer().streams(X[None]))
    for s, colour in ((v, viz.palette.content), (g, viz.palette.gate), (causal_conv_direct(v, g), viz.palette.result)):
        for number in s.flatten().tolist():
            assert f">{shown(number)}</text>" in text
        lit = re.findall(rf'stroke="{colour}" stroke-width="2"/><text[^>]*>([^<]*)<', text)
        places = slice(2, 3) if colour == viz.palette.result else slice(0, 3)
        assert lit == [shown(number) for number in s[3, places].tolist()]
    assert "&lt;b&gt;" in text and text.count("[B, D, L] = [1, 4, 5]") == 3


def test_the_model_holds_the_weights_and_words_cannot_break_out():
    figure = viz.fourier_shapes(layer(), X, ["</script><i>", *WORDS[1:]])
    own = layer()
    assert torch.equal(torch.tensor(figure.model["value"][0], dtype=torch.float64), own.to_value.weight)
    assert torch.equal(torch.tensor(figure.model["mix"][0], dtype=torch.float64), own.gate_mix.weight[..., 0])
    assert [figure.model[key] for key in ("step", "token", "channel", "heads")] == ["r", 3, 1, 2]
    html = figure.to_html()
    assert html.count("</script") == 1 and "<i>" not in html
    assert "contents 0 to 3 and the gates 3 to 0" in figure.alt
