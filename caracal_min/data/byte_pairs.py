"""Moved to `caracal_min.tokenizer`; what is left here is for the web export and its tests, and goes with them."""

import json
from itertools import pairwise

from ..tokenizer import END_OF_TEXT, JSONTokenizer

_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = sorted({*range(256)} - {*_PRINTABLE})
CHARACTERS = dict(zip((*_PRINTABLE, *_OTHERS), map(chr, (*_PRINTABLE, *range(256, 256 + len(_OTHERS)))), strict=True))
_BYTES = {character: byte for byte, character in CHARACTERS.items()}


def spelled(token: bytes) -> str:
    """Return how vocabulary files spell some bytes."""
    return "".join(map(CHARACTERS.__getitem__, token))


def unspelled(word: str) -> bytes:
    """Return the bytes that a vocabulary file spells as `word`."""
    return bytes(map(_BYTES.__getitem__, word))


class BytePairs(JSONTokenizer):
    """A byte-pair encoding whose ids are the tokens in the order given, and the end of text after them."""

    def __init__(self, name, tokens, merges):
        self.merges = merges
        words, step = [*map(spelled, tokens), END_OF_TEXT], {"type": "ByteLevel", "add_prefix_space": False,
                                                             "trim_offsets": True, "use_regex": True}
        special = {"id": len(words) - 1, "content": END_OF_TEXT, "single_word": False, "lstrip": False,
                   "rstrip": False, "normalized": False, "special": True}
        model = {"type": "BPE", "vocab": {word: i for i, word in enumerate(words)},
                 "merges": [[spelled(a), spelled(b)] for a, b in merges]}
        super().__init__(name, json.dumps({"added_tokens": [special], "pre_tokenizer": step, "decoder": step,
                                           "model": model}, ensure_ascii=False))


def merges_of(tokens):
    """Return the two tokens of which each token of more than one byte was merged."""
    ranks, merges = {token: i for i, token in enumerate(tokens)}, []
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
