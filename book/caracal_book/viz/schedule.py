"""The figure of chapter 10: which pairs the schedule of relaxed multiplication adds when a token arrives."""

from .figure import Figure

__all__ = ["pairs_by_time", "schedule"]


def schedule(length: int = 32, n: int = 12) -> Figure:
    """Show the pairs (j, i), j + i < length, of content j and gate i, and which of them are added after n tokens.

    The reader lets tokens arrive one by one, sees how full each result is and what each step's block costs.

    Args:
        length: tokens L of the text, 4 to 32 to stay legible.
        n: tokens that have arrived at the start, 1 to L.

    Raises:
        ValueError: length or n out of range.

    Source: the rule of `relaxed`, with blocks from one token on.
    """
    if not 4 <= length <= 32:
        raise ValueError(f"length={length}; give 4 to 32")
    if not 1 <= n <= length:
        raise ValueError(f"n={n} tokens of a text of {length}; give 1 to {length}")
    return Figure("schedule", {"length": length, "n": n}, None, _alt(length, n), state=("n",))


def pairs_by_time(length: int) -> dict[tuple[int, int], int]:
    """Run the schedule of `caracal_min.relaxed` with blocks from one token on, and note when each pair is added.

    Returns:
        for each pair of indices (i, j) with i + j < length, the number of tokens that have arrived by then; a pair with
        an index 0 is added by hand, when the token of the other arrives.
    """
    after = {}
    for n in range(1, length + 1):
        m = n & -n
        after[n - 1, 0] = after[0, n - 1] = n
        for new in range(n - m, n):
            for old in range(m if n == m else 2 * m):
                if n <= new + old < min(n + m, length):
                    after[new, old] = after[old, new] = n
    return after


def _block(n: int, length: int) -> str:
    """Say what is multiplied after n tokens, and for which results."""
    m = n & -n
    last = min(n + m, length) - 1
    if last < n:
        return "no block: the text ends here"
    product = f"v[0:{n}]*g[0:{n}]" if n == m else f"v[{n - m}:{n}]*g[0:{2 * m}] + g[{n - m}:{n}]*v[0:{2 * m}]"
    return f"{product} for " + (f"results {n} to {last}" if last > n else f"result {n}")


def _alt(length: int, n: int) -> str:
    lit = sum(k == n for k in pairs_by_time(length).values())
    return (f"A triangle of squares, one for each pair of a content index and a gate index that add up to less than "
            f"{length}. After {n} tokens, {lit} pairs are added: {_block(n, length)}. The anti-diagonal of result "
            f"{n - 1} is outlined, and all its pairs have been added. Buttons and a slider let tokens arrive; below, "
            "how full each result is and what each step costs.")
