"""Chapter 12 as it runs where there is a GPU and a network: other lines than on the pages, so they are run here.

Stand-ins take the places of what is not here: the notebook's own questions for a GPU are answered with that of a T4 or
of an H100, while the package finds none and computes on the CPU; the hub's FineWeb is a local sample, read through the
same stream; and the recipe is cut down after it was accepted in full.
"""

import os
import re

import nbformat
import pytest
import torch
from nbclient import NotebookClient

STANDINS = '''
import json, lzma, sys
from dataclasses import replace
from types import SimpleNamespace

import datasets
import huggingface_hub
import torch
from caracal_min.training import TrainConfig

for_preset, asked = TrainConfig.for_preset.__func__, []

def dataset_info(self, path, **options):
    return SimpleNamespace(sha=COMMIT)

def load_dataset(path, name, split, streaming, revision):
    assert (path, split, streaming, revision) == ("HuggingFaceFW/fineweb", "train", True, COMMIT)
    with lzma.open({sample!r}, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)

def cut_down(cls, preset, **changes):
    config = for_preset(cls, preset, **changes)
    if "out" not in changes:  # a column of the table
        return config
    asked.append(config)
    return replace(config, model=("d_model=64", "n_layers=6", "n_heads=4", "window_size=32"), minutes=60, context=32,
                   tokens=100 * 128, batch_size=4, micro_batch_size=2, corpus_tokens=200_000, eval_every=25,
                   eval_windows=4, compile="no", precision={precision!r}, progress=False)

from caracal_min.data.sources import FINEWEB_REVISION as COMMIT
huggingface_hub.HfApi.dataset_info = dataset_info
torch.cuda.is_available = lambda: sys._getframe(1).f_globals["__name__"] == "__main__"
torch.cuda.get_device_capability = lambda: {capability!r}
datasets.load_dataset = load_dataset
TrainConfig.for_preset = classmethod(cut_down)
'''
# Cells whose asserts say what runs of their full lengths learn.
OF_THE_RESULT = ("too-fast", "unshifted", "unshifted-text", "tables", "scores")


@pytest.fixture
def execute(notebooks, shared_data, gpt2, tmp_path):
    """A function that returns chapter 12 with its outputs, and with them what the stand-ins saw."""
    sample = shared_data / "corpus" / "fineweb-legal-sample.jsonl.xz"

    def run(capability, precision):
        notebook = nbformat.from_dict(notebooks["12_train_tiny"])
        first = next(i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code") + 1
        source = STANDINS
        for name, value in (("sample", str(sample)), ("capability", capability), ("precision", precision)):
            source = source.replace(f"{{{name}!r}}", repr(value))
        for cell in notebook.cells:
            if cell["id"] in OF_THE_RESULT:
                cell.source = re.sub(r"^assert ", "_ = ", cell.source, flags=re.MULTILINE)
            cell.source = cell.source.replace("steps=30", "steps=4")
        notebook.cells.insert(first, nbformat.v4.new_code_cell(source))
        notebook.cells.append(nbformat.v4.new_code_cell(
            "(full,) = asked\nprint(HERE, full.preset, full.data, full.minutes, full.compile, RUN, KEPT, kind,\n"
            "      trainer.finished, trainer.precision, V, len(lost), equal)"))
        NotebookClient(notebook, timeout=1800, kernel_name="python3",
                       resources={"metadata": {"path": str(tmp_path)}}).execute(env=dict(os.environ))
        return notebook

    return run


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("name,capability,precision,minutes,compiled", [
    ("T4", (7, 5), "float16", 20, "no"),
    ("H100", (9, 0), "bfloat16", 10, "blocks"),
])
def test_the_path_of_a_gpu_runs_to_the_end(execute, tmp_path, name, capability, precision, minutes, compiled):
    notebook = execute(capability, precision)
    last = "".join(output.get("text", "") for output in notebook.cells[-1].outputs)
    assert last.split() == [name, "tiny", "fineweb", f"{minutes}", compiled, "my_tiny_run", "my_tiny", "Tiny,",
                            "H100", "True", f"torch.{precision}", "50257", "8", "8"]
    said = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert re.search(rf"^this page was run on the path: {name}$", said, re.MULTILINE)
    assert "NaN" not in said and "nan" not in said.split()
    assert (tmp_path / "my_tiny" / "record.json").is_file() and (tmp_path / "my_tiny_run" / "shards").is_dir()


def test_a_gpu_without_the_packages_or_the_network_trains_micro_and_says_why(notebooks, monkeypatch, capsys):
    """The network is asked for FineWeb as the stream asks, so through a proxy where there is one."""
    (cell,) = (cell for cell in notebooks["12_train_tiny"]["cells"] if cell["id"] == "situation")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))

    def fails():
        raise ConnectionError

    there = {"torch": torch, "find_spec": str, "fineweb_revision": lambda: "a" * 40}
    for changed, path, said in (({}, "H100", ""), ({"fineweb_revision": fails}, "CPU", "no network"),
                                ({"find_spec": {}.get}, "CPU", "pip install datasets")):
        exec("".join(cell["source"]), there | changed)
        printed = capsys.readouterr().out
        assert said in printed and f"path: {path}" in printed
