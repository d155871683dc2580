"""What a caller's type checker says, pyright in strict mode: nothing of right calls, something of each wrong one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RIGHT = '''
import numpy as np
import torch
from torch import Tensor
from typing_extensions import assert_type

from caracal_min import Caracal
from caracal_min.evaluation import held_out_loss
from caracal_min.training import TrainConfig, Trainer

model = Caracal.from_preset("nano", window_size=32)
ids = torch.zeros(1, 4, dtype=torch.int64)
assert_type(model.loss(ids, ids), Tensor)
assert_type(model.logits(ids), Tensor)
assert_type(model.generate_text("The", 3, temperature=0.5), str)
for drawn in model.stream(ids, 3, top_k=4):
    assert_type(drawn, Tensor)
with Trainer(TrainConfig.for_preset("nano", tokens=1024)) as trainer:
    losses = [float(entry["loss"]) for entry in trainer.run()]
assert_type(held_out_loss(model, np.arange(200), 64), float)
assert_type(Caracal.from_pretrained("micro").num_parameters(), int)
'''
WRONG = '''
from caracal_min import Caracal

model = Caracal.from_preset(3)
model.loss("text", "text")
model.save_pretained("folder")
'''


@pytest.mark.process
@pytest.mark.slow
def test_pyright_strict(root, tmp_path):
    pytest.importorskip("basedpyright")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(root)]}
    for name, text in (("right.py", RIGHT), ("wrong.py", WRONG), ("pyrightconfig.json", json.dumps(settings))):
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable,
                           "--project", tmp_path], capture_output=True, text=True)
    errors = [item for item in json.loads(done.stdout)["generalDiagnostics"] if item["severity"] == "error"]
    said = [(f"{Path(item['file']).name}:{item['range']['start']['line'] + 1}", item["message"]) for item in errors]
    assert {where for where, _ in said} == {"wrong.py:4", "wrong.py:5", "wrong.py:6"}, said
