"""Text to ids and back: bytes, the byte-pair encoding of GPT-2 or its first ids, or any `tokenizer.json`::

    make_tokenizer(name)              of a name, or of the path of a file
    save_tokenizer(tokenizer, folder) beside a model, so that the model can be used without asking anybody
    load_tokenizer(folder)            what was saved there

What is saved is the format of Hugging Face's `tokenizers`, which `transformers.AutoTokenizer` reads.  Bytes and GPT-2
are read from it in plain Python, other tokenizers through the `tokenizers` package.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from ..extras import missing
from ..files import writing_folder
from .byte_pairs import END_OF_TEXT, BytePairs, as_json, merges_of, spelled, tokenizer_json, unspelled
from .file_tokenizer import TOKENIZER, TOKENIZER_CONFIG, FileTokenizer

__all__ = ["TOKENIZER", "TOKENIZER_CONFIG", "ByteTokenizer", "FileTokenizer", "GPT2Tokenizer", "Tokenizer",
           "load_tokenizer", "make_tokenizer", "require_tokenizer_name", "save_tokenizer", "tokenizer_sha256"]


class Tokenizer(Protocol):
    """Text to ids and back.  `name` is what it is called, `end_of_text` the id that ends a document."""

    name: str
    vocab_size: int
    end_of_text: int

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; the spelling of a special token in it is ordinary text."""
        ...

    def encode_batch(self, texts: list[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of each text, with the work shared by some threads where that is faster."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids."""
        ...

    def to_json(self) -> str:
        """Return the text of the `tokenizer.json` that holds it; equal tokenizers give equal texts."""
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

    def to_json(self) -> str:
        """Return its `tokenizer.json`: a byte-pair encoding without merges, whose normalizer rewrites NUL."""
        nul, pair = spelled(b"\0"), spelled(b"\xc0\x80")
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        return tokenizer_json([END_OF_TEXT, *(spelled(bytes([byte])) for byte in range(1, 256))], self.end_of_text,
                              normalizer=_sequence("normalizers", {"type": "ByteLevel"}, _replace(nul, pair)),
                              decoder=_sequence("decoders", {"type": "Fuse"}, _replace(pair, nul), byte_level))


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
                                               special_tokens={END_OF_TEXT: self.end_of_text})

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`; the spelling of a special token in it is ordinary text."""
        return self._encoding.encode_ordinary(text)

    def encode_batch(self, texts: list[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of each text, as `encode`, by this many threads of tiktoken's."""
        return self._encoding.encode_ordinary_batch(texts, num_threads=threads)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids."""
        return self._encoding.decode([int(i) for i in ids])

    def to_json(self) -> str:
        """Return its `tokenizer.json`."""
        return _gpt2_json(self.vocab_size)


@lru_cache(maxsize=4)  # of all of GPT-2 it takes a second
def _gpt2_json(vocab_size: int) -> str:
    tokenizer = GPT2Tokenizer(vocab_size)
    tokens = [tokenizer._encoding.decode_single_token_bytes(i) for i in range(tokenizer.end_of_text)]
    return BytePairs(tokenizer.name, tokens, merges_of(tokens)).to_json()


_NAMED = {kind.name: kind for kind in (ByteTokenizer, GPT2Tokenizer)}


def require_tokenizer_name(name: str) -> None:
    """Raise ValueError, in one line, unless `name` may name a tokenizer; whether a file is there is not asked."""
    if name in _NAMED or name.endswith(".json"):
        return
    prefix = re.fullmatch(r"gpt2:(\d+)", name)
    if prefix is None:
        raise ValueError(f"unknown tokenizer {name!r}; accepted: {', '.join(_NAMED)}, gpt2:N, or a path that ends in "
                         ".json")
    if not 257 <= int(prefix[1]) <= GPT2Tokenizer.vocab_size:
        raise ValueError(f"unknown tokenizer {name!r}; N is the number of ids, from 257 (bytes and end of text) to "
                         f"{GPT2Tokenizer.vocab_size}")


def make_tokenizer(tokenizer: str | Path | Tokenizer) -> Tokenizer:
    """Return the tokenizer of a name; one that is a tokenizer already comes back as it is.

    Args:
        tokenizer: "byte"; "gpt2"; "gpt2:2048", which has 2,048 of GPT-2's ids; or the path of a `tokenizer.json`.

    Raises:
        ValueError: another name, a number of ids that no such tokenizer has, or a file that is none.
        FileNotFoundError: no such file.
        ImportError: it needs tiktoken or `tokenizers`, which is not installed.

    Example:
        >>> tokenizer = make_tokenizer("byte")
        >>> tokenizer.encode("ab"), tokenizer.decode([99, 100])
        ([97, 98], 'cd')
    """
    if not isinstance(tokenizer, (str, Path)):
        return tokenizer
    name = str(tokenizer)
    require_tokenizer_name(name)
    if name.endswith(".json"):
        name, text, end_of_text, plain = _read(Path(name))
        if isinstance(plain, ByteTokenizer):
            return plain
        return FileTokenizer(name, plain.to_json() if plain else text, end_of_text)
    kind, _, size = name.partition(":")
    return GPT2Tokenizer(int(size)) if size else _NAMED[kind]()


def save_tokenizer(tokenizer: Tokenizer, folder: str | Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` into `folder`, where `AutoTokenizer` reads them, too.

    Raises:
        OSError: they cannot be written, in one line.
    """
    text = tokenizer.to_json()
    special = {token["id"]: token["content"] for token in json.loads(text)["added_tokens"]}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "name_or_path": tokenizer.name,
              "eos_token": special.get(tokenizer.end_of_text) or tokenizer.decode([tokenizer.end_of_text]),
              "clean_up_tokenization_spaces": False, "split_special_tokens": True}
    with writing_folder(Path(folder), last=TOKENIZER) as partial:
        (partial / TOKENIZER).write_text(text, encoding="utf-8")
        (partial / TOKENIZER_CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """Return the tokenizer that `save_tokenizer` wrote into `folder`; for bytes and GPT-2 no other package is needed.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it cannot be read.
        ImportError: it needs `tokenizers`, which is not installed.
    """
    name, text, end_of_text, plain = _read(Path(folder) / TOKENIZER)
    return plain or FileTokenizer(name, text, end_of_text)


def tokenizer_sha256(tokenizer: Tokenizer) -> str:
    """Return the SHA-256 of the `tokenizer.json` of a tokenizer, in hexadecimal: equal ones encode alike.

    Of a file what changes no id here is left out: spaces, and how `transformers` last cut, padded and framed a text.
    """
    text = tokenizer.to_json()
    if isinstance(tokenizer, FileTokenizer):
        text = as_json(json.loads(text) | dict.fromkeys(("truncation", "padding", "post_processor")))
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path) -> tuple[str, str, str, ByteTokenizer | BytePairs | None]:
    """Return of a `tokenizer.json` its name, text and end of text, and, if plain Python can do it, the tokenizer."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; save_tokenizer(tokenizer, folder) writes one")
    try:
        text = path.read_text(encoding="utf-8")
        stored, beside = json.loads(text), path.with_name(TOKENIZER_CONFIG)
        config = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
        name, end_of_text = str(config.get("name_or_path") or path.name), config.get("eos_token") or END_OF_TEXT
        if isinstance(end_of_text, dict):  # as older files of `transformers` have it
            end_of_text = end_of_text["content"]
        return name, text, end_of_text, _plain(name, stored)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no readable tokenizer ({type(error).__name__}: {error})") from None


def _plain(name: str, stored: dict[str, Any]) -> ByteTokenizer | BytePairs | None:
    """Return the tokenizer of a file whose every step is one of those that are done here, else None."""
    model, split = stored["model"], stored.get("pre_tokenizer") or {}
    options = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback",
               "ignore_merges")
    ends = {token["content"]: token["id"] for token in stored["added_tokens"]}
    if model["type"] != "BPE" or any(map(model.get, options)) or [*ends] != [END_OF_TEXT]:
        return None
    ids = model["vocab"] | ends
    if ids == _BYTES and not model["merges"] and stored["normalizer"]:
        return ByteTokenizer()
    words = sorted(ids, key=ids.__getitem__)
    if ([ids[word] for word in words] != [*range(len(words))] or words[-1] != END_OF_TEXT or stored["normalizer"]
            or split.get("type") != "ByteLevel" or split["add_prefix_space"] or not split.get("use_regex", True)):
        return None
    merges = (pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"])
    return BytePairs(name, map(unspelled, words[:-1]), [(unspelled(a), unspelled(b)) for a, b in merges])


def _sequence(kind: str, *steps: dict) -> dict[str, Any]:
    return {"type": "Sequence", kind: steps}


def _replace(found: str, by: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": found}, "content": by}


_BYTES = json.loads(ByteTokenizer().to_json())["model"]["vocab"]
