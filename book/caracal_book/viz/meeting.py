"""The figure of investigation A: which tokens meet in one result of a causal convolution."""

from .figure import Figure

__all__ = ["meeting"]

_SHORTEST, _LONGEST = 4, 14


def meeting(text: str, t: int | None = None) -> Figure:
    """Show which letters of a text meet in r_t, the sum over j <= t of v_j g_{t-j}: those whose positions add up to t.

    An arc joins the letters j and t - j, thick and green where they are the same; bars show the share of such products
    in every r_t.  A full bar: the text up to t is a palindrome.  The reader moves t, changes letters and swaps two.

    Args:
        text: the letters, one a token, a to z; 4 to 14 to stay legible.
        t: the result that is chosen at the start; default the last.

    Raises:
        ValueError: another character, or a length or t out of range.

    Source: Caracal, Section 4.3.
    """
    if not (text.isascii() and text.isalpha() and text.islower()):
        raise ValueError(f"text={text!r}; give letters a to z")
    length = len(text)
    if not _SHORTEST <= length <= _LONGEST:
        raise ValueError(f"text={text!r} has {length} letters; give {_SHORTEST} to {_LONGEST}")
    t = length - 1 if t is None else t
    if not 0 <= t < length:
        raise ValueError(f"t={t}; for {length} letters give 0 to {length - 1}")
    equal = [sum(text[j] == text[s - j] for j in range(s + 1)) for s in range(length)]
    shares = ", ".join(f"{count} of {s + 1}" for s, count in enumerate(equal))
    alt = (f"The letters {text} in a row. Arcs join those whose positions add up to t = {t}, which meet in one sum: "
           f"{_products(equal[t], t)} join equal letters, so the text up to t is {'' if equal[t] > t else 'not '}a "
           f"palindrome. A bar for every t shows that share; in order, {shares}. A slider moves t; press a letter to "
           "change it.")
    return Figure("meeting", {"text": text, "t": t}, None, alt, state=("text", "t"))


def _products(equal: int, t: int) -> str:
    return f"{equal} of {t + 1} {'products' if t else 'product'}"
