"""GPT-2's tokenizer without a network."""

import json

import huggingface_hub.constants
import pytest

from caracal_min.tokenizer import GPT2, GPT2_REVISION


@pytest.fixture(scope="session")
def hub_cache(shared_data, tmp_path_factory):
    """A cache of the hub that has GPT-2's tokenizer.json, as the hub has it, made from its two older files."""
    folder = tmp_path_factory.mktemp("hub")
    file = folder / f"models--{GPT2.replace('/', '--')}" / "snapshots" / GPT2_REVISION / "tokenizer.json"
    file.parent.mkdir(parents=True)
    bpe = shared_data / "gpt2_bpe"
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    end = {"id": 50256, "special": True, "content": "<|endoftext|>", "single_word": False, "lstrip": False,
           "rstrip": False, "normalized": True}
    model = {"dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
             "fuse_unk": False, "vocab": json.loads((bpe / "encoder.json").read_text(encoding="utf-8")),
             "merges": (bpe / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]}
    file.write_text(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end],
                                "normalizer": None, "pre_tokenizer": step, "post_processor": step,
                                "decoder": step | {"add_prefix_space": True}, "model": model}), encoding="utf-8")
    return folder


@pytest.fixture
def gpt2(hub_cache, monkeypatch):
    """GPT-2's tokenizer is in the cache of the hub, for this process and for those that it starts."""
    monkeypatch.setenv("HF_HUB_CACHE", str(hub_cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(hub_cache))
