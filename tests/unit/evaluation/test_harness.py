"""The harness's own model over Caracal and every baseline, against hand computations, without a network."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from caracal_book.rivals import BASELINES, make_model
from caracal_min import Caracal
from caracal_min.data import ByteTokenizer, make_tokenizer

pytest.importorskip("lm_eval")
pytest.importorskip("accelerate")
from caracal_min.evaluation.tasks import load_tasks
from lm_eval.models.huggingface import HFLM

from caracal_min.evaluation import harness as module
from caracal_min.precision import resolve_precision

PAIRS = [("The cat", " sat on the mat"), ("", "No context"), ("A", " b"), ("x" * 90, " long"), ("A", " c"),
         ("A space", " word"), ("A much longer context than the others have", "!")]


def harness(model, *sizes, **options):
    """In float32, on the CPU, as what is computed by hand."""
    return module.harness_model(model, *sizes, **{"device": "cpu", "precision": "float32"} | options)


def requests(*arguments):
    return [SimpleNamespace(args=a) for a in arguments]


def build(name, **changes):
    torch.manual_seed(0)
    if name == "caracal":
        model = Caracal.from_preset("nano", window_size=24, **changes)
    else:
        model = make_model(name, "nano", **changes)
    with torch.no_grad():  # predictions far from uniform and from a repetition of the last token: mistakes show
        model.embedding.weight.mul_(4)
        for key, weight in model.named_parameters():
            if key.endswith(("to_out.weight", "o_proj.weight", "out_proj.weight", "down_proj.weight")):
                weight.mul_(30)
    model.tokenizer = ByteTokenizer()
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
        got = harness(model, batch_size).loglikelihood(requests(*PAIRS), disable_tqdm=True)
        assert [g for _, g in got] == [g for _, g in expected]
        assert [s for s, _ in got] == pytest.approx([s for s, _ in expected], abs=2e-4)
    assert len({round(s, 2) for s, _ in expected}) == len(PAIRS)
    (moved, _), = harness(model).loglikelihood(requests(("A space ", "word")), disable_tqdm=True)
    assert moved == pytest.approx(expected[5][0], abs=2e-4)  # the space belongs to the continuation


def test_greedy_is_true_only_for_the_models_own_choice(model):
    prompt = torch.tensor([list(b"Some words")])
    with torch.inference_mode():
        for _ in range(3):
            prompt = torch.cat([prompt, model(prompt)[0][:, -1:].argmax(-1)], 1)
    own = prompt[0, -3:].tolist()
    other = own[:2] + [(own[2] + 1) % 256]
    got = harness(model)._loglikelihood_tokens(
        [(None, list(b"Some words"), own), (None, list(b"Some words"), other)], disable_tqdm=True)
    assert [greedy for _, greedy in got] == [True, False] and got[0][0] > got[1][0]


def test_the_weights_are_those_of_the_model(model):
    theirs = {name: weight.data_ptr() for name, weight in harness(model).model.named_parameters()}
    ours = {name: weight.data_ptr() for name, weight in getattr(model, "model", model).named_parameters()}
    assert theirs == ours


def test_the_beginning_is_cut_at_the_longest_length(caracal):
    short = harness(caracal, max_length=8)
    (got, _), = short.loglikelihood(requests(("0123456789", "abc")), disable_tqdm=True)
    assert got == pytest.approx(by_hand(caracal, "456789", "abc")[0], abs=2e-4)  # 8 inputs: 456789ab
    assert abs(got - by_hand(caracal, "0123456789", "abc")[0]) > 1e-3


def test_an_answer_longer_than_the_model_sees_is_refused(caracal, shared_data):
    tasks = load_tasks(["piqa"], shared_data / "evals", limit=1)
    with pytest.raises(ValueError, match="^max_length=8 is shorter than an answer of .*; raise max_length"):
        module.run_tasks(harness(caracal, max_length=8), tasks)


def test_a_model_without_tokenizer_is_refused():
    with pytest.raises(ValueError, match="tokenizer"):
        harness(Caracal.from_preset("nano"))


def test_a_model_sees_no_more_than_it_was_trained_on(tmp_path):
    model = make_model(preset="nano", context=10)
    model.tokenizer = ByteTokenizer()
    short = harness(model)
    model.save_pretrained(tmp_path)
    assert short.max_length == HFLM(str(tmp_path), device="cpu").max_length == 10
    (got, _), = short.loglikelihood(requests(("0123456789", "abc")), disable_tqdm=True)
    assert got == pytest.approx(by_hand(model, "23456789", "abc")[0], abs=2e-4)


def test_rolling_log_likelihood_is_the_exact_total(model):
    """Windows as documented by the harness: each predicts max_length tokens, the last with a full context."""
    text = "Every token of this text is predicted exactly once."
    whole, = harness(model).loglikelihood_rolling(requests((text,)), disable_tqdm=True)
    assert whole == pytest.approx(by_hand(model, "", text)[0], abs=1e-3)
    ids, parts = [0, *text.encode()], []
    for start in (0, 20, 40):
        end = min(start + 20, len(text))
        with torch.inference_mode():
            logits = model(torch.tensor([ids[end - 20:end]]))[0][0, start - end:]
        parts.append(-nn.functional.cross_entropy(logits, torch.tensor(ids[start + 1:end + 1]), reduction="sum").item())
    both = harness(model, 2, max_length=20).loglikelihood_rolling(requests((text,), (text,)), disable_tqdm=True)
    assert both == pytest.approx([sum(parts)] * 2, abs=1e-3)
    assert abs(both[0] - whole) > 0.1


def test_generation_is_greedy_and_stops(caracal):
    """Ragged contexts, which the harness pads on the left, against one full forward pass per token, each alone."""
    contexts = ["A context", "one", "and yet another context"]
    expected = []
    for text in contexts:
        ids = list(text.encode())
        with torch.inference_mode():
            for _ in range(12):
                ids.append(caracal(torch.tensor([ids]))[0][0, -1].argmax().item())
        expected.append(bytes(ids[len(text):]).split(b"\0")[0].decode(errors="replace"))
    pairs = harness(caracal, 3)
    plain = {"until": [], "max_gen_toks": 12}
    assert pairs.generate_until(requests(*((c, dict(plain)) for c in contexts)), disable_tqdm=True) == expected
    stop = expected[1][3:5]
    cut = pairs.generate_until(requests(("one", {"until": [stop], "max_gen_toks": 12})), disable_tqdm=True)
    assert cut == [expected[1].split(stop)[0]] != [expected[1]]


def test_pairs_are_split_by_byte_pairs_of_the_whole(gpt2):
    """A space at the end of the context moves into the continuation, as " cat" is one token of GPT-2."""
    for name in ("gpt2:2048", "gpt2"):
        tokenizer = make_tokenizer(name)
        model = build("caracal", vocab_size=tokenizer.vocab_size)
        model.tokenizer = tokenizer
        lm = harness(model)
        assert lm._encode_pair("The ", "cat") == lm._encode_pair("The", " cat")
        assert lm.tok_encode("<|endoftext|> is 日本") == tokenizer.encode("<|endoftext|> is 日本")
        assert lm.eot_token_id == lm.prefix_token_id == tokenizer.end_of_text
    assert lm._encode_pair("The ", "cat") == ([464], [3797])


@pytest.mark.parametrize("name", ["caracal", "llama"])
def test_the_harness_reads_a_folder_by_itself(name, tmp_path, shared_data):
    """As anybody calls it, by the name `hf`: the scores and log-likelihoods are those of the model in memory."""
    from lm_eval import simple_evaluate

    model = build(name)
    model.save_pretrained(tmp_path)
    tasks = load_tasks(["piqa", "lambada_openai"], shared_data / "evals", limit=4)
    ours = module.run_tasks(harness(model, 1), tasks)
    theirs = simple_evaluate("hf", f"pretrained={tmp_path}", tasks=list(tasks.values()), device="cpu",
                             bootstrap_iters=0)
    for task in tasks:
        assert theirs["results"][task] == ours["results"][task]
        assert [s["resps"] for s in theirs["samples"][task]] == [s["resps"] for s in ours["samples"][task]]


def test_without_the_harness_one_line_says_what_to_install():
    for package in ("lm_eval", "accelerate"):
        code = f"import sys; sys.modules[{package!r}] = None\nimport caracal_min.evaluation.harness"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
        assert done.stderr.splitlines()[-1].startswith("ImportError: evaluation on tasks needs lm-eval: pip install ")


@pytest.mark.parametrize("precision", ["auto", "bfloat16", "float32"])
def test_log_likelihoods_are_computed_in_the_precision_asked_for(caracal, precision):
    given, seen = requests(*PAIRS[:4]), set()
    exact = harness(caracal).loglikelihood(given, disable_tqdm=True)
    lm = harness(caracal, precision=precision)
    lm.model.lm_head.register_forward_hook(lambda *call: seen.add(call[2].dtype))
    found = lm.loglikelihood(given, disable_tqdm=True)
    assert seen == {resolve_precision(precision, "cpu")}
    for (score, _), (expected, _) in zip(found, exact, strict=True):
        assert score == pytest.approx(expected, rel=0.02 if seen == {torch.bfloat16} else 1e-6)
