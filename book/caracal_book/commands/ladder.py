"""The command `ladder`: its options are `experiments.ladder.LadderConfig`."""

from ..experiments.ladder import LadderConfig, run_ladder
from . import Command

__all__ = ["COMMAND", "run_ladder_command"]


def run_ladder_command(config: LadderConfig) -> None:
    """Run what is left; print each run, and at the end the losses by rung."""
    record = run_ladder(config)
    for row in record["results"]["standings"] if record else ():
        print(f"{row['contender']:<16}{row['learning_rate'] or 0:>8g}{row['loss'] or float('nan'):>9.4f}"
              f"{row['spread'] or 0:>9.4f}  {len(row['losses'])} seeds")
    print(f"record = {config.out / 'record.json'}")


COMMAND = Command(LadderConfig, run_ladder_command)
