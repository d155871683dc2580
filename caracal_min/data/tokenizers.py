"""Text to ids and back: bytes, or the byte-pair encoding of GPT-2."""

import re
from collections.abc import Iterable
from typing import Protocol

from ..extras import missing

__all__ = ["ByteTokenizer", "GPT2Tokenizer", "Tokenizer", "make_tokenizer", "tokenizer_for"]


class Tokenizer(Protocol):
    """What a tokenizer offers: its name, how many ids it has, and the way to ids and back."""

    name: str
    vocab_size: int
    end_of_text: int

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        ...

    def encode_batch(self, texts: list[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of each text, with the work shared by some threads where that is faster."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids."""
        ...


class ByteTokenizer:
    """One token per byte of UTF-8; id 0, which stands for no character, ends a document.

    The character NUL, whose UTF-8 is the byte 0, becomes the two ids 192 and 128, and these become NUL again.  UTF-8
    has no such pair, so nothing else does.

    Source: "Modified UTF-8" (the Java Virtual Machine Specification, Section 4.4.7), for NUL alone.
    """

    name, vocab_size, end_of_text = "byte", 256, 0

    def encode(self, text: str) -> list[int]:
        """Return the bytes of `text` as ids in 1..255."""
        return list(text.encode("utf-8").replace(b"\0", b"\xc0\x80"))

    def encode_batch(self, texts: list[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of each text, by this thread alone: copying bytes is all the work there is."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text; bytes that are not UTF-8 (a character cut in half) become U+FFFD."""
        return bytes(int(i) for i in ids).replace(b"\xc0\x80", b"\0").decode("utf-8", errors="replace")


class GPT2Tokenizer:
    """The byte-pair encoding of GPT-2 through tiktoken, which downloads it once; or the first ids of it alone.

    GPT-2's ids are the 256 bytes and then the results of its merges, in the order in which they are made, so each
    prefix of them is a byte-pair encoding of its own.  With N = `vocab_size`, the ids 0 to N - 2 are those of GPT-2,
    and N - 1 is its end of text; so N = 50,257 is GPT-2's own, "gpt2", and any other is "gpt2:N".

    Args:
        vocab_size: number of ids N, the end of text among them: 257 to 50,257.

    Raises:
        ValueError: another `vocab_size`.
        ImportError: tiktoken is not installed.

    Source: Caracal, Section 5.1, "the gpt2 tokenizer".
    """

    name, vocab_size, end_of_text = "gpt2", 50_257, 50_256

    def __init__(self, vocab_size: int = vocab_size) -> None:
        require_tokenizer_name(f"gpt2:{vocab_size}")
        try:
            import tiktoken
        except ImportError:
            raise missing("the gpt2 tokenizer", "tiktoken", "train") from None
        self._encoding = tiktoken.get_encoding("gpt2")
        if vocab_size < type(self).vocab_size:
            self.name, self.vocab_size, self.end_of_text = f"gpt2:{vocab_size}", vocab_size, vocab_size - 1
            whole = self._encoding
            ranks = {token: rank for token, rank in whole._mergeable_ranks.items() if rank < self.end_of_text}
            self._encoding = tiktoken.Encoding(self.name, pat_str=whole._pat_str, mergeable_ranks=ranks,
                                               special_tokens={"<|endoftext|>": self.end_of_text})

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`; the spelling of a special token in it is ordinary text."""
        return self._encoding.encode_ordinary(text)

    def encode_batch(self, texts: list[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of each text, as `encode`, by this many threads of tiktoken's."""
        return self._encoding.encode_ordinary_batch(texts, num_threads=threads)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids."""
        return self._encoding.decode([int(i) for i in ids])


_TOKENIZERS = {kind.name: kind for kind in (ByteTokenizer, GPT2Tokenizer)}


def require_tokenizer_name(name: str) -> None:
    """Raise ValueError, in one line, unless `name` names a tokenizer."""
    if name in _TOKENIZERS:
        return
    prefix = re.fullmatch(r"gpt2:(\d+)", name)
    if prefix is None:
        raise ValueError(f"unknown tokenizer {name!r}; accepted: {', '.join(_TOKENIZERS)}, gpt2:N")
    if not 257 <= int(prefix[1]) <= GPT2Tokenizer.vocab_size:
        raise ValueError(f"unknown tokenizer {name!r}; N is the number of ids, from 257 (bytes and end of text) to "
                         f"{GPT2Tokenizer.vocab_size}")


def make_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer called `name`: "byte", "gpt2", or "gpt2:2048", which has 2,048 of GPT-2's ids.

    Raises:
        ValueError: another name, or a number of ids that no such tokenizer has.
        ImportError: it needs tiktoken, which is not installed.
    """
    require_tokenizer_name(name)
    kind, _, size = name.partition(":")
    return GPT2Tokenizer(int(size)) if size else _TOKENIZERS[kind]()


def tokenizer_for(vocab_size: int) -> Tokenizer:
    """Return the tokenizer that has `vocab_size` ids.  Raises ValueError where none of ours has.

    Example:
        >>> tokenizer = tokenizer_for(256)
        >>> tokenizer.encode("ab"), tokenizer.decode([99, 100])
        ([97, 98], 'cd')
    """
    for kind in _TOKENIZERS.values():
        if kind.vocab_size == vocab_size:
            return kind()
    if 257 <= vocab_size < GPT2Tokenizer.vocab_size:
        return GPT2Tokenizer(vocab_size)
    known = ", ".join(f"{kind.vocab_size} ({name})" for name, kind in _TOKENIZERS.items())
    raise ValueError(f"no tokenizer with {vocab_size} ids; known are {known}")
