"""The texts that several files of tests read, and how they are written."""

import gzip
import json
import lzma

TEXTS = [("", "a", "tiny text", "é" * 40, "line\n" * 30, "x" * 500)[i % 6] + str(i) * (i % 4) for i in range(1500)]


def write_rows(path, texts):
    """Write texts as rows of a file, in the format that its name says."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"id": range(len(texts)), "text": texts}), path)
        return path
    with {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts))
    return path
