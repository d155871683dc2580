"""Caracal: a language model whose token mixing is FFT convolution.  The model can be read in an
afternoon, the training in another.

Train, save, load, generate, evaluate::

    >>> from caracal_min import Caracal
    >>> from caracal_min.data import load_corpus
    >>> from caracal_min.evaluation import held_out_loss
    >>> from caracal_min.training import TrainConfig, Trainer
    >>> corpus = load_corpus("embedded", max_tokens=500_000, progress=False)  # or your own files
    >>> recipe = TrainConfig.for_preset("nano", tokens=4096, eval_windows=4, progress=False)
    >>> with Trainer(recipe, corpus) as trainer:
    ...     log = trainer.run()
    >>> trainer.model.save_pretrained("my_model")
    >>> model = Caracal.from_pretrained("my_model")
    >>> text = model.generate_text("The ", 20, temperature=0.8, seed=1)
    >>> (ids,) = model.generate([list(b"The ")], 20, seed=1)               # an id of nano is a byte
    >>> loss = held_out_loss(model, corpus.validation, context=256, limit=4)   # nats per token

`help("caracal_min.training")` and the like say the rest, `python -m caracal_min --help` what needs
no Python.  In the order of reading::

    minimal         the whole model in one file, for reading and copying
    config          the shape of a model, and the presets and variants of the paper
    convolution     the product of two polynomials, causally, four ways
    spectral        the fast way as one operator with its own backward
    kernel          the same as one kernel for GPUs, off by default
    attention       exact sliding-window attention in O(L * window)
    layers          Multi-Head Fourier, sliding-window attention, SwiGLU, the block
    decoding        the same a token at a time, and what the layers keep for it
    packing         several documents in one window, each read alone
    loss            cross-entropy over a large vocabulary, without holding the logits
    model           the language model: call, loss, saving and loading
    generation      exact decoding, sampling, text in and text out
    tokenizer       bytes, or any tokenizer.json
    precision       the device of a name, and which precision it computes in
    hf              the same model for transformers: pipelines, Trainer, PEFT, the hub
    export          torch.export programs and ONNX files
    data            text to tokens to batches
    training        a run: its settings, optimiser and checkpoints
    evaluation      losses on held-out text

`files` writes files whole or not at all.  Imports run one way.

The paper: Gan et al., "Caracal: Causal Architecture via Spectral Mixing", ICML 2026.
"""

from .config import CaracalConfig
from .layers import MultiHeadFourier, SlidingWindowAttention
from .model import Caracal

__all__ = ["Caracal", "CaracalConfig", "MultiHeadFourier", "SlidingWindowAttention", "__version__"]
__version__ = "0.1.0"
