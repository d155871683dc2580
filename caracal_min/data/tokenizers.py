"""Text to ids and back: bytes, or the byte-pair encoding of GPT-2."""

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
    """The byte-pair encoding of GPT-2 through tiktoken, which downloads it once.

    Raises:
        ImportError: tiktoken is not installed.

    Source: Caracal, Section 5.1, "the gpt2 tokenizer".
    """

    name, vocab_size, end_of_text = "gpt2", 50_257, 50_256

    def __init__(self) -> None:
        try:
            import tiktoken
        except ImportError:
            raise missing("the gpt2 tokenizer", "tiktoken", "train") from None
        self._encoding = tiktoken.get_encoding(self.name)

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


def make_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer called `name`: "byte" or "gpt2".  Raises ValueError on another name."""
    if name not in _TOKENIZERS:
        raise ValueError(f"unknown tokenizer {name!r}; accepted: {', '.join(_TOKENIZERS)}")
    return _TOKENIZERS[name]()


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
    known = ", ".join(f"{kind.vocab_size} ({name})" for name, kind in _TOKENIZERS.items())
    raise ValueError(f"no tokenizer with {vocab_size} ids; known are {known}")
