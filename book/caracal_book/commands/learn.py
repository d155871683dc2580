"""The command `learn`: its options are `experiments.learner.LearnConfig`."""

from ..experiments.learner import LearnConfig, comparison, run_learn
from . import Command

__all__ = ["COMMAND", "run_learn_command"]


def run_learn_command(config: LearnConfig) -> None:
    """Run what is left; print each run, and at the end the accuracies at the best learning rate, and their range."""
    rows = comparison(run_learn(config)["results"]["runs"])
    print(f"{'task':<16}{'contender':<24}{'rate':>8}{'accuracy':>10}  over seeds")
    for row in rows:
        print(f"{row['task']:<16}{row['contender']:<24}{row['learning_rate']:>8g}{row['mean']:>10.3f}  "
              f"{row['low']:.3f} to {row['high']:.3f}{', best rate at the edge' if row['edge'] else ''}")
    print(f"record = {config.out / 'record.json'}")


COMMAND = Command(LearnConfig, run_learn_command)
