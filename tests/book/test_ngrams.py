"""Tables of tokens in a row: probabilities that sum to one, by hand, against a slow twin, on real text, by command."""

import json
from collections import Counter, defaultdict

import numpy as np
import pytest

from caracal_book.commands.count import CountConfig, run_count
from caracal_book.ngrams import KneserNey, ngram_losses
from caracal_book.records import read_record
from caracal_book.runs import describe
from caracal_min.data import load_corpus, sequential_windows

TEXT = np.random.default_rng(0).choice(12, size=400, p=np.arange(1, 13) / 78)

TEXTS = {"long": TEXT, "short": TEXT[:5], "two": np.array([3, 3])}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_probabilities_after_every_context_sum_to_one(text):
    model = KneserNey(text, 15, min(4, len(text)))
    contexts = np.lib.stride_tricks.sliding_window_view(TEXT, 3)[:60]
    inputs = np.repeat(contexts, 15, axis=0)
    targets = np.concatenate([inputs[:, 1:], np.tile(np.arange(15), 60)[:, None]], axis=1)
    for losses in model.losses(inputs, targets):
        np.testing.assert_allclose(np.exp(-losses[:, -1]).reshape(60, 15).sum(1), 1, rtol=1e-12)


def test_a_bigram_by_hand():
    """a b a c a b: ab twice, ba once, ac once, ca once.  d = 3/(3+2); after a: 3, of 2 kinds; b and c follow one
    kind, a two, so that a second discount of 2/(2+2) spreads 1.5 of 4 over the 4 ids."""
    model = KneserNey(np.array([0, 1, 0, 2, 0, 1]), 4)
    d, spread = 3 / 5, 0.5 * 3 / 4
    lower = {0: (2 - 0.5 + spread) / 4, 1: (1 - 0.5 + spread) / 4, 3: spread / 4}
    expected = {(0, 1): (2 - d) / 3 + d * 2 / 3 * lower[1], (0, 3): d * 2 / 3 * lower[3],
                (1, 0): 1 - d + d * lower[0], (3, 1): lower[1]}
    for (first, second), probability in expected.items():
        assert np.exp(-model.losses(np.array([first]), np.array([second]))[0][0]) == pytest.approx(probability)


def discounted(counts):
    once, twice = (sum(n == k for n in counts.values()) for k in (1, 2))
    return once / (once + 2 * twice) if once else 0.5


def slow(text, size, context, token, top=True):
    """Interpolated Kneser-Ney as the textbook writes it: dictionaries of grams as tuples."""
    length = len(context) + 1
    grams = {text[i:i + length] for i in range(len(text) - length + 1)}
    if top:
        counts = Counter(text[i:i + length] for i in range(len(text) - length + 1))
    else:
        before = defaultdict(set)
        for i in range(1, len(text) - length + 1):
            before[text[i:i + length]].add(text[i - 1])
        counts = Counter({gram: len(before[gram]) for gram in grams if before[gram]})
    discount = discounted(counts)
    if length == 1:
        return (max(counts[(token,)] - discount, 0) + discount * len(counts) / size) / sum(counts.values())
    lower = slow(text, size, context[1:], token, top=False)
    after = {gram: n for gram, n in counts.items() if gram[:-1] == context}
    if not after:
        return lower
    return (max(counts[(*context, token)] - discount, 0) + discount * len(after) * lower) / sum(after.values())


def test_longer_tables_are_those_of_the_textbook():
    text, row = tuple(TEXT[:120].tolist()), TEXT[200:230]
    found = KneserNey(np.array(text), 15, 4).losses(row[None, :-1], row[None, 1:])
    for number, losses in enumerate(found):
        for t in range(len(row) - 1):
            context = tuple(row[max(0, t - number):t + 1].tolist())  # no more than the row has
            assert np.exp(-losses[0, t]) == pytest.approx(slow(text, 15, context, int(row[t + 1]))), (number, t)


@pytest.mark.parametrize("source", ["a.jsonl", "embedded"])
@pytest.mark.parametrize("changes", [{"split": "all"}, {"train_split": "all"}])
def test_what_is_measured_is_not_counted(changes, source, tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": f"number {i} " * 9}) + "\n" for i in range(200)))
    monkeypatch.chdir(tmp_path)
    given = {"train": source.replace("a.", "./a."), "data": source, "context": 16, "longest": 3, "train_tokens": 9999}
    assert run_count(CountConfig(**given))["counted"]["split"] == "train"
    with pytest.raises(ValueError, match=f"holds what is measured, {source} .*; take train and held_out"):
        run_count(CountConfig(**given, **changes))


def test_the_command_measures_what_training_holds_out(tmp_path, capsys):
    pytest.importorskip("jsonschema")
    results = run_count(CountConfig(longest=4, context=64, tokens=5000, out=tmp_path / "counts.json"))
    corpus = load_corpus("embedded", "byte", progress=False)
    windows = sequential_windows(corpus.validation[:5001], 64)
    assert results["losses"] == ngram_losses(corpus.train, windows.numpy(), 256, 4)
    assert list(results["losses"]) == ["unigram", "bigram", "trigram", "4-gram"]
    assert sorted(results["losses"].values(), reverse=True) == list(results["losses"].values())
    record = read_record(tmp_path / "counts.json", require_commit=False)
    assert record["results"] == results and results["counted"]["tokens"] == len(corpus.train)
    said = capsys.readouterr().out
    assert f"4-gram    {results['losses']['4-gram']:9.4f}{results['bits_per_byte']['4-gram']:9.4f}" in said
    for name, loss in results["losses"].items():
        assert results["bits_per_byte"][name] == pytest.approx(loss / np.log(2) * results["tokens"] / results["bytes"])
    assert f"{len(corpus.train):,} tokens" in describe(record)
