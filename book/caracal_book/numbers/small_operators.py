"""Bytes that small operators move: norms, sums, biases, taps, SiLU, casts; per token, for `cost`.

Numbers inside a block have `each` bytes.  Those between blocks, and the results of norms there, have `wide`: 4 under
autocast, which casts them before every product, else as many as inside.
"""

from caracal_min.config import CaracalConfig

__all__ = ["backward_one_by_one", "chains", "forward_one_by_one"]

_FLOAT32 = 4  # bytes


def _cast(each: int, wide: int) -> int:
    return each + wide if each != wide else 0


def forward_one_by_one(size: CaracalConfig, layers: dict[str, int], each: int, wide: int,
                       fused_norms: bool = False) -> float:
    """Return the bytes of a forward pass as PyTorch runs it; layers as `cost.mixers` gives them."""
    d, norms, cast = size.d_model, 2 * size.n_layers + 1, _cast(each, wide)
    # SiLU reads and writes, a product or a sum of two reads twice and writes.
    block = (2 * (2 * wide + each) + 2 * cast) * d + 5 * each * size.mlp_width
    ends = (2 * wide + cast) * d  # a token is looked up; what the output matrix is given
    if layers["full"]:
        # Square, mean, scale, weigh; to float32 and back only where numbers are shorter.
        norm = 2 * wide if fused_norms else 20 + 2 * wide + (8 + 2 * wide if wide < _FLOAT32 else 0)
        # q, k: by a cosine, by a sine after halves changed places, their sum; casts of what makes q, k, v, and of q, k.
        turn = (10 * (each + wide) + 5 * cast) * d
        return float(size.n_layers * (block + turn + 4 * wide * d // size.n_heads) + ends + norms * d * norm)
    taps = 2 * wide + cast + 4 * each if size.pre_conv else 2 * wide + 2 * cast  # pad, taps and norm, or the norm alone
    own = taps + 2 * each + 2 * each * (size.gate == "two_stage")  # a bias, SiLU
    return float(size.n_layers * block + (layers["fourier"] * own + layers["window"] * cast) * d + ends
                 + norms * 2 * wide * d)


def backward_one_by_one(size: CaracalConfig, layers: dict[str, int], each: int, wide: int) -> float:
    """Return the bytes of the backward pass of a Caracal."""
    d, norms, cast = size.d_model, 2 * size.n_layers + 1, _cast(each, wide)
    block = (4 * cast + 9 * wide) * d + 9 * each * size.mlp_width  # gradients are cast, too; sums; product and SiLU
    taps = 2 * wide + cast + 8 * each if size.pre_conv else 3 * wide + 2 * cast
    own = taps + 6 * each + 4 * each * (size.gate == "two_stage")
    ends = (3 * wide + cast + 2 * each) * d
    return float(size.n_layers * block + (layers["fourier"] * own + layers["window"] * (cast + 6 * each)) * d + ends
                 + norms * 3 * wide * d)


def chains(size: CaracalConfig, layers: dict[str, int], each: int, wide: int) -> float:
    """Return the bytes of a forward pass in which every chain of small operators between two products is one."""
    d = size.d_model
    block = 4 * (wide + each) * d + 3 * each * size.mlp_width  # twice a sum and the norm of it; one chain in the SwiGLU
    # Taps meet their neighbours' norms, so these have been written; SiLU stands between two products.
    own = (2 * size.pre_conv + 2 * (size.gate == "two_stage")) * d
    turn = 4 * d + 2 * d // size.n_heads  # q and k, and their cosines and sines
    return float(size.n_layers * block + (layers["fourier"] * own + layers["full"] * turn) * each + 2 * wide * d)
