"""The command `train`: its options are `training.recipe.TrainConfig`."""

from pathlib import Path

from ..training.recipe import TrainConfig
from .command import Command

__all__ = ["COMMAND"]


def recipe_of(preset: str) -> TrainConfig:
    """Return the defaults of `train` for a preset: its recipe, in a folder of its name."""
    return TrainConfig.for_preset(preset, out=Path("runs") / preset)


def run_train(config: TrainConfig) -> None:
    """Train, or resume the run in `config.out`; SIGINT, SIGTERM and SIGHUP stop it with a checkpoint."""
    from ..training.stopping import StoppedError
    from ..training.trainer import Trainer

    with Trainer(config) as trainer:
        done_before = trainer.finished
        if trainer.step and not done_before and trainer.group.is_main:
            print(f"resuming {config.out} at step {trainer.step} of {config.steps}")
        try:
            log = trainer.run()
        except StoppedError:
            log = trainer.log
        if not trainer.group.is_main:
            return
        state = "done" if trainer.finished else "stopped; the same command goes on from here"
        print(f"step {trainer.step} of {config.steps}: {state}{' before, left as it is' if done_before else ''}")
        measured = [entry for entry in log if "validation_loss" in entry]
        if measured:
            print(f"validation loss = {measured[-1]['validation_loss']:.4f} nats per token at step "
                  f"{measured[-1]['step']}")
        if config.out is not None and trainer.finished:
            print(f"model = {config.out / 'model'}")
            print(f"record = {config.out / 'record.json'}")


COMMAND = Command(TrainConfig, run_train, for_preset=recipe_of)
