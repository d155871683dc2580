"""The ways that are compared do the same thing, and every group is measured."""

import pytest
import torch
from tune import arguments, together, tune

from caracal_min import spectral
from caracal_min.convolution import causal_conv_direct
from caracal_min.projections import ShortConv, shifted_products


@pytest.mark.parametrize("length", [1, 7, 64])
def test_one_call_for_both_streams_is_the_convolution(length):
    v, g = torch.randn(2, 3, 4, length, dtype=torch.float64)
    assert torch.allclose(together(v, g), causal_conv_direct(v, g), atol=1e-12)


def test_shifted_products_are_the_short_convolution():
    conv = ShortConv(6, 6, 3, groups=6, bias=False).double()
    x = torch.randn(2, 11, 6, dtype=torch.float64)
    assert torch.allclose(shifted_products(x, conv.weight), conv(x.mT).mT, atol=1e-12)


def test_every_group_is_measured(capsys):
    before = dict(spectral.BLOCK)
    small = "--preset nano --length 32 --tokens 512 --repeats 1 --device cpu"
    with torch.compiler.set_stance("force_eager"):  # what is compiled is tested elsewhere; here it would take minutes
        found = tune(arguments(small.split()))
    assert {name: len(ways) for name, ways in found.items()} == {
        "convolution, fwd + bwd": 1, "convolution in blocks, fwd + bwd": 6, "convolution, fwd": 3,
        "short convolution, fwd + bwd, eager": 2, "short convolution, fwd + bwd, compiled": 2,
        "products of the output layer": 1, "output layer, fwd + bwd, eager": 1, "output layer, fwd + bwd, compiled": 1,
        "training step": 9}
    assert all(time > 0 for ways in found.values() for time in ways.values())
    assert spectral.BLOCK == before and "blocks of 262144" in capsys.readouterr().out


def test_less_than_a_sequence_is_refused(capsys):
    with pytest.raises(SystemExit):
        arguments(["--tokens", "8"])
    assert "--tokens 8 is less than one sequence" in capsys.readouterr().err
