"""Checkers for the exercises of investigation A, compare or carry."""

from collections.abc import Callable
from itertools import permutations
from string import ascii_lowercase

import torch
from torch import Tensor

from . import checker, ensure, expect

__all__ = ["a_trap", "carriers", "mirrored_pairs", "products_left", "right_by_distance"]


@checker
def mirrored_pairs(answer: Callable) -> str:
    """Check `mirrored_pairs(ids, vocab_size)`: for each t, how many j in 0..t have ids[j] == ids[t - j].

    ids are int64, `(L,)`; the counts, `(L,)`, may be of any real dtype and are right within 1e-3.
    """
    source = torch.Generator().manual_seed(9)
    texts = [(torch.tensor(ids), symbols) for ids, symbols in (([0], 1), ([1, 1], 2), ([2, 0, 1, 0, 1], 4))]
    for length, symbols in ((64, 2), (255, 3), (301, 20)):
        ids = torch.randint(symbols, (length,), generator=source)
        texts += [(ids, symbols), (torch.cat([ids, ids.flip(0)]), symbols)]
    for ids, symbols in texts:
        case = f"mirrored_pairs, ids {ids.tolist() if len(ids) < 9 else f'of {len(ids)} tokens'}, vocab_size={symbols}"
        given = answer(ids.clone(), symbols)
        counts = torch.stack([(ids[:t + 1] == ids[:t + 1].flip(0)).sum() for t in range(len(ids))]).double()
        around = torch.stack([(ids == ids.flip(0).roll(t + 1)).sum() for t in range(len(ids))]).double()
        expect(case, given.double() if isinstance(given, Tensor) and not given.is_complex() else given, counts, {
            "without padding, pairs whose sum is t + L wrap around": around,
            "a count for every t was asked for, and this is that of the whole text": counts[-1]}, 1e-3 / len(ids))
    return f"{len(texts)} texts"


@checker
def products_left(answer: Callable) -> str:
    """Check `products_left(length, m)`: how many of its two products each mirrored pair keeps, the outermost first.

    Letters j and length - 1 - j meet in two products, one with the gate of either; the gates kept are g_0 to g_m.
    """
    cases = [(8, 5), (8, 4)]  # the famous mistakes differ here
    cases += [(length, m) for length in (2, 4, 6, 10, 16) for m in range(length + 2)] + [(8, 100), (62, 30), (64, 40)]
    for length, m in cases:
        def left(m: int, length: int = length) -> list[int]:
            return [sum(gate <= m for gate in (j, length - 1 - j)) for j in range(length // 2)]

        expect(f"products_left({length}, {m})", answer(length, m), left(m), {
            "the outermost pair first": left(m)[::-1], "g_m is kept, too": left(m - 1),
            "a pair meets in two products": [min(1, products) for products in left(m)]})
    return f"{len(cases)} texts"


@checker
def a_trap(answer: Callable) -> str:
    """Check `a_trap(size)`: a wrong text of mirror in which every fragment of that size also stands reversed.

    Any such text of letters from a to z is right: the second word is the first one reversed, with two unequal
    letters swapped that stand an even distance apart.  It has at least one fragment of that size, and at most 100,000
    letters.
    """
    for size in range(1, 11):
        text = answer(size)
        case, shown = f"a_trap({size})", f"given {text[:60]!r}" if isinstance(text, str) else f"given {text!r}"
        ensure(isinstance(text, str) and set(text) <= set(ascii_lowercase) and len(text) % 2 == 0
               and size <= len(text) <= 100_000,
               f"{case}: expected an even number of letters from a to z, {size} to 100,000 of them, {shown}")
        half = len(text) // 2
        second, backwards = text[half:], text[:half][::-1]
        wrong = [k for k in range(half) if second[k] != backwards[k]]
        ensure(wrong, f"{case}: expected a text that is no palindrome, {shown}")
        ensure(len(wrong) == 2 and second[wrong[0]] == backwards[wrong[1]] and second[wrong[1]] == backwards[wrong[0]],
               f"{case}: expected the second word to be the first one reversed with two letters swapped, {shown}, where"
               f" positions {wrong[:5]} of the second word differ")
        ensure((wrong[1] - wrong[0]) % 2 == 0, f"{case}: expected a swap over an even distance, {shown}, where "
               f"positions {wrong} of the second word are swapped")
        fragments = {text[start:start + size]: start for start in range(len(text) - size + 1)}
        for fragment, start in fragments.items():
            ensure(fragment[::-1] in fragments, f"{case}: expected every fragment of {size} letters to stand somewhere "
                   f"reversed, {shown}, where {fragment!r} stands at position {start} and {fragment[::-1]!r} nowhere")
    return "fragments of 1 to 10 letters"


@checker
def right_by_distance(answer: Callable) -> str:
    """Check `right_by_distance(pairs, distances)`: how often each question of recall is answered right.

    The model compares the asking key, at position 2 * pairs + q, with what stands at each of the distances before it,
    and guesses among the values that it cannot rule out.  One number for each question, right within 1e-6.
    """
    cases = [(1, set()), (1, {2}), (1, {1}), (2, set()), (2, {2}), (2, {2, 3}), (2, {2, 3, 4}), (3, {1, 5}), (4, {2}),
             (4, {3}), (4, {2, 4, 6}), (4, {2, 3, 4, 5, 6, 7}), (4, set(range(2, 12))), (5, {6, 8, 9, 40})]
    for pairs, distances in cases:
        def by_question(guess: bool = True, forget: bool = True, pairs=pairs, distances=distances) -> list[float]:
            """Ask the keys in every order; the model has compared, and so knows the value or rules some out."""
            right, orders = [0.0] * pairs, list(permutations(range(pairs)))
            for order in orders:
                for q, asked in enumerate(order):
                    out = [pair for pair in range(pairs) if 2 * pairs + q - 2 * pair in distances]
                    left = {*range(pairs)} - {*out, *(() if forget else order[:q])}
                    right[q] += 1 if asked in out else guess / len(left)
            return [sure / len(orders) for sure in right]

        right, sure = by_question(), by_question(guess=False)
        expect(f"right_by_distance({pairs}, {distances})", answer(pairs, set(distances)),
               {f"question {q}": of for q, of in enumerate(right)}, {
            "where the key is not found, the model guesses among the others": tuple(sure),
            "it guesses among the values that are left, and not among all": tuple(
                known + (1 - known) / pairs for known in sure),
            "a number for each question was asked for, and this is their mean": sum(right) / pairs,
            "it does not remember what was asked before": tuple(by_question(forget=False))})
    return f"{len(cases)} models"


@checker
def carriers(answer: Callable) -> str:
    """Check `carriers(distance, window, m)`: how far before the question the tokens stand that can hand on a value.

    Such a token is in the window, less than `window` positions before the question, and has the value at most m
    positions before it or is the value's own.
    """
    cases = [(17, 12, 12), (24, 12, 12), (5, 12, 0), (5, 12, 3), (0, 12, 4), (3, 1, 3), (9, 6, 4), (2, 12, 30),
             (12, 12, 0)]
    for distance, window, m in cases:
        def places(window: int, m: int, distance: int = distance) -> list[int]:
            return [place for place in range(window) if 0 <= distance - place <= m]

        right = places(window, m)
        expect(f"carriers({distance}, {window}, {m})", answer(distance, window, m), right, {
            "the question is itself the last token of the window": places(window + 1, m),
            "g_m is kept, too": places(window, m - 1),
            "ascending, so the nearest carrier first": right[::-1],
            "distances count from the question, not from the value": [distance - place for place in right]})
    return f"{len(cases)} values"
