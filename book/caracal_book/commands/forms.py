"""The command `forms`: its options are `experiments.forms.FormsConfig`."""

from ..experiments.forms import FormsConfig, run_forms
from . import Command

__all__ = ["COMMAND", "run_forms_command"]


def run_forms_command(config: FormsConfig) -> None:
    """Run what is left; print each run, and at the end the losses and their rise under two ablations."""
    results = run_forms(config)["results"]
    print(f"{'form':<12}{'rate':>8}{'loss':>9}{'spread':>9}  no lags, and the mean gate, by seed")
    for row in results["standings"]:
        rises = []
        for run in results["runs"]:
            of_row = (run["contender"], run["learning_rate"]) == (row["contender"], row["learning_rate"])
            if of_row and "surgery" in run:
                change = {outcome["operation"]: outcome["change"] for outcome in run["surgery"]}
                rises.append(f"{change['gate up to lag 0']:+.3f} {change['mean gate']:+.3f}")
        print(f"{row['contender']:<12}{row['learning_rate'] or 0:>8g}{row['loss'] or float('nan'):>9.4f}"
              f"{row['spread'] or 0:>9.4f}  " + ", ".join(rises))
    print(f"record = {config.out / 'record.json'}")


COMMAND = Command(FormsConfig, run_forms_command)
