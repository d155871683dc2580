"""The optimizer of a run: AdamW, whose weight decay is for matrices alone."""

from torch.optim import AdamW

from ..language_model import LanguageModel
from .recipe import TrainConfig

__all__ = ["make_optimizer"]


def make_optimizer(model: LanguageModel, config: TrainConfig) -> AdamW:
    """Return AdamW over all parameters of a model; biases, norms and other vectors do not decay.

    Source: Caracal, Appendix E, for the settings; Loshchilov and Hutter 2019 for the algorithm.
    """
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return AdamW([{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
                 lr=config.learning_rate, betas=(config.beta1, config.beta2), fused=True)
