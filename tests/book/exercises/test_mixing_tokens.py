"""The checkers of chapter 1: the answers that they accept, and those that they reject with what they say."""

import math

import numpy as np
import torch
from exercise_answers import Answers
from torch.fft import fft
from torch.nn.functional import avg_pool1d, conv1d, pad

from caracal_book.exercises import mixing_tokens as check


def running_sum(x):
    return x.cumsum(0) / torch.arange(1, len(x) + 1)[:, None]


def running_loop(x):
    total, rows = torch.zeros_like(x[0]), []
    for t, token in enumerate(x):
        total = total + token
        rows.append(total / (t + 1))
    return torch.stack(rows)


def sum_in_place(x):
    for t in range(1, len(x)):
        x[t] += x[t - 1]
    return x / torch.arange(1, len(x) + 1)[:, None]


def average_by_matrix(x):
    weights = torch.ones(len(x), len(x), dtype=x.dtype).tril()
    return weights / weights.sum(1, keepdim=True) @ x


def average_by_convolution(x):
    length, width = x.shape
    kernel = torch.ones(width, 1, length, dtype=x.dtype)
    sums = conv1d(x.mT, kernel, padding=length - 1, groups=width)[..., :length].mT
    return sums / torch.arange(1, length + 1)[:, None]


def average_by_pooling(x):
    means = avg_pool1d(pad(x.mT, (len(x) - 1, 0)), len(x), stride=1).mT
    return means * len(x) / torch.arange(1, len(x) + 1)[:, None]


def strict(q, k, v, fill=-1e300):
    past = torch.ones(len(q), len(q)).tril(-1).bool()
    scores = q @ k.T / math.sqrt(q.shape[1])
    return (scores.masked_fill(~past, fill).softmax(-1) * past) @ v


def strict_from_row_one(q, k, v):
    past = torch.ones(len(q), len(q)).tril(-1).bool()[1:]
    scores = (q[1:] @ k.T / math.sqrt(q.shape[1])).masked_fill(~past, -math.inf)
    return torch.cat([torch.zeros_like(v[:1]), scores.softmax(-1) @ v])


def masked_with_infinity(q, k, v):
    past = torch.ones(len(q), len(q)).tril(-1).bool()
    return (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~past, -math.inf).softmax(-1) @ v


def nan_replaced_in_the_weights(q, k, v):
    past = torch.ones(len(q), len(q)).tril(-1).bool()
    return (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~past, -math.inf).softmax(-1).nan_to_num() @ v


def nan_replaced_behind_an_added_mask(q, k, v):
    past = torch.ones(len(q), len(q)).tril(-1).bool()
    mask = torch.zeros(len(q), len(q), dtype=q.dtype).masked_fill(~past, -math.inf)
    return (q @ k.T / math.sqrt(q.shape[1]) + mask).softmax(-1).nan_to_num() @ v


def by_exponentials(q, k, v):
    past = torch.ones(len(q), len(q)).tril(-1).bool()
    e = (q @ k.T / math.sqrt(q.shape[1])).exp() * past
    return e / e.sum(-1, keepdim=True).clamp(min=1e-300) @ v


def late_mask(q, k, v):
    return (q @ k.T / math.sqrt(q.shape[1])).softmax(-1).tril(-1) @ v


def itself_included(q, k, v):
    past = torch.ones(len(q), len(q)).tril().bool()
    return (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~past, -math.inf).softmax(-1) @ v


def first_row_at_itself(q, k, v):
    past = torch.ones(len(q), len(q)).tril(-1).bool()
    past[0, 0] = True
    return (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~past, -math.inf).softmax(-1) @ v


def additive(f, length, channels, threshold=1e-10, pairs=20, absolute=False):
    for _ in range(pairs):
        x, y = torch.randn(2, length, channels, dtype=torch.float64)
        scale = 1.0 if absolute else max(f(x).abs().max(), f(y).abs().max())
        if (f(x + y) - f(x) - f(y)).abs().max() > threshold * scale:
            return True
    return False


def homogeneous(factor):
    def depends(f, length, channels):
        x = torch.randn(length, channels, dtype=torch.float64)
        return bool((f(factor * x) - factor * f(x)).abs().max() > 1e-10 * f(x).abs().max())

    return depends


def by_jacobians(f, length, channels):
    draws = [torch.randn(length, channels, dtype=torch.float64) for _ in range(20)]
    first, *others = [torch.autograd.functional.jacobian(f, x) for x in draws]
    return any(bool((other - first).abs().max() > 1e-10 * first.abs().max()) for other in others)


def last_token_reaches_back(f, length, channels):
    x = torch.randn(length, channels, dtype=torch.float64)
    poked = x.clone()
    poked[-1] += 1
    return bool((f(poked) - f(x))[:-1].abs().max() > 1e-9)


def outputs_differ(f, length, channels):
    x, y = torch.randn(2, length, channels, dtype=torch.float64)
    return not torch.allclose(f(x), f(y))


def waves(length, sign=-1):
    t = torch.arange(length)
    return torch.exp(sign * 2j * math.pi * (t[:, None] * t % length).double() / length)


def by_running_sum(v):
    return (v[:, None] * waves(len(v))).cumsum(0)


def by_recurrence(v):
    rows, row = [], torch.zeros(len(v), dtype=torch.complex128)
    for number, wave in zip(v, waves(len(v)), strict=True):
        row = row + number * wave
        rows.append(row)
    return torch.stack(rows)


RIGHT = {
    check.causal_average: [running_sum, running_loop],
    check.strict_attention: [strict, strict_from_row_one, nan_replaced_in_the_weights],  # the solutions say why
    check.depends_on_data: [additive, by_jacobians],  # the Jacobian of fixed weights is the same at every text
    check.prefix_dfts: [by_running_sum, by_recurrence],
}
WRONG = {
    check.causal_average: {
        "a matrix": average_by_matrix,
        "a convolution with as many ones as tokens": average_by_convolution,
        "a window as long as the text": average_by_pooling,
        "a sum from the start for each token": lambda x: torch.stack([x[:t + 1].mean(0) for t in range(len(x))]),
        "a matrix of NumPy": lambda x: torch.from_numpy(
            np.tril(np.ones((len(x), len(x)))) @ x.numpy() / np.arange(1, len(x) + 1)[:, None]),
        "a matrix of NumPy, without a call": lambda x: torch.tensor(
            np.tril(np.ones((len(x), len(x)))) @ np.asarray(x) / np.arange(1, len(x) + 1)[:, None]),
        "numbers of Python": lambda x: torch.tensor([[sum(float(n) for n in x[:t + 1, c]) / (t + 1)
                                                      for c in range(x.shape[1])] for t in range(len(x))]).double(),
        "divides by t": lambda x: x.cumsum(0) / torch.arange(len(x)).clamp(min=1)[:, None],
        "forgets to divide": lambda x: x.cumsum(0),
        "along the channels": lambda x: x.cumsum(1) / torch.arange(1, x.shape[1] + 1),
        "the average of the whole text": lambda x: x.mean(0).expand_as(x).clone(),
        "changes its input": sum_in_place,
        "answers in float32": lambda x: running_sum(x).float(),
    },
    check.strict_attention: {
        "softmax over nothing": masked_with_infinity,
        "NaN replaced afterwards": lambda q, k, v: masked_with_infinity(q, k, v).nan_to_num(),
        "NaN hidden by where": lambda q, k, v: torch.where(torch.arange(len(q))[:, None] > 0,
                                                           masked_with_infinity(q, k, v), 0.0),
        "NaN replaced behind an added mask": nan_replaced_behind_an_added_mask,
        "exponentials by hand": by_exponentials,
        "mask after the softmax": late_mask,
        "itself included": itself_included,
        "first token looks at itself": first_row_at_itself,
        "a mask of -100": lambda q, k, v: strict(q, k, v, fill=-100.0),
        "first row averages everything": lambda q, k, v: (q @ k.T / math.sqrt(q.shape[1])).masked_fill(
            ~torch.ones(len(q), len(q)).tril(-1).bool(), -1e300).softmax(-1) @ v,
        "forgets the square root": lambda q, k, v: strict(q * math.sqrt(q.shape[1]), k, v),
        "in float32 on the way": lambda q, k, v: strict(q.float(), k.float(), v.float(), -1e30).double(),
        "detached": lambda q, k, v: strict(q.detach(), k.detach(), v.detach()),
        "no gradient for the keys": lambda q, k, v: strict(q, k.detach(), v),
    },
    check.depends_on_data: {
        "says yes": lambda f, length, channels: True,
        "says no": lambda f, length, channels: False,
        "doubles the text only": homogeneous(2),
        "turns the sign only": homogeneous(-1),
        "one pair of texts": lambda f, length, channels: additive(f, length, channels, pairs=1),
        "too lax": lambda f, length, channels: additive(f, length, channels, threshold=1e-3),
        "asks for exact zeros": lambda f, length, channels: additive(f, length, channels, threshold=0.0),
        "an absolute tolerance": lambda f, length, channels: additive(f, length, channels, absolute=True),
        "an absolute tolerance, and a lax one": lambda f, length, channels: additive(
            f, length, channels, threshold=2e-5, absolute=True),
        "two texts, two outputs": outputs_differ,
        "mistakes it for causality": last_token_reaches_back,
        "forgets to return": lambda f, length, channels: None,
    },
    check.prefix_dfts: {
        "L transforms": lambda v: torch.stack([fft(v[:t + 1], n=len(v)) for t in range(len(v))]).to(torch.complex128),
        "L transforms in one call": lambda v: fft(torch.ones(len(v), len(v), dtype=v.dtype).tril() * v),
        "a product of matrices": lambda v: torch.ones(len(v), len(v)).tril().to(torch.complex128)
        @ (v[:, None] * waves(len(v))),
        "all products in one block": lambda v: (torch.ones(len(v), len(v)).tril().double()[:, :, None]
                                                * (v[:, None] * waves(len(v)))).sum(1),
        "the other sign": lambda v: (v[:, None] * waves(len(v), sign=1)).cumsum(0),
        "transposed": lambda v: by_running_sum(v).T,
        "the masked DFT alone": lambda v: by_running_sum(v).diagonal(),
        "the real part": lambda v: by_running_sum(v).real,
        "one token late": lambda v: by_running_sum(v).roll(1, 0),
        "a product of matrices, by NumPy": lambda v: torch.from_numpy(
            np.tril(np.ones((len(v), len(v)))) @ (v[:, None] * waves(len(v))).numpy()),
        "L transforms, by NumPy": lambda v: torch.from_numpy(
            np.fft.fft(np.tril(np.ones((len(v), len(v)))) * np.from_dlpack(v))),
        "in complex64": lambda v: by_running_sum(v).to(torch.complex64),
    },
}
REASONS = [
    (check.causal_average, "a matrix", "a matrix of all weights"),
    (check.causal_average, "a convolution with as many ones as tokens", "conv1d was called, expected sums that use"),
    (check.causal_average, "a window as long as the text", "avg_pool1d was called, expected sums that use"),
    (check.causal_average, "a sum from the start for each token", "a sum from the start for each token"),
    (check.causal_average, "a matrix of NumPy, without a call", "__array__ was called, expected operations of torch"),
    (check.prefix_dfts, "a product of matrices, by NumPy", "numpy was called, expected operations of torch alone"),
    (check.prefix_dfts, "L transforms, by NumPy", "__dlpack__ was called, expected operations of torch alone"),
    (check.causal_average, "changes its input", "x itself afterwards"),
    (check.strict_attention, "softmax over nothing", "of 1 tokens, 2 channels, scores of size 1: entry [0, 0]"),
    (check.strict_attention, "NaN replaced afterwards", ", gradient of "),
    (check.strict_attention, "NaN hidden by where", ", gradient of "),
    (check.strict_attention, "NaN replaced behind an added mask", ", gradient of q"),
    (check.strict_attention, "exponentials by hand", "scores of size 1000"),
    (check.strict_attention, "a mask of -100", "scores of size 1000"),
    (check.strict_attention, "detached", "given one cut off from q, k and v"),
    (check.depends_on_data, "doubles the text only", "by the directions of the tokens"),
    (check.depends_on_data, "too lax", "a trifle louder"),
    (check.depends_on_data, "asks for exact zeros", "expected False, given True"),
    (check.depends_on_data, "an absolute tolerance", "a trillion times the average"),
    (check.depends_on_data, "forgets to return", "given None; is a return missing"),
    (check.prefix_dfts, "L transforms", "fft_fft was called"),
    (check.prefix_dfts, "a product of matrices", "expected neither an FFT nor a matrix product"),
    (check.prefix_dfts, "all products in one block", "expected at most 40 L^2"),
    (check.prefix_dfts, "the real part", "expected shape"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
