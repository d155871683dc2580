"""Cut the slice of FineWeb that chapter 12 trains on where there is no network, and the text that it is measured on.

    python tools/fineweb_slice.py --sample fineweb-legal-sample.jsonl.xz --held-out fineweb-validation.jsonl.xz

writes train.jsonl.xz, the documents of the sample that have least to do with law, up to a size, and held_out.jsonl.xz,
all documents of the other file, of which the first has none.  Equal files give equal bytes.
"""

import argparse
import json
import lzma
from collections.abc import Iterable
from pathlib import Path

from caracal_book.fineweb import HELD_OUT, TRAIN
from caracal_min.data import documents
from caracal_min.data.sources import text_digest
from caracal_min.files import writing


def cut(sample: Path, held_out: Path, size: int) -> tuple[list[str], list[str]]:
    """Return the documents to train on, of `size` bytes of UTF-8 or a little less, and those that are held out."""
    measured = list(documents(str(held_out)))
    held = {text_digest(text) for text in measured}
    with lzma.open(sample, "rt", encoding="utf-8") as lines:
        rows = sorted(map(json.loads, lines), key=lambda row: row["legal_score"])
    chosen = []
    for text in (row["text"] for row in rows if text_digest(row["text"]) not in held):
        size -= len(text.encode())
        if size < 0:
            break
        chosen.append(text)
    return chosen, measured


def write(texts: Iterable[str], path: Path) -> None:
    """Write some documents as compressed lines of JSON."""
    with writing(path) as partial, lzma.open(partial, "wt", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)


def main(given: list[str] | None = None) -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("sample", "held-out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--size", type=int, default=5_000_000, help="bytes to train on (default: 5_000_000)")
    options = parser.parse_args(given)
    for texts, path in zip(cut(options.sample, options.held_out, options.size), (TRAIN, HELD_OUT), strict=True):
        write(texts, path)
        print(f"{path.name}: {len(texts)} documents, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
