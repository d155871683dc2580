"""Text to tokens to batches::

    sources    the documents of a source, and which of them are held out
    shards     documents to ids, in memory or in a folder that is memory-mapped
    batches    a corpus of both splits; batch i of an endless order, and windows for evaluation

Tokenizers are in `caracal_min.tokenizer`.
"""

# Offered here too, since who reads a corpus needs a tokenizer with it.
from ..tokenizer import ByteTokenizer, Tokenizer, load_tokenizer, make_tokenizer, save_tokenizer
from .batches import Batches, Corpus, load_corpus, sequential_windows, tokens_of
from .shards import tokenize
from .sources import RULE, documents, is_held_out

__all__ = ["Batches", "ByteTokenizer", "Corpus", "RULE", "Tokenizer", "documents", "is_held_out",
           "load_corpus", "load_tokenizer", "make_tokenizer", "save_tokenizer",
           "sequential_windows", "tokenize", "tokens_of"]
