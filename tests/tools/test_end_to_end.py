"""The whole path on real FineWeb: tokenize, train, kill, resume, evaluate on all eight tasks, two records."""

import subprocess
import sys

from caracal_min.record import read_record


def test_from_fineweb_to_the_columns_of_table_2(root, shared_data, tmp_path):
    # In 24 steps the loss falls from 10.9 to about 8, and the script asks for a fall of 1.5.
    done = subprocess.run([sys.executable, root / "tools" / "end_to_end.py", "--data", shared_data, "--out",
                           tmp_path / "out", "--minutes", "60", "--tokens", str(24 * 1024), "--measured", str(2**13),
                           "--items", "2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "killed after step" in done.stdout and "task              metric" in done.stdout
    training = read_record(tmp_path / "out" / "run" / "record.json", require_commit=False)
    evaluation = read_record(tmp_path / "out" / "evaluation.json", require_commit=False)
    assert training["results"]["model_sha256"] == evaluation["results"]["model_sha256"]
    assert training["data"]["train_tokens"] > 4_000_000 and training["config"]["tokenizer"] == "gpt2"
    assert set(evaluation["results"]["loss_by_context_length"]) == {"256", "512", "1024", "2048", "4096"}
    assert {task["items"] for task in evaluation["results"]["table2"]["tasks"].values()} == {2}
    assert any("sample" in entry for entry in training["results"]["curve"])


def test_a_folder_that_exists_is_left_alone(root, shared_data, tmp_path):
    done = subprocess.run([sys.executable, root / "tools" / "end_to_end.py", "--data", shared_data, "--out", tmp_path],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "exists; give another folder" in done.stderr and not list(tmp_path.iterdir())
