"""The checkers of chapter 7: right answers pass, named wrong ones fail with the case, blank ones are reported."""

import itertools
import math

import torch
import torch.nn.functional as F
from exercise_answers import Answers

from caracal_book.exercises import window_and_hybrid as check
from caracal_min.attention import sliding_window_attention


def in_sight(pattern, window, t):
    return t + 1 if "F" in pattern else min(t, len(pattern) * (window - 1)) + 1


def in_sight_module_by_module(pattern, window, t):
    oldest = t
    for kind in reversed(pattern):
        oldest = 0 if kind == "F" else max(0, oldest - window + 1)
    return torch.tensor(t - oldest + 1)


def needed(length, window):
    if length == 1:
        return 0
    return None if window == 1 else -(-(length - 1) // (window - 1))


def needed_by_rounding_up(length, window):
    if length == 1:
        return 0
    return None if window == 1 else math.ceil((length - 1) / (window - 1))


def permuted(x, order):
    return x[:, [*order, x.shape[1] - 1]]


def by_permutations(orders, threshold=1e-9, relative=True):
    """A test of blindness that tries the permutations that `orders` gives for a number of tokens."""

    def ignores_order(module, length):
        x = torch.randn(1, length, 8, dtype=torch.float64)
        y = module(x)[:, -1]
        for order in orders(length - 1):
            moved = (module(permuted(x, order))[:, -1] - y).norm()
            if moved > threshold * (y.norm() if relative else 1):
                return False
        return True

    return ignores_order


def neighbours(n):
    """All exchanges of two neighbours: they generate every permutation."""
    for i in range(n - 1):
        yield [*range(i), i + 1, i, *range(i + 2, n)]


def reversal(n):
    yield reversed(range(n))


def turn(n):
    yield [*range(1, n), 0]


def attended(q, k, v, seen):
    return (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~seen, -torch.inf).softmax(-1) @ v


def tiled(q, k, v, window, tile, surplus=0, attend=attended):
    outputs = []
    for start in range(0, len(q), tile):
        end, first = min(start + tile, len(q)), max(0, start - window + 1 - surplus)
        back = torch.arange(start, end)[:, None] - torch.arange(first, end)
        outputs.append(attend(q[start:end], k[first:end], v[first:end], (back >= 0) & (back < window)))
    return torch.cat(outputs)


def by_sums(q, k, v, window, tile):
    """No matrix product."""
    def attend(q, k, v, seen):
        scores = (q[:, None] * k).sum(-1) / math.sqrt(q.shape[1])
        return (scores.masked_fill(~seen, -torch.inf).softmax(-1)[..., None] * v).sum(1)

    return tiled(q, k, v, window, tile, attend=attend)


def by_strips(q, k, v, window, tile):
    """No loop: keys of every tile by unfold, zeros in front hidden by the mask."""
    length, n = len(q), -(-len(q) // tile)
    size = tile + window - 1
    q = F.pad(q, (0, 0, 0, n * tile - length)).unflatten(0, (n, tile))
    k, v = (F.pad(x, (0, 0, window - 1, n * tile - length)).unfold(0, size, tile).mT for x in (k, v))
    place = torch.arange(tile)[:, None] + window - 1 - torch.arange(size)
    real = (torch.arange(n)[:, None] * tile + torch.arange(size) >= window - 1)[:, None]
    seen = (place >= 0) & (place < window) & real
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~seen, -torch.inf)
    return (scores.softmax(-1) @ v).flatten(0, 1)[:length]


def unmasked_padding(q, k, v, window, tile):
    """The zeros before the text get weights."""
    length, size = len(q), tile + window - 1
    n = -(-length // tile)
    q = F.pad(q, (0, 0, 0, n * tile - length)).unflatten(0, (n, tile))
    k, v = (F.pad(x, (0, 0, window - 1, n * tile - length)).unfold(0, size, tile).mT for x in (k, v))
    place = torch.arange(tile)[:, None] + window - 1 - torch.arange(size)
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill((place < 0) | (place >= window), -torch.inf)
    return (scores.softmax(-1) @ v).flatten(0, 1)[:length]


def full_mask(q, k, v, window, tile):
    back = torch.arange(len(q))[:, None] - torch.arange(len(q))
    scores = q @ k.T / math.sqrt(q.shape[1])
    return scores.masked_fill((back < 0) | (back >= window), -torch.inf).softmax(-1) @ v


def all_keys_before(q, k, v, window, tile):
    """Never holds L x L scores, but computes half of them."""
    outputs = []
    for start in range(0, len(q), tile):
        end = min(start + tile, len(q))
        back = torch.arange(start, end)[:, None] - torch.arange(end)
        scores = q[start:end] @ k[:end].T / math.sqrt(q.shape[1])
        outputs.append(scores.masked_fill((back < 0) | (back >= window), -torch.inf).softmax(-1) @ v[:end])
    return torch.cat(outputs)


def token_by_token(q, k, v, window, tile):
    scale, seen = math.sqrt(q.shape[1]), [slice(max(0, t - window + 1), t + 1) for t in range(len(q))]
    return torch.stack([(q[t] @ k[s].T / scale).softmax(-1) @ v[s] for t, s in enumerate(seen)])


def only_full_tiles(q, k, v, window, tile):
    whole = len(q) // tile * tile
    return tiled(q[:whole], k[:whole], v[:whole], window, tile) if whole else torch.zeros_like(q)


RIGHT = {
    check.tokens_in_sight: [in_sight, in_sight_module_by_module],
    check.windows_needed: [needed, needed_by_rounding_up],
    check.ignores_order: [by_permutations(neighbours), by_permutations(
        lambda n: itertools.chain(neighbours(n), reversal(n))), by_permutations(
        lambda n: (torch.randperm(n).tolist() for _ in range(30)), threshold=1e-6)],
    check.tiled_attention: [tiled, by_strips, by_sums, lambda *a: tiled(*a, attend=F.scaled_dot_product_attention)],
}
WRONG = {
    check.tokens_in_sight: {
        "window times depth": lambda pattern, window, t: (
            t + 1 if "F" in pattern else min(t + 1, max(1, len(pattern) * window))),
        "one token too few": lambda pattern, window, t: in_sight(pattern, window, t) - 1,
        "beyond the start of the text": lambda pattern, window, t: (
            t + 1 if "F" in pattern else len(pattern) * (window - 1) + 1),
        "a Fourier module counts as a window": lambda pattern, window, t: min(t, len(pattern) * (window - 1)) + 1,
        "Fourier modules only at the bottom": lambda pattern, window, t: (
            t + 1 if pattern[:1] == "F" else in_sight(pattern.replace("F", "W"), window, t)),
        "Fourier modules first or last only": lambda pattern, window, t: (
            t + 1 if "F" in pattern[:1] + pattern[-1:] else in_sight(pattern.replace("F", "W"), window, t)),
        "a window of w back and itself": lambda pattern, window, t: in_sight(pattern, window + 1, t),
        "forgets to return": lambda pattern, window, t: None,
    },
    check.windows_needed: {
        "length over window": lambda length, window: -(-length // window),
        "rounds down": lambda length, window: needed(length, window) and (length - 1) // (window - 1),
        "divides by zero is no answer": lambda length, window: 0 if window == 1 else needed(length, window),
        "one module too many": lambda length, window: (
            None if needed(length, window) is None else needed(length, window) + 1),
        "no module is never enough": lambda length, window: needed(length, window) or None,
        "a window of w back and itself": lambda length, window: -(-(length - 1) // window),
    },
    check.ignores_order: {
        "says yes": lambda module, length: True,
        "says no": lambda module, length: False,
        "a reversal only": by_permutations(reversal),
        "a turn only": by_permutations(turn),
        "a turn and a reversal": by_permutations(lambda n: itertools.chain(turn(n), reversal(n))),
        "the first two only": by_permutations(lambda n: [[1, 0, *range(2, n)]]),
        "the last two only": by_permutations(lambda n: [[*range(n - 2), n - 1, n - 2]]),
        "asks for exact equality": by_permutations(neighbours, threshold=0.0),
        "too lax": by_permutations(neighbours, threshold=0.1),
        "a thousandth is too lax": by_permutations(neighbours, threshold=1e-3),
        "absolute, not relative": by_permutations(neighbours, threshold=1e-12, relative=False),
        "moves the last token too": lambda module, length: bool(torch.allclose(
            module(x := torch.randn(1, length, 8, dtype=torch.float64))[:, -1], module(x.roll(1, dims=1))[:, -1])),
        "forgets to return": lambda module, length: None,
    },
    check.tiled_attention: {
        "a full mask": full_mask,
        "a masked key too many": lambda *a: tiled(*a, surplus=1),
        "a tile of masked keys too many": lambda *a: tiled(*a, surplus=a[-1]),
        "tiles as long as the window": lambda q, k, v, window, tile: tiled(q, k, v, window, window),
        "tiles of eight": lambda q, k, v, window, tile: tiled(q, k, v, window, 8),
        "half of each tile at a time": lambda q, k, v, window, tile: tiled(q, k, v, window, max(1, tile // 2)),
        "token by token": token_by_token,
        "the blocks of the package": lambda q, k, v, window, tile: sliding_window_attention(
            q[None, None], k[None, None], v[None, None], window)[0, 0],
        "all keys before the tile": all_keys_before,
        "a scale for four channels": lambda q, k, v, window, tile: tiled(
            q * math.sqrt(q.shape[1]) / 2, k, v, window, tile),
        "one key too many": lambda q, k, v, window, tile: tiled(q, k, v, window + 1, tile),
        "each tile by itself": lambda q, k, v, window, tile: torch.cat([
            tiled(*parts, window, tile) for parts in zip(q.split(tile), k.split(tile), v.split(tile), strict=True)]),
        "zeros as keys": unmasked_padding,
        "drops the last short tile": only_full_tiles,
        "no scale": lambda q, k, v, window, tile: tiled(2 * q, k, v, window, tile),
        "not causal inside a tile": lambda q, k, v, window, tile: torch.cat([
            sliding_window_attention(q[None, None], k[None, None], v[None, None], window)[0, 0][:-1],
            full_mask(q, k, v, len(q) + 1, tile)[-1:] + v.mean(0)]),
        "answers in float32": lambda q, k, v, window, tile: tiled(q, k, v, window, tile).float(),
        "forgets to return": lambda q, k, v, window, tile: None,
    },
}
REASONS = [
    (check.tokens_in_sight, "forgets to return", "expected 1, given None"),
    (check.tokens_in_sight, "window times depth", "(pattern='WW', window=1, t=1): expected 1, given 2"),
    (check.tokens_in_sight, "Fourier modules first or last only",
     "(pattern='WFW', window=1, t=1): expected 2, given 1"),
    (check.windows_needed, "rounds down", "windows_needed(length=2, window=3): expected 1, given 0"),
    (check.windows_needed, "no module is never enough", "windows_needed(length=1, window=1): expected 0, given None"),
    (check.ignores_order, "a reversal only", "expected False, given True"),
    (check.ignores_order, "asks for exact equality", "expected True, given False"),
    (check.ignores_order, "forgets to return", "is a return missing"),
    (check.tiled_attention, "a full mask", "a quarter of L x L, given one of 1048576 entries"),
    (check.tiled_attention, "all keys before the tile", "expected at most 23552 scores, given 528384"),
    (check.tiled_attention, "a masked key too many", "1024 tokens, window=16, tile=8: expected at most 23552 scores"),
    (check.tiled_attention, "tiles of eight", "960 tokens, window=16, tile=24: expected tiles of 24 queries beside 39"),
    (check.tiled_attention, "token by token", "expected tiles of 8 queries beside 23 keys, given none of that size"),
    (check.tiled_attention, "a scale for four channels", "with 13 tokens of 9 channels"),
    (check.ignores_order, "a turn only", "the tokens before in a ring, which turns one way"),
    (check.ignores_order, "a turn and a reversal", "ignores_order(the tokens before in a ring, length=9)"),
    (check.tiled_attention, "zeros as keys", "with 7 tokens of 4 channels, window=3, tile=2: entry [0, 0]"),
    (check.tiled_attention, "drops the last short tile", "expected shape (7, 4), given (6, 4)"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
