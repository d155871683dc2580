"""Chapter 12 as it runs where there is a GPU and a network: other lines than on the pages, so they are run here.

Stand-ins take the places of what is not here: the notebook's own question for a GPU is answered with yes, while the
package finds none and computes on the CPU; the hub's FineWeb is a local sample, read through the same stream; and the
recipe is cut down, as is Tiny, after it was accepted in full.
"""

import os
import re

import nbformat
import pytest
from end_to_end import offline_tokenizer
from nbclient import NotebookClient

STANDINS = '''
import json, lzma, socket, sys
from dataclasses import replace
from types import SimpleNamespace

import datasets
import huggingface_hub
import torch
from caracal_min import config
from caracal_min.training import TrainConfig

connect, for_preset, found = socket.create_connection, TrainConfig.for_preset.__func__, []

def create_connection(address, *more, **options):
    if address[0] == "huggingface.co":
        return socket.socket()
    return connect(address, *more, **options)

def dataset_info(self, path, **options):
    return SimpleNamespace(sha=COMMIT)

def load_dataset(path, name, split, streaming, revision):
    assert (path, split, streaming, revision) == ("HuggingFaceFW/fineweb", "train", True, COMMIT)
    with lzma.open({sample!r}, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)

def cut_down(cls, preset, **changes):
    asked = for_preset(cls, preset, **changes)
    found.append(asked)
    if preset != "tiny":
        return asked
    return replace(asked, minutes=0.15, context=64, batch_size=8, micro_batch_size=4, corpus_tokens=400_000,
                   eval_every=4, eval_windows=4, progress=False)

COMMIT = "0123456789" * 4
socket.create_connection = create_connection
huggingface_hub.HfApi.dataset_info = dataset_info
torch.cuda.is_available = lambda: sys._getframe(1).f_globals["__name__"] == "__main__"
datasets.load_dataset = load_dataset
TrainConfig.for_preset = classmethod(cut_down)
config.PRESETS["tiny"] = replace(config.PRESETS["tiny"], d_model=64, n_layers=6, n_heads=4, window_size=32)
'''


@pytest.fixture
def executed(notebooks, shared_data, tmp_path, monkeypatch):
    """Chapter 12 with its outputs, and what the stand-ins saw."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # so that it is put back afterwards
    offline_tokenizer(shared_data / "gpt2_bpe", tmp_path / "bpe")
    sample = shared_data / "corpus" / "fineweb-validation.jsonl.xz"
    notebook = nbformat.from_dict(notebooks["12_train_tiny"])
    first = next(i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code") + 1
    notebook.cells.insert(first, nbformat.v4.new_code_cell(STANDINS.replace("{sample!r}", repr(str(sample)))))
    notebook.cells.append(nbformat.v4.new_code_cell(
        "print(LARGE, recipe.preset, trainer.finished, vocabulary, corpus.source, found[0].minutes)"))
    NotebookClient(notebook, timeout=900, kernel_name="python3",
                   resources={"metadata": {"path": str(tmp_path)}}).execute(env=dict(os.environ))
    return notebook


def test_the_branch_of_the_gpu_runs_to_the_end(executed):
    last = "".join(output.get("text", "") for output in executed.cells[-1].outputs)
    assert last.split() == ["True", "tiny", "True", "50257", "fineweb", "20.0"]
    said = "".join(output.get("text", "") for cell in executed.cells for output in cell.get("outputs", []))
    assert re.search(r"^here: \d+\.\d+ nats after \d+ million tokens$", said, re.MULTILINE)
    assert "NaN" not in said and "nan" not in said.split()
