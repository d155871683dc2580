"""Scores on the tasks: of models that are made to be right or wrong, and against a hand computation."""

import json
import math
from types import SimpleNamespace

import pytest
import torch

from caracal_min import Caracal

pytest.importorskip("lm_eval")
pytest.importorskip("accelerate")
from caracal_min.evaluation.tasks import TASKS, evaluate_tasks, format_table, load_tasks

from caracal_book.numbers.table2 import COLUMNS, table_row
from caracal_book.rivals import Baseline
from caracal_min.data import ByteTokenizer
from caracal_min.files import file_sha256


@pytest.fixture
def evals(shared_data):
    return shared_data / "evals"


@pytest.fixture(scope="module")
def nano():
    torch.manual_seed(0)
    model = Caracal.from_preset("nano")
    model.tokenizer = ByteTokenizer()
    return model


class Rigged(torch.nn.Module):
    """Byte by byte, knows the answers to all items of some tasks: puts its probability on them, or anywhere else."""

    device = torch.device("cpu")

    def __init__(self, tasks, count, right=True):
        super().__init__()
        self.config, self.right = SimpleNamespace(vocab_size=256, model_type="llama"), right
        self.texts = {}
        for task in tasks.values():
            for i in range(count):
                doc = task.eval_docs[i]
                requests = task.construct_requests(doc, task.fewshot_context(doc, num_fewshot=0))
                requests = requests if isinstance(requests, list) else [requests]
                gold = 0 if task.OUTPUT_TYPE == "loglikelihood" else (
                    task.doc_to_text(doc) if task.multiple_input else task.doc_to_target(doc))
                context, answer = requests[gold].arguments
                self.texts[tuple((context + answer).encode())] = None

    def tie_weights(self):
        pass

    def forward(self, tokens):
        following = torch.full((*tokens.shape, 1), -1)  # the id that comes next in the text that an answer would make
        for b, row in enumerate(tokens.tolist()):
            for text in self.texts:
                end = min(len(text) - 1, len(row))
                if tuple(row[:end // 2]) == text[:end // 2]:
                    agree = next((i for i in range(end) if row[i] != text[i]), end)
                    following[b, :agree, 0] = torch.tensor(text[1:agree + 1])
        known = (following == torch.arange(256)).float()
        return SimpleNamespace(logits=40.0 * known if self.right else -40.0 * known)


def test_a_model_that_knows_the_answers_scores_all_and_its_opposite_nothing(evals, tmp_path):
    for source in TASKS.values():  # a file of four items is read fast
        with open(evals / source.file, encoding="utf-8") as lines:
            (tmp_path / source.file).write_text("".join(next(lines) for _ in range(4)), encoding="utf-8")
    tasks = load_tasks(list(TASKS), tmp_path)
    right, wrong = (Baseline(Rigged(tasks, 4, flag)) for flag in (True, False))
    right.tokenizer = wrong.tokenizer = ByteTokenizer()
    right, wrong = (evaluate_tasks(model, folder=tmp_path, max_length=8192) for model in (right, wrong))
    assert {n: v and v[0] for n, v in table_row(right).items()} == pytest.approx(
        {n: 1.0 if n == "LMB ppl" else 100.0 for n in [*COLUMNS, "Avg"]}, abs=1e-3)
    for name, value in table_row(wrong).items():
        assert value[0] > 1e6 if name == "LMB ppl" else value[0] == 0.0, name
    assert all(task["items"] == 4 for task in right["tasks"].values())


def test_metrics_and_errors_against_a_hand_computation(nano, evals):
    """LAMBADA with bytes: the log-probability of the last word, from the full logits."""
    results = evaluate_tasks(nano, ["lambada_openai", "piqa"], evals, limit=5, precision="float32")
    tokenizer, scores = ByteTokenizer(), []
    for line in (evals / "lambada_openai.jsonl").read_text().splitlines()[:5]:
        text = json.loads(line)["text"]
        ids = torch.tensor([tokenizer.encode(text)])
        n = len((" " + text.split(" ")[-1]).encode())
        with torch.inference_mode():
            scores.append(-nano(ids[:, :-1])[0][0, -n:].log_softmax(-1).gather(-1, ids[0, -n:, None]).sum())
    scores = torch.stack(scores)
    ppl = results["tasks"]["lambada_openai"]["metrics"]["perplexity"]
    assert ppl["value"] == pytest.approx(scores.mean().exp().item(), rel=1e-4)
    assert ppl["stderr"] == pytest.approx((scores.std() / 5 ** 0.5 * scores.mean().exp()).item(), rel=1e-3)
    acc = results["tasks"]["piqa"]["metrics"]["acc"]
    assert acc["stderr"] == pytest.approx(math.sqrt(acc["value"] * (1 - acc["value"]) / 4))
    assert set(results["tasks"]["piqa"]["metrics"]) == {"acc", "acc_norm"}
    assert results["tasks"]["piqa"]["data"] == {"file": "piqa.jsonl", "sha256": file_sha256(evals / "piqa.jsonl")}
    assert json.loads(json.dumps(results)) == results


def test_limited_runs_repeat_and_say_so(nano, evals):
    first, second = (evaluate_tasks(nano, ["boolq", "winogrande"], evals, limit=3, batch_size=b) for b in (1, 16))
    assert first == second
    assert "first 3 items" in format_table(first)


def test_the_table_has_a_line_for_each_metric():
    metrics = {"acc": {"value": 0.5, "stderr": 0.02}, "acc_norm": {"value": 0.25, "stderr": None}}
    lines = format_table({"limit": None, "tasks": {"piqa": {"metrics": metrics}}}).splitlines()
    assert [line.split() for line in lines[1:]] == [["piqa", "acc", "0.5000", "0.0200"],
                                                    ["piqa", "acc_norm", "0.2500", "-"]]


def test_bad_limit(nano):
    with pytest.raises(ValueError, match="^limit=0; give a number >= 1, or None for all items$"):
        evaluate_tasks(nano, limit=0)
