"""Moved to shards."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from ..files import file_sha256
from . import shards
from .shards import INDEX, is_shards
from .sources import SOURCES, _files


@dataclass(frozen=True)
class TokenizeConfig:
    """Write a corpus as token shards; after a kill, the same command goes on."""

    source: str
    """embedded (Python's documentation), fineweb (streamed from the network), a parquet / jsonl / jsonl.xz /
    jsonl.gz file with column text, a txt file in UTF-8, or a folder of such files.  A txt file is cut into documents of
    some 4 KiB."""
    out: Path
    """Folder of the shards."""
    tokenizer: str = "gpt2"
    """byte; gpt2; gpt2:N, which has N ids: GPT-2's first N - 1 and an end of text; or the path of a tokenizer.json."""
    limit_tokens: int | None = None
    """Stop after the document that reaches this many tokens to train on."""
    progress: bool = True
    """Show a bar in a terminal, with tokens per second and, under limit_tokens, the time left."""


def tokenize(*options, **named) -> SimpleNamespace:
    """What the command of now prints."""
    index = shards.tokenize(*options, **named)
    return SimpleNamespace(tokens=index["train"] + index["held_out"], documents=index["documents"], shards=[0, 0])


def fingerprint(source: str) -> list[dict]:
    """Name and sha256 of each file of a source, for records: goes to the book with them."""
    if source in SOURCES:
        return []
    files = [Path(source) / INDEX] if is_shards(source) else _files(Path(source))
    return [{"name": file.name, "sha256": file_sha256(file)} for file in files]
