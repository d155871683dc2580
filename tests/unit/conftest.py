"""What the tests of data and of shards share."""

import pytest
from end_to_end import offline_tokenizer


@pytest.fixture
def gpt2(shared_data, tmp_path, monkeypatch):
    """tiktoken finds its files here, without a network."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # so that it is put back afterwards
    offline_tokenizer(shared_data / "gpt2_bpe", tmp_path)
