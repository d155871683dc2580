"""The optimizer of a run: AdamW alone, or Muon for the hidden matrices and AdamW for the rest."""

from collections.abc import Callable

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from ..language_model import LanguageModel
from .recipe import TrainConfig

__all__ = ["MuonAdamW", "decays", "make_optimizer"]

_NO_DECAY = {"A_log", "kernel"}  # the logarithms of Mamba's rates; a convolution kernel as long as the text


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

    Raises:
        ValueError: this PyTorch has no Muon.

    Source: Caracal, Appendix E, for the settings; Loshchilov and Hutter 2019 for AdamW; Jordan et al. 2024 for Muon,
    Liu et al. 2025 ("Muon is scalable for LLM training") for its scale.
    """
    left = dict(model.named_parameters())
    muon = None
    if config.optimizer == "muon":
        if not hasattr(torch.optim, "Muon"):
            raise ValueError(f"optimizer='muon' needs PyTorch 2.9 or later, here is {torch.__version__}; "
                             "give optimizer='adamw', or install a later one")
        embeddings = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
        hidden = [name for name, p in left.items() if p.ndim == 2 and decays(name, p) and p not in embeddings]
        muon = torch.optim.Muon([left.pop(name) for name in hidden], lr=config.learning_rate,
                                weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw")
    decaying = [p for name, p in left.items() if decays(name, p)]
    others = [p for name, p in left.items() if not decays(name, p)]
    adamw = AdamW([{"params": decaying, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}],
                  lr=config.learning_rate, betas=(config.beta1, config.beta2), fused=True)
    return adamw if muon is None else MuonAdamW(muon, adamw)
