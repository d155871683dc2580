# goes when training and commands no longer import it
"""All models by name: Caracal, its variants in the paper's ablations, and the baselines of the paper.

A size is a preset (nano, micro, tiny, small, medium, large), an architecture is who mixes the tokens, and a variant
changes a Caracal as a row of the paper's tables does.  `make_model` builds any of them, `load_model` reads back what
`save_pretrained` wrote.  `transformers` is imported when a baseline is asked for, not before::

    registry    the names, and the two functions
    baselines   Llama, Mamba, Mamba-2 and Jamba at the paper's sizes
"""

from .baselines import BASELINES, Baseline
from .registry import ARCHITECTURES, VARIANTS, load_model, make_model

__all__ = ["ARCHITECTURES", "BASELINES", "VARIANTS", "Baseline", "load_model", "make_model"]
