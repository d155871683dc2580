"""Caracal: a language model whose token mixing is FFT convolution, small enough to read in an afternoon.

The modules, in the order of reading:

    convolution   the product of two polynomials, causally, four ways
    attention     exact sliding-window attention in O(L * window)
    modules       the layers: Multi-Head Fourier, sliding-window attention, SwiGLU, the block
    config        the shape of a model, and the presets of the paper
    model         the language model, saving and loading
    generation    exact decoding, one token at a time
    data          text to tokens to batches
    evaluation    held-out loss, loss by position
    training      the recipe of the paper, with exact resume
    viz           the figures of the book

The paper: Gan et al., "Caracal: Causal Architecture via Spectral Mixing", ICML 2026.
"""

from .config import CaracalConfig
from .model import Caracal

__all__ = ["Caracal", "CaracalConfig"]
__version__ = "0.1.0"
