"""Let a reader choose between a model and a table of tokens in a row, without knowing which wrote what.

    python tools/blind_test.py write --train shards --tokens 50_000_000 --held-out fineweb-validation.jsonl.xz
    python tools/blind_test.py score answers.txt --name micro_blind_test

The first command writes blind_test.md, twenty prompts of held-out text, each continued by both for 40 tokens drawn at
one temperature, in random order; and blind_test.key.json, which says which is which.  The reader, who has seen the
first file alone, writes a line such as `7 A` for each prompt.  The second command counts, and writes a record into the
book.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import add_record
import numpy as np
import torch

from caracal_book.measured import text_to_count, text_to_measure
from caracal_book.ngrams import KneserNey
from caracal_book.records import write_record
from caracal_book.rivals import load_model, weights_sha256
from caracal_min import Caracal
from caracal_min.tokenizer import Tokenizer

_WORDS = 32  # of a prompt
_ASKED = """\
# Which continuation is better?

Below are {count} beginnings of texts from the web. Each goes on in two ways, A and B, and breaks off in the middle. Two
programs wrote them; neither has seen how the text really went on. For each, choose the continuation that reads more
like something a person might have written after that beginning. Answer every one, also where both are poor, with a line
such as `7 A`.
"""


def prompts_of(texts: list[str], count: int) -> list[str]:
    """Return the first words of some texts, spread evenly over those that are longer."""
    found = [begin[0] for text in texts if (begin := re.match(rf"(?:\S+\s+){{{_WORDS - 1}}}\S+(?=\s)", text))]
    if len(found) < count:
        raise ValueError(f"{len(found)} held-out texts of more than {_WORDS} words; {count} are needed")
    return [found[i * len(found) // count] for i in range(count)]


def continuation(draw: Callable[[int], list[int]], tokenizer: Tokenizer, seed: int) -> str:
    """Return what `draw(seed)` gives as text; where a text ends in it, the draw of a later seed."""
    while tokenizer.end_of_text in (ids := draw(seed)):
        seed += 1000
    return " ".join(tokenizer.decode(ids).strip("\N{REPLACEMENT CHARACTER}").split())


def drawn_from_model(model: Caracal, ids: list[int], length: int, temperature: float, seed: int) -> list[int]:
    """Return `length` ids that the model draws after some ids."""
    (found,) = model.generate([ids], length, temperature=temperature, seed=seed)
    return found[len(ids):].tolist()


def drawn_from_table(table: KneserNey, ids: list[int], length: int, temperature: float, seed: int) -> list[int]:
    """Return `length` ids that the table draws after some ids."""
    draw, found = np.random.default_rng(seed), list(ids)
    for _ in range(length):
        probability = table.next_token(np.array(found)) ** (1 / temperature)
        found.append(int(draw.choice(len(probability), p=probability / probability.sum())))
    return found[len(ids):]


def write(options: argparse.Namespace) -> None:
    """Write the questions and the key."""
    model = load_model(options.model)
    tokenizer = model.require_tokenizer()
    held_out, data = text_to_measure(options.held_out, tokenizer, "all", 10**9)
    ends = np.flatnonzero(held_out == tokenizer.end_of_text)
    prompts = prompts_of([tokenizer.decode(ids.tolist()) for ids in np.split(held_out, ends + 1)], options.count)
    counted, what = text_to_count(options.train, tokenizer, count=options.tokens)
    table, order, rows = KneserNey(counted, tokenizer.vocab_size, options.longest), np.random.default_rng(0), []
    questions = [_ASKED.format(count=len(prompts))]
    for number, prompt in enumerate(prompts):
        ids = tokenizer.encode(prompt)
        texts = {name: continuation(lambda seed: draw(of, ids, options.length, options.temperature, seed),  # noqa: B023
                                    tokenizer, number)
                 for name, of, draw in (("model", model, drawn_from_model), ("table", table, drawn_from_table))}
        model_is = "AB"[order.integers(2)]
        shown = {model_is: texts["model"], "BA"["AB".index(model_is)]: texts["table"]}
        rows.append({"prompt": prompt, **texts, "model_is": model_is})
        questions.append(f"## {number + 1}\n\n**{' '.join(prompt.split())}** ...\n\nA. ... {shown['A']} ...\n\n"
                         f"B. ... {shown['B']} ...\n")
    key = {"model": options.model, "model_sha256": weights_sha256(options.model), "temperature": options.temperature,
           "length": options.length, "longest": options.longest, "counted": what, "data": data, "rows": rows}
    Path(f"{options.out}.md").write_text("\n".join(questions), encoding="utf-8")
    Path(f"{options.out}.key.json").write_text(json.dumps(key, indent=1) + "\n", encoding="utf-8")
    print(f"{options.out}.md, for the reader; {options.out}.key.json, for the score")


def answers_of(text: str, count: int) -> list[str]:
    """Return A or B for each question.

    Raises:
        ValueError: a question has no answer, or two.
    """
    found = re.findall(r"^\W*(\d+)\W+([ABab])\b", text, re.MULTILINE)
    answers = {int(number): letter.upper() for number, letter in found}
    if len(found) != count or sorted(answers) != [*range(1, count + 1)]:
        raise ValueError(f"{len(found)} answers for {count} questions; give one line such as '7 A' for each")
    return [answers[number] for number in range(1, count + 1)]


def score(options: argparse.Namespace, root: Path = add_record.ROOT) -> int:
    """Print how often the model was chosen, write the record, and return the number."""
    started = time.monotonic()
    key = json.loads(Path(f"{options.out}.key.json").read_text(encoding="utf-8"))
    answers = answers_of(options.answers.read_text(encoding="utf-8"), len(key["rows"]))
    rows = [row | {"answer": answer} for row, answer in zip(key.pop("rows"), answers, strict=True)]
    data, model_sha256 = key.pop("data"), key.pop("model_sha256")
    chosen = sum(row["answer"] == row["model_is"] for row in rows)
    print(f"{key['model']} was chosen in {chosen} of {len(rows)}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        write_record(path, "blind_test", key, {"model_sha256": model_sha256, "chosen": chosen, "rows": rows}, data,
                     time.monotonic() - started, torch.device("cpu"))
        print(add_record.add(path, options.name, root))
    return chosen


def main(given: list[str] | None = None) -> None:
    """Write the questions, or count the answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    steps = parser.add_subparsers(dest="step", required=True)
    writing, scoring = steps.add_parser("write"), steps.add_parser("score")
    for step in (writing, scoring):
        step.add_argument("--out", default="blind_test", help="beginning of the names of both files")
    writing.add_argument("--train", required=True, help="text that the model was trained on")
    writing.add_argument("--held-out", required=True)
    for name, default in (("model", "micro"), ("tokens", None), ("longest", 5), ("count", 20), ("length", 40),
                          ("temperature", 0.8)):
        writing.add_argument(f"--{name}", type=int if default is None else type(default), default=default)
    scoring.add_argument("answers", type=Path)
    scoring.add_argument("--name", default="micro_blind_test", help="of the record")
    options = parser.parse_args(given)
    try:
        write(options) if options.step == "write" else score(options)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
