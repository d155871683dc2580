"""Freed memory is kept: later rounds of large tensors take next to no fresh pages."""

import platform
import subprocess
import sys

import pytest

# A round may find what was freed in pieces, and then takes fresh pages for one tensor of eight: so rounds are summed.
ROUNDS = """
import resource, torch
from caracal_min.allocator import keep_freed_memory
assert {kept} is None or keep_freed_memory() is {kept}
faults = []
for _ in range(8):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    parts = [torch.ones(1 << 24) for _ in range(8)]
    del parts
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(sum(faults[2:]))
"""


def faults(kept):
    done = subprocess.run([sys.executable, "-c", ROUNDS.format(kept=kept)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc: nothing is changed")
def test_later_rounds_reuse_the_pages_of_the_first_two():
    assert faults(True) < faults(None) / 4


def test_another_c_library_is_left_alone(monkeypatch):
    from caracal_min import allocator

    monkeypatch.setattr(platform, "libc_ver", lambda: ("musl", "1.2"))
    assert allocator.keep_freed_memory() is False
