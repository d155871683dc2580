"""Turn a finished run of micro into the model that comes with the package, measure it, and write its card.

    python tools/ship_micro.py runs/micro --shards shards --mixture micro.json --held-out fineweb-validation.jsonl.xz \
        --once shards_once

Four steps; the second leaves out what is there already, so a call that was stopped goes on.

weights     caracal_min/pretrained/micro: the weights in bfloat16, configuration, tokenizer, and the record of the run
measures    book/caracal_book/runs/micro_evaluation and micro_surgery: held-out loss, samples and ablations; and
            micro_counts and micro_counts_once: tables of tokens in a row, counted in as many tokens of its text as the
            model has read, and in a text of the same sources in which no document stands twice
cut         gate_length in the configuration: the length of training.  No logit changes up to there, and in longer texts
            the loss stays.  All measures come before it, so they are of the model as it was trained
card        README.md beside the weights, whose every number comes from these records, and from those of its blind test
            and of its twins, where they exist.  SHA256SUMS: the hashes of what a user loads

Commit the code first, since the records name the commit that holds it.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import add_record
import micro_card
import torch

from caracal_book.commands.count import CountConfig, run_count
from caracal_book.commands.evaluate import EvaluateConfig, run_evaluate
from caracal_book.commands.surgery import SurgeryConfig, run_surgery
from caracal_book.records import code, read_record, seal
from caracal_min import Caracal
from caracal_min.data import load_corpus
from caracal_min.files import file_sha256, writing
from caracal_min.model import CONFIG, WEIGHTS
from caracal_min.training import TrainConfig

NAME = "micro"
PROMPTS = ("The history of", "In the morning, she", "Scientists have found that", "The best way to", "The city of",
           "Once upon a time", "The government has", "You can make", "The war began", "He opened the door and")
"""What the card's samples continue."""
_STEPS_BETWEEN = 20  # of the curve; a step in four seconds would be a megabyte
_DIGITS = 6


def logits_sha256(model: Caracal, text: str) -> str:
    """Return the hash of the logits after a text, in float64 and rounded to six digits: equal on every machine.

    Args:
        model: in float64, on the CPU, with its tokenizer.

    Raises:
        ValueError: a logit lies so near to the middle of two rounded numbers that machines might differ.
    """
    with torch.no_grad():
        scaled = model.logits(torch.tensor([model.require_tokenizer().encode(text)]))[0, -1] * 10 ** _DIGITS
    if (scaled - scaled.floor() - 0.5).abs().min() < 1e-5:  # rounding errors are about 1e-8 of these units
        raise ValueError(f"a logit after {text!r} lies in the middle of two numbers of {_DIGITS} digits")
    return hashlib.sha256(scaled.round().to(torch.int64).numpy().tobytes()).hexdigest()


def write_weights(run: Path, shards: Path, mixture: Path, held_out: str, folder: Path) -> dict:
    """Write the model of a run in bfloat16, and the record of the run, into `folder`; return the record.

    Raises:
        ValueError, FileNotFoundError, RecordError: the run has not ended, or no commit holds its code; its model is
            another than the record says; the shards are not the text it was trained on, or not of this mixture.
    """
    record, said = add_record.admitted(run / "record.json"), json.loads(mixture.read_text(encoding="utf-8"))
    if file_sha256(run / "model" / WEIGHTS) != record["results"]["model_sha256"]:
        raise ValueError(f"{run / 'model'} is not the model of {run / 'record.json'}; train again")
    model = Caracal.from_pretrained(run / "model", device="cpu", dtype=torch.bfloat16)
    corpus = load_corpus(shards, model.require_tokenizer(), TrainConfig(**record["config"]).corpus_limit,
                         progress=False, validation=held_out)
    if corpus.digest != record["data"]["sha256"]:
        raise ValueError(f"{shards} and {held_out} are not the text that {run} was trained and validated on")
    model.config = replace(model.config, max_positions=record["config"]["context"])
    model.save_pretrained(folder)
    exact = Caracal.from_pretrained(folder, device="cpu", dtype=torch.float64)
    text, digest = next((text, logits_sha256(exact, text)) for text in PROMPTS if not _between(exact, text))
    curve = record["results"]["curve"]
    kept = [entry for i, entry in enumerate(curve)
            if i % _STEPS_BETWEEN == 0 or i == len(curve) - 1 or {"validation_loss", "sample"} & entry.keys()]
    shipped = {"dtype": "bfloat16", "sha256": file_sha256(folder / WEIGHTS), "text": text, "logits_sha256": digest,
               "steps_between_rows": _STEPS_BETWEEN, "mixture": said}
    results = {"model": vars(model.config), "processes": record["results"]["history"][-1]["processes"],
               **record["results"], "curve": kept, "shipped": shipped}
    record = seal(record | {"results": results})
    with writing(folder / "record.json") as partial:
        partial.write_text(json.dumps(record, indent=1) + "\n")
    return read_record(folder / "record.json", require_commit=False)


def _between(model: Caracal, text: str) -> bool:
    try:
        logits_sha256(model, text)
    except ValueError:
        return True
    return False


def measures(record: dict, shards: Path, once: Path, held_out: str, folder: Path) -> dict[str, Callable[[Path], dict]]:
    """Return what is measured of the model in `folder`, by name: functions that write a record to a path."""
    on = {"data": held_out, "split": "all", "context": record["config"]["context"]}
    read = min(record["results"]["tokens"], record["data"]["train_tokens"])

    def counted(text: Path, tokens: int) -> Callable[[Path], dict]:
        return lambda out: run_count(CountConfig(train=str(text), train_tokens=tokens, **on, tokens=10**9, out=out,
                                                 tokenizer=str(folder / "tokenizer.json")))

    return {
        "evaluation": lambda out: run_evaluate(EvaluateConfig(NAME, **on, tokens=10**9, prompts=PROMPTS,
                                                              precision="float32", device="cpu", out=out)),
        "surgery": lambda out: run_surgery(SurgeryConfig(NAME, **on, windows=256, device="cpu", out=out)),
        "counts": counted(shards, read), "counts_once": counted(once, 10**9),
    }


def measured(record: dict, shards: Path, once: Path, held_out: str, folder: Path, root: Path) -> dict[str, dict]:
    """Measure what has not been measured of these weights, put the records into the book, and return them by name."""
    found, runs, weights = {}, root / "book" / "caracal_book" / "runs", file_sha256(folder / WEIGHTS)
    for name, measure in measures(record, shards, once, held_out, folder).items():
        path = runs / f"{NAME}_{name}.json"
        if not path.is_file():
            with tempfile.TemporaryDirectory() as scratch:
                measure(Path(scratch) / "record.json")
                add_record.add(Path(scratch) / "record.json", path.stem, root)
        found[name] = read_record(path, require_commit=False)
        if found[name]["results"].get("model_sha256", weights) != weights:
            raise ValueError(f"{path} is of other weights than {folder}; move it elsewhere, and run this again")
    others = {name: runs / f"{NAME}_{name}.json" for name in ("blind_test", "twins")}
    return found | {name: read_record(path, require_commit=False) for name, path in others.items() if path.is_file()}


def ship(run: Path, shards: Path, mixture: Path, held_out: str, once: Path, root: Path = add_record.ROOT) -> Path:
    """Do the four steps, and return the folder of the model."""
    code()  # is read once: now, and not when the first measure ends
    folder = root / "caracal_min" / "pretrained" / NAME
    record = write_weights(run, shards, mixture, held_out, folder)
    finish(folder, record, measured(record, shards, once, held_out, folder, root))
    return folder


def finish(folder: Path, record: dict, found: dict[str, dict]) -> None:
    """Cut the gate at the length of training, and write the card and the hashes, from the records of the model."""
    cut = Caracal.from_pretrained(folder, device="cpu", dtype=torch.bfloat16, gate_length=record["config"]["context"])
    cut.save_pretrained(folder)
    with writing(folder / "README.md") as partial:
        partial.write_text(micro_card.card(record, (folder / WEIGHTS).stat().st_size, **found), encoding="utf-8")
    files = (CONFIG, WEIGHTS, "tokenizer.json", "tokenizer_config.json")
    with writing(folder / "SHA256SUMS") as partial:
        partial.write_text("".join(f"{file_sha256(folder / name)}  {name}\n" for name in files))


def main() -> None:
    """Ship the run that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of the finished run")
    parser.add_argument("--shards", type=Path, required=True, help="text that it was trained on, as tokenize wrote it")
    parser.add_argument("--mixture", type=Path, required=True, help="what tools/micro_text.py says of that text")
    parser.add_argument("--held-out", required=True, help="text that it was validated on")
    parser.add_argument("--once", type=Path, required=True, help="text of the same sources, no document of it twice")
    options = parser.parse_args()
    try:
        print(ship(options.run, options.shards, options.mixture, options.held_out, options.once))
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
