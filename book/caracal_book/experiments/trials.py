"""Short training runs beside each other: what was changed, and what came out."""

from collections.abc import Sequence
from pathlib import Path

from caracal_min.data.batches import sequential_windows, tokens_of
from caracal_min.evaluation import bits_per_byte, bytes_of_targets
from caracal_min.tokenizer import make_tokenizer
from caracal_min.training.config import TrainConfig

from ..records import read_record

__all__ = ["trial_rows"]


def trial_rows(runs: Sequence[Path], held_out: str) -> tuple[list[dict], list[dict]]:
    """Return a row for each finished run, and the processes that carried them out, as a record has both.

    A row has the settings in which a run differs from the first, its parameters, tokens and seconds, and its last loss
    on the windows that it was validated on, in nats per token and in bits per byte, which runs with different
    vocabularies share; and as its curve such losses by step.  Seconds depend on what else the machine did.

    Args:
        runs: folders of runs, which train wrote.
        held_out: what all of them were validated on.

    Raises:
        FileNotFoundError, RecordError: a run that has not ended, was edited, or was made with code of no commit.
        ValueError: it was validated on another text, or not at its end.
    """
    rows, parts, texts, first, deciding = [], [], {}, {}, TrainConfig().resume_settings
    for run in runs:
        record = read_record(run / "record.json")
        config, data, results = record["config"], record["data"], record["results"]
        tokenizer = make_tokenizer(data["tokenizer"])
        if tokenizer.name not in texts:
            texts[tokenizer.name] = tokens_of(held_out, tokenizer, progress=False)
        tokens = texts[tokenizer.name]
        if data["validation_tokens"] != len(tokens):
            raise ValueError(f"{run} was validated on {data['validation_tokens']:,} tokens of {data['validation']}, "
                             f"and {held_out} has {len(tokens):,}; give the text that all of them were validated on")
        if "validation_loss" not in results["curve"][-1]:
            raise ValueError(f"{run} was not validated at its last step; run it again")
        windows = sequential_windows(tokens, config["context"], config["eval_windows"])
        curve = {entry["step"]: entry["validation_loss"] for entry in results["curve"] if "validation_loss" in entry}
        loss, settings = [*curve.values()][-1], {name: config.get(name, default) for name, default in deciding.items()}
        first = first or settings
        rows.append({
            "name": run.name, "changed": {name: value for name, value in settings.items() if value != first[name]},
            "parameters": results["parameters"], "tokens": results["tokens"], "seconds": record["seconds"],
            "loss": loss, "windows": len(windows),
            "bits_per_byte": bits_per_byte(loss, windows[:, 1:].numel(), bytes_of_targets(windows, tokenizer)),
            "curve": curve, "text_sha256": data["sha256"], "device": record["machine"]["device"],
            "threads": record["machine"]["threads"], "digest": record["digest"]})
        parts += [part for part in record["parts"] if part not in parts]
    return rows, parts
