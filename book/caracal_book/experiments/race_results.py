"""The results of a race: standings and a table; for the command line and for the book."""

import statistics
from collections.abc import Sequence

__all__ = ["race_table", "standings"]


def standings(runs: Sequence[dict]) -> list[dict]:
    """Return a row for each contender that ran, the lowest loss first.

    Args:
        runs: as in a record, in the order in which they ran.  Those marked as a sweep choose the learning rate; where
            none is, all runs with the seed of the first one do.

    Returns:
        contender; sweep, pairs of learning rate and held-out loss (None: diverged) with the first seed;
        learning_rate, the best of them (None: all diverged); at_edge, whether it is the lowest or the highest that was
        tried, so that a better one may lie beyond; losses by seed at that rate, on all tokens; loss, their mean, and
        spread, the highest less the lowest (None if a seed diverged); parameters; seconds_per_step, the median over
        these runs.  Losses in nats per token.
    """
    rows = []
    for name in dict.fromkeys(run["contender"] for run in runs):
        own = [run for run in runs if run["contender"] == name]
        whole = [run for run in own if not run["sweep"]]
        tried = [run for run in own if run["sweep"]] or [run for run in own if run["seed"] == own[0]["seed"]]
        sweep = sorted((run["learning_rate"], run["loss"]) for run in tried)
        finished = [(loss, rate) for rate, loss in sweep if loss is not None]
        best = min(finished)[1] if finished else None
        at_best = [run for run in whole if run["learning_rate"] == best]
        losses = {str(run["seed"]): run["loss"] for run in at_best}
        known = bool(losses) and None not in losses.values()
        rows.append({"contender": name, "parameters": own[0]["parameters"], "sweep": [list(pair) for pair in sweep],
                     "learning_rate": best, "at_edge": best in (sweep[0][0], sweep[-1][0]), "losses": losses,
                     "loss": statistics.fmean(losses.values()) if known else None,
                     "spread": max(losses.values()) - min(losses.values()) if known else None,
                     "seconds_per_step": statistics.median(run["seconds_per_step"] for run in at_best or own)})
    return sorted(rows, key=lambda row: float("inf") if row["loss"] is None else row["loss"])


def race_table(record: dict) -> str:
    """Return the table of a race as text: best rate, loss over the seeds, and time of a step, with who was left out."""
    results = record["results"]
    lines = [f"{'contender':<16}{'parameters':>12}{'best rate':>11}{'held-out loss':>15}{'spread':>9}{'s a step':>10}"]
    for row in results["standings"]:
        edge = "*" if row["at_edge"] else ""
        rate = "diverged" if row["learning_rate"] is None else f"{row['learning_rate']:g}{edge}"
        loss, spread = ("-" if x is None else f"{x:.4f}" for x in (row["loss"], row["spread"]))
        lines.append(f"{row['contender']:<16}{row['parameters']:>12,}{rate:>11}{loss:>15}{spread:>9}"
                     f"{row['seconds_per_step']:>10.3f}")
    if any(row["at_edge"] for row in results["standings"]):
        lines.append("* at the edge of the rates that were tried: a better one may lie beyond")
    for row in results["contenders"]:
        if row["left_out"]:
            lines.append(f"{row['contender']:<16}{row['parameters']:>12,}  left out: {row['seconds_per_step']:.2f} s "
                         f"for a batch of {row['sequences']}, {row['times_caracal']:.1f} times a step of Caracal")
    return "\n".join(lines)
