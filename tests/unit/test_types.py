"""What a caller's type checker says, mypy --strict and pyright, of the pages' snippets and of what calls return."""

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

RETURNS = '''
import torch
from torch import Tensor
from typing_extensions import assert_type

from caracal_min import Caracal
from caracal_min.evaluation import held_out_loss
from caracal_min.training import TrainConfig, Trainer
from caracal_min.zoo import load_model

model = Caracal.from_preset("nano", window_size=32)
ids = torch.zeros(1, 4, dtype=torch.int64)
assert_type(model.generate(ids, 3, temperature=0.0), Tensor)
assert_type(model.generate([[1, 2], [3]], 3), list[Tensor])
assert_type(model.generate(ids, 3, caches=model.new_caches(1, 9)), Tensor)
assert_type(model(ids), tuple[Tensor, None])
assert_type(model(ids, ids), tuple[Tensor, Tensor])
assert_type(model.compile_for("no"), Caracal)
for drawn in model.stream(ids, 3, top_k=4):
    assert_type(drawn, Tensor)
with Trainer(TrainConfig.for_preset("nano", tokens=1024)) as trainer:
    losses = [float(entry["loss"]) for entry in trainer.run()]
    assert_type(held_out_loss(trainer.model, trainer.corpus.validation, 64), float)
assert_type(load_model("runs/nano/model").num_parameters(), int)
'''
WRONG = '''
import torch
from caracal_min import Caracal

model = Caracal.from_preset("nano")
model.generate(torch.zeros(1, 1), 3, temprature=0.5)
model.generate([[1]], 3).shape
'''


@pytest.fixture
def snippets(root, tmp_path):
    """A folder with what has to pass, a file each, and with `wrong.py`, which must not."""
    pages = [(root / page).read_text(encoding="utf-8") for page in ("README.md", "book/api.md")]
    found = [code for page in pages for code in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    found = [code for code in found if "from transformers" not in code]  # whose types are not ours
    assert len(found) >= 2
    for i, code in enumerate((*found, RETURNS)):
        (tmp_path / f"right_{i}.py").write_text(code, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    return tmp_path


def require(module, report_missing):
    if importlib.util.find_spec(module) is None:
        report_missing(f"{module} is not installed: pip install -r requirements.txt")


def in_order(found: list[tuple[str, str]]) -> None:
    """Nothing is said of what is right, and of each of the two last lines of `wrong.py` something."""
    assert [(file, said) for file, said in found if not file.startswith("wrong")] == []
    lines = {file.partition(":")[2] for file, _ in found}
    assert lines == {"6", "7"}, found


def test_the_package_says_that_it_has_types(root):
    assert (root / "caracal_min" / "py.typed").is_file()


def test_mypy_strict(snippets, root, report_missing):
    require("mypy", report_missing)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--python-executable", sys.executable,
         "--no-error-summary", "--cache-dir", root / ".mypy_cache", *sorted(p.name for p in snippets.glob("*.py"))],
        cwd=snippets, env={**os.environ, "MYPYPATH": str(root)}, capture_output=True, text=True)
    found = re.findall(r"^(\w+\.py:\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    in_order(found)


def test_pyright_strict(snippets, root, report_missing):
    require("basedpyright", report_missing)
    (snippets / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", "extraPaths": [str(root)]}))
    done = subprocess.run([sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable,
                           "--project", snippets], cwd=snippets, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list(snippets.glob("*.py")))
    found = [(f"{os.path.basename(item['file'])}:{item['range']['start']['line'] + 1}", item["message"])
             for item in report["generalDiagnostics"] if item["severity"] == "error"]
    in_order(found)
