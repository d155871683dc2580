"""Text to token ids and back: bytes, GPT-2's byte pairs or the first of them, or any file::

    make_tokenizer("gpt2:4096")        a tokenizer by its name, or by the path of its file or folder
    save_tokenizer(tokenizer, folder)  beside a model, in the format that `transformers` reads
    load_tokenizer(folder)             what was saved there

Bytes are read in Python.  All others run in Hugging Face's package `tokenizers`, whose format, a
`tokenizer.json`, all of them are saved in.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import huggingface_hub
from tokenizers import Tokenizer as Encoder

__all__ = ["END_OF_TEXT", "TOKENIZER", "TOKENIZER_CONFIG", "ByteTokenizer", "JSONTokenizer",
           "Tokenizer", "load_tokenizer", "make_tokenizer", "save_tokenizer", "tokenizer_sha256"]

TOKENIZER = "tokenizer.json"
"""File of a saved tokenizer: vocabulary, merges and how text is split."""
TOKENIZER_CONFIG = "tokenizer_config.json"
"""File beside it: the class and the special tokens, for `transformers`."""
END_OF_TEXT = "<|endoftext|>"
"""The token that ends a document, unless a `tokenizer_config.json` names another."""

# A commit never changes: once its file is in the cache, no network is asked.
GPT2 = "openai-community/gpt2"
GPT2_IDS = 50_257
GPT2_REVISION = "607a30d783dfa663caf39e06633721c8d4cfcd7e"

BYTES = Path(__file__).parent / "data" / "byte.json"
"""The `tokenizer.json` of bytes: a byte-pair encoding without merges, which rewrites NUL."""


class Tokenizer(Protocol):
    """What a tokenizer has: a name, its number of ids, the id that ends a document, and methods."""

    name: str
    vocab_size: int
    end_of_text: int

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, in which a special token is ordinary text."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids; bytes that are no whole character become U+FFFD."""

    def to_json(self) -> str:
        """Return the content of its `tokenizer.json`."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text."""
        return [self.encode(text) for text in texts]


class ByteTokenizer(Tokenizer):
    """One id per byte of UTF-8; id 0 ends a document.

    The character NUL, whose UTF-8 is the byte 0, becomes the ids 192 and 128, a pair that UTF-8
    never has, and these become NUL again.

    Source: "Modified UTF-8" (the Java Virtual Machine Specification, Section 4.4.7), for NUL alone.

    Example:
        >>> ByteTokenizer().encode("ab"), ByteTokenizer().decode([99, 100])
        ([97, 98], 'cd')
    """

    name = "byte"
    vocab_size = 256
    end_of_text = 0

    def encode(self, text: str) -> list[int]:
        """Return the bytes of a text, each in 1..255."""
        return list(text.encode().replace(b"\0", b"\xc0\x80"))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids; bytes that are no whole character become U+FFFD."""
        # Sampled ids may stop in the middle of a character: that must not raise.
        text = bytes(map(int, ids)).replace(b"\xc0\x80", b"\0")
        return text.decode(errors="replace")

    def to_json(self) -> str:
        """Return a `tokenizer.json` with the same ids."""
        return BYTES.read_text(encoding="utf-8")


class JSONTokenizer(Tokenizer):
    """The tokenizer that a `tokenizer.json` describes.

    Args:
        name: what records and messages call it.
        text: content of the file.
        end_of_text: the token that ends a document.

    Raises:
        ValueError: it has no such token.
        Exception: the package `tokenizers` cannot read it.
    """

    def __init__(self, name: str, text: str, end_of_text: str = END_OF_TEXT):
        self._encoder = Encoder.from_str(text)
        self.name = name
        self._text = text
        # The largest id counts, not the number of tokens: some files leave ids unused.
        self.vocab_size = max(self._encoder.get_vocab().values()) + 1
        self.end_of_text = self._encoder.token_to_id(end_of_text)
        if self.end_of_text is None:
            raise ValueError(f"{name} has no token {end_of_text!r} that ends a document; name "
                             f"another as eos_token in {TOKENIZER_CONFIG} beside it")
        # A document is read whole, and does not end where it quotes the token that would end it.
        self._encoder.no_padding()
        self._encoder.no_truncation()
        self._encoder.encode_special_tokens = True

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, in which a special token is ordinary text."""
        return self._encoder.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text; the threads of the package share them."""
        # The fast variant leaves out the offsets, which nothing here reads.
        encodings = self._encoder.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids; bytes that are no whole character become U+FFFD."""
        # Ids may come as a tensor, an array or a generator; the package takes a list.
        ids = [int(i) for i in ids]
        return self._encoder.decode(ids, skip_special_tokens=False)

    def to_json(self) -> str:
        """Return the content of its file."""
        return self._text


def make_tokenizer(tokenizer: str | Path | Tokenizer) -> Tokenizer:
    """Return the tokenizer of a name or path; what is a tokenizer already is returned as it is.

    Args:
        tokenizer: "byte"; "gpt2", which is downloaded once; "gpt2:2048", the first 2,047 ids of
            GPT-2 and an end of text ("gpt2:4096" comes with the package); the path of a
            `tokenizer.json`, or of a folder that has one.

    Raises:
        ValueError: another name.
        FileNotFoundError: no such file.

    Source: Caracal, Section 5.1, "the gpt2 tokenizer".

    Example:
        >>> make_tokenizer("byte").encode("ab")
        [97, 98]
    """
    if not isinstance(tokenizer, (str, Path)):
        return tokenizer
    name = str(tokenizer)
    if name == "byte":
        return ByteTokenizer()
    # micro brings this one, so no network is asked.
    if name == "gpt2:4096":
        return load_tokenizer(Path(__file__).parent / "pretrained" / "micro")
    gpt2 = re.fullmatch(r"gpt2(?::(\d+))?", name)
    if gpt2:
        size = gpt2[1] or GPT2_IDS
        return _gpt2(int(size))
    if name.endswith(".json") or Path(name).is_dir():
        return load_tokenizer(name)
    raise ValueError(f"unknown tokenizer {name!r}; accepted: byte, gpt2, gpt2:N, or the path of a "
                     f"{TOKENIZER} or of a folder that has one")


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Return the tokenizer that `save_tokenizer` or `transformers` wrote: of a folder, or a file.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it has no token that ends a document.
    """
    path = Path(path)
    if path.suffix != ".json":
        path /= TOKENIZER
    text = path.read_text(encoding="utf-8")
    if text == ByteTokenizer().to_json():  # the same ids, many times faster
        return ByteTokenizer()
    # A tokenizer.json alone does not say which token ends a document: then GPT-2's is assumed.
    config = {}
    beside = path.with_name(TOKENIZER_CONFIG)
    if beside.exists():
        config = json.loads(beside.read_text(encoding="utf-8"))
    end_of_text = config.get("eos_token") or END_OF_TEXT
    if isinstance(end_of_text, dict):  # as `transformers` wrote it before version 5
        end_of_text = end_of_text["content"]
    name = config.get("name_or_path") or path.name
    return JSONTokenizer(name, text, end_of_text)


def save_tokenizer(tokenizer: Tokenizer, folder: str | Path) -> None:
    """Write the two files from which `load_tokenizer` and `AutoTokenizer` read a tokenizer."""
    text = tokenizer.to_json()
    # Without an eos_token `transformers` would pad and generate beyond the end of a text.
    encoder = Encoder.from_str(text)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "name_or_path": tokenizer.name,
        "eos_token": encoder.id_to_token(tokenizer.end_of_text),
        "clean_up_tokenization_spaces": False,
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TOKENIZER).write_text(text, encoding="utf-8")
    text = json.dumps(config, indent=2) + "\n"
    (folder / TOKENIZER_CONFIG).write_text(text, encoding="utf-8")


def tokenizer_sha256(tokenizer: Tokenizer) -> str:
    """Return a SHA-256, in hexadecimal, that tokenizers share only if they encode alike.

    It is that of the `tokenizer.json` without what changes no id: its layout, and how
    `transformers` last cut, padded and framed a text.
    """
    # Read and written by the package, two spellings of one tokenizer become the same text.
    encoder = Encoder.from_str(tokenizer.to_json())
    stored = json.loads(encoder.to_str())
    # These three change no id here, and `transformers` rewrites them on use.
    stored |= dict.fromkeys(("truncation", "padding", "post_processor"))
    text = json.dumps(stored, ensure_ascii=False, separators=(",", ":")) + "\n"
    return hashlib.sha256(text.encode()).hexdigest()


def _gpt2(size: int) -> Tokenizer:
    """Return the first `size` - 1 ids of GPT-2, and an end of text after them."""
    if not 257 <= size <= GPT2_IDS:
        raise ValueError(f"unknown tokenizer 'gpt2:{size}'; give from 257 ids (bytes and end of "
                         f"text) to {GPT2_IDS}")
    path = huggingface_hub.hf_hub_download(GPT2, TOKENIZER, revision=GPT2_REVISION)
    stored = json.loads(Path(path).read_text(encoding="utf-8"))
    # GPT-2's ids are the bytes and then what its merges make, in their order.  So the first ids,
    # with the merges that make them, are a byte-pair encoding of their own.
    vocabulary = stored["model"]["vocab"]
    merges = stored["model"]["merges"][:size - 257]
    words = sorted(vocabulary, key=vocabulary.get)[:size - 1]
    words.append(END_OF_TEXT)
    stored["model"] = {
        "type": "BPE",
        "vocab": {word: i for i, word in enumerate(words)},
        "merges": [pair.split(" ") for pair in merges],
    }
    # The rest as in the file of micro, so that both have one hash.
    stored["added_tokens"][0] |= {"id": size - 1, "normalized": False}
    stored["decoder"] = stored["pre_tokenizer"]
    name = f"gpt2:{size}"
    if size == GPT2_IDS:
        name = "gpt2"
    text = json.dumps(stored, ensure_ascii=False)
    return JSONTokenizer(name, text)
