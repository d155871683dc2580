"""The examples in docstrings run, and what a user calls first has one."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import caracal_min

# Imported only with packages of an extra.
WITHOUT = ("caracal_min.hf", "caracal_min.kernel", "caracal_min.__main__")


def modules():
    found = [info.name for info in pkgutil.walk_packages(caracal_min.__path__, "caracal_min.")]
    return ["caracal_min", *(name for name in found if not name.startswith(WITHOUT))]


@pytest.mark.parametrize("name", modules())
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where one saves a model
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said = []
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        torch.manual_seed(0)
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)
