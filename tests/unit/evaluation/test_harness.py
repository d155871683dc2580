"""The harness's model against hand computations, for Caracal and every baseline, without a network."""

import os
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from caracal_min import Caracal
from caracal_min.zoo.baselines import BASELINES, baseline

pytest.importorskip("lm_eval")
pytest.importorskip("transformers")
from caracal_min.evaluation import harness as module
from caracal_min.precision import resolve_precision

PAIRS = [("The cat", " sat on the mat"), ("", "No context"), ("A", " b"), ("x" * 90, " long"), ("A", " c"),
         ("A space", " word"), ("A much longer context than the others have", "!")]


HarnessModel = partial(module.HarnessModel, precision="float32")  # what is computed by hand is


def requests(*arguments):
    return [SimpleNamespace(args=a) for a in arguments]


def build(name, **changes):
    torch.manual_seed(0)
    if name == "caracal":
        model = Caracal.from_preset("nano", window_size=24, **changes)
    else:
        model = baseline(name, "nano", **changes)
    with torch.no_grad():  # predictions far from uniform and from a repetition of the last token: mistakes show
        model.embedding.weight.mul_(4)
        for key, weight in model.named_parameters():
            if key.endswith(("to_out.weight", "o_proj.weight", "out_proj.weight", "down_proj.weight")):
                weight.mul_(30)
    return model.eval()


@pytest.fixture(scope="module", params=["caracal", *BASELINES])
def model(request):
    return build(request.param)


@pytest.fixture(scope="module")
def caracal():
    return build("caracal")


def by_hand(model, context, continuation):
    """Log-probability and greediness from the full logits of one unpadded sequence of bytes; id 0 stands before."""
    ids = list((context or "\0").encode()) + list(continuation.encode())
    n = len(continuation.encode())
    with torch.inference_mode():
        logits = model(torch.tensor([ids[:-1]]))[0][0, -n:]
    target = torch.tensor(ids[-n:])
    return logits.log_softmax(-1)[torch.arange(n), target].sum().item(), bool((logits.argmax(-1) == target).all())


def test_log_likelihoods_in_padded_batches_are_those_of_one_sequence_alone(model):
    """Tolerance 2e-4 nats on sums of up to 15 tokens, of 3 to 90 nats."""
    expected = [by_hand(model, *pair) for pair in PAIRS]
    for batch_size in (1, 3, 16):
        got = HarnessModel(model, batch_size).loglikelihood(requests(*PAIRS), disable_tqdm=True)
        assert [g for _, g in got] == [g for _, g in expected]
        assert [s for s, _ in got] == pytest.approx([s for s, _ in expected], abs=2e-4)
    assert len({round(s, 2) for s, _ in expected}) == len(PAIRS)
    (moved, _), = HarnessModel(model).loglikelihood(requests(("A space ", "word")), disable_tqdm=True)
    assert moved == pytest.approx(expected[5][0], abs=2e-4)  # the space belongs to the continuation


def test_greedy_is_true_only_for_the_models_own_choice(model):
    prompt = torch.tensor([list(b"Some words")])
    with torch.inference_mode():
        for _ in range(3):
            prompt = torch.cat([prompt, model(prompt)[0][:, -1:].argmax(-1)], 1)
    own = prompt[0, -3:].tolist()
    other = own[:2] + [(own[2] + 1) % 256]
    got = HarnessModel(model)._loglikelihood_tokens(
        [(None, list(b"Some words"), own), (None, list(b"Some words"), other)], disable_tqdm=True)
    assert [greedy for _, greedy in got] == [True, False] and got[0][0] > got[1][0]


def test_answers_to_one_question_share_a_forward_pass(caracal, monkeypatch):
    rows = []
    monkeypatch.setattr(caracal, "hidden", lambda t, *rest: rows.append(len(t)) or Caracal.hidden(caracal, t, *rest))
    pairs = [("Yes or no?", "y"), ("Yes or no?", "n"), ("Yes or no?", "ye")]
    got = HarnessModel(caracal).loglikelihood(requests(*pairs), disable_tqdm=True)
    assert rows == [2]
    assert [s for s, _ in got] == pytest.approx([by_hand(caracal, *p)[0] for p in pairs], abs=2e-4)


def test_only_the_continuation_is_unembedded(caracal, monkeypatch):
    rows = []
    monkeypatch.setattr(caracal, "unembed", lambda h: rows.append(len(h)) or Caracal.unembed(caracal, h))
    HarnessModel(caracal).loglikelihood(requests(("x" * 90, "abc"), ("y", "de")), disable_tqdm=True)
    assert rows == [5]


def test_the_beginning_is_cut_at_the_longest_length(caracal):
    harness = HarnessModel(caracal, max_length=8)
    (got, _), = harness.loglikelihood(requests(("0123456789", "abc")), disable_tqdm=True)
    assert got == pytest.approx(by_hand(caracal, "456789", "abc")[0], abs=2e-4)  # 8 inputs: 456789ab
    assert abs(got - by_hand(caracal, "0123456789", "abc")[0]) > 1e-3
    with pytest.raises(ValueError, match="9 tokens; max_length=8 allows 1 to 8: raise max_length"):
        harness.loglikelihood(requests(("0", "123456789")), disable_tqdm=True)


def test_learned_positions_bound_the_length():
    model = build("caracal", positional_encoding="learned", max_positions=10)
    harness = HarnessModel(model)
    assert harness.max_length == 10
    (got, _), = harness.loglikelihood(requests(("0123456789", "abc")), disable_tqdm=True)
    assert got == pytest.approx(by_hand(model, "23456789", "abc")[0], abs=2e-4)


def test_rolling_log_likelihood_is_the_exact_total(model):
    """Windows as documented by the harness: each predicts max_length tokens, the last with a full context."""
    text = "Every token of this text is predicted exactly once."
    whole, = HarnessModel(model).loglikelihood_rolling(requests((text,)), disable_tqdm=True)
    assert whole == pytest.approx(by_hand(model, "", text)[0], abs=1e-3)
    ids, parts = [0, *text.encode()], []
    for start in (0, 20, 40):
        end = min(start + 20, len(text))
        with torch.inference_mode():
            logits = model(torch.tensor([ids[end - 20:end]]))[0][0, start - end:]
        parts.append(-nn.functional.cross_entropy(logits, torch.tensor(ids[start + 1:end + 1]), reduction="sum").item())
    both = HarnessModel(model, 2, max_length=20).loglikelihood_rolling(requests((text,), (text,)), disable_tqdm=True)
    assert both == pytest.approx([sum(parts)] * 2, abs=1e-3)
    assert abs(both[0] - whole) > 0.1


def test_generation_is_greedy_and_stops(model):
    """Ragged contexts against one full forward pass per token, each context alone."""
    contexts = ["A context", "one", "and yet another context"]
    expected = []
    for text in contexts:
        ids = list(text.encode())
        with torch.inference_mode():
            for _ in range(12):
                ids.append(model(torch.tensor([ids]))[0][0, -1].argmax().item())
        expected.append(bytes(ids[len(text):]).split(b"\0")[0].decode(errors="replace"))
    harness = HarnessModel(model, batch_size=2)
    plain = {"until": [], "max_gen_toks": 12}
    assert harness.generate_until(requests(*((c, plain) for c in contexts)), disable_tqdm=True) == expected
    stop = expected[1][3:5]
    cut = harness.generate_until(requests(("one", {"until": [stop], "max_gen_toks": 12})), disable_tqdm=True)
    assert cut == [expected[1].split(stop)[0]] != [expected[1]]


def test_generation_equals_that_of_caracal(caracal):
    ids = caracal.generate(torch.tensor([list(b"def ")]), 10, temperature=0.0, stop=0)[0, 4:]
    got, = HarnessModel(caracal).generate_until(requests(("def ", {"max_gen_toks": 10})), disable_tqdm=True)
    assert got == bytes(ids.tolist()).split(b"\0")[0].decode(errors="replace")


def test_generation_ends_early_when_every_row_has_stopped(caracal, monkeypatch):
    full, = HarnessModel(caracal).generate_until(requests(("def ", {"max_gen_toks": 40})), disable_tqdm=True)
    steps = []
    monkeypatch.setattr(caracal, "unembed", lambda h: steps.append(1) or Caracal.unembed(caracal, h))
    HarnessModel(caracal).generate_until(requests(("def ", {"until": full[2], "max_gen_toks": 40})), disable_tqdm=True)
    assert len(steps) <= full.encode(errors="replace").index(full[2].encode(errors="replace")) + 3 < 40


def test_sampling_follows_the_temperature(model):
    harness = HarnessModel(model)
    hot = {"do_sample": True, "temperature": 1.0, "max_gen_toks": 8}
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn += harness.generate_until(requests(("abc", hot)), disable_tqdm=True)
    assert drawn[0] == drawn[1] != drawn[2]
    cold, top = hot | {"temperature": 1e-4}, hot | {"top_k": 1}
    greedy = harness.generate_until(requests(("abc", {"max_gen_toks": 8})), disable_tqdm=True)
    assert harness.generate_until(requests(("abc", cold)), disable_tqdm=True) == greedy
    assert harness.generate_until(requests(("abc", top)), disable_tqdm=True) == greedy


def test_context_for_generation_is_cut_on_the_left(caracal):
    harness = HarnessModel(caracal, max_length=12)
    options = {"max_gen_toks": 8}
    long, short = harness.generate_until(requests(("0123456789", options), ("6789", options)), disable_tqdm=True)
    assert long == short
    assert harness.generate_until(requests(("", options)), disable_tqdm=True) != [long]  # end-of-text stands in
    with pytest.raises(ValueError, match="max_gen_toks=12 leaves no room for a context in max_length=12"):
        harness.generate_until(requests(("abc", {"max_gen_toks": 12})), disable_tqdm=True)


def test_pairs_are_split_by_bytes_pairs_of_the_whole(gpt2):
    """A space at the end of the context moves into the continuation, as " cat" is one token of GPT-2."""
    harness = HarnessModel(build("caracal", vocab_size=50_257))
    assert harness._encode_pair("The ", "cat") == harness._encode_pair("The", " cat") == ([464], [3797])
    assert harness.tok_encode("<|endoftext|>") != [harness.eot_token_id] == [50_256]


def test_the_harness_finds_the_model_by_name(tmp_path, caracal):
    from lm_eval.api.registry import get_model

    caracal.save_pretrained(tmp_path)
    found = get_model("caracal").create_from_arg_string(f"pretrained={tmp_path},max_length=100,precision=float32",
                                                        {"batch_size": "4", "max_batch_size": None, "device": "cpu"})
    assert (found.batch_size, found.max_length, found.device.type) == (4, 100, "cpu")
    (got, _), = found.loglikelihood(requests(("a", "b")), disable_tqdm=True)
    assert got == pytest.approx(by_hand(caracal, "a", "b")[0], abs=1e-5)


def test_bad_arguments(caracal):
    with pytest.raises(ValueError, match=r"^no tokenizer with 100 ids; known are 256 \(byte\), 50257 \(gpt2\)$"):
        HarnessModel(Caracal.from_preset("nano", vocab_size=100))
    for name, value in (("batch_size", 0), ("max_length", -1), ("batch_size", "auto")):
        with pytest.raises(ValueError, match=f"^{name}={value}; give a number >= 1$"):
            HarnessModel(caracal, **{name: value})


def test_without_the_harness_one_line_says_what_to_install():
    code = "import sys; sys.modules['lm_eval'] = None\nimport caracal_min.evaluation.harness"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert done.stderr.splitlines()[-1] == ("ImportError: evaluation on tasks needs lm-eval: "
                                            'pip install lm-eval "transformers>=5"')


@pytest.mark.parametrize("precision", ["auto", "bfloat16", "float32"])
def test_log_likelihoods_are_computed_in_the_precision_asked_for(caracal, precision, monkeypatch):
    seen = set()
    monkeypatch.setattr(caracal, "unembed", lambda h: seen.add(
        (logits := Caracal.unembed(caracal, h)).dtype) or logits)
    given = requests(*PAIRS[:4])
    exact = HarnessModel(caracal).loglikelihood(given, disable_tqdm=True)
    seen.clear()
    found = module.HarnessModel(caracal, precision=precision).loglikelihood(given, disable_tqdm=True)
    assert seen == {resolve_precision(precision, "cpu")}
    for (score, _), (expected, _) in zip(found, exact, strict=True):
        assert score == pytest.approx(expected, rel=0.02 if seen == {torch.bfloat16} else 1e-6)
