"""Byte-pair encoding in plain Python: reads what it writes, and needs nothing but the standard library.

A text is split into words as GPT-2 does, a word becomes its bytes, and of the pairs of neighbouring tokens that can be
merged the one of lowest rank, the leftmost first, is merged until none is left.

tiktoken does the same some twenty times faster; this is for prompts and for text of some megabytes, where a model that
comes with its vocabulary has to work without tiktoken and without a network.
"""

import heapq
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

__all__ = ["CHARACTERS", "END_OF_TEXT", "BytePairs", "as_json", "merges_of", "spelled", "split_words",
           "tokenizer_json", "unspelled"]

_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = sorted({*range(256)} - {*_PRINTABLE})
CHARACTERS = dict(zip((*_PRINTABLE, *_OTHERS), map(chr, (*_PRINTABLE, *range(256, 256 + len(_OTHERS)))), strict=True))
"""The printable character that stands for each byte in vocabulary files, as GPT-2 has it."""
_BYTES = {character: byte for byte, character in CHARACTERS.items()}
END_OF_TEXT = "<|endoftext|>"
"""How the end of a text is spelled where it is decoded."""

# GPT-2's pattern, for texts in which _SHAPE has put an ASCII character of the same kind for every other one.
_WORD = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.ASCII)
_CACHED = 1 << 16  # words whose ids are remembered


class _Shape(dict):
    """Maps the code of a character, for `str.translate`, to an ASCII character that `_WORD` treats alike."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = unicodedata.category(character)[0]
        self[code] = (character if code < 128 else "\t" if character.isspace() else
                      "a" if kind == "L" else "0" if kind == "N" else "!")
        return self[code]


_SHAPE = _Shape()


def split_words(text: str) -> list[str]:
    """Split a text into the words that GPT-2 encodes one by one; one after the other they are the text.

    Source: `'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+` of GPT-2's code.
    """
    shape = text if text.isascii() else text.translate(_SHAPE)
    return [text[found.start():found.end()] for found in _WORD.finditer(shape)]


class BytePairs:
    """A byte-pair encoding whose ids are the tokens in the order given, and the end of text after them.

    Args:
        name: what it is called.
        tokens: the bytes of each id; all 256 single bytes are among them.
        merges: pairs of tokens that become one, that of lowest rank first.

    Raises:
        ValueError: a byte is missing, or a merge of or into what is no token.
    """

    def __init__(self, name: str, tokens: Iterable[bytes], merges: Iterable[tuple[bytes, bytes]]):
        self.name, self.tokens, self.merges = name, list(tokens), list(merges)
        self.end_of_text = len(self.tokens)
        self.vocab_size = self.end_of_text + 1
        ids = {token: i for i, token in enumerate(self.tokens)}
        try:
            self._bytes = [ids[bytes([byte])] for byte in range(256)]
            self._ranks = {(ids[a], ids[b]): rank for rank, (a, b) in enumerate(self.merges)}
            self._merged = [ids[a + b] for a, b in self.merges]
        except KeyError as error:
            raise ValueError(f"the vocabulary of {name} has no token {error}") from None
        self._spelled = [*self.tokens, END_OF_TEXT.encode()]
        self._known: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`; the spelling of the end of text in it is ordinary text."""
        ids = []
        for word in split_words(text):
            found = self._known.get(word)
            if found is None:
                if len(self._known) >= _CACHED:
                    self._known.clear()
                found = self._known[word] = self._merge(word.encode())
            ids += found
        return ids

    def encode_batch(self, texts: list[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of each text; threads do not make Python faster, so there is one."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids; bytes that are not UTF-8 (a character cut in half) become U+FFFD."""
        return b"".join(self._spelled[int(i)] for i in ids).decode("utf-8", errors="replace")

    def to_json(self) -> str:
        """Return its `tokenizer.json`; equal encodings give equal texts."""
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        return tokenizer_json([*map(spelled, self.tokens), END_OF_TEXT], self.end_of_text,
                              [[spelled(a), spelled(b)] for a, b in self.merges], pre_tokenizer=byte_level,
                              decoder=byte_level)

    def _merge(self, word: bytes) -> list[int]:
        """Return the ids of a word of n bytes, in O(n log n): a linked list, and a heap of the pairs in it."""
        ids: list[int | None] = [self._bytes[byte] for byte in word]
        count = len(ids)
        before, after = [*range(-1, count - 1)], [*range(1, count + 1)]
        heap = [(self._ranks[pair], i) for i, pair in enumerate(pairwise(ids)) if pair in self._ranks]
        heapq.heapify(heap)
        while heap:
            rank, left = heapq.heappop(heap)
            right = after[left]
            if right >= count or self._ranks.get((ids[left], ids[right])) != rank:
                continue  # one of the two has been merged since
            ids[left], ids[right] = self._merged[rank], None
            after[left] = after[right]
            if after[left] < count:
                before[after[left]] = left
            for i in (before[left], left):
                if i >= 0 and after[i] < count and (pair := (ids[i], ids[after[i]])) in self._ranks:
                    heapq.heappush(heap, (self._ranks[pair], i))
        return [i for i in ids if i is not None]


def spelled(token: bytes) -> str:
    """Return how vocabulary files spell some bytes."""
    return "".join(map(CHARACTERS.__getitem__, token))


def unspelled(word: str) -> bytes:
    """Return the bytes that a vocabulary file spells as `word`."""
    return bytes(map(_BYTES.__getitem__, word))


def tokenizer_json(vocabulary: Sequence[str], end_of_text: int, merges: Sequence[Sequence[str]] = (),
                   **steps: Any) -> str:
    """Return the `tokenizer.json` of a byte-pair encoding, in the format of Hugging Face's `tokenizers`.

    Args:
        vocabulary: the spelling of each id.
        end_of_text: the id that is a special token.
        merges: pairs of spellings that become one, that of lowest rank first.
        steps: the `normalizer`, `pre_tokenizer` and `decoder`; none where left out.
    """
    special = {"id": end_of_text, "content": vocabulary[end_of_text], "single_word": False, "lstrip": False,
               "rstrip": False, "normalized": False, "special": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": {word: i for i, word in enumerate(vocabulary)}, "merges": merges}
    stored = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [special], "normalizer": None,
              "pre_tokenizer": None, "post_processor": None, "decoder": None, **steps, "model": model}
    return as_json(stored)


def as_json(stored: dict[str, Any]) -> str:
    """Return what a `tokenizer.json` holds as the text that is saved and hashed."""
    return json.dumps(stored, ensure_ascii=False, separators=(",", ":")) + "\n"


def merges_of(tokens: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the two tokens of which each token of more than one byte was merged.

    Args:
        tokens: the bytes of each id, in the order in which the merges made them.
    """
    ranks, merges = {token: rank for rank, token in enumerate(tokens)}, []
    for rank, token in enumerate(tokens):
        word = [bytes([byte]) for byte in token]
        while len(word) > 2:
            found, i = min((ranks.get(a + b, rank), i) for i, (a, b) in enumerate(pairwise(word)))
            if found >= rank:
                raise ValueError(f"token {token!r} is not a merge of two tokens before it")
            word[i:i + 2] = [tokens[found]]
        if len(word) == 2:
            merges.append((word[0], word[1]))
    return merges
