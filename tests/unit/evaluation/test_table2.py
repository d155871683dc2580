"""Table 2: the paper's numbers against its source, and models that are made to be right or wrong."""

import json
import math
import re
from types import SimpleNamespace

import pytest
import torch

from caracal_min import Caracal

pytest.importorskip("lm_eval")
pytest.importorskip("accelerate")
from caracal_min.data import ByteTokenizer
from caracal_min.evaluation import table2
from caracal_min.evaluation.table2 import (
    COLUMNS,
    ITEMS,
    error_of_average,
    format_table,
    paper_rows,
    standard_error,
    table_row,
)
from caracal_min.evaluation.tasks import TASKS, evaluate_tasks, load_tasks
from caracal_min.files import file_sha256
from caracal_min.zoo import Baseline


def rows_of(tex):
    """The rows of the table labelled tab:scalability in the paper's source."""
    body = tex[tex.index(r"\label{tab:scalability}"):]
    body = body[:body.index(r"\end{tabular}")]
    size, rows = None, []
    for line in body.splitlines():
        size = (re.search(r"\\multirow\{5\}\{\*\}\{(\w)\}", line) or [None, size])[1]
        plain = re.sub(r"\\textbf\{([^}]*)\}", r"\1", line)
        found = re.search(r"& (\w+)\((\d+)M\) & (.*?) *\\\\", plain)
        if found:
            numbers = [float(n) for n in found[3].split("&")]
            rows.append({"size": size, "model": found[1], "millions": int(found[2]),
                         **dict(zip([*COLUMNS, "Avg"], numbers, strict=True))})
    return rows


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


def test_the_papers_numbers_are_those_of_its_source(root, report_missing):
    tex = root.parent / "shared" / "paper" / "caracal.tex"
    if not tex.is_file():
        report_missing("no ../shared/paper/caracal.tex beside the checkout", shared=True)
    assert rows_of(tex.read_text()) == table2._paper()


def test_the_papers_averages_are_means_of_its_accuracies():
    assert len(table2._paper()) == 20 and list(ITEMS) == [name for name in COLUMNS if name != "LMB ppl"]
    for row in table2._paper():
        mean = sum(row[c] for c in ITEMS) / len(ITEMS)
        assert row["Avg"] == pytest.approx(mean, abs=0.0051), row


def test_the_nearest_size_stands_beside():
    for preset, size in (("nano", "T"), ("tiny", "T"), ("small", "S"), ("medium", "M"), ("large", "L")):
        with torch.device("meta"):
            rows = paper_rows(Caracal.from_preset(preset).num_parameters())
        assert [r["model"] for r in rows] == ["Llama", "Mamba", "Mamba2", "Jamba", "Caracal"]
        assert {r["size"] for r in rows} == {size}


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
    text = format_table(first)
    assert "first 3 items" in text and "Wikipedia" in text and "titles" in text
    ours = text.splitlines()[1].partition(")")[2].split()
    assert [n == "-" for n in ours] == [c not in ("Wino", "BoolQ") for c in [*COLUMNS, "Avg"]]


def test_the_table_shows_errors_and_the_paper():
    tasks = {}
    for task, metric in COLUMNS.values():
        measured = {"value": 30.0 if metric == "perplexity" else 0.5, "stderr": 0.02}
        tasks.setdefault(task, {"data": {"hub": ""}, "metrics": {}})["metrics"][metric] = measured
    results = {"parameters": 62_494_208, "limit": None, "tasks": tasks}
    assert table_row(results)["Avg"] == (pytest.approx(50.0), pytest.approx(2 / 8 ** 0.5))
    lines = format_table(results).splitlines()
    assert lines[1].split() == ["this", "model", "(62.5M)", "30.00", *["50.00"] * 9]
    assert lines[2].split() == ["standard", "error", "0.02", *["2.00"] * 8, "0.71"]
    assert lines[7].split() == ["paper,", "T:", "Caracal", "(63M)", "219.90", "20.51", "30.46", "44.91", "26.02",
                                "50.28", "59.30", "61.64", "36.03", "41.14"]
    assert "acc_norm" in lines[8] and "inferred" in lines[9]
    for task in tasks.values():
        for metric in task["metrics"].values():
            metric["stderr"] = None
    assert format_table(results).splitlines()[2].split() == ["standard", "error", *["-"] * 10]


def test_bad_limit(nano):
    with pytest.raises(ValueError, match="^limit=0; give a number >= 1, or None for all items$"):
        evaluate_tasks(nano, limit=0)


@pytest.mark.parametrize("score, items", [(25, 500), (50, 8), (0, 10), (100, 10), (12.5, 16)])
def test_the_standard_error_is_the_spread_of_drawn_scores(score, items):
    p = score / 100
    chance = [math.comb(items, k) * p**k * (1 - p)**(items - k) for k in range(items + 1)]
    scores = [100 * k / items for k in range(items + 1)]
    variance = sum(c * (s - score)**2 for c, s in zip(chance, scores, strict=True))
    assert math.isclose(standard_error(score, items), math.sqrt(variance), abs_tol=1e-9)


@pytest.mark.parametrize("score, items", [(101, 10), (-0.1, 10), (50, 0)])
def test_what_is_no_score_is_refused(score, items):
    with pytest.raises(ValueError, match="give 0 to 100 per cent, on 1 item or more"):
        standard_error(score, items)


def test_the_error_of_the_average_is_smaller_than_any_tasks():
    for row in paper_rows(63_000_000):
        errors = [standard_error(row[task], items) for task, items in ITEMS.items()]
        assert math.isclose(error_of_average(row), math.sqrt(sum(e * e for e in errors)) / 8)
        assert error_of_average(row) < min(errors)
