"""Freed memory is kept: a second round of large tensors takes no fresh pages."""

import platform
import subprocess
import sys

import pytest

ROUNDS = """
import resource, torch
from caracal_min.allocator import keep_freed_memory
assert {kept} is None or keep_freed_memory() is {kept}
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    parts = [torch.ones(1 << 24) for _ in range(8)]
    del parts
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""


def faults(kept):
    done = subprocess.run([sys.executable, "-c", ROUNDS.format(kept=kept)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc: nothing is changed")
def test_the_third_round_reuses_the_pages_of_the_first():
    assert faults(True) < 1000 < faults(None)


def test_another_c_library_is_left_alone(monkeypatch):
    from caracal_min import allocator

    monkeypatch.setattr(platform, "libc_ver", lambda: ("musl", "1.2"))
    assert allocator.keep_freed_memory() is False
