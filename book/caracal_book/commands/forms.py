"""The command `forms`: its options are `experiments.forms.FormsConfig`."""

from caracal_min.commands import Command

from ..experiments.forms import FormsConfig, run_forms

__all__ = ["COMMAND", "FormsConfig", "run_forms_command"]


def run_forms_command(config: FormsConfig) -> None:
    """Run what is left; print each run, and at the end the losses and their rise under two ablations."""
    results = run_forms(config)["results"]
    print(f"{'form':<12}{'rate':>8}{'loss':>9}{'spread':>9}  no lags, and the mean gate, by seed")
    for row in results["standings"]:
        own = [run for run in results["runs"] if run["contender"] == row["contender"] and not run["sweep"]
               and run["learning_rate"] == row["learning_rate"]]
        changes = [{found["operation"]: found["change"] for found in run.get("surgery", ())} for run in own]
        print(f"{row['contender']:<12}{row['learning_rate'] or 0:>8g}{row['loss'] or float('nan'):>9.4f}"
              f"{row['spread'] or 0:>9.4f}  " + ", ".join(
                  f"{change['gate up to lag 0']:+.3f} {change['mean gate']:+.3f}" for change in changes if change))
    print(f"record = {config.out / 'record.json'}")


COMMAND = Command(FormsConfig, run_forms_command)
