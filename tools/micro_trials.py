"""Put the records of short runs into one record that pages can load: what was changed, and what came out.

    python tools/micro_trials.py runs/base runs/wide runs/slow --held-out fineweb-validation.jsonl.xz

The runs are finished ones of `python -m caracal_min train`, the first of which the others are compared with.
"""

import argparse
import tempfile
from pathlib import Path

import add_record
import torch

from caracal_book.experiments.trials import trial_rows
from caracal_book.measured import text_to_measure
from caracal_book.records import read_record, write_record
from caracal_min.data import make_tokenizer


def main(given: list[str] | None = None, root: Path = add_record.ROOT) -> None:
    """Print the table and write the record into the book."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", help="folders of finished runs")
    parser.add_argument("--held-out", required=True, help="text that all of them were validated on")
    parser.add_argument("--name", default="micro_trials", help="of the record (default: micro_trials)")
    options = parser.parse_args(given)
    rows, parts = trial_rows(options.runs, options.held_out)
    for row in rows:
        print(f"{row['name']:<12}{row['parameters']:>11,}{row['tokens']:>10,}{row['seconds']:>8.0f} s"
              f"{row['loss']:>9.4f}{row['bits_per_byte']:>9.4f}  {row['changed']}")
    tokenizer = make_tokenizer(read_record(options.runs[0] / "record.json", require_commit=False)["data"]["tokenizer"])
    _, data = text_to_measure(options.held_out, tokenizer, "all", 10**9)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        write_record(path, "trials", {"runs": options.runs, "held_out": options.held_out}, {"rows": rows}, data,
                     sum(row["seconds"] for row in rows), torch.device("cpu"), parts)
        print(add_record.add(path, options.name, root))


if __name__ == "__main__":
    main()
