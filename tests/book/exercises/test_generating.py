"""The checkers of chapter 10: right answers pass, named wrong ones fail with the case, blank ones are reported."""

import math

import fixed_state_answers
import numpy as np
import torch
from exercise_answers import Answers
from torch.fft import irfft, rfft

from caracal_book.exercises import generating as check
from caracal_min import Caracal


def summed(config, tokens, bytes_each):
    total = 0
    for layer in range(config.n_layers):
        if layer in config.attention_layers:
            total += 2 * config.d_model * min(tokens, config.window_size)
        else:
            total += 2 * config.d_model * tokens + (2 * config.d_model if config.pre_conv else 0)
    return total * bytes_each


def from_the_caches(config, tokens, bytes_each):
    """Count the numbers in real caches."""
    numbers = 0
    for cache in Caracal(config).new_caches(1, tokens, "dot_product"):
        if hasattr(cache, "window"):
            numbers += cache.k.numel() + cache.v.numel()
        else:
            numbers += cache.convolution.streams.numel() + (0 if cache.conv_state is None else cache.conv_state.numel())
    return numbers * bytes_each


def all_attention(config, tokens, bytes_each):
    return 2 * config.n_layers * config.d_model * tokens * bytes_each


def variant(window=True, tail=True, both=2, size=True, cut=True):
    def count(config, tokens, bytes_each):
        attention = len(config.attention_layers)
        fourier = config.n_layers - attention
        held = min(tokens, config.window_size) if cut else config.window_size
        kept = both * fourier * tokens + (2 * fourier if tail and config.pre_conv else 0)
        kept += 2 * attention * held if window else 0
        return kept * config.d_model * (bytes_each if size else 1)

    return count


def by_bits(j, i):
    late, t = max(j, i), j + i
    if min(j, i) == 0:
        return late + 1
    top = 1 << (t.bit_length() - 1)
    if late < top:  # the first triangles by themselves, though the rule below has them too
        return top
    m = 1 << ((late ^ t).bit_length() - 1)
    return t // m * m


def by_search(j, i):
    late, early, t = max(j, i), min(j, i), j + i
    if early == 0:
        return late + 1
    for n in range(late + 1, t + 1):
        m = n & -n
        if n <= t < n + m and n - m <= late < n and early < (m if n == m else 2 * m):
            return n
    raise ValueError("the pair is never counted")


def from_the(index):
    """By the bits in which the result differs from one of the indices."""

    def count(j, i):
        if min(j, i) == 0:
            return max(j, i) + 1
        m = 1 << ((index(j, i) ^ (j + i)).bit_length() - 1)
        return (j + i) // m * m

    return count


def minimum(p, q):
    """By what both have, and by what p has beyond it."""
    shared = torch.minimum(p, q)
    left = p - shared
    share = left.sum(-1, keepdim=True)
    return shared / q, torch.where(share == 0, p, left / share.clamp(min=1e-300))


def token_by_token(p, q):
    kept, other = torch.ones_like(p), p.clone()
    for index in np.ndindex(p.shape[:-1]):
        refused = 0.0
        for x in range(p.shape[-1]):
            if p[*index, x] < q[*index, x]:
                kept[*index, x] = p[*index, x] / q[*index, x]
                refused += q[*index, x] - p[*index, x]
        for x in range(p.shape[-1]):
            if refused > 0:
                other[*index, x] = max(p[*index, x] - q[*index, x], 0) / refused
    return kept, other


def changed(kept=None, other=None):
    """The right answer but for one half, given as a function of p, q and what is missing of p."""

    def answer(p, q):
        right = minimum(p, q)
        missing = (p - q).clamp(min=0)
        return (right[0] if kept is None else kept(p, q), right[1] if other is None else other(p, q, missing))

    return answer


def one_product(v, g):
    n = len(v)
    m = n & -n
    return irfft(rfft(v[n - m:], n=2 * m) * rfft(g[:2 * m]), n=2 * m)[m:]


def direct(v, g):
    n = len(v)
    m = n & -n
    return torch.stack([sum(v[j] * g[t - j] for j in range(n - m, n)) for t in range(n, n + m)])


def wraps(v, g):
    n = len(v)
    m = n & -n
    return irfft(rfft(v[n - m:]) * rfft(g[:m], n=m), n=m)


def as_in_the_chapter(v, g):
    n = len(v)
    m = n & -n
    gate = g[:m] if n == m else g[:2 * m]
    return irfft(rfft(v[n - m:], n=2 * m) * rfft(gate, n=2 * m), n=2 * m)[m:]


RIGHT = {
    check.cache_bytes: [summed, from_the_caches, variant(), lambda *a: float(summed(*a))],
    check.when_counted: [by_bits, by_search, from_the(max), lambda j, i: torch.tensor(by_bits(j, i)),
                         lambda j, i: np.int64(by_bits(j, i))],
    check.speculative: [minimum, token_by_token, lambda p, q: list(minimum(p, q))],
    check.semi_relaxed: [one_product, direct],
    check.fixed_state: fixed_state_answers.RIGHT,
}
WRONG = {
    check.cache_bytes: {
        "every layer as full attention": all_attention,
        "v alone": variant(both=1),
        "forgets the windows": variant(window=False),
        "forgets the pre-convolution": variant(tail=False),
        "whole windows from the start": variant(cut=False),
        "numbers, not bytes": variant(size=False),
        "a fixed state": lambda config, tokens, size: summed(config, min(tokens, 16), size),
        "forgets to return": lambda *a: None,
    },
    check.when_counted: {
        "when it is known": lambda j, i: max(j, i) + 1,
        "when it is due": lambda j, i: max(j + i, 1),
        "as with a fixed kernel": lambda j, i: by_bits(j, i) if j >= i else j + 1,
        "by the smaller index": from_the(min),
        "by the content": from_the(lambda j, i: j),
        "never by hand": lambda j, i: by_bits(max(j, 1), max(i, 1)),
        "by logarithm of the result": lambda j, i: 2 ** int(math.log2(j + i)) if j and i else max(j, i) + 1,
        "a tuple": lambda j, i: (by_bits(j, i),),
        "forgets to return": lambda j, i: None,
    },
    check.speculative: {
        "keeps with probability p": changed(kept=lambda p, q: p),
        "above 1 where p is larger": changed(kept=lambda p, q: p / q),
        "the ratio turned around": changed(kept=lambda p, q: (q / p.clamp(min=1e-9)).clamp(max=1)),
        "keeps only where p is not smaller": changed(kept=lambda p, q: (p >= q).to(p.dtype)),
        "keeps less than it could": changed(kept=lambda p, q: p.minimum(q)),
        "draws from p after a refusal": changed(other=lambda p, q, missing: p),
        "draws from what q has too much": changed(other=lambda p, q, missing: (q - p).clamp(min=0)),
        "not scaled": changed(other=lambda p, q, missing: missing),
        "scaled by softmax": changed(other=lambda p, q, missing: missing.softmax(-1)),
        "scaled over the whole batch": changed(other=lambda p, q, missing: missing / missing.sum()),
        "not a number where none is refused": changed(
            other=lambda p, q, missing: missing / missing.sum(-1, keepdim=True)),
        "only the first": lambda p, q: minimum(p, q)[0],
        "float32": lambda p, q: tuple(x.float() for x in minimum(p, q)),
        "forgets to return": lambda p, q: None,
    },
    check.semi_relaxed: {
        "the first blocks as in the chapter": as_in_the_chapter,
        "m points, which wrap onto what is read": wraps,
        "the first half": lambda v, g: irfft(
            rfft(v[-(len(v) & -len(v)):], n=2 * (len(v) & -len(v))) * rfft(g[:2 * (len(v) & -len(v))])
        )[:len(v) & -len(v)],
        "all contents": lambda v, g: torch.stack([
            sum(v[j] * g[t - j] for j in range(len(v)) if t - j < len(g))
            for t in range(len(v), len(v) + (len(v) & -len(v)))]),
        "all coefficients": lambda v, g: irfft(
            rfft(v[-(len(v) & -len(v)):], n=2 * (len(v) & -len(v))) * rfft(g[:2 * (len(v) & -len(v))])),
        "float32": lambda v, g: one_product(v, g).float(),
    },
    check.fixed_state: fixed_state_answers.WRONG,
}
REASONS = [
    (check.cache_bytes, "a fixed state", "pre_conv=True, 100 tokens of 2 bytes: expected 6464, given"),
    (check.cache_bytes, "forgets the pre-convolution", "pre_conv=True, 1 tokens of 2 bytes"),
    (check.when_counted, "as with a fixed kernel", "when_counted(0, 1): expected 2, given 1"),
    (check.when_counted, "when it is known", "when_counted(2, 2): expected 4, given 3"),
    (check.speculative, "draws from p after a refusal", "rows of shape (4,): distribution after a refusal"),
    (check.speculative, "not a number where none is refused", "so none refused: distribution after a refusal"),
    (check.speculative, "only the first", "expected two tensors, given a Tensor"),
    (check.semi_relaxed, "the first blocks as in the chapter", "after n=1 contents (m=1)"),
    *((check.fixed_state, *reason) for reason in fixed_state_answers.REASONS),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
