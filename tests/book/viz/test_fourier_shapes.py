"""The figure of chapter 6 as Python makes it: what it holds and says."""

import torch

from caracal_book import viz
from caracal_min.layers import MultiHeadFourier

WORDS = ["<b>", "&", "sat", "on", "it"]


def layer(**options):
    torch.manual_seed(3)
    return MultiHeadFourier(4, 2, **options).double()


X = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_the_model_holds_the_weights_and_words_cannot_break_out():
    figure = viz.fourier_shapes(layer(), X, ["</script><i>", *WORDS[1:]])
    own = layer()
    assert torch.equal(torch.tensor(figure.model["value"][0], dtype=torch.float64), own.to_value.weight)
    assert torch.equal(torch.tensor(figure.model["mix"][0], dtype=torch.float64), own.gate_mix.weight[..., 0])
    assert [figure.model[key] for key in ("step", "token", "channel", "heads")] == ["r", 3, 1, 2]
    html = figure.to_html()
    assert html.count("</script") == 1 and "<i>" not in html
    assert "contents 0 to 3 and the gates 3 to 0" in figure.alt
