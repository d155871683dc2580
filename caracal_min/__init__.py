"""Caracal: a language model whose token mixing is FFT convolution, small enough to read in an afternoon.

The modules, in the order of reading:

    convolution     the product of two polynomials, causally, four ways
    spectral        the fast way as one operator with its own backward
    attention       exact sliding-window attention in O(L * window), three backends
    relaxed         causal convolution of sequences that arrive a token at a time
    caches          what the layers keep between tokens
    projections     the linear maps of a Fourier layer, channels first
    modules         the layers: Multi-Head Fourier, sliding-window attention, SwiGLU, the block
    config          the shape of a model, and the presets of the paper
    loss            cross-entropy over a large vocabulary, without holding the logits
    language_model  how a model is called
    model           the language model, saving and loading
    generation      exact decoding, one token at a time
    baselines       Llama, Mamba, Mamba-2 and Jamba at the paper's sizes
    models          all of them, and the paper's variants, by name
    data            text to tokens to batches
    shards          a corpus on disk: what it holds, checked and read; tokenization writes it
    corpus          what to train on, and what to hold out
    recipe          a training run, as settings; the paper's are the default
    evaluation      held-out loss, loss by position and by context length
    flops           operations per token, for the utilisation of a device
    training        the loop, with exact resume, on one process or several (distributed); run_log, checkpoint, files
    record          what was run, where, on what, and what came out; recorded holds some
    harness         a model as lm-evaluation-harness calls it
    tasks           the paper's eight tasks, from local files or from the hub
    table2          a row of Table 2 beside the paper's; evaluate_command prints it
    export          torch.export programs and ONNX files
    benchmark       speed and memory as ratios; measure holds the stopwatch
    viz             the figures of the book; exercises, the checkers

The paper: Gan et al., "Caracal: Causal Architecture via Spectral Mixing", ICML 2026.
"""

from .config import CaracalConfig
from .model import Caracal

__all__ = ["Caracal", "CaracalConfig"]
__version__ = "0.1.0"
