"""Chapter 12 as it runs where there is a GPU and a network: other lines than on the pages, so they are run here.

Stand-ins take the places of what is not here: the notebook's own questions for a GPU are answered with that of a T4 or
of an H100, while the package finds none and computes on the CPU; the hub's FineWeb is a local sample, read through the
same stream; Colab's Drive is a folder; and the recipe is cut down after it was accepted in full.
"""

import os
import re
from types import SimpleNamespace

import nbformat
import pytest
import torch
from nbclient import NotebookClient

STANDINS = '''
import json, lzma, sys, types
from dataclasses import replace
from pathlib import Path
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
    if "out" not in changes:  # that of a fold
        return config
    asked.append(config)
    return replace(config, model=("d_model=64", "n_layers=6", "n_heads=4", "window_size=32"), minutes=60, context=32,
                   tokens=100 * 128, batch_size=4, micro_batch_size=2, corpus_tokens=200_000, eval_every=25,
                   eval_windows=4, compile="no", precision={precision!r}, peak_flops=1e12, progress=False)

from caracal_min.data.sources import FINEWEB_REVISION as COMMIT
huggingface_hub.HfApi.dataset_info = dataset_info
torch.cuda.is_available = lambda: sys._getframe(1).f_globals["__name__"] == "__main__"
torch.cuda.get_device_name = lambda: {name!r}
torch.cuda.get_device_properties = lambda _: SimpleNamespace(total_memory={memory!r}, major={major!r})
datasets.load_dataset = load_dataset
TrainConfig.for_preset = classmethod(cut_down)
if {colab!r}:
    mount = lambda path: Path(path, "MyDrive").mkdir(parents=True)
    sys.modules["google"] = types.ModuleType("google")
    sys.modules["google.colab"] = types.ModuleType("google.colab")
    sys.modules["google.colab"].drive = SimpleNamespace(mount=mount)
'''


@pytest.fixture
def execute(notebooks, shared_data, gpt2, tmp_path):
    """A function that returns chapter 12 with its outputs, and with them what the stand-ins saw."""
    sample = shared_data / "corpus" / "fineweb-legal-sample.jsonl.xz"

    def run(**seen):
        notebook = nbformat.from_dict(notebooks["12_train_tiny"])
        first = next(i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code") + 1
        source = STANDINS
        for name, value in {"sample": str(sample), **seen}.items():
            source = source.replace(f"{{{name}!r}}", repr(value))
        for cell in notebook.cells:
            cell.source = cell.source.replace("/content/drive", str(tmp_path / "drive")).replace("count=32", "count=2")
        recipe = next(cell.source for cell in notebook.cells if cell["id"] == "recipe")
        notebook.cells.insert(first, nbformat.v4.new_code_cell(source))
        notebook.cells.append(nbformat.v4.new_code_cell(
            "full = asked[0]\nprint(full.preset, full.data, full.minutes, full.batch_size, full.micro_batch_size,\n"
            "      full.compile, RUN, KEPT, trainer.finished, trainer.precision, len(lost), equal)"))
        if seen["colab"]:  # and the disk of the machine is new
            notebook.cells += [nbformat.v4.new_code_cell(text) for text in ("shutil.rmtree(RUN)", recipe, (
                "print(*sorted(path.name for path in RUN.iterdir()))"))]
        NotebookClient(notebook, timeout=1800, kernel_name="python3",
                       resources={"metadata": {"path": str(tmp_path)}}).execute(env=dict(os.environ))
        return notebook

    return run


def printed(cell):
    return "".join(output.get("text", "") for output in cell.get("outputs", []))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("seen, path", [
    (dict(name="Tesla T4", memory=15_828_320_256, major=7, precision="float16", colab=True), "20 32 32 no"),
    (dict(name="NVIDIA H100", memory=85_020_573_696, major=9, precision="bfloat16", colab=False), "10 32 32 blocks"),
])
def test_the_path_of_a_gpu_runs_to_the_end(execute, tmp_path, seen, path):
    cells = execute(**seen).cells
    last = next(cell for cell in cells if cell.source.startswith("full = asked[0]"))
    assert printed(last).split() == ["tiny", "fineweb", *path.split(), "my_tiny_run", "my_tiny", "True",
                                     f"torch.{seen['precision']}", "8", "8"]
    said = "".join(map(printed, cells))
    assert re.search(rf"^here: {seen['name']}$", said, re.MULTILINE) and "utilisation (MFU): " in said
    assert "NaN" not in said and "nan" not in said.split()
    assert (tmp_path / "my_tiny" / "record.json").is_file() and (tmp_path / "my_tiny_run" / "shards").is_dir()
    if seen["colab"]:
        on_drive = tmp_path / "drive" / "MyDrive"
        assert (on_drive / "my_tiny" / "record.json").is_file() and "copied to" in said
        assert {"checkpoint.pt", "log.jsonl", "model", "shards"} <= set(printed(cells[-1]).split())


@pytest.fixture
def plan(notebooks, monkeypatch):
    """A function that returns what chapter 12 plans, from changes of what it finds on its machine."""
    (cell,) = (cell for cell in notebooks["12_train_tiny"]["cells"] if cell["id"] == "situation")
    names = {}
    exec("".join(next(c for c in notebooks["12_train_tiny"]["cells"] if c["id"] == "imports")["source"])
         .replace("viz.use_style()", "").replace("colour = viz.palette", ""), names)
    from caracal_book import runs

    def planned(memory=80e9, major=9, **changed):
        card = SimpleNamespace(total_memory=memory, major=major)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
        there = {"runs": runs, "GPU": True, "TEXT": None, "find_spec": str, "fineweb_revision": lambda: "a" * 40}
        exec("".join(cell["source"]), found := names | there | changed)
        return found["plan"]()

    return planned


def test_a_gpu_without_the_packages_or_the_network_says_what_is_missing(plan):
    """The network is asked for FineWeb as the stream asks, so through a proxy where there is one."""
    def fails():
        raise ConnectionError("fineweb cannot be reached")

    with pytest.raises(ImportError, match="pip install datasets"):
        plan(find_spec={}.get)
    with pytest.raises(ConnectionError, match="cannot be reached"):
        plan(fineweb_revision=fails)
    slice_ = plan(TEXT="slice.jsonl", find_spec={}.get, fineweb_revision=fails)  # asked for, so neither is needed
    assert slice_["data"] == "slice.jsonl" and plan()["data"] == "fineweb"


@pytest.mark.parametrize("memory, at_once", [(4e9, 8), (8e9, 16), (15.8e9, 32), (80e9, 32)])
def test_the_memory_of_a_card_decides_how_many_sequences_it_takes_at_once(plan, memory, at_once):
    planned = plan(memory=memory)
    assert (planned["batch_size"], planned["micro_batch_size"]) == (32, at_once)
