"""The optimizer of a run: AdamW alone, or Muon for the hidden matrices and AdamW for the rest."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from ..precision import has_bfloat16
from .config import TrainConfig

__all__ = ["Muon", "MuonAdamW", "decays", "make_optimizer", "orthogonalize"]

# Mamba's log rates and long convolution kernels have two dimensions without being matrices: a
# value of 0 has a meaning there, towards which decay would pull them.
_NO_DECAY = {"A_log", "kernel"}


def orthogonalize(matrix: Tensor) -> Tensor:
    """Return a matrix with the singular vectors of `matrix` `[m, n]` and other singular values.

    They lie between about 0.7 and 1.2.  The products are in bfloat16 where the device has units for
    it, else in float32, which a CPU without them computes up to fifty times as fast.

    Source: Jordan et al. 2024 (Muon), for the coefficients.
    """
    dtype = torch.float32
    if has_bfloat16(matrix.device):
        dtype = torch.bfloat16
    x = matrix.to(dtype)
    # A wide matrix has the smaller Gram matrix, which makes the products below cheaper.
    tall = len(x) > x.shape[1]
    if tall:
        x = x.T
    # The iteration needs singular values of at most 1; the clamp keeps a zero gradient finite.
    x = x / x.norm().clamp(min=1e-7)
    # Newton-Schulz: a quintic polynomial brings the singular values near 1, without an SVD.
    for _ in range(5):
        gram = x @ x.T
        polynomial = torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315)
        x = torch.addmm(x, polynomial, x, beta=3.4445)
    return x.T if tall else x


class Muon(Optimizer):
    """Momentum whose steps are orthogonalized, for matrices `[m, n]`.

    The step is scaled to the RMS that AdamW's has, so that both share one learning rate and one
    weight decay.  `torch.optim.Muon` (PyTorch 2.9) is the same in bfloat16 alone, which is slow on
    most CPUs.

    Args:
        params: matrices.
        lr: learning rate.
        weight_decay: decoupled.
        momentum: how much of the running mean of the gradients a step keeps (Nesterov's form).

    Source: Jordan et al. 2024; Liu et al. 2025 ("Muon is scalable for LLM training") for the scale.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, weight_decay: float = 0.1,
                 momentum: float = 0.95):
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self) -> None:
        """Change all matrices that have a gradient."""
        for group in self.param_groups:
            lr = group["lr"]
            momentum = group["momentum"]
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                mean = state["momentum_buffer"]
                mean.lerp_(grad, 1 - momentum)
                # Nesterov: the current gradient counts once more than in the running mean.
                ahead = grad.lerp(mean, momentum)
                step = orthogonalize(ahead)
                p.mul_(1 - lr * group["weight_decay"])
                # An orthogonal step has RMS 1 / sqrt(longer side), AdamW's has about 0.2.
                longer = max(p.shape)
                p.add_(step, alpha=-lr * 0.2 * longer**0.5)


class MuonAdamW(Optimizer):
    """Muon for some groups of parameters and AdamW for the others, with one state.

    As one optimizer it is stepped or skipped as a whole when a scaled gradient overflows.

    Args:
        muon: what steps the matrices.
        adamw: what steps the rest.
    """

    def __init__(self, muon: Optimizer, adamw: Optimizer):
        self.parts = muon, adamw
        groups = muon.param_groups + adamw.param_groups
        # The groups carry their own defaults, which their optimizers have filled in.
        super().__init__(groups, {})
        self._share()

    @torch.no_grad()
    def step(self) -> None:
        """Change all parameters that have a gradient."""
        for part in self.parts:
            part.step()

    def load_state_dict(self, state_dict: dict) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state_dict)
        # Loading has replaced the groups and the state, which the parts still hold.
        self._share()

    def _share(self) -> None:
        """Let both parts work on this optimizer's state and groups."""
        muon, adamw = self.parts
        # Schedulers and gradient scalers see this optimizer alone, so its groups are the real ones.
        count = len(muon.param_groups)
        muon.param_groups = self.param_groups[:count]
        adamw.param_groups = self.param_groups[count:]
        muon.state = adamw.state = self.state


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Whether a parameter of this name decays: matrices, embeddings, short convolutions.

    Source: Gu and Dao 2023 (Mamba), whose code marks A_log `_no_weight_decay`; Poli et al. 2023
    (Hyena), whose code gives its filters none.
    """
    return parameter.ndim >= 2 and name.rpartition(".")[2] not in _NO_DECAY


def make_optimizer(model: nn.Module, config: TrainConfig) -> Optimizer:
    """Return the optimizer of a run over all parameters of a model; `decays` says which decay.

    With "muon", Muon steps the matrices that are no embedding.  The head-wise 1 x 1 convolution of
    the gate, a stack of H matrices, is left to AdamW.

    Source: Caracal, Appendix E, for the settings; Loshchilov and Hutter 2019 for AdamW; Jordan et
    al. 2024 for Muon.
    """
    # Rows of an embedding belong to single tokens: orthogonalizing them together has no meaning.
    embeddings = {m.weight for m in model.modules() if isinstance(m, nn.Embedding)}
    hidden = []
    matrices = []
    vectors = []
    for name, p in model.named_parameters():
        if not decays(name, p):
            vectors.append(p)
        elif config.optimizer == "muon" and p.ndim == 2 and p not in embeddings:
            hidden.append(p)
        else:
            matrices.append(p)
    decay = config.weight_decay
    rate = config.learning_rate
    groups = [
        {"params": matrices, "weight_decay": decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    # Fused: one kernel for all parameters instead of several for each.
    adamw = AdamW(groups, lr=rate, betas=(config.beta1, config.beta2), fused=True)
    # PyTorch refuses an optimizer without parameters, so Muon is made only if it has some.
    if hidden:
        return MuonAdamW(Muon(hidden, rate, decay), adamw)
    return adamw
