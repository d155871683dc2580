"""Kernels of a few numbers, and what another text's gates cost along a training run."""

import torch

from caracal_book.experiments.nine_numbers import weights_and_sum
from caracal_book.experiments.own_gates import OwnGatesConfig, run_own_gates
from caracal_book.records import read_record


def test_a_kernel_of_few_numbers_keeps_the_first_and_the_mean_of_the_rest():
    mean = torch.tensor([[4.0, 3.0, 1.0, 2.0, 3.0]])
    assert weights_and_sum(mean, 2, 7).tolist() == [[4, 3, 2, 2, 2, 0, 0]]
    leaky = weights_and_sum(mean, 2, 7, reach=2)
    torch.testing.assert_close(leaky, torch.tensor([[4.0, 3.0, *(2 * torch.exp(-torch.arange(5) / 2))]]))


def test_palindromes_are_measured_along_the_way(tmp_path):
    run_own_gates(OwnGatesConfig(out=tmp_path / "record.json", seeds=(0,), steps=(1, 2)), lambda line: None)
    (run,) = read_record(tmp_path / "record.json", require_commit=False)["results"]["runs"]
    assert [point["step"] for point in run["along"]] == [1, 2]
    assert run["along"][0]["accuracy"].keys() == {"whole", "gate of another text", "gate up to lag 0"}
