"""A slice of FineWeb for machines without a network: two files of documents, compressed lines of JSON::

    TRAIN      5 MB of text, the documents of a sample that have least to do with law
    HELD_OUT   300 documents in a row, on which micro and the recorded Tiny are measured; none is in TRAIN

FineWeb (Penedo et al. 2024, https://huggingface.co/datasets/HuggingFaceFW/fineweb) is under the Open Data Commons
Attribution Licence 1.0 (ODC-By, https://opendatacommons.org/licenses/by/1-0/).  It is a filtered part of Common Crawl,
whose terms of use (https://commoncrawl.org/terms-of-use) apply to it.  `tools/fineweb_slice.py` cut the slice.
"""

from pathlib import Path

__all__ = ["HELD_OUT", "TRAIN"]

TRAIN, HELD_OUT = (Path(__file__).with_name(name) for name in ("train.jsonl.xz", "held_out.jsonl.xz"))
