"""Shards that several files of tests read."""

import shutil

import pytest
from shard_texts import SIZE, TEXTS, write_jsonl

from caracal_min.data.write_shards import tokenize


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_jsonl(tmp_path_factory.mktemp("source") / "texts.jsonl", [{"text": text} for text in TEXTS])


@pytest.fixture(scope="module")
def whole(source, tmp_path_factory):
    """A finished folder, never interrupted.  Read only."""
    folder = tmp_path_factory.mktemp("whole") / "shards"
    tokenize(source, folder, "byte", SIZE, progress=False)
    return folder


@pytest.fixture
def damaged(whole, tmp_path):
    """A copy to spoil."""
    return shutil.copytree(whole, tmp_path / "copy")
