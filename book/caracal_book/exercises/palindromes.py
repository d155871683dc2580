"""Checkers for the exercises of investigation A on palindromes."""

from collections.abc import Callable
from string import ascii_lowercase

import torch
import torch.nn.functional as F
from torch import Tensor

from caracal_min.convolution import causal_conv_direct

from . import checker, ensure, expect

__all__ = ["a_trap", "content_and_gate", "mirrored_pairs", "products_left"]


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
    """Check `products_left(length, K)`: how many of its two products each mirrored pair keeps, the outermost first.

    Letters j and length - 1 - j meet in two products, one with the gate of either; the gates kept are g_0 to g_K.
    """
    cases = [(8, 5), (8, 4)]  # the famous mistakes differ here
    cases += [(length, K) for length in (2, 4, 6, 10, 16) for K in range(length + 2)] + [(8, 100), (62, 30), (64, 40)]
    for length, K in cases:
        def left(K: int, length: int = length) -> list[int]:
            return [sum(gate <= K for gate in (j, length - 1 - j)) for j in range(length // 2)]

        expect(f"products_left({length}, {K})", answer(length, K), left(K), {
            "the outermost pair first": left(K)[::-1], "g_K is kept, too": left(K - 1),
            "a pair meets in two products": [min(1, products) for products in left(K)]})
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


# What a text is like, and the text: letters, the mark "(", the word, dots.
_TEXTS = {"a word of three letters": "(abc...", "a palindrome": "(abba..", "a letter in front": "c(ab..",
          "a letter in front that stands in the word, too": "a(abab...", "too few dots": "abcd(dcab..",
          "no dots, and letters in front": "abca(bcab", "a word of one letter": "ab(a....", "no word": "ab(...",
          "more letters in front than in the word": "abccbaabc(ca.........."}


@checker
def content_and_gate(answer: Callable) -> str:
    """Check `content_and_gate(ids, vocab_size, mark, dot)`: v and g whose convolutions count the word's unequal pairs.

    v and g are `(C, L)` each, of any real dtype.  Their causal convolutions, added up over the channels, are compared
    at every t, within 1e-3, with the number of pairs of positions in the word that add up to t and hold different
    tokens; two letters are two such pairs.
    """
    for what, text in _TEXTS.items():
        for symbols in ("abc(.d", "b.d(ac"):
            ids, place, size = torch.tensor([symbols.index(s) for s in text]), torch.arange(len(text)), len(symbols)
            mark, dot = symbols.index("("), symbols.index(".")
            case = f"content_and_gate, {what}, ids {ids.tolist()}, vocab_size={size}, mark={mark}, dot={dot}"
            given = answer(ids.clone(), size, mark, dot)
            ensure(isinstance(given, tuple | list) and len(given) == 2 and all(isinstance(x, Tensor) for x in given),
                   f"{case}: expected two tensors, v and g, given a {type(given).__name__}")
            v, g = (x.double() for x in given)
            ensure(v.shape == g.shape and v.shape[1:] == ids.shape,
                   f"{case}: expected v and g of shape (C, {len(ids)}), given {tuple(v.shape)} and {tuple(g.shape)}")
            begin, letter = text.index("("), ids != dot
            front, behind = place < begin, place > begin
            right = _unequal(ids, behind & letter)
            pairs = causal_conv_direct((behind & letter).double(), (behind & letter).double())
            expect(f"{case}: counts by t", causal_conv_direct(v, g).sum(0), right, {
                "those are the equal pairs": pairs - right,
                "those are all pairs, equal or not": pairs,
                "each pair counts twice, because either letter can be the gate": right / 2,
                "those are the pairs of the whole text": _unequal(ids, place >= 0),
                "both letters of a pair must stand in the word": _unequal(ids, behind & letter, place >= 0),
                "the mark is no letter of the word": _unequal(ids, (place >= begin) & letter),
                "the dots are not in the word": _unequal(ids, behind),
                "the letters in front are not in the word": _unequal(ids, (front | behind) & letter)}, 1e-4)
    return f"{2 * len(_TEXTS)} texts"


def _unequal(ids: Tensor, contents: Tensor, gates: Tensor | None = None) -> Tensor:
    """Return, for every t, the pairs of a position in contents and one in gates with sum t and unequal tokens."""
    v, g = contents.double(), (contents if gates is None else gates).double()
    letters = F.one_hot(ids).T
    return causal_conv_direct(letters * v, (1 - letters) * g).sum(0)
