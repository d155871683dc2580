"""Local task files against the harness's own rendering of the hub's form of the same documents."""

import json
import re
import socket
from pathlib import Path

import pytest

pytest.importorskip("lm_eval")
import lm_eval.tasks

from caracal_min.evaluation import table2
from caracal_min.evaluation.tasks import TASKS, load_tasks, read_rows

ITEMS = {table2.COLUMNS[column][0]: items for column, items in table2.ITEMS.items()}
HELLASWAG_HUB = [  # real documents as the hub has them
    {"activity_label": "Roof shingle removal", "ctx_a": "A man is sitting on a roof.", "ctx_b": "he",
     "endings": ["is using wrap to wrap a pair of skis.", "is ripping level tiles off.", "is holding a rubik's cube.",
                 "starts pulling up roofing on a roof."], "label": "3"},
    {"activity_label": "Clean and jerk", "ctx_a": "A lady walks to a barbell. She bends down and grabs the pole.",
     "ctx_b": "the lady",
     "endings": ["swings and lands in her arms.", "pulls the barbell forward.",
                 "pulls a rope attached to the barbell.", "stands and lifts the weight over her head."], "label": "3"},
]


@pytest.fixture(scope="module")
def evals(shared_data):
    return shared_data / "evals"


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    def refuse(*_):
        raise AssertionError("a test reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="module")
def local(evals):
    return load_tasks(list(TASKS), evals)


def hub_task(name, rows):
    """The harness's own task, untouched but for rows given in the hub's form."""
    import datasets

    task = lm_eval.tasks.TaskManager(
        include_defaults=False, include_path=str(Path(lm_eval.tasks.__file__).parent / TASKS[name].folder)
    ).load({"group": "hub", "task": [{
        "task": name, "custom_dataset": lambda **_: {"validation": datasets.Dataset.from_list(rows)},
        "training_split": None, "validation_split": "validation", "test_split": None}]})["tasks"][name]
    task.set_config("num_fewshot", 0)
    return task


def rendered(task, i):
    """All that reaches a model or a metric: (context, continuation) of every request, the choices and the target."""
    doc = task.eval_docs[i]
    requests = task.construct_requests(doc, task.fewshot_context(doc, num_fewshot=0))
    pairs = [r.arguments for r in (requests if isinstance(requests, list) else [requests])]
    choices = task.doc_to_choice(doc) if task.config.doc_to_choice else None
    gold = task.doc_to_text(doc) if task.multiple_input else task.doc_to_target(doc)
    return pairs, choices, gold


def raw(evals, name, count):
    with open(evals / TASKS[name].file, encoding="utf-8") as lines:
        return [json.loads(next(lines)) for _ in range(count)]


def test_every_task_is_whole_and_in_the_order_of_table_2(local):
    assert {name: len(task.eval_docs) for name, task in local.items()} == ITEMS
    assert list(local) == list(ITEMS)


def test_hellaswag_as_the_harness_renders_the_hub(local):
    hub = hub_task("hellaswag", HELLASWAG_HUB)
    for i in range(len(HELLASWAG_HUB)):
        assert rendered(local["hellaswag"], i) == rendered(hub, i)
    pairs, _, gold = rendered(local["hellaswag"], 1)
    assert gold == 3 and pairs[3] == (
        "Clean and jerk: A lady walks to a barbell. She bends down and grabs the pole. The lady",
        " stands and lifts the weight over her head.")


def test_hellaswag_differs_from_its_file_in_capitals_and_brackets_only(local, evals):
    """The harness capitalises an unfinished last sentence, which in the file is not, and drops all that is in [ ]."""
    rows, docs = raw(evals, "hellaswag", ITEMS["hellaswag"]), list(local["hellaswag"].eval_docs)
    changed = [(r["query"], d["query"]) for r, d in zip(rows, docs, strict=True) if r["query"] != d["query"]]
    bracketed = [(a, b) for a, b in changed if a.lower() != b.lower()]
    assert len(changed) == 3236 + 2 and len(bracketed) == 2
    for before, after in changed:
        if "[" in before:
            continue
        (place,) = (i for i in range(len(before)) if before[i] != after[i])
        assert before[place - 2] in ".!?" and before[place - 1] == " " and after[place] == before[place].upper()
        assert not re.search(r"[.!?]", after[place:])
    endings = [(a, b) for r, d in zip(rows, docs, strict=True) for a, b in zip(r["choices"], d["choices"], strict=True)]
    assert sum(a != b for a, b in endings) == 12
    assert all("[" in a or "  " in a for a, b in bracketed + endings if a != b)
    assert [r["gold"] for r in rows] == [local["hellaswag"].doc_to_target(d) for d in docs]


@pytest.mark.parametrize("name", ["arc_easy", "arc_challenge"])
def test_arc_as_the_harness_renders_the_hub(local, evals, name):
    """On the hub some labels are numbers; the harness's target is the place of the answer among them."""
    rows = raw(evals, name, ITEMS[name])
    hub_rows = []
    for i, row in enumerate(rows):
        labels = list("12345" if i % 2 else "ABCDE")[:len(row["choices"])]
        question = re.fullmatch(r"Question: (.*)\nAnswer:", row["query"], re.DOTALL)[1]
        hub_rows.append({"question": question, "choices": {"text": row["choices"], "label": labels},
                         "answerKey": labels[row["gold"]]})
    hub = hub_task(name, hub_rows)
    for i in range(0, len(rows), 97):
        assert rendered(local[name], i) == rendered(hub, i)
    for doc, row in zip(local[name].eval_docs, rows, strict=True):
        assert (local[name].doc_to_text(doc), local[name].doc_to_choice(doc), local[name].doc_to_target(doc)) == (
            row["query"], row["choices"], row["gold"])


def test_boolq_as_the_harness_renders_the_hub(local, evals):
    rows = raw(evals, "boolq", 20)
    hub = hub_task("boolq", [{"question": r["question"], "passage": r["passage"], "idx": i, "label": int(r["answer"])}
                             for i, r in enumerate(rows)])
    for i, row in enumerate(rows):
        assert rendered(local["boolq"], i) == rendered(hub, i)
        pairs, choices, gold = rendered(local["boolq"], i)
        prompt = f"{row['passage']}\nQuestion: {row['question']}?\nAnswer:"
        assert pairs == [(prompt, " no"), (prompt, " yes")] and choices[gold] == ("yes" if row["answer"] else "no")


@pytest.mark.parametrize("name", ["lambada_openai", "piqa", "winogrande", "social_iqa"])
def test_files_in_the_hubs_own_form(local, evals, name):
    rows = raw(evals, name, 20)
    hub = hub_task(name, rows)
    for i in range(20):
        assert rendered(local[name], i) == rendered(hub, i)


def test_what_a_model_is_shown(local, evals):
    pairs, _, target = rendered(local["lambada_openai"], 0)
    assert pairs == [(raw(evals, "lambada_openai", 1)[0]["text"].removesuffix(" signs"), " signs")]
    assert target == " signs"

    pairs, _, gold = rendered(local["winogrande"], 0)  # partial evaluation: the same ending after either name
    assert gold == 1 and pairs == [(f"Sarah was a much better surgeon than Maria so {name}",
                                    " always got the easier cases.") for name in ("Sarah", "Maria")]

    pairs, choices, gold = rendered(local["social_iqa"], 0)  # label "3" is the third answer
    assert gold == 2 and choices[gold] == "Find somewhere to go"
    assert pairs[2] == ("Q: Tracy didn't go home that evening and resisted Riley's attacks. What does Tracy need to do "
                        "before this?\nA:", " Find somewhere to go")

    pairs, _, gold = rendered(local["piqa"], 1)
    assert gold == 1 and pairs[0] == ("Question: dresser\nAnswer:", " replace drawer with bobby pin ")


def test_unknown_tasks_and_missing_files(tmp_path, evals):
    with pytest.raises(ValueError, match="^unknown task 'mmlu'; accepted: lambada_openai, hellaswag, .*, social_iqa$"):
        load_tasks(["piqa", "mmlu"], evals)
    with pytest.raises(ValueError, match="^no task given; accepted: lambada_openai"):
        load_tasks([], evals)
    with pytest.raises(FileNotFoundError, match="^no folder .*nowhere; give the folder that holds piqa.jsonl$"):
        load_tasks(["piqa"], tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"^no file .*siqa.jsonl; put siqa.jsonl with columns .* there$"):
        load_tasks(["social_iqa"], tmp_path)


@pytest.mark.parametrize(("name", "text", "words"), [
    ("piqa", '{"goal": "g", "sol1": "a", "label": 0}\n', ["line 1: KeyError ('sol2')", "goal, sol1, sol2, label"]),
    ("piqa", '{"goal": "g", "sol1": "a", "sol2": "b", "label": 0}\nnot json\n', ["line 2: JSONDecodeError"]),
    ("arc_easy", '{"query": "q", "choices": ["a", "b"], "gold": 2}\n', ["line 1: IndexError"]),
    ("boolq", '["question"]\n', ["line 1: TypeError"]),
    ("piqa", "", ["is empty; give one JSON object per line"]),
])
def test_bad_files_are_reported_with_their_line(tmp_path, name, text, words):
    path = tmp_path / TASKS[name].file
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        load_tasks([name], tmp_path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_line_ends_only_at_a_newline(tmp_path):
    path = tmp_path / "lambada_openai.jsonl"
    path.write_text(json.dumps({"text": "one\u2028two three"}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert read_rows("lambada_openai", path) == [{"text": "one\u2028two three"}]
