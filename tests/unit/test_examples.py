"""The examples in docstrings run, and what a user calls first has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest
import torch

import caracal_min

FIRST = ["Caracal.from_preset", "Caracal.generate", "Caracal.stream", "Caracal.save_pretrained",
         "Caracal.from_pretrained", "config.CaracalConfig", "convolution.causal_conv_direct",
         "convolution.causal_conv_fft", "convolution.linear_conv", "convolution.toeplitz",
         "tokenizer.make_tokenizer", "evaluation.held_out_loss", "export.export_program",
         "layers.MultiHeadFourier", "training", "training.config.TrainConfig.for_preset"]
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


def test_help_of_the_package_shows_what_most_people_need():
    """Someone who has nothing but the wheel asks Python."""
    (example,) = doctest.DocTestFinder(recurse=False).find(caracal_min, "caracal_min")
    code = "".join(line.source for line in example.examples)
    for name in ("Trainer(", ".save_pretrained(", ".from_pretrained(", ".generate(", "held_out_loss("):
        assert name in code, name
    assert caracal_min.__doc__.index(">>> ") < caracal_min.__doc__.index("minimal")


def test_what_a_user_calls_first_has_an_example():
    for name in FIRST:
        found = caracal_min
        for part in name.split("."):
            if not hasattr(found, part):
                importlib.import_module(f"{found.__name__}.{part}")
            found = getattr(found, part)
        assert doctest.DocTestParser().get_examples(inspect.getdoc(found) or ""), name
