"""The card of micro, from its records: `tools/ship_micro.py` writes it beside the weights."""

import re

_CARD = """\
---
library_name: caracal_min
pipeline_tag: text-generation
language: en
license: mit
datasets: [HuggingFaceFW/fineweb, wikipedia]
---
# micro

A Caracal language model of {parameters:,} parameters, trained on {cores} CPU cores in {minutes:.0f} minutes, so that
there is one to hold, to take apart and to compare with. It has learnt how English sentences run, and little of what
they are about: nothing that it states can be relied on.

    from caracal_min import Caracal
    model = Caracal.from_pretrained("micro")
    print(model.generate_text("The history of", 60, temperature=0.8))

`python -m caracal_min sample micro --prompt "The history of"` does the same from a terminal, and
`AutoModelForCausalLM` of `transformers` loads this folder after `import caracal_min.hf`.

| | |
|---|---|
| model | {layers} |
| tokens | {vocab_size:,}: GPT-2's first {ids:,} and an end of text; {bytes_per_token:.2f} bytes of held-out text each |
| weights | bfloat16, {megabytes:.1f} MB |
| architecture | Gan et al., "Caracal: Causal Architecture via Spectral Mixing", ICML 2026 |

## What it was trained on

{mixture}

Documents of all sources were shuffled together. None of them is in the held-out text, by the hash of its text, and one
in 20, by the same hash, was left out as well. The run read {seen:,} tokens, {epochs:.2f} times the {train_tokens:,} of
its text.

## How

| | |
|---|---|
{recipe}

`record.json` is the record of the run: command, code, machines, data, curve.

## How good it is

On {tokens:,} tokens ({bytes:,} bytes) of held-out FineWeb, in windows of {context} tokens, in float32:

| | nats a token | bits a byte |
|---|---|---|
| **micro** | **{loss:.3f}** | **{bits:.3f}** |
{tables}

The tables are interpolated Kneser-Ney, counted in {counted:,} tokens of the training text, as many as micro has read;
micro needs {below:.3f} bits a byte less than the best of them. Counted in {once:,} tokens of the same sources, no
document twice, the best needs {once_bits:.3f}: {below_once:.3f} more than micro.
{blind}
Its matrices rounded to eight bits, one scale per row, cost {eight_bits:+.4f} bits a byte.

Loss by the length of the text that it sees, in nats a token on the same tokens. It was trained on {context} tokens
with a gate at every token, and in longer texts the sums of its Fourier layers grow. Therefore its configuration cuts
the gate after {context} tokens. This changes no logit up to there, and all other numbers on this page were measured
within that length. `Caracal.from_pretrained("micro", gate_length=None)` is the model as trained:

| tokens | {lengths} |
|---|{rule}|
| `gate_length={context}`, as it comes | {cut} |
| `gate_length=None`, as trained | {whole} |

What the loss owes to its parts, on {surgery_tokens:,} tokens of the same text:

| without, or instead | change in nats a token |
|---|---|
{ablations}
{twins}
## Ten samples

Temperature {temperature}, {max_new_tokens} tokens, seeds 0 to {last_seed}, the first draw of each, none left out.

{samples}

## Licences

The weights are under the MIT licence, as the code. {licences} The vocabulary is a part of GPT-2's, under its modified
MIT licence.
"""
_TWINS = """
## Beside its twins

Each was trained by the same recipe on {tokens:,} tokens of the same sources, in one run, and measured on the first
{windows} windows of the held-out text. The two twins have the best of three learning rates on a tenth of the tokens;
micro's rate was chosen before, and on a tenth {best:g} was better for it by {better:.2f} nats.

{table}
"""
_NAMES = {"micro": "micro", "micro_seed1": "micro, another seed, on a GPU",
          "local": "without the long convolution (`gate_length=1`), on a GPU",
          "llama": "Llama of `transformers`, on a GPU"}
_SOURCES = {  # by what the name of its file begins with
    "fineweb": ("FineWeb", "ODC-By 1.0",
                "FineWeb (Penedo et al., 2024) is a filtered part of Common Crawl, whose terms of use apply to it."),
    "wikipedia": ("English Wikipedia of 2015", "CC BY-SA 3.0", "Wikipedia is by its contributors."),
}
_TIMES = {1: "once", 2: "twice"}
_SPECIAL = re.compile(r"([\\`*_<>#|\[\]])")  # of Markdown
_RECIPE = {"optimizer": "optimizer of the matrices", "learning_rate": "largest learning rate",
           "warmup": "warm-up, as a part of the run", "final_fraction": "last learning rate, as a part of the largest",
           "weight_decay": "weight decay", "clip": "largest norm of the gradient", "context": "tokens a window",
           "batch_size": "windows a step", "seed": "seed"}


def card(record: dict, size: int, evaluation: dict, surgery: dict, counts: dict, counts_once: dict,
         blind_test: dict | None = None, twins: dict | None = None) -> str:
    """Return the text of the card.

    Args:
        record: of the run, with what `ship_micro` has added.
        size: of the file of weights, in bytes.
        evaluation, surgery, counts, counts_once, blind_test: records of the model, as `ship_micro` has measured it.
        twins: record of the runs that it is compared with.
    """
    trained, found, cut = record["results"], evaluation["results"], surgery["results"]
    shape, mixture = trained["model"], trained["shipped"]["mixture"]["sources"]
    every = shape["fourier_per_attention"]
    attention = [] if every is None else [str(i + 1) for i in range(every, shape["n_layers"], every + 1)]
    layers = (f"width {shape['d_model']}, {shape['n_layers']} layers of {shape['n_heads']} heads: attention to the "
              f"last {shape['window_size']} tokens in {' and '.join(attention) or 'none'}, Fourier layers in the "
              f"others, whose gate ends after {record['config']['context']} tokens; no positional encoding")
    lengths = cut["loss_by_length"]
    bits = counts["results"]["bits_per_byte"]
    once_bits = min(counts_once["results"]["bits_per_byte"].values())
    rows = {row["operation"]: row for row in cut["rows"]}
    machine = record["machine"]
    recipe = {what: record["config"][name] for name, what in _RECIPE.items()}
    recipe |= {"steps": f"{trained['steps']:,}", "matrix products in": trained["precision"],
               "machine": f"{machine['processor']}, {trained['processes']} processes",
               "PyTorch": machine["versions"]["torch"],
               "code": f"commit {record['code']['commit'][:7]}"}
    blind = ""
    if blind_test is not None:
        how, rows_of = blind_test["config"], blind_test["results"]["rows"]
        blind = ("\nA reader who did not know which was which preferred micro's continuation to that of the table of "
                 f"{how['longest']} tokens for {blind_test['results']['chosen']} of {len(rows_of)} held-out prompts "
                 f"({how['length']} tokens, temperature {how['temperature']}).\n")
    beside = "" if twins is None else _beside(
        {row["name"]: row for row in twins["results"]["rows"]}, record["config"]["learning_rate"])
    sources = [(source, *_about(source["name"])) for source in mixture]
    return _CARD.format(
        parameters=trained["parameters"], cores=trained["processes"] * machine["threads"],
        minutes=record["seconds"] / 60, layers=layers, vocab_size=shape["vocab_size"], ids=shape["vocab_size"] - 1,
        bytes_per_token=found["bytes"] / found["tokens"], megabytes=size / 1e6,
        mixture=_table(("source", "documents", "characters", "in the text", "licence"), [
            (what, f"{source['documents']:,}", f"{source['characters']:,}", _TIMES[source["times"]], licence)
            for source, what, licence, _ in sources]),
        seen=trained["tokens"], epochs=trained["epochs"], train_tokens=record["data"]["train_tokens"],
        recipe="\n".join(f"| {what} | {value} |" for what, value in recipe.items()),
        tokens=found["tokens"], bytes=found["bytes"], context=record["config"]["context"], loss=found["loss"],
        bits=found["bits_per_byte"],
        tables="\n".join(f"| {name} | {loss:.3f} | {bits[name]:.3f} |"
                         for name, loss in counts["results"]["losses"].items()),
        counted=counts["results"]["counted"]["tokens"], below=min(bits.values()) - found["bits_per_byte"], blind=blind,
        eight_bits=rows["matrices of eight bits"]["change_in_bits_per_byte"],
        lengths=" | ".join(lengths["whole"]), rule="|".join("---" for _ in lengths["whole"]),
        once=counts_once["results"]["counted"]["tokens"], once_bits=once_bits,
        below_once=once_bits - found["bits_per_byte"],
        whole=" | ".join(f"{loss:.3f}" for loss in lengths["whole"].values()),
        cut=" | ".join(f"{loss:.3f}" for loss in lengths["gate cut at the context"].values()),
        surgery_tokens=cut["tokens"],
        ablations="\n".join(f"| {name} | {row['change']:+.3f} ± {row['error']:.3f} |" for name, row in rows.items()
                            if name != "whole"), twins=beside,
        **found["sampling"], last_seed=found["samples"][-1]["seed"],
        samples="\n\n".join(f"> **{sample['prompt']}**{_plain(sample['text'].removeprefix(sample['prompt']))}"
                            for sample in found["samples"]),
        licences=" ".join(f"{what} is under {licence}. {more}" for _, what, licence, more in sources))


def _beside(rows: dict[str, dict], own_rate: float) -> str:
    """Return the section on the twins; the rows say where they differ from a run with micro's rate."""
    def rate(row: dict) -> float:
        return row["changed"].get("learning_rate", own_rate)

    whole = rows["micro"]["tokens"]
    short = [row for name, row in rows.items() if name.startswith("micro_") and row["tokens"] < whole]
    best, own = min(short, key=lambda row: row["loss"]), next(row for row in short if rate(row) == own_rate)
    table = _table(("", "parameters", "learning rate", "nats a token", "bits a byte"), [
        (what, f"{row['parameters']:,}", f"{rate(row):g}", f"{row['loss']:.3f}", f"{row['bits_per_byte']:.3f}")
        for what, row in ((what, rows[name]) for name, what in _NAMES.items())])
    return _TWINS.format(tokens=rows["local"]["tokens"], windows=rows["local"]["windows"], best=rate(best),
                         better=own["loss"] - best["loss"], table=table)


def _plain(text: str) -> str:
    """Return a text in one line, as Markdown shows it."""
    return _SPECIAL.sub(r"\\\1", re.sub(r"\s+", " ", text)).rstrip()


def _about(name: str) -> tuple[str, str, str]:
    return next(about for begin, about in _SOURCES.items() if name.startswith(begin))


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))
