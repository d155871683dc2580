"""A training run, from its settings to a trained model.

A run is a `TrainConfig` (the paper's recipe, unless changed); a `Trainer` carries it out.  In a
folder it survives a kill: the same configuration goes on from the last checkpoint, on the same
curve, on one process or on several.

    >>> from caracal_min.data import load_corpus
    >>> from caracal_min.training import TrainConfig, Trainer
    >>> corpus = load_corpus("embedded", max_tokens=500_000, progress=False)
    >>> config = TrainConfig.for_preset("nano", tokens=1024, context=64, eval_windows=2,
    ...                                 progress=False)
    >>> with Trainer(config, corpus) as trainer:
    ...     log = trainer.run()
    >>> log[-1]["step"], 3 < log[-1]["validation_loss"] < 6
    (4, True)

`python -m caracal_min train --help` lists the fields of a `TrainConfig` and says what each is for::

    config        the settings of a run, and the learning rate that follows from them
    optimizer     AdamW, or Muon and AdamW; what decays
    checkpoint    the state of a run in one file; the model of a run
    distributed   several processes that train one model
    flops         operations per token, and what a GPU could do
    trainer       the loop
"""

from .checkpoint import load_run
from .config import TrainConfig, learning_rate
from .flops import flops_per_token, peak_flops
from .trainer import DivergedError, StoppedError, Trainer

__all__ = ["DivergedError", "StoppedError", "TrainConfig", "Trainer", "flops_per_token",
           "learning_rate", "load_run", "peak_flops"]
