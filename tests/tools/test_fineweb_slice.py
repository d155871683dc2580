"""The slice of FineWeb that the book carries."""

import pytest

from caracal_book import runs
from caracal_book.fineweb import HELD_OUT, TRAIN
from caracal_book.measured import sha256_of_tokens
from caracal_min import Caracal
from caracal_min.data import documents, tokens_of


def test_the_package_carries_five_megabytes_none_of_them_held_out():
    train, held_out = (list(documents(str(path))) for path in (TRAIN, HELD_OUT))
    assert len(held_out) == 300 and not {*train} & {*held_out} and len({*train}) == len(train)
    assert 4_900_000 < sum(len(text.encode()) for text in train) <= 5_000_000
    assert TRAIN.stat().st_size + HELD_OUT.stat().st_size < 2_000_000


@pytest.mark.slow
def test_what_is_held_out_is_what_micro_was_measured_on():
    tokens = tokens_of(str(HELD_OUT), Caracal.from_pretrained("micro").tokenizer, progress=False)
    assert sha256_of_tokens(tokens) == runs.load("micro_evaluation")["data"]["sha256"]
