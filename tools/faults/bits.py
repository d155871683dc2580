"""Bits flipped in files: on a disk, in a copy, on the way."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["flipped", "found"]


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    """Have one bit of a file flipped for a while; bit 0 is the lowest of the first byte."""
    place = bit // 8
    with open(path, "r+b") as file:
        def flip() -> None:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1 << bit % 8]))
            file.flush()

        flip()
        try:
            yield
        finally:
            flip()


def found(files: list[Path], read: Callable[[], object], count: int, seed: int) -> Iterator[str]:
    """Flip `count` random bits of some files, one at a time; yield "" for each that reading finds, else what it did.

    Args:
        files: each bit of all of them is drawn with the same probability.
        read: reads what the files belong to; found means that it raises ValueError in one line that names the file.
    """
    draw, sizes = random.Random(seed), [path.stat().st_size for path in files]
    for path in draw.choices(files, sizes, k=count):
        bit = draw.randrange(8 * path.stat().st_size)
        with flipped(path, bit):
            try:
                read()
                said = "it was read"
            except ValueError as error:
                said = str(error)
        yield "" if path.name in said and "\n" not in said else f"bit {bit} of {path}: {said!r}"
