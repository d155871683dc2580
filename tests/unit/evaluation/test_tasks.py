"""Local task files against the harness's own rendering of the hub's form of the same documents."""

import json
import re
import socket
import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("lm_eval")
pytest.importorskip("accelerate")
import lm_eval.tasks
from caracal_min.evaluation.tasks import TASKS, load_tasks, read_rows

from caracal_book.numbers import table2
from caracal_book.rivals import make_model
from caracal_min.data import ByteTokenizer

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


def test_what_a_constant_answer_scores_is_counted_in_the_items(evals):
    right = {"hellaswag": "gold", "arc_easy": "gold", "arc_challenge": "gold", "winogrande": "answer",
             "boolq": "answer", "piqa": "label", "social_iqa": "label"}
    counted = {}
    for column, (name, _) in table2.COLUMNS.items():
        if name in right:
            answers = [row[right[name]] for row in raw(evals, name, ITEMS[name])]
            counted[column] = tuple(Counter(part).most_common(1)[0][1] for part in (answers[:500], answers))
            assert name != "boolq" or Counter(answers).most_common(1)[0][0] is True
    assert counted == table2.COMMONEST


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


ROWS = {
    "lambada_openai": {"text": "one two three"},
    "hellaswag": {"query": "Roof: A man sits. he", "choices": ["stands.", "falls."], "gold": 1},
    "arc_easy": {"query": "Question: Why?\nAnswer:", "choices": ["So.", "Not so.", "Never."], "gold": 0},
    "arc_challenge": {"query": "Question: Why?\nAnswer:", "choices": ["So.", "Not so."], "gold": 1},
    "winogrande": {"sentence": "Sarah saw Maria so _ waved.", "option1": "Sarah", "option2": "Maria", "answer": "2"},
    "boolq": {"question": "is it so", "passage": "It is so.", "answer": True},
    "piqa": {"goal": "dresser", "sol1": "a drawer", "sol2": "a pin", "label": 0},
    "social_iqa": {"context": "He left.", "question": "Why?", "answerA": "a", "answerB": "b", "answerC": "c",
                   "label": "3"},
}


def line(name, **changes):
    return json.dumps(ROWS[name] | changes).encode() + b"\n"


BAD = [
    ("piqa", b'{"goal": "g", "sol1": "a", "label": 0}\n',
     "line 1: it lacks 'sol2'; each line must be a JSON object with goal, sol1, sol2, label"),
    ("piqa", line("piqa") + b"not json\n", "line 2: Expecting value"),
    ("piqa", line("piqa") + b"\n", "line 2: Expecting value"),
    ("piqa", line("piqa") + b'{"goal": "\xff"}\n', "line 2: 'utf-8' codec can't decode byte 0xff"),
    ("piqa", line("piqa").decode().encode("utf-16"), "line 1: 'utf-8' codec"),
    ("piqa", b"\0" * 100, "line 1: Expecting value"),
    ("piqa", b"[" * 100_000, "line 1: "),
    ("piqa", line("piqa", label=2), "line 1: label is 2, accepted: 0, 1;"),
    ("piqa", line("piqa", label=True), "line 1: label is True, accepted: 0, 1;"),
    ("piqa", line("piqa", label="0"), "line 1: label is '0', accepted: 0, 1;"),
    ("piqa", line("piqa", label=float("nan")), "line 1: label is nan, accepted: 0, 1;"),
    ("piqa", line("piqa", goal=3), "line 1: goal is 3, accepted: text"),
    ("piqa", line("piqa", goal=""), "line 1: goal is '', accepted: text, not empty"),
    ("piqa", line("piqa", goal="a\0b"), "accepted: text, not empty and without NUL"),
    ("piqa", line("piqa", goal="\ud800"), "accepted: text"),
    ("arc_easy", line("arc_easy", gold=3), "line 1: gold is 3, accepted: 0, 1, 2;"),
    ("arc_easy", line("arc_easy", gold=-1), "line 1: gold is -1, accepted: 0, 1, 2;"),
    ("arc_easy", line("arc_easy", choices=[]), "line 1: choices is [], accepted: a list of 2 to 5 texts"),
    ("arc_easy", line("arc_easy", choices=list("abcdef")), "accepted: a list of 2 to 5 texts"),
    ("arc_easy", line("arc_easy", choices="abc"), "line 1: choices is 'abc', accepted: a list"),
    ("arc_easy", line("arc_easy", choices=["a", None]), "line 1: choices is ['a', None], accepted: a list"),
    ("hellaswag", line("hellaswag", gold=2), "line 1: gold is 2, accepted: 0, 1;"),
    ("hellaswag", line("hellaswag", choices=["[x]", "y"]), "a choice is empty without what is in brackets"),
    ("boolq", b'["question"]\n', "line 1: it is ['question']; each line"),
    ("boolq", line("boolq", answer="yes"), "line 1: answer is 'yes', accepted: false, true;"),
    ("boolq", line("boolq", answer=1), "line 1: answer is 1, accepted: false, true;"),
    ("winogrande", line("winogrande", answer="3"), 'line 1: answer is \'3\', accepted: "1", "2";'),
    ("winogrande", line("winogrande", sentence="No gap."), "line 1: sentence has no _"),
    ("social_iqa", line("social_iqa", label="4"), 'line 1: label is \'4\', accepted: "1", "2", "3";'),
    ("lambada_openai", line("lambada_openai", text="one"), "line 1: text has no space before its last word"),
    ("lambada_openai", line("lambada_openai", text="one two " * 2**18), "line 1: it has more than 1,048,576 bytes"),
    ("piqa", b"", "is empty; give one JSON object per line"),
]


@pytest.mark.parametrize(("name", "data", "words"), BAD, ids=range(len(BAD)))
def test_bad_files_are_reported_with_their_line(tmp_path, name, data, words):
    path = tmp_path / TASKS[name].file
    path.write_bytes(data)
    with pytest.raises(ValueError) as caught:
        load_tasks([name], tmp_path)
    said = str(caught.value)
    assert said.startswith(str(path)) and words in said and "\n" not in said and len(said) < 1000


def test_a_folder_where_a_file_is_expected(tmp_path):
    path = tmp_path / "piqa.jsonl"
    path.mkdir()
    for read in (lambda: load_tasks(["piqa"], tmp_path), lambda: read_rows("piqa", path)):
        with pytest.raises(FileNotFoundError, match="^no file .*piqa.jsonl; put piqa.jsonl with columns .* there$"):
            read()


def test_a_line_of_a_gigabyte_is_not_read(tmp_path):
    path = tmp_path / "piqa.jsonl"
    with open(path, "wb") as file:
        file.write(line("piqa"))
        file.truncate(10**9)
    tracemalloc.start()
    with pytest.raises(ValueError, match="line 2: it has more than 1,048,576 bytes"):
        read_rows("piqa", path)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    assert read_rows("piqa", path, limit=1) == [ROWS["piqa"]]


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=9),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3))


def test_a_mutated_file_gets_one_line_or_is_what_the_harness_can_ask(tmp_path):
    """What is accepted is rendered by the harness: every request has two texts, every answer is one of the choices."""
    accepted = {name: [] for name in ROWS}

    @settings(max_examples=400, deadline=None, database=None, derandomize=True)
    @given(name=st.sampled_from(sorted(ROWS)), data=st.data())
    def mutate(name, data):
        row = dict(ROWS[name])
        for column in data.draw(st.lists(st.sampled_from(sorted(row)), min_size=1, max_size=2, unique=True)):
            values = [value for other in ROWS.values() for value in other.values()]
            alike = st.sampled_from([value for value in values if type(value) is type(row[column])])
            other = st.sampled_from(values) | st.lists(st.text(max_size=3), max_size=6) | JSON
            kind = data.draw(st.sampled_from(["alike", "alike", "other", "gone"]))
            row[column] = data.draw(alike if kind == "alike" else other)
            if kind == "gone":
                del row[column]
        text = bytearray(json.dumps(row, ensure_ascii=data.draw(st.booleans())).encode(errors="surrogatepass"))
        if data.draw(st.integers(0, 4)) == 3:
            place = data.draw(st.integers(0, len(text) - 1))
            text[place] = data.draw(st.integers(0, 255))
        path = tmp_path / TASKS[name].file
        path.write_bytes(line(name) + text + b"\n")
        try:
            read_rows(name, path)
        except ValueError as error:
            said = str(error)
            assert said.startswith(f"{path}, line 2: ") and "\n" not in said and len(said) < 1000
        else:
            accepted[name].append(bytes(text))

    mutate()
    for name, lines in accepted.items():
        (tmp_path / TASKS[name].file).write_bytes(b"\n".join([json.dumps(ROWS[name]).encode(), *lines]))
    for name, task in load_tasks(list(ROWS), tmp_path).items():
        assert len(task.eval_docs) == 1 + len(accepted[name])
        for i in range(len(task.eval_docs)):
            pairs, choices, gold = rendered(task, i)
            assert all(isinstance(text, str) and text.encode() is not None for pair in pairs for text in pair)
            assert all(continuation for _, continuation in pairs)
            if choices is not None:
                assert all(choices) and 0 <= gold < len(choices) == len(pairs)
    assert sum(map(len, accepted.values())) > 30


def test_a_line_ends_only_at_a_newline(tmp_path):
    path = tmp_path / "lambada_openai.jsonl"
    path.write_text(json.dumps({"text": "one\u2028two three"}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert read_rows("lambada_openai", path) == [{"text": "one\u2028two three"}]


def test_evaluating_local_files_reaches_no_network(tmp_path):
    """From the folder of a model and the files of all tasks to every metric, in a process of its own."""
    for name, row in ROWS.items():
        (tmp_path / TASKS[name].file).write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n")
    model = make_model("caracal", "nano")
    model.tokenizer = ByteTokenizer()
    model.save_pretrained(tmp_path / "model")
    code = """
import socket, sys
reached = []
def refuse(*arguments, **_):
    reached.append(arguments)
    raise OSError("no network here")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
from caracal_min.evaluation.tasks import TASKS, evaluate_tasks
from caracal_min.zoo import load_model
found = evaluate_tasks(load_model(sys.argv[1] + "/model"), tuple(TASKS), sys.argv[1])["tasks"]
assert [task["items"] for task in found.values()] == [2] * len(TASKS), found
assert reached == [], reached
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
