"""Any `tokenizer.json`, through the `tokenizers` package."""

from collections.abc import Iterable

from ..extras import missing

__all__ = ["TOKENIZER", "TOKENIZER_CONFIG", "FileTokenizer"]

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
"""Files that hold a tokenizer: its vocabulary, and what `transformers` wants to know beside that."""


class FileTokenizer:
    """What a `tokenizer.json` describes, through the `tokenizers` package.

    Args:
        name: what it is called.
        text: content of the file.
        end_of_text: spelling of the special token that ends a document.

    Raises:
        ValueError: it is no such file, or has no such token.
        ImportError: `tokenizers` is not installed.
    """

    def __init__(self, name: str, text: str, end_of_text: str):
        try:
            from tokenizers import Tokenizer as Encoder
        except ImportError:
            raise missing(f"the tokenizer {name}", "tokenizers", "train") from None
        try:
            self._encoder = Encoder.from_str(text)
        except Exception as error:  # the class that the package raises is no other than this
            raise ValueError(f"{name} is no tokenizer that the tokenizers package reads ({error})") from None
        self._encoder.no_padding()
        self._encoder.no_truncation()
        self._encoder.encode_special_tokens = True
        self.name, self._text = name, text
        self.vocab_size = max(self._encoder.get_vocab(with_added_tokens=True).values()) + 1
        self.end_of_text = self._encoder.token_to_id(end_of_text)
        if self.end_of_text is None:
            raise ValueError(f"{name} has no token {end_of_text!r} to end a document with; name one of its tokens in "
                             f"{TOKENIZER_CONFIG} beside it, as eos_token")

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without the special tokens that the file may put around it."""
        return self._encoder.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: list[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of each text, by as many threads as the package takes."""
        return [found.ids for found in self._encoder.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids."""
        return self._encoder.decode([int(i) for i in ids], skip_special_tokens=False)

    def to_json(self) -> str:
        """Return the content of the file."""
        return self._text
