"""From two texts to a model that is shipped: mixed, trained, written, measured and described."""

import json
import lzma
from pathlib import Path

import add_record
import micro_text
import numpy as np
import pytest
import ship_micro
import torch
from safetensors.torch import load_file

from caracal_book.records import code, read_record, record_of_run, save_record
from caracal_min import Caracal
from caracal_min import model as model_module
from caracal_min.data import documents, load_corpus, tokenize
from caracal_min.files import file_sha256
from caracal_min.training import TrainConfig, Trainer

WORDS = np.array("the of and a river town house was built in old new king who came near two small great stone".split())


def texts_of(path: Path, count: int, seed: int) -> list[str]:
    """Write some documents of drawn words, and return them."""
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(WORDS, 45)).capitalize() + "." for _ in range(count)]
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    return texts


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """A folder with fineweb, wikipedia and held_out, of which fineweb has two documents, and what was mixed of them."""
    folder = tmp_path_factory.mktemp("texts")
    held_out = texts_of(folder / "held_out.jsonl.xz", 24, seed=0)
    texts_of(folder / "wikipedia.jsonl.xz", 90, seed=2)
    web = texts_of(folder / "fineweb.jsonl.xz", 30, seed=1)
    with lzma.open(folder / "fineweb.jsonl.xz", "at", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in held_out[:2])
    options = [f"--{name}={folder / name.replace('-', '_')}.jsonl.xz" for name in ("fineweb", "wikipedia", "held-out")]
    micro_text.main([*options, f"--out={folder / 'mixed.jsonl'}", "--characters=9000"])
    return folder, web, held_out


@pytest.fixture(scope="module")
def run(mixture, tmp_path_factory):
    """The folder of a run, and its shards."""
    folder, out = mixture[0], tmp_path_factory.mktemp("run")
    tokenize(folder / "mixed.jsonl", out / "shards", "byte", progress=False)
    for name, changes in (("base", {}), ("fast", {"learning_rate": 6e-3, "model": ("d_model=8", "n_heads=2")})):
        given = dict(data=str(out / "shards"), validation=str(folder / "held_out.jsonl.xz"), out=out / name,
                     tokens=24 * 128, context=32, batch_size=4, micro_batch_size=4, eval_every=20, eval_windows=5,
                     progress=False, device="cpu", model=("d_model=16", "n_heads=2"))
        started = code()
        with Trainer(TrainConfig.for_preset("nano", **given | changes)) as trainer:
            trainer.run()
        save_record(record_of_run(out / name, started), out / name / "record.json")
    return out


@pytest.fixture
def as_committed(monkeypatch):
    """Whatever code runs is taken for that of a commit."""
    monkeypatch.setattr(add_record, "_named", lambda path, code, root: code | {"commit": "0" * 40, "clean": True})


def test_the_text_is_mixed_of_what_is_not_held_out(mixture):
    folder, web, held_out = mixture
    mixed, said = [*documents(str(folder / "mixed.jsonl"))], json.loads((folder / "mixed.json").read_text())
    assert not {*mixed} & {*held_out} and said["sha256"] == file_sha256(folder / "mixed.jsonl")
    assert sorted(text for text in mixed if text in {*web}) == sorted(2 * web)
    articles = [text for text in mixed if text not in {*web}]
    assert len({*articles}) == len(articles) and 9000 < sum(map(len, articles)) < 9000 + max(map(len, articles)) + 1
    assert mixed[:30] != web and [(source["documents"], source["characters"], source["times"])
                                  for source in said["sources"]] == [
        (30, sum(map(len, web)), 2), (len(articles), sum(map(len, articles)), 1)]
    again = micro_text.mixed(*(folder / f"{name}.jsonl.xz" for name in ("fineweb", "wikipedia", "held_out")), 9000, 2)
    assert again == (mixed, said["sources"])


@pytest.mark.slow
def test_a_run_is_shipped_with_measures_and_a_card(run, mixture, tmp_path, as_committed, monkeypatch):
    monkeypatch.setattr(ship_micro, "PROMPTS", ("The old", "A <river>"))
    monkeypatch.setattr(model_module, "PRETRAINED", tmp_path / "caracal_min" / "pretrained")
    given = (run / "base", run / "shards", mixture[0] / "mixed.json", str(mixture[0] / "held_out.jsonl.xz"),
             run / "shards", tmp_path)
    folder = ship_micro.ship(*given)
    trained, runs = load_file(run / "base" / "model" / "model.safetensors"), tmp_path / "book" / "caracal_book" / "runs"
    assert all(torch.equal(weight, trained[name].bfloat16())
               for name, weight in load_file(folder / "model.safetensors").items())
    record, weights = read_record(folder / "record.json", require_commit=False), folder / "model.safetensors"
    whole = json.loads((run / "base" / "record.json").read_text())["results"]
    assert record["results"]["shipped"]["sha256"] == file_sha256(weights)
    assert [entry["step"] for entry in record["results"]["curve"]] == [1, 20, 21, 24]
    assert {*record["results"]} - {"shipped", "model", "processes"} == {*whole} and record["config"]["data"] == "shards"
    found = {name: read_record(runs / f"micro_{name}.json", require_commit=False)["results"]
             for name in ("evaluation", "surgery", "counts", "counts_once")}
    assert {found[name]["model_sha256"] for name in ("evaluation", "surgery")} == {file_sha256(weights)}
    corpus = load_corpus(run / "shards", "byte", progress=False)
    assert found["counts"]["counted"]["tokens"] == record["results"]["tokens"] == 24 * 128
    assert found["counts_once"]["counted"]["tokens"] == len(corpus.train) > 24 * 128
    assert found["counts"]["bytes"] == found["evaluation"]["bytes"]
    card = (folder / "README.md").read_text()
    assert f"**{found['evaluation']['bits_per_byte']:.3f}**" in card
    assert f"| 5-gram | {found['counts']['losses']['5-gram']:.3f} |" in card and "> **A <river>**" in card
    assert "| FineWeb | 30 |" in card and "twice | ODC-By 1.0 |" in card and "CC BY-SA 3.0" in card
    model = Caracal.from_pretrained("micro", device="cpu", dtype=torch.float64)
    shipped = record["results"]["shipped"]
    assert ship_micro.logits_sha256(model, shipped["text"]) == shipped["logits_sha256"]
    with torch.no_grad():
        model.norm.bias += 1e-5
    assert ship_micro.logits_sha256(model, shipped["text"]) != shipped["logits_sha256"]
    assert (record["results"]["model"]["gate_length"], model.config.gate_length) == (None, 32)
    sums = dict(line.split()[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert sums == {name: file_sha256(folder / name) for name in sums} and {"config.json", weights.name} < {*sums}
    before = {path: path.stat().st_mtime_ns for path in runs.iterdir()}
    ship_micro.ship(*given)
    assert {path: path.stat().st_mtime_ns for path in runs.iterdir()} == before
    with pytest.raises(ValueError, match="is of other weights than .*; move it elsewhere, and run this again"):
        ship_micro.ship(run / "fast", *given[1:])
