"""Files that are written whole or not at all, and their hashes."""

import hashlib
import os
from pathlib import Path

import numpy as np

__all__ = ["file_sha256", "write_atomically"]


def write_atomically(path: Path, data: bytes | np.ndarray) -> None:
    """Write a file under a temporary name, bring it to the disk, name it: a kill leaves the old file or the new."""
    partial = path.with_name(path.name + ".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
