"""Shards that several files of tests read."""

import shutil

import datasets
import huggingface_hub
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


class Hub:
    """Stands in for the hub: a dataset that has a newest commit, and that may change or break off."""

    def __init__(self):
        self.commit, self.rows, self.ends_after, self.asked = "a" * 40, [], None, []

    def dataset_info(self, repository):
        self.asked.append({"newest of": repository})
        return huggingface_hub.DatasetInfo(id=repository, sha=self.commit)

    def load_dataset(self, path, **options):
        self.asked.append({"path": path, **options})
        return self

    def __iter__(self):
        for i, row in enumerate(self.rows):
            if i == self.ends_after:
                raise Disconnected("Server disconnected without sending a response.")
            yield row


class Disconnected(Exception):
    """As the error of a library for HTTP: a class of its own, below no class that Python has."""


@pytest.fixture
def hub(monkeypatch):
    """The hub, as far as it is asked here."""
    stand_in = Hub()
    monkeypatch.setattr(datasets, "load_dataset", stand_in.load_dataset)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda api, name: stand_in.dataset_info(name))
    return stand_in
