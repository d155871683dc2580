"""Mix the text that micro is trained on: documents of FineWeb and of Wikipedia in random order, none that is held out.

    python tools/micro_text.py --fineweb fineweb-legal-sample.jsonl.xz --wikipedia wikipedia-00000-of-00002.jsonl.xz \\
        --held-out fineweb-validation.jsonl.xz --out micro.jsonl

writes micro.jsonl, a line for each document, and micro.json, which says what it was mixed from: equal files give equal
bytes.  `python -m caracal_min tokenize --source micro.jsonl --tokenizer gpt2:4096 --out shards` makes the shards.
"""

import argparse
import json
import random
from pathlib import Path

from caracal_min.data import documents
from caracal_min.data.sources import text_digest
from caracal_min.files import file_sha256, writing


def mixed(fineweb: Path, wikipedia: Path, held_out: Path, characters: int,
          times: int) -> tuple[list[str], list[dict]]:
    """Return the documents in the order of training, and what a card says of each source.

    Args:
        fineweb, wikipedia: files of documents; of Wikipedia a random part is taken.
        held_out: documents of which none is taken, by the hash of their text.
        characters: of Wikipedia, up to the document that goes beyond.
        times: how often each document of FineWeb comes.
    """
    held = {text_digest(text) for text in documents(str(held_out))}
    web, articles = ([text for text in documents(str(path)) if text_digest(text) not in held]
                     for path in (fineweb, wikipedia))
    draw, kept, length = random.Random(0), [], 0
    draw.shuffle(articles)
    for text in articles:
        if length > characters:
            break
        kept.append(text)
        length += len(text)
    sources = [{"name": path.name, "sha256": file_sha256(path), "documents": len(texts),
                "characters": sum(map(len, texts)), "times": repeated}
               for path, texts, repeated in ((fineweb, web, times), (wikipedia, kept, 1))]
    texts = times * web + kept
    draw.shuffle(texts)
    return texts, sources


def main(given: list[str] | None = None) -> None:
    """Write the mixture, and what it was mixed from."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("fineweb", "wikipedia", "held-out", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--characters", type=int, default=140_000_000, help="of Wikipedia (default: 140_000_000)")
    parser.add_argument("--times", type=int, default=2, help="how often FineWeb's documents come (default: 2)")
    options = parser.parse_args(given)
    texts, sources = mixed(options.fineweb, options.wikipedia, options.held_out, options.characters, options.times)
    with writing(options.out) as partial, open(partial, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    said = {"seed": 0, "sources": sources, "sha256": file_sha256(options.out)}
    with writing(options.out.with_suffix(".json")) as partial:
        partial.write_text(json.dumps(said, indent=1) + "\n")
    for source in sources:
        print(f"{source['name']}: {source['documents']:,} documents, {source['characters']:,} characters, "
              f"{source['times']} times")


if __name__ == "__main__":
    main()
