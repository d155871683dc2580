"""Write the typeface of the book's formulas: a part of TeX Gyre Termes Math, under a name of its own.

    pip install fonttools brotli
    python tools/math_font.py texgyretermes-math.otf

The whole typeface is GUST's (https://www.gust.org.pl/projects/e-foundry/tg-math; Debian's fonts-texgyre-math).  Its
licence asks that a changed copy has another name.  A formula with a character that is left out here is drawn with
another typeface, which a test of the pages finds; add the character and run this again.
"""

import argparse
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "book" / "_static" / "fonts" / "termes-math-part.woff2"
NAME = "Termes Math Part"
CHARACTERS = """
    20-7E A0 AF B1 B7 D7 F7 131 237 2C6 2C7 2D8-2DC 300-30C 332 338 391-3F6 2013 2014 2016 2020-2022 2026 2032-2034
    203E 2061-2064 20D7 2102 210B-2113 2115 211A-211D 2124 212C 2130-2133 2190-2195 21A6 21D0-21D5 2200-2213 2216-221E
    2223-222C 2234-2237 223C 2243-2248 2254 2260-2265 226A 226B 227A 227B 2282-228B 2291-229A 22A2-22A5 22C0-22C6
    22EE-22F1 2308-230B 239B-23AE 23DE 23DF 25A0 25A1 25CB 27E8 27E9 27F5-27FA 2A7D 2A7E 1D400-1D467 1D49C-1D4B5
    1D538-1D550 1D5A0-1D5D3 1D670-1D6A5 1D6A8-1D71B 1D7F6-1D7FF
"""
FEATURES = ["ssty", "dtls", "kern", "mark", "mkmk", "ccmp"]  # ssty draws primes and indices at their size


def code_points() -> set[int]:
    """Return the characters that the hexadecimal numbers and ranges of `CHARACTERS` name."""
    ranges = [[int(end, 16) for end in entry.split("-")] for entry in CHARACTERS.split()]
    return {point for ends in ranges for point in range(ends[0], ends[-1] + 1)}


def main() -> None:
    """Read the whole typeface, write the part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("typeface", type=Path, help="texgyretermes-math.otf")
    from fontTools import subset

    options = subset.Options(layout_features=FEATURES, hinting=False, flavor="woff2", drop_tables=["FFTM"])
    font = subset.load_font(parser.parse_args().typeface, options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=code_points())
    subsetter.subset(font)
    for record in font["name"].names:
        if record.nameID in (1, 3, 4, 6, 16):
            record.string = NAME.replace(" ", "") if record.nameID == 6 else NAME
    drawn = font["CFF "].cff
    drawn.fontNames, drawn[0].FullName, drawn[0].FamilyName = [NAME.replace(" ", "")], NAME, NAME
    subset.save_font(font, TARGET, options)
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
