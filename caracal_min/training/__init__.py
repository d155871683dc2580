"""A training run, from its settings to a record of it.

A run is a `TrainConfig` (the paper's recipe, unless changed); a `Trainer` carries it out.  In a folder it survives a
kill: the same configuration goes on from the last checkpoint, on the same curve, on one process or on several.

    >>> from caracal_min.data import load_corpus
    >>> corpus = load_corpus("embedded", max_tokens=500_000, progress=False)
    >>> config = TrainConfig.for_preset("nano", tokens=1024, context=64, eval_windows=2, progress=False)
    >>> with Trainer(config, corpus) as trainer:
    ...     log = trainer.run()
    >>> log[-1]["step"], 3 < log[-1]["validation_loss"] < 6
    (4, True)

`python -m caracal_min train --help` lists the fields of a `TrainConfig` and says what each is for::

    settings      checks of a dataclass of settings
    recipe        the settings of a run, and the learning rate that follows from them
    trainer       the loop
    optimizer     AdamW, or Muon and AdamW; what decays
    distributed   several processes that train one model
    folder        where a run lives: one process at a time works there
    checkpoint    the state of a run in one file, without pickle
    stopping      signals that stop a run after its step
    trained       the model of a run: at its beginning, after its end, or in its last checkpoint
    run_log       one line for every step, and the progress bar
    run_record    what the record says of processes, first weights, text and model
    flops         operations per token, for the utilisation of a device
"""

from typing import TYPE_CHECKING

from ..lazy import lazy

if TYPE_CHECKING:
    from .flops import flops_per_token, peak_flops
    from .recipe import TrainConfig, learning_rate
    from .stopping import StoppedError
    from .trainer import DivergedError, Trainer

__all__ = ["DivergedError", "StoppedError", "TrainConfig", "Trainer", "flops_per_token", "learning_rate", "peak_flops"]

__getattr__, __dir__ = lazy(__name__, {"DivergedError": "trainer", "StoppedError": "stopping", "TrainConfig": "recipe",
                                       "Trainer": "trainer", "flops_per_token": "flops", "learning_rate": "recipe",
                                       "peak_flops": "flops"})
