"""Two recurrences that are linear in their state, without a loop over time: linear attention and the delta rule.

The state S is a matrix that holds values under keys.  Both write the pair of each token into it and read it with the
query; the delta rule first takes back what it holds under the key.  Here a whole text is one matrix product or one
triangular system, in O(L^2), which is the published chunked form with the text as its only chunk.
"""

import torch
from torch import Tensor

__all__ = ["gated_delta_rule", "linear_attention", "pairwise_decay"]


def linear_attention(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    """Return o_t = S_t^T q_t / sqrt(d) with S_t = a_t S_{t-1} + k_t v_t^T, as masked scores, in O(L^2).

    Args:
        q, k, v: `[B, H, L, d]`.
        log_decay: log a_t <= 0, `[B, H, L]`.

    Returns:
        `[B, H, L, d]`.

    Source: the parallel form of Sun et al. 2023, Section 2.1.
    """
    return (q @ k.mT * q.shape[-1] ** -0.5 * pairwise_decay(log_decay)) @ v


def gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor) -> Tensor:
    """Return o_t = S_t^T q_t / sqrt(d) with S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T, in O(L^2).

    What step t writes is b_t (v_t - what the decayed state holds under k_t): all writes solve one triangular system,
    which is the UT transform of the published chunked form with the whole text as one chunk.

    Args:
        q, k, v: `[B, H, L, d]`; k of length 1.
        beta: b_t, from 0 (writes nothing) to 1 (overwrites), `[B, H, L]`.
        log_decay: log a_t <= 0, `[B, H, L]`.

    Returns:
        `[B, H, L, d]`.

    Source: Yang et al. 2024, "Gated Delta Networks", Section 3.
    """
    decay, beta = pairwise_decay(log_decay), beta.unsqueeze(-1)
    written = torch.linalg.solve_triangular(beta * (k @ k.mT) * decay, beta * v, upper=False, unitriangular=True)
    return (q @ k.mT * q.shape[-1] ** -0.5 * decay) @ written


def pairwise_decay(log_decay: Tensor) -> Tensor:
    """Return a_t ... a_{j+1}, what is left at t of a write at j <= t, and 0 for j > t: `[..., L]` to `[..., L, L]`."""
    total = log_decay.cumsum(-1)
    causal = torch.ones(total.shape[-1:] * 2, dtype=torch.bool, device=total.device).tril()
    return (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(~causal, -torch.inf).exp()
