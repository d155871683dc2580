"""Caracal: a language model whose token mixing is FFT convolution, small enough to read in an afternoon.

Train, save, load, generate, evaluate::

    >>> from caracal_min import Caracal
    >>> from caracal_min.data import load_corpus
    >>> from caracal_min.evaluation import held_out_loss
    >>> from caracal_min.training import TrainConfig, Trainer
    >>> corpus = load_corpus("embedded", max_tokens=500_000, progress=False)   # or files of your own
    >>> with Trainer(TrainConfig.for_preset("nano", tokens=4096, eval_windows=4, progress=False), corpus) as trainer:
    ...     log = trainer.run()
    >>> trainer.model.save_pretrained("my_model")
    >>> model = Caracal.from_pretrained("my_model")
    >>> text = model.generate_text("The ", 20, temperature=0.8, seed=1)
    >>> (ids,) = model.generate([list(b"The ")], 20, temperature=0.8, seed=1)  # or ids; one of nano is a byte
    >>> loss = held_out_loss(model, corpus.validation, context=256, limit=4)   # nats per token

`help("caracal_min.training")` and the like say the rest, and `python -m caracal_min --help` what needs no Python.

Flat is the model; a folder is something done with it.  In the order of reading::

    minimal         the whole model in one file, for reading and copying
    convolution     the product of two polynomials, causally, four ways
    spectral        the fast way as one operator with its own backward
    frames          points of a transform, and the frames of a long text under a short gate
    direct_kernel   the same for short texts on a GPU, as a product of matrices
    attention       exact sliding-window attention in O(L * window), three backends
    online          what convolutions a token at a time share: storage, rows, checks
    relaxed         causal convolution of sequences that arrive a token at a time
    partitioned     the same under a gate that is cut, in a state of fixed size
    projections     layers of PyTorch in other memory layouts, and the embedding, used twice
    caches          what the layers keep between tokens
    modules         the layers: Multi-Head Fourier, sliding-window attention, SwiGLU, the block
    config          the shape of a model, and the presets of the paper
    choices         what settings may say: architectures, variants, precisions
    precision       the device of a name, and which precision it computes in
    record          records of runs: what was run, where, on what, and what came out
    loss            cross-entropy over a large vocabulary, without holding the logits
    packing         several documents in one window, each read alone
    language_model  how a model is called
    generation      exact decoding, one token at a time
    text            text in, text out: a model with its tokenizer
    weights         a model on disk: written with its hashes, checked before it is believed
    locate          where a model of a name is: in the package, in a folder, on the hub
    model           the language model, saving and loading
    quantized       weights in eight bits, a scale per row
    export          torch.export programs, ONNX files, weights for a page
    hf              the same model for transformers: pipelines, Trainer, PEFT, the hub

    zoo             all models by name: variants of Caracal, and Llama, Mamba, Mamba-2, Jamba
    data            text to tokens to batches
    evaluation      losses on held-out text, and the tasks of the paper's Table 2
    benchmark       speed and memory as ratios
    training        a run, from its settings to a record of it
    commands        what the command line can do

`files` writes files whole or not at all, `allocator` keeps freed memory, `progress` draws bars, `lazy` delays imports,
`extras` says what to install for more, `version` is the version.  Imports run one way; `tests/unit/test_rooms.py`
has the order.

The paper: Gan et al., "Caracal: Causal Architecture via Spectral Mixing", ICML 2026.
"""

from typing import TYPE_CHECKING

from .lazy import lazy
from .version import __version__

if TYPE_CHECKING:
    from .config import CaracalConfig
    from .model import Caracal
    from .modules import MultiHeadFourier, SlidingWindowAttention

__all__ = ["Caracal", "CaracalConfig", "MultiHeadFourier", "SlidingWindowAttention", "__version__"]

__getattr__, __dir__ = lazy(__name__, {
    "Caracal": "model", "CaracalConfig": "config", "MultiHeadFourier": "modules", "SlidingWindowAttention": "modules"})
