"""Checkers for the exercises of investigation A, palindromes.

Texts are drawn from fixed seeds; the pairs of a word are counted one by one.
"""

import random
from collections.abc import Callable, Sequence
from string import ascii_lowercase
from typing import Any

import torch
from torch import Tensor

from caracal_min.convolution import causal_conv_direct

from . import checker, expect_close, expect_numbers

__all__ = ["a_trap", "content_and_gate", "mirrored_pairs", "products_left"]


@checker
def mirrored_pairs(answer: Callable[[Tensor, int], Tensor]) -> str:
    """Check `mirrored_pairs(ids, vocab_size)`: for each t, how many j in 0..t have ids[j] == ids[t - j].

    ids are int64, `(L,)`; the counts, `(L,)`, may be of any real dtype and are right within 1e-3.
    """
    source = torch.Generator().manual_seed(9)
    texts = [(f"of ids {ids}", torch.tensor(ids), symbols) for ids, symbols in
             (([0], 1), ([3], 5), ([1, 1], 2), ([0, 1], 2), ([0, 1, 0], 2), ([0, 1, 1], 2), ([0, 1, 1, 0], 2),
              ([0, 1, 2, 0], 3), ([2, 0, 1, 0, 2], 3), ([2, 0, 1, 0, 1], 4), ([0, 0, 0, 0, 0, 0], 1),
              ([6, 5, 4, 3, 2, 1, 0], 7))]
    for length, symbols in ((64, 2), (255, 3), (256, 7), (301, 20)):
        ids = torch.randint(symbols, (length,), generator=source)
        half = ids[:length // 2]
        palindrome = torch.cat([half, ids[length // 2:length - length // 2], half.flip(0)])
        near = palindrome.clone()
        near[length // 3] = (near[length // 3] + 1) % symbols
        texts += [(f"of {what} of {length} tokens", text, symbols) for what, text in
                  (("a random text", ids), ("a palindrome", palindrome), ("a palindrome but for one token", near))]
    texts.append(("of a text of 200 times token 2", torch.full((200,), 2), 4))
    for what, ids, symbols in texts:
        case = f"mirrored_pairs {what}, vocab_size={symbols}"
        given = answer(ids.clone(), symbols)
        try:
            given = torch.as_tensor(given).detach().cpu()
        except (TypeError, ValueError, RuntimeError):
            raise AssertionError(f"{case}: expected a tensor, given a {type(given).__name__}") from None
        if given.is_complex():
            raise AssertionError(f"{case}: expected real numbers, given {str(given.dtype).removeprefix('torch.')}")
        counts = torch.stack([(ids[:t + 1] == ids[:t + 1].flip(0)).sum() for t in range(len(ids))]).double()
        expect_close(case, given.double(), counts, tolerance=1e-3 / float(counts.max()))
    return f"{len(texts)} texts"


@checker
def products_left(answer: Callable[[int, int], list[int]]) -> str:
    """Check `products_left(length, K)`: how many of its two products each mirrored pair keeps, the outermost first.

    Letters j and length - 1 - j meet in two products, one with the gate of either; the gates kept are g_0 to g_K.
    """
    cases = [(8, 5)]  # the usual mistakes differ here
    cases += [(length, K) for length in (2, 4, 6, 8, 10, 16) for K in range(length + 2) if (length, K) not in cases]
    cases += [(2, 9), (8, 100), (62, 30), (62, 29), (64, 40)]
    for length, K in cases:
        case = f"products_left({length}, {K})"
        names = tuple(f"letters {j} and {length - 1 - j}" for j in range(length // 2))
        given = expect_numbers(case, answer(length, K), names)
        right = _products(length, K)
        for (name, found), left in zip(given.items(), right, strict=True):
            if found != left:  # also where given is nan
                hint = _hint_on_products(list(given.values()), length, K)
                raise AssertionError(f"{case}: {name} expected {left}, given {found:g}{hint}")
    return f"{len(cases)} texts"


def _products(length: int, K: int) -> list[int]:
    return [sum(gate <= K for gate in (j, length - 1 - j)) for j in range(length // 2)]


def _hint_on_products(given: list[float], length: int, K: int) -> str:
    """Return what the answer seems to have done."""
    right = _products(length, K)
    for said, other in (("the outermost pair first", right[::-1]), ("g_K is kept, too", _products(length, K - 1)),
                        ("a pair meets in two products", [min(1, left) for left in right])):
        if given == other != right:
            return f"; {said}"
    return ""


_MOST_LETTERS = 100_000


@checker
def a_trap(answer: Callable[[int], str]) -> str:
    """Check `a_trap(size)`: a wrong text of mirror in which every fragment of that size also stands reversed.

    Any such text of letters from a to z is right: the second word is the first one reversed, with two unequal
    letters swapped that stand an even distance apart.  It has at least one fragment of that size, and at most 100,000
    letters.
    """
    sizes = range(1, 11)
    for size in sizes:
        _expect_trap(f"a_trap({size})", answer(size), size)
    return f"fragments of {sizes[0]} to {sizes[-1]} letters"


def _expect_trap(case: str, text: Any, size: int) -> None:
    """Raise AssertionError, naming the case, unless a text is of mirror, wrong, and has all fragments reversed."""
    if not isinstance(text, str):
        raise AssertionError(f"{case}: expected a string, given a {type(text).__name__}")
    half = len(text) // 2
    others = sorted(set(text) - set(ascii_lowercase))
    if len(text) > _MOST_LETTERS:
        raise AssertionError(f"{case}: expected at most {_MOST_LETTERS:,} letters, given {len(text):,}")
    if others:
        raise AssertionError(f"{case}: expected letters from a to z, given {_short(text)} with {others[0]!r}")
    if len(text) < size:
        raise AssertionError(f"{case}: expected a text with a fragment of that size, given {_short(text)}")
    if len(text) % 2:
        raise AssertionError(f"{case}: expected an even number of letters, given {len(text)}: {_short(text)}")
    second, backwards = text[half:], text[:half][::-1]
    if second == backwards:
        raise AssertionError(f"{case}: expected a text that is no palindrome, given {_short(text)}")

    words = f"given {_short(second)}, and the first one reversed is {_short(backwards)}"
    swap = f"{case}: expected the second word to be the first one reversed with two letters swapped"
    wrong = [k for k in range(half) if second[k] != backwards[k]]
    if len(wrong) != 2:
        raise AssertionError(f"{swap}, {words}: {len(wrong)} {'positions differ' if wrong[1:] else 'position differs'}")
    i, j = wrong
    if (second[i], second[j]) != (backwards[j], backwards[i]):
        raise AssertionError(f"{swap}, {words}: positions {i} and {j} differ, and not by a swap")
    if (j - i) % 2:
        raise AssertionError(f"{case}: expected a swap over an even distance, {words}: positions {i} and {j} are "
                             "swapped")

    fragments: dict[str, int] = {}
    for start in range(len(text) - size + 1):
        fragments.setdefault(text[start:start + size], start)
    for fragment, start in fragments.items():
        if fragment[::-1] not in fragments:
            raise AssertionError(f"{case}: expected every fragment of {size} letters to stand somewhere reversed, "
                                 f"given {_short(text)}, where {_short(fragment)} stands at position {start} and "
                                 f"{_short(fragment[::-1])} nowhere")


def _short(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:40]!r}... of {len(text):,} letters"


# A text, what it is like, and the symbols in the order of their ids; "(" is the mark.
_TEXTS = [
    ("a word of three letters", "(abc...", "abc(."),  # the usual mistakes differ here
    ("a word of two letters", "(ab..", "ab(."),
    ("a palindrome", "(abba..", "ab(."),
    ("a word that ends with equal letters", "(abb...", "abc(."),
    ("a letter in front", "c(ab..", "abc(."),
    ("a letter in front that stands in the word, too", "a(abab...", "abc(."),
    ("the mark first and the dot second of the symbols", "ba(abcab.....", "(.abc"),
    ("the dot before the mark and letters among the symbols", "ca(bccab.....", "a.bc(d"),
    ("dots to spare", "ba(abca.........", "abc.("),
    ("too few dots", "abcd(dcab..", "abcd(."),
    ("a single dot", "bb(cbca.", "cab(."),
    ("no dots", "(abcb", "abc(."),
    ("no dots, and letters in front", "abca(bcab", "abc(."),
    ("a word of one letter", "ab(a....", "ab(."),
    ("a word of one letter at the end", "aba(a", "ab(."),
    ("a word of equal letters", "ba(aaaa.....", "ab(."),
    ("no word, the mark at the end", "abc(", "abc(."),
    ("no word, a dot after the mark", "ab(...", "ab(."),
    ("the mark alone", "(", ".("),
    ("more letters in front than in the word", "abccbaabc(ca..........", "abc(."),
]


@checker
def content_and_gate(answer: Callable[[Tensor, int, int, int], tuple[Tensor, Tensor]]) -> str:
    """Check `content_and_gate(ids, vocab_size, mark, dot)`: v and g whose convolutions count the word's unequal pairs.

    ids are int64, `(L,)`: letters, the mark, the word, and dots.  v and g are `(C, L)` each, of any real dtype.  Their
    causal convolutions, added up over the channels, are compared at every t, within 1e-3, with the number of pairs of
    positions in the word that add up to t and hold different tokens; two letters are two such pairs.
    """
    cases = _marked_texts()
    for what, ids, vocab_size, mark, dot in cases:
        case = f"content_and_gate, {what}, vocab_size={vocab_size}, mark={mark}, dot={dot}"
        v, g = _both(case, answer(ids.clone(), vocab_size, mark, dot), len(ids))
        found = causal_conv_direct(v, g).sum(0).tolist()
        tokens, word = ids.tolist(), _word(ids.tolist(), mark, dot)
        for t, (given, right) in enumerate(zip(found, _unequal_pairs(tokens, word, word), strict=True)):
            if not abs(given - right) <= 1e-3:  # also where given is nan
                hint = _hint_on_pairs(found, tokens, word)
                raise AssertionError(f"{case}: at t={t} expected {right}, given {given:.6g}{hint}")
    return f"{len(cases)} texts"


def _marked_texts() -> list[tuple[str, Tensor, int, int, int]]:
    """Return what a text is like, its ids, the size of the vocabulary, the mark and the dot."""
    cases = []
    for what, text, symbols in _TEXTS:
        ids = [symbols.index(symbol) for symbol in text]
        cases.append((f"{what}, ids {ids}", torch.tensor(ids), len(symbols), symbols.index("("), symbols.index(".")))
    source = random.Random(15)
    for vocab_size, front, length, dots in ((4, 9, 20, 12), (12, 30, 17, 31), (7, 0, 40, 40), (30, 24, 31, 0)):
        mark, dot, *letters = source.sample(range(vocab_size), vocab_size)
        ids = source.choices(letters, k=front) + [mark] + source.choices(letters, k=length) + dots * [dot]
        cases.append((f"{front} random letters, the mark, {length} random letters and {dots} dots", torch.tensor(ids),
                      vocab_size, mark, dot))
    return cases


def _word(tokens: list[int], mark: int, dot: int) -> range:
    """Return the positions of the word."""
    first = tokens.index(mark) + 1
    return range(first, tokens.index(dot, first) if dot in tokens[first:] else len(tokens))


def _unequal_pairs(tokens: list[int], contents: Sequence[int], gates: Sequence[int]) -> list[int]:
    """Return, for every t, the pairs of a position in contents and one in gates with sum t and unequal tokens."""
    counts = [0] * len(tokens)
    for j in contents:
        for i in gates:
            if j + i < len(tokens):
                counts[j + i] += tokens[j] != tokens[i]
    return counts


def _both(case: str, given: Any, length: int) -> list[Tensor]:
    """Return v and g in float64.  Raises AssertionError, naming the case, unless both are real and of one shape."""
    try:
        v, g = given
    except (TypeError, ValueError, RuntimeError):
        raise AssertionError(f"{case}: expected two tensors, v and g, given a {type(given).__name__}"
                             f"{f' of {len(given)}' if isinstance(given, tuple | list) else ''}") from None
    both = {}
    for name, x in (("v", v), ("g", g)):
        try:
            x = torch.as_tensor(x).detach().cpu()
        except (TypeError, ValueError, RuntimeError):
            raise AssertionError(f"{case}: {name} expected as a tensor, given a {type(x).__name__}") from None
        if x.is_complex():
            raise AssertionError(f"{case}: {name} expected with real numbers, "
                                 f"given {str(x.dtype).removeprefix('torch.')}")
        if x.dim() != 2 or x.shape[1] != length:
            raise AssertionError(f"{case}: {name} expected with the shape (C, {length}), given {tuple(x.shape)}")
        if not x.double().isfinite().all():
            entry = x.double().isfinite().logical_not().nonzero()[0].tolist()
            raise AssertionError(f"{case}: {name} expected finite, given {float(x[tuple(entry)])} at {entry}")
        both[name] = x.double()
    if both["v"].shape != both["g"].shape:
        raise AssertionError(f"{case}: expected as many channels in v as in g, given {len(both['v'])} and "
                             f"{len(both['g'])}")
    return list(both.values())


def _hint_on_pairs(found: list[float], tokens: list[int], word: range) -> str:
    """Return what the answer seems to have counted."""
    def of(positions: Sequence[int]) -> list[int]:
        return _unequal_pairs(tokens, positions, positions)

    text, right = range(len(tokens)), of(word)
    pairs = [sum(t - j in word for j in word) for t in text]
    moved = tokens[word.start:] + tokens[:word.start]
    mistakes = {
        "those are the equal pairs": [a - b for a, b in zip(pairs, right, strict=True)],
        "those are all pairs, equal or not": pairs,
        "each pair counts twice, because either letter can be the gate": [count / 2 for count in right],
        "those are the pairs of the whole text": of(text),
        "both letters of a pair must stand in the word": _unequal_pairs(tokens, word, text),
        "the mark is no letter of the word": of(range(word.start - 1, word.stop)),
        "the dots are not in the word": of(range(word.start, len(tokens))),
        "the letters in front are not in the word": of([*range(word.start - 1), *word]),
        "positions count from the beginning of the text, not of the word": _unequal_pairs(
            moved, range(len(word)), range(len(word))),
    }
    for said, other in mistakes.items():
        if all(abs(a - b) < 1e-3 for a, b in zip(found, other, strict=True)):
            return f"; {said}"
    return ""
