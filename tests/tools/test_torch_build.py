"""Which PyTorch the set-up brings: it is said before it is fetched, and comes from another index if asked for."""

import pytest
import torch_build

CPU, CUDA = {"2.13.0", "2.13.0+cpu", "2.12.0"}, {"2.13.0", "2.12.0"}


@pytest.mark.parametrize("system, versions, gpu, cuda", [
    ("Linux", CUDA, False, True), ("Linux", CUDA, True, False), ("Linux", CPU, False, False),
    ("Darwin", CUDA, False, False),
])
def test_where_pip_brings_cuda_for_nothing(system, versions, gpu, cuda):
    assert torch_build.brings_cuda(system, versions, "2.13.0", gpu) is cuda


@pytest.fixture
def machine(monkeypatch):
    """A machine without PyTorch and GPU, on which pip finds builds with CUDA; TORCH_INDEX does what is given."""

    def make(index="", works=False):
        tried = []
        monkeypatch.setenv("TORCH_INDEX", index)
        monkeypatch.setattr(torch_build.platform, "system", lambda: "Linux")
        for name, answer in (("installed", None), ("offered", CUDA), ("gpu_by_nvidia", False)):
            monkeypatch.setattr(torch_build, name, lambda answer=answer: answer)
        monkeypatch.setattr(torch_build, "install", lambda *given: tried.append(given) or works)
        return tried

    return make


def test_cuda_is_named_before_it_comes_with_the_way_around_it(machine, capsys):
    machine()
    assert torch_build.main() == 0
    said = capsys.readouterr().out
    assert "the build with CUDA, 4.6 GB on disk" in said and "no NVIDIA GPU" in said
    assert f"make book TORCH_INDEX={torch_build.CPU_INDEX}" in said


@pytest.mark.parametrize("works", [True, False])
def test_the_named_index_is_taken_or_passed_over(works, machine, capsys):
    tried = machine("https://index.example.org", works)
    assert torch_build.main() == 0
    assert tried == [("https://index.example.org", torch_build.pinned())]
    assert ("cannot be reached; going on without it" in capsys.readouterr().out) != works
