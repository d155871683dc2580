"""What a model must cost, counted and not measured: operations, and bytes to and from memory, by part and by length.

A part takes at least as long as the slower of its two counts on a device (`Device.seconds`): the roofline.

Parts, in the order of `PARTS`::

    output           the tied output matrix, and its logits; looking a token up costs nothing
    mlp              the three matrices of the SwiGLU
    projections      v, g and output of a Fourier layer; q, k, v and output of an attention layer
    gate mix         the second stage of the gate, within heads
    convolution      three real FFTs and the product of two spectra, in float32
    attention        scores and weighted sums over the keys that a token sees
    small operators  norms, biases, taps, SiLU, sums and products of single numbers

Two operations, a multiplication and an addition, per weight and token; 2.5 N log2 N for a real FFT of N points.  Bytes:
every operator reads its inputs and writes its result once, attention is one operator (FlashAttention), and weights are
read once for all tokens of a batch.  Small operators, such as norms and sums, are counted in one of two ways::

    one by one      as PyTorch runs the models that `caracal_min` builds; a Llama is that of `transformers`, whose norm
                    is eight operators, mostly in float32 (one with `Pass.fused_norms`, as Caracal's norm is), and whose
                    turn by position is five
    `Pass.compiled` a chain of them between two products is one operator, as `torch.compile` would make it; the
                    convolution is not touched: a library's FFT is no part of a chain

The first is the default, and a test holds it against operators that run.  By default all numbers outside a convolution
have one length, and a training step is three forward passes.  `Pass.autocast` counts a training step as it is run:
residuals, norms between blocks and weights in float32, casts of them and of their gradients, and the softmax of the
loss; a test holds that against the operators of a step on a CPU.

A library's FFT moves its points once to the chip and back, as long as they fit beside a processor (`ON_CHIP`), and
twice beyond.  On an NVIDIA GPU PyTorch's inverse transform also copies its input and scales its result (`Pass.cuda`):
so its source says, and no operator shows it.  `spectral` leaves out the scaling, which only `Pass.autocast` counts.

Source: Williams, Waterman and Patterson 2009 (roofline); Kaplan et al. 2020, Section 2.1 (operations per token); Hong
and Kung 1981 (passes of an FFT); Dao et al. 2022 (attention that computes its scores again); PyTorch's file
aten/src/ATen/native/cuda/SpectralOps.cpp (what an inverse moves besides).
"""

import math
from typing import NamedTuple

from caracal_min.config import CaracalConfig
from caracal_min.spectral import fft_points
from caracal_min.training.flops import PEAK_FLOPS

from . import small_operators

__all__ = ["ARCHITECTURES", "DEVICES", "ON_CHIP", "PARTS", "Cost", "Device", "Pass", "forward", "mixers", "total",
           "training"]

PARTS = ("output", "mlp", "projections", "gate mix", "convolution", "attention", "small operators")
"""Names of the parts, in the order in which all functions return them."""

ARCHITECTURES = ("caracal", "llama", "window")
"""A model with the mixers of its configuration, with full attention in all layers, with windows in all layers."""

ON_CHIP = 2**16
"""Bytes that one processor of every device in `DEVICES` can hold beside it, in the memory that its threads share."""
_ON_VECTORS = ("convolution", "small operators")  # parts that are no products of matrices
_FLOAT32 = 4  # bytes
# Operations and bytes of a training step, in those of a forward pass.  Transforms: three, of v, g, r; backward of dr, v
# and g again, of dv and dg, whose bytes `_streams` counts.  Products of attention: two; backward five, with its scores.
_STEP = dict.fromkeys(PARTS, (3.0, 3.0)) | {"convolution": (8 / 3, 1.0), "attention": (3.5, 3.0)}
class Cost(NamedTuple):
    """What a part costs per token: multiplications and additions, and what is read from and written to memory."""

    operations: float
    bytes: float

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.operations / self.bytes


class Device(NamedTuple):
    """The speeds of a device: of products of matrices, which often have units of their own, the rest, and memory."""

    products: float
    """Operations per second in products of matrices."""
    vector: float
    """Operations per second in everything else, in float32."""
    bandwidth: float
    """Bytes per second, to and from memory."""

    def seconds(self, part: str, cost: Cost) -> float:
        """Return the least seconds that a part can take."""
        return max(self.compute(part, cost), cost.bytes / self.bandwidth)

    def compute(self, part: str, cost: Cost) -> float:
        """Return the seconds that its operations take."""
        return cost.operations / (self.vector if part in _ON_VECTORS else self.products)

    def bound(self, part: str, cost: Cost) -> str:
        """Return what sets the time of a part: "compute" or "bandwidth"."""
        return "compute" if self.compute(part, cost) >= cost.bytes / self.bandwidth else "bandwidth"


DEVICES = {name: Device(PEAK_FLOPS[name], vector, bandwidth) for name, vector, bandwidth in (
    ("H200", 67e12, 4.8e12), ("H100 PCIe", 51e12, 2e12), ("H100", 67e12, 3.35e12), ("A100", 19.5e12, 2.039e12),
    ("L40S", 91.6e12, 864e9), ("L4", 30.3e12, 300e9), ("RTX 4090", 82.6e12, 1008e9), ("RTX 3090", 35.6e12, 936e9),
    ("T4", 8.1e12, 320e9))}
"""Devices by name, from the vendor's data sheets; of A100 the module with 80 GB."""


class Pass(NamedTuple):
    """How a forward pass is run, as far as its bytes depend on it."""

    tokens: int = 2**16
    """Tokens that are read together, for which weights are read once: the paper's 0.5M over eight GPUs."""
    bytes_each: int = 2
    """Bytes of a number outside the convolution; under autocast, inside a block."""
    fused: bool = False
    """Whether the convolution is a single operator, which reads v and g and writes r, and nothing between.  Both padded
    streams must then fit into `ON_CHIP`: up to 4,096 tokens."""
    compiled: bool = False
    """Whether chains of small operators are fused."""
    fused_norms: bool = False
    """Whether a norm of a Llama is one operator, as PyTorch's RMSNorm and the norms of Caracal are."""
    autocast: bool = False
    """Whether residuals and weights are in float32, and a training step is counted operator by operator."""
    cuda: bool = True
    """Whether inverse transforms copy and scale, as PyTorch's do on an NVIDIA GPU; if not, the five steps' least."""

    @property
    def wide(self) -> int:
        """Bytes of a number between blocks."""
        return _FLOAT32 if self.autocast else self.bytes_each


_BATCH = Pass()


def forward(size: CaracalConfig, length: int, architecture: str = "caracal", how: Pass = _BATCH) -> dict[str, Cost]:
    """Return the cost of a forward pass, per token of sequences of `length` tokens, by part.

    Args:
        size: width, layers, heads, window and the rest; all parts but the mixers are the same in every architecture.
        architecture: one of `ARCHITECTURES`; a Llama of the size is the one of `zoo.baselines`.

    Raises:
        ValueError: length below 1, an unknown architecture, or a fused convolution that is longer than it can be.
    """
    if length < 1:
        raise ValueError(f"{length} tokens; give a whole number >= 1")
    operations, moved = _operations(size, length, architecture), _moved(size, length, architecture, how)
    shared = {part: count * how.bytes_each / how.tokens for part, count in _weights(size, architecture).items()}
    return {part: Cost(operations[part], moved[part] + shared[part]) for part in PARTS}


def training(size: CaracalConfig, length: int, architecture: str = "caracal", how: Pass = _BATCH) -> dict[str, Cost]:
    """Return the cost of a training step, per token, by part; arguments as in `forward`.

    Three forward passes: a product y = x W has two more of its size in its backward.  So is taken for small operators;
    one by one, their backward was seen to move 2.1 times the bytes in a pure Caracal, 2.2 in a Llama.  Eight transforms
    (`spectral`) stand for three, seven products of attention for two.  AdamW moves 28 bytes a weight.
    """
    ahead, weights, each = forward(size, length, architecture, how), _weights(size, architecture), how.bytes_each
    cast = 2 * (each + _FLOAT32) * (how.autocast and each < _FLOAT32)  # of a weight, and of its gradient
    more = {part: (7 * _FLOAT32 + cast) / how.tokens * count for part, count in weights.items()}
    if how.autocast:  # the loss: a softmax, and before it the largest logit
        more["output"] += 4 * each * size.vocab_size
        more["output"] += (2 * each + 7 * _FLOAT32) / how.tokens * weights["output"]  # padded; its two gradients summed
    if how.autocast and not how.compiled and architecture != "llama":
        of_small = small_operators.backward_one_by_one(size, mixers(size, architecture), each, how.wide)
        more["small operators"] += of_small - 2 * ahead["small operators"].bytes
    channels = mixers(size, architecture)["fourier"] * size.d_model
    more["convolution"] = channels * _streams(size, length, how, backward=True)
    return {part: Cost(_STEP[part][0] * cost.operations, _STEP[part][1] * cost.bytes + more[part])
            for part, cost in ahead.items()}


def total(parts: dict[str, Cost]) -> Cost:
    """Return the sum over all parts."""
    return Cost(*(sum(column) for column in zip(*parts.values(), strict=True)))


def mixers(size: CaracalConfig, architecture: str = "caracal") -> dict[str, int]:
    """Return how many layers mix by convolution, by a window, by full attention: "fourier", "window", "full".

    Raises:
        ValueError: an unknown architecture.
    """
    if architecture not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {architecture!r}; accepted: {', '.join(ARCHITECTURES)}")
    windows = {"caracal": len(size.attention_layers), "llama": 0, "window": size.n_layers}[architecture]
    full = size.n_layers if architecture == "llama" else 0
    return {"fourier": size.n_layers - windows - full, "window": windows, "full": full}


def _keys(length: int, window: int) -> float:
    """Return how many keys a token sees in the mean: the first ones see fewer."""
    return (window := min(window, length)) - window * (window - 1) / (2 * length)


def _frames(size: CaracalConfig, length: int) -> tuple[int, int, int]:
    """Return the gates of a text, the points of a transform, and the frames into which a longer text is cut."""
    gates = min(size.gate_length or length, length)
    points = fft_points(length, gates)
    return gates, points, math.ceil(length / (points - gates + 1))


def _weights(size: CaracalConfig, architecture: str) -> dict[str, float]:
    """Return the number of weights of each part."""
    layers, d = mixers(size, architecture), size.d_model
    fourier, attention = layers["fourier"], layers["window"] + layers["full"]
    two_stage = size.gate == "two_stage"
    norms = (2 * size.n_layers + 1) * (d if architecture == "llama" else 2 * d)
    own = (2 + 3 + two_stage + 3 * size.pre_conv) * d  # of a Fourier layer: its norm, its biases, its taps
    return {"output": size.vocab_size * d, "mlp": size.n_layers * 3 * d * size.mlp_width,
            "projections": (3 * fourier + 4 * attention) * d * d,
            "gate mix": fourier * two_stage * d * d // size.n_heads, "convolution": 0, "attention": 0,
            "small operators": norms + fourier * own}


def _operations(size: CaracalConfig, length: int, architecture: str) -> dict[str, float]:
    """Return the operations of each part per token, forward."""
    layers, d = mixers(size, architecture), size.d_model
    gates, n, frames = _frames(size, length)
    # A real FFT of the gate, two in each frame, and its n / 2 complex products.
    transforms = 2.5 * (1 + 2 * frames) * n * math.log2(n) + 3 * frames * n
    keys = layers["window"] * _keys(length, size.window_size) + layers["full"] * _keys(length, length)
    of_weights = {part: 2.0 * count for part, count in _weights(size, architecture).items()}
    of_weights["projections"] -= (1 - gates / length) * 2 * layers["fourier"] * d * d  # tokens that compute no gate
    of_weights["gate mix"] *= gates / length
    return of_weights | {"convolution": layers["fourier"] * d * transforms / length, "attention": 4.0 * d * keys}


def _moved(size: CaracalConfig, length: int, architecture: str, how: Pass) -> dict[str, float]:
    """Return the bytes that each part reads and writes per token, forward, beside its weights."""
    layers, d, m = mixers(size, architecture), size.d_model, size.mlp_width
    fourier, attention = layers["fourier"], layers["window"] + layers["full"]
    # q, k and v come from one product in a window, from three in a Llama.
    numbers = {"output": d + size.vocab_size, "mlp": size.n_layers * 3 * (d + m),
               "projections": (6 * fourier + 6 * layers["window"] + 8 * layers["full"]) * d,
               "gate mix": fourier * (size.gate == "two_stage") * 2 * d, "attention": attention * 4 * d}
    given = size, layers, how.bytes_each, how.wide
    small = (small_operators.chains(*given) if how.compiled else
             small_operators.forward_one_by_one(*given, how.fused_norms))
    return {part: float(count * how.bytes_each) for part, count in numbers.items()} | {
        "small operators": small, "convolution": fourier * d * _streams(size, length, how)}


def _streams(size: CaracalConfig, length: int, how: Pass, backward: bool = False) -> float:
    """Return the bytes that a convolution reads and writes, per channel and token, forward or backward."""
    _, points, frames = _frames(size, length)
    if how.fused and points > (longest := ON_CHIP // (2 * _FLOAT32)):
        raise ValueError(f"a fused convolution of {length} tokens takes two streams of {points} points; "
                         f"they fit on the chip up to {longest} points")
    if how.fused:
        return (5 if backward else 3) * how.bytes_each
    # In float32, a spectrum as large as its points: v and g padded (written), transformed (read, written), one product
    # (two read, one written), one inverse, all but those of g in every frame; the r that is kept, read.  Backward:
    # three streams, two products, summed over frames, two inverses; dr, dv and dg are turned round.  `Pass.cuda` adds
    # to each inverse a spectrum copied and, unless it is ours, a result scaled, each read and written.
    t, copies = 2 * _passes(points), (2 if how.autocast else 4) * how.cuda
    streams, padded, kept = (7, (12 + 4 * t + copies) * frames + t - 3 + copies, 6) if backward else (
        3, (4 + 2 * t + copies) * frames + t + 1, 1)
    return streams * how.bytes_each + _FLOAT32 * (padded * points / length + kept)


def _passes(points: int) -> int:
    """Return how often a transform of real points reads and writes all of them."""
    return 1 if _FLOAT32 * points <= ON_CHIP else 2
