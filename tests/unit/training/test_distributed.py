"""Two processes started by torchrun follow the curve of one."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from small_run import config

from caracal_min.training import Trainer

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from small_run import config
from caracal_min.training import Trainer
with Trainer(config({out!r}, **{changes!r})) as trainer:
    trainer.run()
"""


@pytest.mark.process
def test_two_processes_follow_the_curve_of_one(tmp_path):
    """Documents of unequal lengths are read alone, so the processes have different micro-batches."""
    draw, text = np.random.default_rng(0), tmp_path / "text.jsonl"
    lines = [" ".join(draw.choice(["gate", "token"], n)) for n in draw.integers(2, 20, 400)]
    text.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    changes = dict(data=str(text), batch_size=8, micro_batch_size=2, steps=24, corpus_tokens=20_000,
                   reset_documents=True)
    whole = Trainer(config(tmp_path / "one", **changes)).run()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(folder=os.path.dirname(__file__), out=str(tmp_path / "two"),
                                      changes=changes))
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*run, program], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    two = [json.loads(line) for line in (tmp_path / "two" / "log.jsonl").read_text().splitlines()]
    assert [e["step"] for e in two] == list(range(1, 13)) and whole[0]["loss"] > two[-1]["loss"] + 1
    for name in ("loss", "grad_norm", "learning_rate", "validation_loss"):
        found, expected = ([e[name] for e in log if name in e] for log in (two, whole))
        np.testing.assert_allclose(found, expected, rtol=1e-3 if name == "grad_norm" else 1e-4)
    (part,) = json.loads((tmp_path / "two" / "run.json").read_text())["history"]
    assert part["processes"] == 2


def test_a_batch_that_the_processes_cannot_share_is_told():
    with pytest.raises(ValueError, match="batch_size=4 is no multiple of 8 .*processes"):
        config().rows_per_process(2)
