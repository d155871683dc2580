"""Text to tokens to batches::

    local_files     the texts of one file on this machine, without a network
    documents       the texts of a source, one at a time, from this machine or from the network
    byte_pairs      byte-pair encoding in plain Python, for a model that carries its vocabulary
    file_tokenizer  any `tokenizer.json`, through the package `tokenizers`
    tokenizers      text to ids and back: bytes, GPT-2's byte-pair encoding or its first ids, or a file
    split           what is held out: a document, by a hash of its text
    chunks          texts to ids, some documents at a time, by several threads
    manifest        what a folder of token shards holds, and what it was made from
    shards          such a folder, checked and read
    write_shards    texts to such a folder, once, for many runs; a killed call goes on
    corpus          what to train on, and what to measure on
    batches         batch i of an endless order, and windows for evaluation

A small corpus goes from documents to one array in memory; a large one goes through shards, which are memory-mapped.
Either way a `Corpus` has the tokens to train on and others to be measured on, and `Batches` cuts them.
"""

from .batches import Batches, sequential_windows
from .corpus import Corpus, load_corpus, tokens_of
from .documents import documents, text_files
from .manifest import Manifest, ShardSettings
from .shards import ShardedTokens, verify
from .split import RULE, is_held_out
from .tokenizers import (
    ByteTokenizer,
    GPT2Tokenizer,
    Tokenizer,
    load_tokenizer,
    make_tokenizer,
    save_tokenizer,
    tokenizer_sha256,
)
from .write_shards import TokenizeConfig, tokenize

__all__ = ["Batches", "ByteTokenizer", "Corpus", "GPT2Tokenizer", "Manifest", "RULE", "ShardSettings", "ShardedTokens",
           "TokenizeConfig", "Tokenizer", "documents", "is_held_out", "load_corpus",
           "load_tokenizer", "make_tokenizer", "save_tokenizer", "sequential_windows", "text_files", "tokenize",
           "tokenizer_sha256", "tokens_of", "verify"]
