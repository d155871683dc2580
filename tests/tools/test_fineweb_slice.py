"""The slice of FineWeb that the book carries, and the tool that cuts it."""

import json
import lzma

import fineweb_slice
import pytest

from caracal_book import runs
from caracal_book.fineweb import HELD_OUT, TRAIN
from caracal_min import Caracal
from caracal_min.data import documents, tokens_of
from caracal_min.evaluation.measured import sha256_of_tokens


def write(path, rows):
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


@pytest.fixture
def sources(tmp_path):
    sample = [{"text": f"{name} " * 100, "legal_score": score, "url": "u"}
              for name, score in (("law", 5), ("held", 0), ("song", 0), ("café", 0), ("court", 3), ("tax", 1))]
    return (write(tmp_path / "sample.jsonl.xz", sample),
            write(tmp_path / "held.jsonl.xz", [{"text": text * 100} for text in ("held ", "out ")]))


def test_least_law_comes_first_and_nothing_that_is_held_out(sources):
    chosen, measured = fineweb_slice.cut(*sources, size=1_500)  # bytes: é has two
    assert [text.split()[0] for text in chosen] == ["song", "café", "tax"]
    assert [text.split()[0] for text in measured] == ["held", "out"]
    assert [text.split()[0] for text in fineweb_slice.cut(*sources, size=1_499)[0]] == ["song", "café"]


def test_equal_files_give_equal_bytes(sources, tmp_path, monkeypatch, capsys):
    written = []
    for name in ("a", "b"):
        paths = [tmp_path / f"{part}_{name}.jsonl.xz" for part in ("train", "held_out")]
        monkeypatch.setattr(fineweb_slice, "TRAIN", paths[0])
        monkeypatch.setattr(fineweb_slice, "HELD_OUT", paths[1])
        fineweb_slice.main(["--sample", str(sources[0]), "--held-out", str(sources[1]), "--size", "1500"])
        written.append([path.read_bytes() for path in paths])
    assert written[0] == written[1]
    assert [text.split()[0] for text in documents(str(paths[0]))] == ["song", "café", "tax"]
    assert "train_b.jsonl.xz: 3 documents" in capsys.readouterr().out


def test_the_package_carries_five_megabytes_none_of_them_held_out():
    train, held_out = (list(documents(str(path))) for path in (TRAIN, HELD_OUT))
    assert len(held_out) == 300 and not {*train} & {*held_out} and len({*train}) == len(train)
    assert 4_900_000 < sum(len(text.encode()) for text in train) <= 5_000_000
    assert TRAIN.stat().st_size + HELD_OUT.stat().st_size < 2_000_000


def test_what_is_held_out_is_what_micro_was_measured_on():
    tokens = tokens_of(str(HELD_OUT), Caracal.from_pretrained("micro").tokenizer, progress=False)
    assert sha256_of_tokens(tokens) == runs.load("micro_evaluation")["data"]["sha256"]
