"""The optimizer of a run: AdamW alone, or Muon for the hidden matrices and AdamW for the rest."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from ..language_model import LanguageModel
from ..precision import has_bfloat16
from .recipe import TrainConfig

__all__ = ["Muon", "MuonAdamW", "decays", "make_optimizer", "orthogonalize"]

_NO_DECAY = {"A_log", "kernel"}  # the logarithms of Mamba's rates; a convolution kernel as long as the text


def orthogonalize(matrix: Tensor, dtype: torch.dtype | None = None, steps: int = 5) -> Tensor:
    """Return a matrix with the singular vectors of `matrix` `[m, n]` and singular values between about 0.7 and 1.2.

    Args:
        dtype: of the products.  None: bfloat16 where the device has units for it, else float32, which a CPU without
            them computes up to fifty times as fast.
        steps: of the Newton-Schulz iteration, a polynomial of fifth degree that is applied to the singular values.

    Source: Jordan et al. 2024 (Muon), for the coefficients.
    """
    x = matrix.to(dtype or (torch.bfloat16 if has_bfloat16(matrix.device) else torch.float32))
    tall = len(x) > x.shape[1]
    x = x.T if tall else x  # so that the products of rows are the smaller matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x.T if tall else x


class Muon(Optimizer):
    """Momentum whose steps are orthogonalized, for matrices `[m, n]`.

    The step is scaled to the RMS that AdamW's has, so that both share one learning rate and one weight decay.
    `torch.optim.Muon` is the same in bfloat16, which is slow on most CPUs, and knows no other type.

    Args:
        params: matrices.
        lr: learning rate.
        weight_decay: decoupled.
        momentum: how much of the running mean of the gradients a step keeps (Nesterov's form).
        dtype: of the products, as in `orthogonalize`.

    Source: Jordan et al. 2024; Liu et al. 2025 ("Muon is scalable for LLM training") for the scale.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, weight_decay: float = 0.1, momentum: float = 0.95,
                 dtype: torch.dtype | None = None):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: Callable | None = None) -> None:
        """Change all matrices that have a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                mean = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                mean.lerp_(p.grad, 1 - group["momentum"])
                step = orthogonalize(p.grad.lerp(mean, group["momentum"]), self.dtype)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(step, alpha=-group["lr"] * 0.2 * max(p.shape) ** 0.5)


class MuonAdamW(Optimizer):
    """Muon for some groups of parameters and AdamW for the others, with one state and one list of groups.

    As one optimizer it is stepped or skipped as a whole when a scaled gradient overflows.

    Args:
        muon: what steps the matrices.
        adamw: what steps the rest.
    """

    def __init__(self, muon: Optimizer, adamw: Optimizer):
        self._muon, self._adamw = muon, adamw
        super().__init__([*muon.param_groups, *adamw.param_groups], {})
        self._share()

    @torch.no_grad()
    def step(self, closure: Callable | None = None) -> None:
        """Change all parameters that have a gradient."""
        self._muon.step()
        self._adamw.step()

    def load_state_dict(self, state_dict: dict) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        of_muon = len(self._muon.param_groups)
        self._muon.param_groups, self._adamw.param_groups = self.param_groups[:of_muon], self.param_groups[of_muon:]
        self._muon.state = self._adamw.state = self.state


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Whether weight decay is for a parameter of this name: for matrices, embeddings and short convolutions.

    It is not for biases, norms and other vectors, nor for those that have two dimensions without being a matrix: decay
    would pull them to a value, a rate of 1 or a kernel of zeros, that means something.

    Source: Gu and Dao 2023 (Mamba), whose code marks A_log `_no_weight_decay`; Poli et al. 2023 (Hyena), whose code
    gives its filters none.
    """
    return parameter.ndim >= 2 and name.rpartition(".")[2] not in _NO_DECAY


def make_optimizer(model: LanguageModel, config: TrainConfig) -> Optimizer:
    """Return the optimizer of a run over all parameters of a model; `decays` says which of them decay.

    With "muon", Muon steps the matrices that are no embedding; its update is scaled to the size of AdamW's, so that one
    learning rate and one weight decay serve both.  `HeadMix.weight`, a stack of H matrices, is left to AdamW.

    Source: Caracal, Appendix E, for the settings; Loshchilov and Hutter 2019 for AdamW; Jordan et al. 2024 for Muon,
    Liu et al. 2025 ("Muon is scalable for LLM training") for its scale.
    """
    left = dict(model.named_parameters())
    muon = None
    if config.optimizer == "muon":
        embeddings = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
        hidden = [name for name, p in left.items() if p.ndim == 2 and decays(name, p) and p not in embeddings]
        muon = Muon([left.pop(name) for name in hidden], config.learning_rate, config.weight_decay)
    decaying = [p for name, p in left.items() if decays(name, p)]
    others = [p for name, p in left.items() if not decays(name, p)]
    adamw = AdamW([{"params": decaying, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}],
                  lr=config.learning_rate, betas=(config.beta1, config.beta2), fused=True)
    return adamw if muon is None else MuonAdamW(muon, adamw)
