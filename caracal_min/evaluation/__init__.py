"""How good a model is: losses on text that it has not seen, and the tasks of the paper's Table 2::

    losses    held-out loss, by position and by context length
    measured  what is measured: a part of a text, and whether it was trained on
    ngrams    n-gram models, as baselines: unigram, bigram and longer
    tasks     the paper's eight tasks, from local files or from the hub
    harness   models and tasks in lm-evaluation-harness

Losses need nothing but the package.  `tasks` and `harness` need the extra `eval`, so they are imported by name, as
`caracal_min.evaluation.tasks`, and not from here.
"""

from .losses import held_out_loss, loss_by_context_length, loss_by_position, token_losses
from .ngrams import ngram_losses

__all__ = ["held_out_loss", "loss_by_context_length", "loss_by_position", "ngram_losses", "token_losses"]
