"""The checkers of investigation A: the answers that they accept, and those that they reject with what they say."""

from itertools import combinations, product

import numpy as np
import torch
import torch.nn.functional as F
from exercise_answers import Answers

from caracal_book.exercises import palindromes as check
from caracal_min.convolution import causal_conv_direct, causal_conv_fft, circular_conv


def mirrored_by_fft(ids, vocab_size):
    x = torch.nn.functional.one_hot(ids, vocab_size).T.float()
    n = 2 * x.shape[-1]
    return torch.fft.irfft(torch.fft.rfft(x, n=n)**2, n=n)[:, :len(ids)].sum(0)


def mirrored_by_direct_sums(ids, vocab_size):
    counts = torch.zeros(len(ids), dtype=torch.long)
    for symbol in range(vocab_size):
        stream = (ids == symbol).double()
        counts += causal_conv_direct(stream, stream).round().long()
    return counts


def mirrored_by_lists(ids, vocab_size):
    ids = ids.tolist()
    return [sum(a == b for a, b in zip(ids[:t], reversed(ids[:t]), strict=True)) for t in range(1, len(ids) + 1)]


def one_hot(ids, vocab_size):
    return torch.eye(vocab_size, dtype=torch.float64)[ids].T


def palindrome_or_not(ids, vocab_size):
    return torch.stack([(ids[:t] == ids[:t].flip(0)).all() * t for t in range(1, len(ids) + 1)])


def whole_text_alone(ids, vocab_size):
    return (ids == ids.flip(0)).sum()


def mirrored_around(ids, vocab_size):
    x = one_hot(ids, vocab_size)
    return circular_conv(x, x).sum(0)


def mirrored_one_late(ids, vocab_size):
    return mirrored_by_direct_sums(ids, vocab_size).roll(1)


def mirrored_before_t(ids, vocab_size):
    return torch.stack([(ids[:t] == ids[:t].flip(0)).sum() for t in range(len(ids))])


def each_pair_once(ids, vocab_size):
    return (mirrored_by_direct_sums(ids, vocab_size) + 1) // 2


def ids_as_numbers(ids, vocab_size):
    return causal_conv_direct(ids.double(), ids.double())


def tokens_so_far(ids, vocab_size):
    """The same lag for all: how often the newest token stands in the text so far."""
    x = one_hot(ids, vocab_size)
    return (x * x.cumsum(-1)).sum(0)


def without_the_last_symbol(ids, vocab_size):
    x = one_hot(ids, vocab_size)[:-1]
    return causal_conv_fft(x, x).sum(0)


def left_by_comparing(length, K):
    return [(j <= K) + (length - 1 - j <= K) for j in range(length // 2)]


def left_by_products(length, K):
    """Go through the sum, and find the pair of each product."""
    left = [0] * (length // 2)
    for j in range(length):
        gate = length - 1 - j
        if gate in range(K + 1):
            left[min(j, gate)] += 1
    return left


def left_by_numpy(length, K):
    kept = (np.arange(length) <= K).astype(int)
    return (kept + kept[::-1])[:length // 2]


def left_by_impulses(length, K):
    """The product of all gates and of those kept, folded in the middle."""
    gates = (torch.arange(length) <= K).double()
    return (gates + gates.flip(0))[:length // 2].tolist()


def left_with(keeps=lambda gate, K: gate <= K, count=lambda outer, inner: outer + inner, order=lambda left: left):
    """The right answer with something else than asked."""
    def products_left(length, K):
        return order([count(keeps(j, K), keeps(length - 1 - j, K)) for j in range(length // 2)])

    return products_left


def one_word_twice(size):
    return 2 * ("a" * (size + 1) + "b" + "a" * (size - 1))


def one_letter_moved(size):
    between = max(2, size - 1 + (size - 1) % 2)
    return "a" * (size + 1) + "b" + "a" * between + "b" + "a" * (size - 1)


def two_letters_before_a_palindrome(size):
    return "aa" + "a" * (size - 1) + "baab" + "a" * (size - 1)


def texts_of_mirror(half):
    for letters in product("xy", repeat=half):
        for i, j in combinations(range(half), 2):
            second = list(reversed(letters))
            second[i], second[j] = second[j], second[i]
            if (j - i) % 2 == 0 and second != list(reversed(letters)):
                yield "".join(letters) + "".join(second)


def has_all_fragments_back(text, size):
    return all(text[i:i + size][::-1] in text for i in range(len(text) - size + 1))


def shortest_by_search(size):
    half = 3
    while True:
        for text in texts_of_mirror(half):
            if len(text) >= size and has_all_fragments_back(text, size):
                return text
        half += 1


def with_every_fragment(size):
    """All fragments of two letters stand in the first word (de Bruijn, the largest next letter first)."""
    word, seen = "p" * size, {"p" * size}
    while True:
        new = next((word + letter for letter in "qp" if (word + letter)[-size:] not in seen), None)
        if new is None:
            break
        word = new
        seen.add(word[-size:])
    word += "ppq"  # long enough for a swap
    back = list(word[::-1])
    i = next(i for i in range(len(back) - 2) if back[i] != back[i + 2])
    back[i], back[i + 2] = back[i + 2], back[i]
    return word + "".join(back)


def one_trap_for_all(size):
    return one_word_twice(4)  # its fragments of 10 letters also stand reversed


def moved_by(distance):
    def a_trap(size):
        return "a" * (size + distance) + "b" + "a" * (2 * size + distance) + "b" + "a" * size

    return a_trap


def one_replaced(size):
    return "a" * size + "b" + "a" * size + "a" * (2 * size + 1)


def random_text(size):
    source = np.random.default_rng(size)
    word = source.choice(list("abcdefgh"), 2 * size + 4)
    word[:3] = "a", "b", "c"
    second = word[::-1].copy()
    second[-1], second[-3] = second[-3], second[-1]
    return "".join(word) + "".join(second)


def trap_for_smaller(size):
    return one_word_twice(1) if size < 5 else "aaaabaaaab" if size < 7 else "aaaabaaaabaa"


def positions_of_word(ids, mark, dot):
    """One for each position in the word, zero elsewhere, by a loop."""
    inside, positions = False, []
    for token in ids.tolist():
        inside = inside and token != dot
        positions.append(inside)
        inside = inside or token == mark
    return torch.tensor(positions)


def by_cumulative_sums(ids, vocab_size, mark, dot):
    begun = (ids == mark).cumsum(0) - (ids == mark).long()
    word = begun * (1 - (begun * (ids == dot)).cumsum(0).clamp(max=1))
    x = F.one_hot(ids, vocab_size).T
    return x * word, (1 - x) * word


def by_loops(ids, vocab_size, mark, dot):
    v, g = torch.zeros(vocab_size, len(ids)), torch.zeros(vocab_size, len(ids), dtype=torch.float16)
    place = ids.tolist().index(mark) + 1
    while place < len(ids) and ids[place] != dot:
        for channel in range(vocab_size):
            v[channel, place] = channel == ids[place]
            g[channel, place] = channel != ids[place]
        place += 1
    return [v, g]


def by_numpy(ids, vocab_size, mark, dot):
    tokens = ids.numpy()
    first = int(np.argmax(tokens == mark)) + 1
    after = np.flatnonzero(tokens[first:] == dot)
    end = first + after[0] if len(after) else len(tokens)
    place = np.arange(len(tokens))
    word = (place >= first) & (place < end)
    v = word & (tokens == np.arange(vocab_size)[:, None])
    return v, word & ~v


def all_less_the_equal(ids, vocab_size, mark, dot):
    """All pairs of the word in one channel more, and the equal ones taken away."""
    word = positions_of_word(ids, mark, dot).double()
    x = F.one_hot(ids, vocab_size).T * word
    return torch.cat([word[None], x]), torch.cat([word[None], -x])


def rotated(ids, vocab_size, mark, dot):
    """Contents and gates that are no zeros and ones: an orthogonal matrix mixes the channels."""
    v, g = all_less_the_equal(ids, vocab_size, mark, dot)
    mix = torch.linalg.qr(torch.randn(len(v), len(v), dtype=v.dtype))[0].requires_grad_()
    return torch.stack([mix @ v, mix @ g])


def moved_to(dtype):
    return lambda *text: tuple(x.to(dtype) for x in by_cumulative_sums(*text))


def word_with(content=positions_of_word, gate=positions_of_word, turn=lambda v, g: (v, g)):
    """The right answer with something else than asked."""
    def content_and_gate(ids, vocab_size, mark, dot):
        x = F.one_hot(ids, vocab_size).T.double()
        return turn(x * content(ids, mark, dot), (1 - x) * gate(ids, mark, dot))

    return content_and_gate


def everywhere(ids, mark, dot):
    return torch.ones(len(ids))


def with_the_mark(ids, mark, dot):
    return positions_of_word(ids, mark, dot) | (ids == mark)


def with_the_dots(ids, mark, dot):
    return (ids == mark).cumsum(0) - (ids == mark).long()


def with_the_letters_in_front(ids, mark, dot):
    return (ids != mark) & (ids != dot)


def without_the_last_letter(ids, mark, dot):
    word = positions_of_word(ids, mark, dot)
    return word & torch.cat([word[1:], torch.tensor([False])])


def needs_a_dot(ids, mark, dot):
    word = positions_of_word(ids, mark, dot)
    return word & (ids == dot).any()


def symbols_in_order(ids, mark, dot):
    """Takes the mark and the dot for the largest ids."""
    return positions_of_word(ids, ids.max() - 1, ids.max())


def moved_to_the_beginning(ids, vocab_size, mark, dot):
    first = ids.tolist().index(mark) + 1
    return tuple(x.roll(-first, 1) for x in by_cumulative_sums(ids, vocab_size, mark, dot))


def with_ids_as_numbers(ids, vocab_size, mark, dot):
    word = positions_of_word(ids, mark, dot)
    return (ids * word)[None], (ids * word)[None]


def from_end_to_beginning(ids, vocab_size, mark, dot):
    v, g = by_cumulative_sums(ids, vocab_size, mark, dot)
    return v, g.flip(1)


def with_nan(ids, vocab_size, mark, dot):
    v, g = by_loops(ids, vocab_size, mark, dot)
    return v / v, g


def changed(change):
    return lambda *text: change(*by_loops(*text))


ABC = "content_and_gate, a word of three letters, ids [3, 0, 1, 2, 4, 4, 4], vocab_size=5, mark=3, dot=4: "


RIGHT = {
    check.mirrored_pairs: [mirrored_by_fft, mirrored_by_direct_sums, mirrored_by_lists],
    check.products_left: [left_by_comparing, left_by_products, left_by_numpy, left_by_impulses, left_with()],
    check.a_trap: [one_word_twice, one_letter_moved, two_letters_before_a_palindrome, shortest_by_search,
                   with_every_fragment, one_trap_for_all, moved_by(2), moved_by(6)],
    check.content_and_gate: [by_cumulative_sums, by_loops, by_numpy, all_less_the_equal, rotated, word_with(),
                             moved_to(torch.bool), moved_to(torch.bfloat16)],
}
WRONG = {
    check.mirrored_pairs: {
        "palindrome or not": palindrome_or_not,
        "the whole text alone": whole_text_alone,
        "around the end": mirrored_around,
        "one late": mirrored_one_late,
        "before t": mirrored_before_t,
        "each pair once": each_pair_once,
        "ids as numbers": ids_as_numbers,
        "tokens so far": tokens_so_far,
        "without the last symbol": without_the_last_symbol,
        "complex": lambda ids, vocab_size: mirrored_by_fft(ids, vocab_size) + 0j,
        "nothing": lambda ids, vocab_size: None,
    },
    check.products_left: {
        "without g_K": left_with(keeps=lambda gate, K: gate < K),
        "one more": left_with(keeps=lambda gate, K: gate <= K + 1),
        "one product for each pair": left_with(count=lambda outer, inner: int(outer or inner)),
        "both or none": left_with(count=lambda outer, inner: 2 * (outer and inner)),
        "either is enough for both": left_with(count=lambda outer, inner: 2 * (outer or inner)),
        "the innermost first": left_with(order=lambda left: left[::-1]),
        "sorted": left_with(order=lambda left: sorted(left)),
        "cut on the other side": left_with(keeps=lambda gate, K: gate >= K),
        "missing in place of left": left_with(count=lambda outer, inner: 2 - outer - inner),
        "distance in place of the gate": lambda length, K: [2 * (length - 1 - 2 * j <= K) for j in range(length // 2)],
        "one number for each letter": lambda length, K: 2 * left_by_comparing(length, K),
        "all of them": lambda length, K: sum(left_by_comparing(length, K)),
        "from which K on": lambda length, K: length // 2 - 1,
        "as words": lambda length, K: [str(left) for left in left_by_comparing(length, K)],
        "nan": lambda length, K: [float("nan")] * (length // 2),
        "nothing": lambda length, K: None,
    },
    check.a_trap: {
        "a palindrome": lambda size: "a" * 2 * size,
        "a palindrome with a swap of equal letters": lambda size: "a" * size + "bb" + "a" * size,
        "an odd number of letters": lambda size: one_word_twice(size) + "a",
        "one wrong letter": one_replaced,
        "an odd distance": moved_by(3),
        "next to each other": moved_by(1),
        "two swaps": lambda size: 2 * "abcabc",
        "any words": lambda size: "abcd" * size + "efgh" * size,
        "two letters replaced": lambda size: "a" * (2 * size + 3) + "bab" + "a" * (2 * size),
        "the first word again": lambda size: 2 * ("a" * size + "b" + "a" * (2 * size)),
        "random letters": random_text,
        "a letter too short at the end": lambda size: one_letter_moved(max(1, size - 1)),
        "a letter too short at both ends": lambda size: two_letters_before_a_palindrome(max(1, size - 1)),
        "for smaller fragments": trap_for_smaller,
        "six letters for all": lambda size: "aabaab",
        "shorter than a fragment": lambda size: one_word_twice(1) if size < 5 else "",
        "capital letters": lambda size: one_word_twice(size).upper(),
        "with a question mark": lambda size: one_word_twice(size) + "?",
        "zeros and ones": lambda size: one_word_twice(size).replace("a", "0"),
        "letters in a list": lambda size: list(one_word_twice(size)),
        "bytes": lambda size: one_word_twice(size).encode(),
        "too long": lambda size: one_word_twice(30_000),
        "nothing": lambda size: None,
    },
    check.content_and_gate: {
        "whole text": word_with(everywhere, everywhere),
        "gate of the whole text": word_with(gate=everywhere),
        "content of the whole text": word_with(content=everywhere),
        "with the mark": word_with(with_the_mark, with_the_mark),
        "with the dots": word_with(with_the_dots, with_the_dots),
        "with the letters in front": word_with(with_the_letters_in_front, with_the_letters_in_front),
        "without the last letter": word_with(without_the_last_letter, without_the_last_letter),
        "a word ends at a dot only": word_with(needs_a_dot, needs_a_dot),
        "mark and dot are the largest ids": word_with(symbols_in_order, symbols_in_order),
        "the content for the gate": word_with(turn=lambda v, g: (v, v)),
        "each pair once": word_with(turn=lambda v, g: (v, g / 2)),
        "opposites everywhere": word_with(turn=lambda v, g: (v, 1 - v)),
        "all pairs": word_with(turn=lambda v, g: (v, v + g)),
        "equal less unequal": word_with(turn=lambda v, g: (v, v - g)),
        "without a channel": word_with(turn=lambda v, g: (v[1:], g[1:])),
        "moved to the beginning": moved_to_the_beginning,
        "ids as numbers": with_ids_as_numbers,
        "gates from the end": from_end_to_beginning,
        "zeros": word_with(turn=lambda v, g: (0 * v, g)),
        "channels last": changed(lambda v, g: (v.T, g.T)),
        "one channel without its dimension": changed(lambda v, g: (v[0], g[0])),
        "a shorter gate": changed(lambda v, g: (v, g[:, :-1])),
        "more channels in v": changed(lambda v, g: (torch.cat([v, v]), g)),
        "one gate for all channels": changed(lambda v, g: (v, g[:1])),
        "complex": changed(lambda v, g: (v, g.double() + 0j)),
        "nan": with_nan,
        "infinity": changed(lambda v, g: (v, g / 0)),
        "three tensors": changed(lambda v, g: (v, g, v)),
        "v alone": changed(lambda v, g: v),
        "the counts": changed(lambda v, g: (v.sum(0) * g.sum(0)).tolist()),
        "words": changed(lambda v, g: ("v", "g")),
        "nothing": lambda *text: None,
    },
}
REASONS = [
    (check.mirrored_pairs, "palindrome or not",
     "mirrored_pairs of ids [0, 1, 1], vocab_size=2: entry [2] should be 1, given 0; 1 of 3 differ"),
    (check.mirrored_pairs, "the whole text alone", "ids [0], vocab_size=1: expected shape (1,), given ()"),
    (check.mirrored_pairs, "around the end", "ids [1, 1], vocab_size=2: entry [0] should be 1, given 2"),
    (check.mirrored_pairs, "complex", "expected real numbers, given complex64"),
    (check.mirrored_pairs, "nothing", "expected a tensor, given a NoneType"),
    (check.products_left, "without g_K", "products_left(8, 5): letters 2 and 5 expected 2, given 1; g_K is kept, too"),
    (check.products_left, "one product for each pair",
     "products_left(8, 5): letters 2 and 5 expected 2, given 1; a pair meets in two products"),
    (check.products_left, "the innermost first",
     "products_left(8, 5): letters 0 and 7 expected 1, given 2; the outermost pair first"),
    (check.products_left, "both or none", "products_left(8, 5): letters 0 and 7 expected 1, given 0"),
    (check.products_left, "one number for each letter", "expected 4 numbers (letters 0 and 7, letters 1 and 6, "),
    (check.products_left, "all of them", "given a int"),
    (check.products_left, "as words", "letters 0 and 7 expected as a number, given a str"),
    (check.products_left, "nan", "letters 0 and 7 expected 1, given nan"),
    (check.a_trap, "a palindrome", "a_trap(1): expected a text that is no palindrome, given 'aa'"),
    (check.a_trap, "an odd number of letters",
     "a_trap(1): expected an even number of letters, given 7: 'aabaaba'"),
    (check.a_trap, "one wrong letter", "a_trap(1): expected the second word to be the first one reversed with two "
     "letters swapped, given 'aaa', and the first one reversed is 'aba': 1 position differs"),
    (check.a_trap, "two swaps", "given 'abcabc', and the first one reversed is 'cbacba': 4 positions differ"),
    (check.a_trap, "two letters replaced", "positions 0 and 2 differ, and not by a swap"),
    (check.a_trap, "an odd distance", "expected a swap over an even distance, given"),
    (check.a_trap, "random letters", "stands at position "),
    (check.a_trap, "for smaller fragments", "a_trap(9): expected every fragment of 9 letters to stand somewhere "
     "reversed, given 'aaaabaaaabaa', where 'aaabaaaab' stands at position 1 and 'baaaabaaa' nowhere"),
    (check.a_trap, "six letters for all", "a_trap(5): expected every fragment of 5 letters to stand somewhere "
     "reversed, given 'aabaab', where 'abaab' stands at position 1 and 'baaba' nowhere"),
    (check.a_trap, "shorter than a fragment", "expected a text with a fragment of that size, given ''"),
    (check.a_trap, "capital letters", "expected letters from a to z, given 'AABAAB' with 'A'"),
    (check.a_trap, "with a question mark", "expected letters from a to z, given 'aabaab?' with '?'"),
    (check.a_trap, "too long", "expected at most 100,000 letters, given 120,002"),
    (check.a_trap, "letters in a list", "expected a string, given a list"),
    (check.a_trap, "nothing", "expected a string, given a NoneType"),
    (check.content_and_gate, "whole text", ABC + "at t=1 expected 0, given 2; those are the pairs of the whole text"),
    (check.content_and_gate, "gate of the whole text", "both letters of a pair must stand in the word"),
    (check.content_and_gate, "content of the whole text", "both letters of a pair must stand in the word"),
    (check.content_and_gate, "with the mark", "the mark is no letter of the word"),
    (check.content_and_gate, "with the dots", "the dots are not in the word"),
    (check.content_and_gate, "with the letters in front", "a letter in front, ids [2, 3, 0, 1, 4, 4], "
     "vocab_size=5, mark=3, dot=4: at t=2 expected 0, given 2; the letters in front are not in the word"),
    (check.content_and_gate, "a word ends at a dot only", "no dots, ids"),
    (check.content_and_gate, "mark and dot are the largest ids", "the mark first and the dot second of the symbols"),
    (check.content_and_gate, "the content for the gate",
     ABC + "at t=2 expected 0, given 1; those are the equal pairs"),
    (check.content_and_gate, "each pair once",
     ABC + "at t=3 expected 2, given 1; each pair counts twice, because either letter can be the gate"),
    (check.content_and_gate, "all pairs", "those are all pairs, equal or not"),
    (check.content_and_gate, "without a channel", ABC + "at t=3 expected 2, given 1"),
    (check.content_and_gate, "moved to the beginning",
     "positions count from the beginning of the text, not of the word"),
    (check.content_and_gate, "channels last", ABC + "v expected with the shape (C, 7), given (7, 5)"),
    (check.content_and_gate, "a shorter gate", ABC + "g expected with the shape (C, 7), given (5, 6)"),
    (check.content_and_gate, "more channels in v", ABC + "expected as many channels in v as in g, given 10 and 5"),
    (check.content_and_gate, "complex", ABC + "g expected with real numbers, given complex128"),
    (check.content_and_gate, "nan", ABC + "v expected finite, given nan at [0, 0]"),
    (check.content_and_gate, "infinity", ABC + "g expected finite, given "),
    (check.content_and_gate, "three tensors", ABC + "expected two tensors, v and g, given a tuple of 3"),
    (check.content_and_gate, "v alone", ABC + "expected two tensors, v and g, given a Tensor"),
    (check.content_and_gate, "words", ABC + "v expected as a tensor, given a str"),
    (check.content_and_gate, "nothing", ABC + "expected two tensors, v and g, given a NoneType"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
