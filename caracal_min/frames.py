"""How many points a transform has, and the frames of a long text under a short gate.

A gate of K coefficients, K < L, needs no transform as long as the text.  Time is cut into frames: K - 1 inputs, which
the frame before had too, and the inputs of the frame's own results.  The wrap-around of their product falls on the
results of the former, which are not read.  That is overlap-save (Stockham 1966); it takes O(L log K) operations.
"""

__all__ = ["Frames", "fast_length", "fft_points", "overlapping"]

Frames = list[tuple[int, int, int]]
_LEAST_FRAME = 2048  # points of a frame under a short gate: with fewer, the frames are too many


def fft_points(length: int, taps: int) -> int:
    """Return the number of FFT points N for a content of `length` and a gate of `taps` <= `length` coefficients."""
    return fast_length(min(length + taps - 1, max(4 * taps, _LEAST_FRAME)))


def overlapping(length: int, taps: int) -> tuple[int, Frames]:
    """Return N and the frames of overlap-save, as (first input, first result, end of both); a long gate has one."""
    points = fft_points(length, taps)
    own = points - taps + 1
    return points, [(max(0, t - taps + 1), t, min(t + own, length)) for t in range(0, length, own)]


def fast_length(minimum: int) -> int:
    """Return the smallest 2^a 3^b 5^c >= minimum, a length that every FFT library handles well."""
    best = 1 << (minimum - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            candidate = three << max(0, (-(-minimum // three) - 1).bit_length())
            best = min(best, candidate)
            three *= 3
        five *= 5
    return best
