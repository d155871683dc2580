"""micro, which comes with the package: as it was measured, the same everywhere, and it writes without a network."""

from itertools import islice
from pathlib import Path

import micro_card
import pytest
import ship_micro
import torch

import caracal_min
from caracal_book import runs
from caracal_book.records import read_record
from caracal_min import Caracal
from caracal_min.config import PRESETS
from caracal_min.data import RULE, documents
from caracal_min.files import file_sha256
from caracal_min.loss import token_loss

FOLDER = Path(caracal_min.__file__).parent / "pretrained" / "micro"
WEIGHTS = FOLDER / "model.safetensors"
KINDS = ("evaluation", "surgery", "counts", "counts_once", "blind_test", "twins")


@pytest.fixture(scope="module")
def record():
    """Of the training."""
    return read_record(FOLDER / "record.json")


@pytest.fixture(scope="module")
def measured():
    """The records of the shipped weights by kind."""
    return {kind: runs.load(f"micro_{kind}") for kind in KINDS if f"micro_{kind}" in runs.names()}


def test_it_is_the_model_that_was_trained_and_measured(record, measured):
    assert sorted(path.name for path in FOLDER.iterdir()) == [
        "README.md", "SHA256SUMS", "config.json", "model.safetensors", "record.json", "tokenizer.json",
        "tokenizer_config.json"]
    assert file_sha256(WEIGHTS) == record["results"]["shipped"]["sha256"]
    assert {"evaluation", "surgery", "counts", "counts_once"} <= measured.keys()
    for kind, found in measured.items():
        assert found["results"].get("model_sha256", file_sha256(WEIGHTS)) == file_sha256(WEIGHTS), kind
    assert record["data"]["rule"] == RULE
    assert Caracal.from_pretrained("micro", gate_length=None).config == PRESETS["micro"]
    for line in (FOLDER / "SHA256SUMS").read_text().splitlines():
        sha256, name = line.split()
        assert file_sha256(FOLDER / name) == sha256, name
    assert Caracal.from_pretrained("micro").num_parameters() == record["results"]["parameters"]
    assert WEIGHTS.stat().st_size < 13e6


def test_its_logits_are_the_same_on_every_machine(record):
    shipped = record["results"]["shipped"]
    model = Caracal.from_pretrained("micro", device="cpu", dtype=torch.float64)
    assert ship_micro.logits_sha256(model, shipped["text"]) == shipped["logits_sha256"]


def test_its_gate_is_cut_where_its_training_ended():
    """Up to there no bit of a logit changes; beyond, the text as trained is worse than a uniform guess of 8.3 nats."""
    cut = Caracal.from_pretrained("micro", device="cpu")
    trained = Caracal.from_pretrained("micro", device="cpu", gate_length=None)
    assert cut.config.gate_length == cut.config.max_positions == 256
    text = "\n".join(islice(documents("embedded"), 20))
    ids = torch.tensor([cut.tokenizer.encode(text)[:2049]])
    with torch.inference_mode(), pytest.warns(UserWarning, match="predicts worse unless its gate is cut") as told:
        assert torch.equal(cut.logits(ids[:, :256]), trained.logits(ids[:, :256]))
        late = [token_loss(model.logits(ids[:, :-1])[:, 1024:], ids[:, 1025:]).item() for model in (cut, trained)]
        trained.logits(ids)
    assert len(told) == 1 and late[0] < 7.5 and late[1] > 8.3


def test_it_knows_more_than_tables_counted_in_its_text_and_bears_eight_bits(record, measured):
    counts, found = measured["counts"]["results"], measured["evaluation"]["results"]
    assert (counts["tokens"], counts["bytes"]) == (found["tokens"], found["bytes"])
    assert counts["counted"]["tokens"] == min(record["results"]["tokens"], record["data"]["train_tokens"])
    for name in ("counts", "counts_once"):
        assert found["bits_per_byte"] + 0.12 < min(measured[name]["results"]["bits_per_byte"].values()), name
    (eight,) = (row for row in measured["surgery"]["results"]["rows"] if row["operation"] == "matrices of eight bits")
    assert eight["change_in_bits_per_byte"] <= 0.01


def test_the_card_is_that_of_the_records(record, measured):
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == micro_card.card(
        record, WEIGHTS.stat().st_size, **measured)
