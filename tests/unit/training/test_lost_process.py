"""A process of a run that is frozen or gone: the others end soon, with one line that says so."""

import os
import signal
import subprocess
import sys
import time

import pytest
from small_run import config, corpus
from torch.distributed import TCPStore

RUN = """
import sys, time
sys.path[:0] = [{folder!r}]
import small_run
from pathlib import Path
from caracal_min.__main__ import main
from caracal_min.training import trainer

def load(*arguments, **options):
    time.sleep({reading} if {everybody} or rank == 0 else 0)
    return small_run.corpus(length=60000)

import os
rank = int(os.environ["RANK"])
trainer.load_corpus = load
sys.exit(main(["train", "--out", sys.argv[1], "--timeout", "{timeout}", "--tokens", "{tokens}", "--context", "32",
               "--batch-size", "4", "--micro-batch-size", "2", "--checkpoint-minutes", "0", "--eval-windows", "4",
               "--no-progress", "--device", "cpu"]))
"""


def start(out, reading=0.0, everybody=False, timeout=0.1, tokens=1_000_000):
    """Start two processes that train together, as torchrun would; the time that reading the corpus takes is given."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    code = RUN.format(folder=os.path.dirname(__file__), reading=reading, everybody=everybody, timeout=timeout,
                      tokens=tokens)
    return [subprocess.Popen([sys.executable, "-c", code, str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, env=os.environ | {
                                 "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1",
                                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port),
                                 "TORCHELASTIC_USE_AGENT_STORE": "True", "PYTHONWARNINGS": "ignore"})
            for rank in range(2)], store


def end(processes):
    for process in processes:
        process.kill()
        process.communicate()


def until(there, processes, seconds=120):
    since = time.monotonic()
    while not there():
        assert all(p.poll() is None for p in processes), [p.communicate()[1] for p in processes if p.poll() is not None]
        assert time.monotonic() - since < seconds
        time.sleep(0.05)


def line_of(process, seconds):
    """Return what a process says, and its exit code, when it ends; what PyTorch itself logs is left out."""
    _, said = process.communicate(timeout=seconds)
    return process.returncode, [line for line in said.splitlines() if not line.startswith(("[rank", "[W", "[E"))]


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_process_ends_the_run_of_the_other(tmp_path, frozen):
    processes, _store = start(tmp_path)
    try:
        until(lambda: (tmp_path / "checkpoint.safetensors").exists(), processes)
        processes[frozen].send_signal(signal.SIGSTOP)
        status, said = line_of(processes[1 - frozen], 60)
        assert status == 1 and len(said) == 1, said
        assert said[0].startswith("error: another process does not answer, after waiting for up to 0.1 minutes")
        assert "start the same command" in said[0]
    finally:
        end(processes)
    with pytest.raises(ValueError, match="holds a run with"):  # the lock is free, the checkpoint whole
        from caracal_min.training import Trainer

        Trainer(config(tmp_path), corpus(length=60000))


@pytest.mark.parametrize("everybody", [False, True])
def test_reading_may_take_longer_than_the_timeout(tmp_path, everybody):
    processes, _store = start(tmp_path, reading=8, everybody=everybody, timeout=0.05, tokens=512)
    try:
        for process in processes:
            status, said = line_of(process, 120)
            assert status == 0 and said == []
    finally:
        end(processes)
    assert (tmp_path / "record.json").exists()
