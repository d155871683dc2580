"""A corpus to train on: tokens for training, and held-out tokens that no document shares with them.

Small ones are read into memory, large ones memory-mapped from shards; `split` says what is held out of either.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .documents import documents, require_source
from .shards import MANIFEST, Manifest, ShardedTokens, check_sizes
from .split import ALL, EVERY_TENTH, HELD_OUT, LAST_HUNDREDTH, RULE, TRAIN, is_held_out
from .tokenizers import make_tokenizer
from .write_shards import tokenize

__all__ = ["Corpus", "load_corpus", "require_readable", "require_rule", "tokens_of"]


@dataclass(frozen=True)
class Corpus:
    """Tokens of a corpus, split so that no held-out document was trained on.

    `train` and `validation` are ids: uint16 arrays `[tokens]`, or `ShardedTokens`.  `rule` says what was held out of
    the source: `split.RULE`, another of that module's, or None where nothing was or nobody knows.
    """

    source: str
    tokenizer: str
    train: np.ndarray | ShardedTokens
    validation: np.ndarray | ShardedTokens
    rule: str | None = None

    @property
    def vocab_size(self) -> int:
        """Number of ids of the tokenizer."""
        return make_tokenizer(self.tokenizer).vocab_size

    @property
    def digest(self) -> str:
        """SHA-256 over both splits: two corpora with one digest are the same tokens, split in the same way."""
        return hashlib.sha256(_digest(self.train) + b"|" + _digest(self.validation)).hexdigest()


def load_corpus(source: str = "embedded", tokenizer: str = "byte", max_tokens: int | None = None,
                progress: bool = True, validation: str | None = None, shards: str | Path | None = None,
                digest: str | None = None) -> Corpus:
    """Read and tokenize a corpus.

    Args:
        source: as in `documents.documents`, or a folder of shards (`write_shards.tokenize`).
        tokenizer: "byte" or "gpt2"; shards must have been made with the same.
        max_tokens: stop after the document that reaches this many tokens, held-out ones included; of shards, train on
            this many.  None reads everything.
        progress: show a bar of tokens read.
        validation: another source, of which all is held out, and which the caller knows to share no document with the
            first; None takes what `split.RULE` holds out of `source`.  Either way that is not trained on.
        shards: a folder into which the source is tokenized first, to be read from there; None reads into memory.
        digest: that of the corpus with which a run began.  If an earlier version read it, which split by another rule,
            the same tokens come back, and a line says so.

    Returns:
        A `Corpus`; every document is followed by the tokenizer's end-of-text id.

    Raises:
        FileNotFoundError, ValueError: no such file, an unknown format, no `text` column, an empty corpus, nothing that
            is held out; shards of another tokenizer, damaged or unfinished ones.
        ImportError: the source needs `datasets`, or the tokenizer `tiktoken`, and it is not installed.
    """
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens={max_tokens}; give a number >= 1, or None for everything")
    source, held_out = str(source), None
    require_readable(tokenizer, source, *([] if validation is None else [str(validation)]))
    if validation is not None:
        held_out = tokens_of(str(validation), tokenizer, ALL, None, progress)
    if shards is not None and not _is_shards(source):
        tokenize(source, shards, tokenizer, limit_tokens=max_tokens, progress=progress)
        return _from_shards(str(shards), tokenizer, None, held_out, source)
    if _is_shards(source):
        return _from_shards(source, tokenizer, max_tokens, held_out, source)
    read = list(_read(source, tokenizer, max_tokens, progress))
    corpus = _parted(source, read, [held for held, _ in read], tokenizer, held_out, RULE)
    if digest not in (None, corpus.digest):
        tenth = [held_out is None and i % 10 == 9 for i in range(len(read))]
        before = _parted(source, read, tenth, tokenizer, held_out, EVERY_TENTH if held_out is None else None)
        if before.digest == digest:
            _say_earlier(source, before.rule)
            return before
    return corpus


def tokens_of(source: str, tokenizer: str, part: str = ALL, max_tokens: int | None = None,
              progress: bool = True) -> np.ndarray | ShardedTokens:
    """Return the tokens of a part of a source.

    Args:
        source, tokenizer, progress: as in `load_corpus`.
        part: "train", "held_out" or "all", by `split.RULE`.
        max_tokens: stop after the document that reaches this many tokens of the part; of shards, all come.

    Returns:
        ids: a uint16 array `[tokens]`, or `ShardedTokens`.

    Raises:
        FileNotFoundError, ValueError, ImportError: as `load_corpus`; a part of shards that were split otherwise.
    """
    if part != ALL:
        require_rule(source)
    if _is_shards(source):
        return _opened(source, tokenizer, part)
    ids = [ids for _, ids in _read(source, tokenizer, max_tokens, progress, part)]
    if not ids:
        of = "gave no documents" if part == ALL else f"has no document of the part {part!r} ({RULE})"
        raise ValueError(f"{source} {of}; give more text")
    return np.concatenate(ids)


def require_readable(tokenizer: str, *sources: str) -> None:
    """Find out, before much is read, whether a tokenizer is there and some sources can be read, shards with it.

    Raises:
        FileNotFoundError, ValueError, ImportError, OSError: as `load_corpus`, as far as the beginning of each file, or
            the sizes of the shards, show it.
    """
    make_tokenizer(tokenizer)
    for source in sources:
        if _is_shards(source):
            _require_tokenizer(source, check_sizes(Path(source)), tokenizer)
        else:
            require_source(source)


def require_rule(source: str) -> None:
    """Raise ValueError if a source is shards of which nobody knows what `split.RULE` holds out."""
    if _is_shards(source) and (rule := Manifest.load(source).settings.rule) != RULE:
        raise ValueError(f"{source} is split by {rule or 'no rule, an earlier version made it'}; what is held out by "
                         f"{RULE!r} cannot be told from it: tokenize its text again into another folder, or measure "
                         "all of a text that was never trained on")


def _read(source: str, tokenizer: str, max_tokens: int | None, progress: bool,
          part: str = ALL) -> Iterator[tuple[bool, np.ndarray]]:
    """Yield of each document of a part whether it is held out, and its ids, uint16, the end-of-text id included."""
    from tqdm import tqdm

    encoder, total = make_tokenizer(tokenizer), 0
    with tqdm(total=max_tokens, unit="tok", unit_scale=True, desc=f"reading {source}", disable=not progress) as bar:
        for text in documents(source):
            held = is_held_out(text)
            if part != ALL and held != (part == HELD_OUT):
                continue
            ids = np.array([*encoder.encode(text), encoder.end_of_text], dtype=np.uint16)
            yield held, ids
            total += len(ids)
            bar.update(len(ids))
            if max_tokens is not None and total >= max_tokens:
                return


def _parted(source: str, read: list[tuple[bool, np.ndarray]], held: list[bool], tokenizer: str,
            held_out: np.ndarray | ShardedTokens | None, rule: str | None) -> Corpus:
    """Return the corpus of some documents and which of them are held out; `held_out` is measured in their place."""
    parts = [[ids for (_, ids), is_held in zip(read, held, strict=True) if is_held == wanted]
             for wanted in (False, True)]
    if not parts[0] or not parts[1] and held_out is None:
        raise _nothing(source, len(read), bool(parts[0]))
    return Corpus(source, tokenizer, np.concatenate(parts[0]),
                  np.concatenate(parts[1]) if held_out is None else held_out, rule)


def _nothing(source: str, documents: int, to_measure: bool) -> ValueError:
    what = "hold out" if to_measure else "train on"
    return ValueError(f"{source} gave {documents} documents, and none to {what} (held out: {RULE}); "
                      f"give more text{', or a validation text' if to_measure else ''}")


def _is_shards(source: str) -> bool:
    return (Path(source) / MANIFEST).is_file()


def _opened(folder: str, tokenizer: str, part: str) -> ShardedTokens:
    tokens = ShardedTokens(folder, part)
    _require_tokenizer(folder, tokens.manifest, tokenizer)
    return tokens


def _require_tokenizer(folder: str, manifest: Manifest, tokenizer: str) -> None:
    if (made_with := manifest.settings.tokenizer) != tokenizer:
        raise ValueError(f"{folder} was made with tokenizer={made_with!r}, now it is {tokenizer!r}; "
                         "give the same, or tokenize again into another folder")


def _from_shards(folder: str, tokenizer: str, max_tokens: int | None,
                 held_out: np.ndarray | ShardedTokens | None, source: str) -> Corpus:
    """Return the corpus of a folder of shards; `source` is what the user calls it."""
    tokens = _opened(folder, tokenizer, ALL)
    rule = tokens.manifest.settings.rule
    if rule is None:
        rule, tokens, held_out = _earlier(tokens, held_out)
    else:
        tokens, marked = ShardedTokens(folder, TRAIN), ShardedTokens(folder, HELD_OUT)
        if not len(tokens) or not len(marked) and held_out is None:
            raise _nothing(source, tokens.manifest.documents, bool(len(tokens)))
        held_out = marked if held_out is None else held_out
    if rule != RULE:
        _say_earlier(folder, rule)
    train = tokens if max_tokens is None else tokens.head(min(max_tokens, len(tokens)))
    return Corpus(folder, tokenizer, train, held_out, rule)


def _earlier(tokens: ShardedTokens, held_out: np.ndarray | ShardedTokens | None) -> tuple:
    """Return rule, tokens to train on and tokens to measure of shards that an earlier version made."""
    if held_out is not None:
        return None, tokens, held_out
    start = len(tokens) - len(tokens) // 100
    ends = np.flatnonzero(tokens[start:] == tokens.manifest.settings.end_of_text)
    if len(ends) < 2:
        raise ValueError(f"the last hundredth of {tokens.folder}, {len(tokens) - start:,} tokens, holds no whole "
                         "document; give more text, or a validation text")
    border = start + int(ends[0]) + 1
    return LAST_HUNDREDTH, tokens.head(border), tokens[border:].astype(np.uint16)


def _say_earlier(source: str, rule: str | None) -> None:
    held = "nothing of it is held out" if rule is None else f"held out are {rule}"
    print(f"{source} is split as an earlier version did: {held}; the run keeps to that, and evaluate --split held_out "
          "refuses it")


def _digest(tokens: np.ndarray | ShardedTokens) -> bytes:
    return tokens.digest.encode() if isinstance(tokens, ShardedTokens) else tokens.tobytes()
