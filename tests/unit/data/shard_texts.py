"""The texts that the tests write as shards, and how they look at files and errors."""

import gzip
import json
import lzma

import numpy as np

TEXTS = [("", "a", "tiny text", "é" * 40, "line\n" * 30, "x" * 500)[i % 6] + str(i) * (i % 4) for i in range(150)]
STREAM = np.frombuffer(b"".join(text.encode() + b"\0" for text in TEXTS), dtype=np.uint8).astype(np.int64)
SIZE = 2500  # tokens per shard: several shards, borders inside documents


def write_jsonl(path, rows):
    opener = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def one_line(caught):
    assert "\n" not in str(caught.value)
    return str(caught.value)
