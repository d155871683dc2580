"""What the tests of data and of shards share."""

import shutil

import pytest

pytest.register_assert_rewrite("exercise_answers")


@pytest.fixture
def gpt2(shared_data, tmp_path, monkeypatch):
    """tiktoken finds its files here, without a network."""
    cache = {"vocab.bpe": "6d1cbeee0f20b3d9449abfede4726ed8212e3aee",
             "encoder.json": "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6"}
    for name, hashed in cache.items():
        shutil.copy(shared_data / "gpt2_bpe" / name, tmp_path / hashed)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
