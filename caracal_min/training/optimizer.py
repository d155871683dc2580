"""The optimizer of a run: AdamW, whose weight decay is for matrices alone."""

from torch import nn
from torch.optim import AdamW

from ..language_model import LanguageModel
from .recipe import TrainConfig

__all__ = ["decays", "make_optimizer"]

_KEPT = {"A_log", "kernel"}  # the logarithms of Mamba's rates; a convolution kernel as long as the text


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Whether weight decay is for a parameter of this name: for matrices, embeddings and short convolutions.

    It is not for biases, norms and other vectors, nor for those that have two dimensions without being a matrix: decay
    would pull them to a value, a rate of 1 or a kernel of zeros, that means something.

    Source: Gu and Dao 2023 (Mamba), whose code marks A_log `_no_weight_decay`; Poli et al. 2023 (Hyena), whose code
    gives its filters none.
    """
    return parameter.ndim >= 2 and name.rpartition(".")[2] not in _KEPT


def make_optimizer(model: LanguageModel, config: TrainConfig) -> AdamW:
    """Return AdamW over all parameters of a model; `decays` says which of them decay.

    Source: Caracal, Appendix E, for the settings; Loshchilov and Hutter 2019 for the algorithm.
    """
    parameters = list(model.named_parameters())
    decaying = [p for name, p in parameters if decays(name, p)]
    others = [p for name, p in parameters if not decays(name, p)]
    return AdamW([{"params": decaying, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}],
                 lr=config.learning_rate, betas=(config.beta1, config.beta2), fused=True)
