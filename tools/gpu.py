"""Minutes on a GPU: what to measure there first, and what to train, each a line of one file.

    python tools/gpu.py --out runs/gpu                       # all rows that measure
    python tools/gpu.py --pack ../shared/data/corpus         # once, where there is text: tokens to carry there
    python tools/gpu.py --out runs/gpu --rows caracal llama  # train both for the same minutes, on the same text

Nothing is needed beside PyTorch and what `caracal_min` always needs, and no network; without transformers, rivals are
variants of Caracal.  Rows stand in the order of what they decide.  Each is a line of OUT/rows.jsonl as soon as it is
there.  A row that fails leaves its error instead, and one that needs more seconds than are left of --limit is skipped.

A training also leaves its record, and Caracal its weights in eight bits, cut into files of 16 MiB: `cat` joins them
for `torch.load`.  With all rows OUT has seven files, because a machine that is lent may hand back no more than eight.
The run itself stays in RUNS, and the same command resumes it.

Back home `tools/add_record.py` takes OUT/rows.jsonl, and the record of a training, into the book.  The tests that need
a GPU are `pytest -k cuda tests/unit/test_devices.py tests/unit/test_kernel.py`.  `--rehearse` does all of it at the
size of nano, in seconds and without a GPU.
"""

import argparse
import io
import json
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch

from caracal_book.benchmark import BenchmarkConfig, run_benchmark
from caracal_book.benchmark.measure import Differentiated, in_turns, time_by_kind, traced
from caracal_book.benchmark.steps import training_steps
from caracal_book.experiments.ablated import surgery
from caracal_book.fineweb import HELD_OUT
from caracal_book.numbers.roofline import RooflineConfig, measured_device, run_roofline
from caracal_book.records import code, machine, record_of_run, save_record
from caracal_book.rivals import make_model
from caracal_book.web_export import Rows, quantize_rows
from caracal_min import spectral
from caracal_min.attention import sliding_window_attention
from caracal_min.config import PRESETS
from caracal_min.convolution import causal_conv_fft
from caracal_min.data import load_corpus, load_tokenizer, make_tokenizer, save_tokenizer, tokenize
from caracal_min.data.batches import sequential_windows
from caracal_min.evaluation import bits_per_byte, bytes_of_targets, loss_by_context_length, token_losses
from caracal_min.model import BLOCK_OPTIONS
from caracal_min.precision import autocast, find_device, resolve_precision
from caracal_min.training import TrainConfig, Trainer

RIVALS = ("llama",) if find_spec("transformers") else ("no-swa",)
PART = 2**24  # bytes of a file that a machine hands back


@dataclass(frozen=True)
class Plan:
    """How large everything is."""

    preset: str = "tiny"
    lengths: tuple[int, ...] = (512, 2048, 8192)
    contexts: tuple[int, ...] = (1024, 16384)
    tokens: int = 32_768  # of a batch that is timed
    sequences: tuple[int, ...] = (32, 128)  # of a step of the Trainer
    compile: str = "blocks"
    repeats: int = 5
    steps: int = 10**9  # of a training, which minutes end
    held_out: int = 262_144  # tokens


NANO = Plan("nano", (32, 64), (40, 64), 128, (2,), "no", 1, 4, 1024)


class Row(NamedTuple):
    """A line of the table."""

    name: str
    seconds: float
    """Without which it is not begun."""
    run: Callable[[], object]


def measurements(plan: Plan, device: str) -> Iterator[Row]:
    """Yield what measures, the most decisive first."""
    short, *others, long = plan.lengths
    settings = dict(preset=plan.preset, compile=plan.compile, repeats=plan.repeats, device=device, tokens=plan.tokens)

    def benchmark(group, **changes):
        return lambda: _listed(run_benchmark(BenchmarkConfig(rows=(group,), **settings | changes)))

    def steps(length):
        return _listed(run_roofline(RooflineConfig(lengths=(length,), against=RIVALS, **settings)))

    def ratio(length):
        return Row(f"ratio_{length}", 90, lambda: by_each_convolution(device, lambda: steps(length)))

    yield Row("errors", 40, lambda: by_each_convolution(device, partial(errors, plan, device)))
    yield Row("operator", 20, lambda: by_each_convolution(device, partial(operator, plan, device)))
    yield Row("rates", 10, lambda: measured_device(device)._asdict())
    yield from map(ratio, (short, long))
    for length in (short, long):
        config = BenchmarkConfig(against=RIVALS, **settings)
        yield Row(f"profile_{length}", 50, partial(profile, config, length))
    yield Row(f"own_options_{short}", 60, lambda: with_own_options(lambda: steps(short)))
    for n in plan.sequences:
        yield Row(f"trainer_{n}", 40, benchmark("trainer", lengths=(short,), tokens=n * short))
    yield Row("windows", 30, partial(windows, plan, device))
    yield Row("decoding", 50, benchmark("generation", contexts=plan.contexts))
    yield from map(ratio, others)


def by_each_convolution(device: str, measure: Callable) -> dict[str, object]:
    """Measure with the convolution by FFT and, where it runs, by the kernel."""
    longest = {"FFT": 0, "kernel": spectral.KERNEL_TESTED} if device == "cuda" else {"FFT": 0}
    found = {}
    for name, tokens in longest.items():
        with mock.patch.dict(spectral.KERNEL_LENGTH, {device: tokens}):
            found[name] = measure()
    return found


def with_own_options(measure: Callable) -> object:
    """Measure with Inductor's own options in place of those that `caracal_min` gives it for blocks."""
    with mock.patch.dict(BLOCK_OPTIONS, clear=True):
        return measure()


def errors(plan: Plan, device: str) -> dict[str, list[float]]:
    """Return the errors of r, dv and dg, relative to the operator in float64 on the CPU."""
    found = {}
    for length in plan.lengths:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            v, g, dr = torch.randn(3, 4, 64, length, dtype=torch.float64).to(dtype)
            results = []
            for to in (torch.device(device), torch.float64):
                inputs = [x.to(to) for x in (v, g)]
                call = Differentiated(causal_conv_fft, inputs, dr.to(to))
                results.append((call.forward(), *call()))
            pairs = [(a.double().cpu(), b) for a, b in zip(*results, strict=True)]
            found[f"{length}, {dtype}"] = [((a - b).norm() / b.norm()).item() for a, b in pairs]
    return found


def operator(plan: Plan, device: str) -> dict[int, float]:
    """Return the milliseconds of the operator, forward and backward, on streams that lie in memory as in training."""
    width, dtype, found = PRESETS[plan.preset].d_model, resolve_precision("auto", device), {}
    for length in plan.lengths:
        shape = (3, width, plan.tokens // length, length)
        v, g, dr = torch.randn(shape, device=device, dtype=dtype).transpose(1, 2)
        (found[length],) = in_turns([Differentiated(causal_conv_fft, [v, g], dr)], plan.repeats)
    return found


def profile(config: BenchmarkConfig, length: int) -> dict[str, dict]:
    """Return for each model what a training step is spent on, and the table of its kernels."""
    found = {}
    for name, step in training_steps(config, length).items():
        (whole,) = in_turns([step], config.repeats)
        events = traced(step)
        sort_by = "self_device_time_total" if config.device == "cuda" else "self_cpu_time_total"
        found[name] = {"step": whole, "kinds": time_by_kind(events),
                       "table": events.table(sort_by=sort_by, row_limit=100, max_name_column_width=100)}
    return found


def windows(plan: Plan, device: str) -> dict[str, object]:
    """Return the milliseconds of window attention, forward and backward, by each backend, compiled as a step is."""
    size, dtype, found = PRESETS[plan.preset], resolve_precision("auto", device), {}
    attend = sliding_window_attention
    if plan.compile != "no":
        attend = torch.compile(attend, dynamic=False)
    for length in plan.lengths:
        shape = (4, plan.tokens // length, size.n_heads, length, size.d_model // size.n_heads)
        *qkv, dy = torch.randn(shape, device=device, dtype=dtype)
        for backend in ("blocked", "flex", "flash") if device == "cuda" else ("blocked",):
            call = partial(attend, window=size.window_size, backend=backend)
            try:
                (found[f"{backend}, {length}"],) = in_turns([Differentiated(call, qkv, dy)], plan.repeats)
            except Exception as error:  # flash-attn is not installed, say
                found[f"{backend}, {length}"] = repr(error)[:300]
    return found


def trainings(plan: Plan, options: argparse.Namespace) -> Iterator[Row]:
    """Yield what trains: Caracal, and a rival of the same size on the same text and minutes."""
    for name in ("caracal", *RIVALS):
        yield Row(name, 60 * options.minutes + 60, partial(trained, name, plan, options))


def trained(name: str, plan: Plan, options: argparse.Namespace) -> dict:
    """Train a model, or resume it; keep its record, and the weights of Caracal; evaluate it on held-out text."""
    started, sequences = code(), plan.sequences[0]
    corpus = load_corpus(str(options.data), load_tokenizer(options.data / "tokenizer"), validation=str(HELD_OUT))
    config = TrainConfig.for_preset(
        plan.preset, data=str(options.data), validation=str(HELD_OUT), out=options.runs / name, minutes=options.minutes,
        tokens=plan.steps * sequences * plan.lengths[0], context=plan.lengths[0], batch_size=sequences,
        micro_batch_size=sequences, precision="auto", compile=plan.compile, device=options.device, eval_every=500,
        progress=False, checkpoint_minutes=2.0)
    torch.manual_seed(config.seed)
    kind = {"architecture": name} if name in ("caracal", "llama") else {"variant": name}
    model = make_model(preset=plan.preset, vocab_size=corpus.vocab_size, context=config.context, **kind)
    with Trainer(config, corpus, model) as trainer:
        trainer.run()
    save_record(record_of_run(config.out, started), options.out / f"{name}.json")
    if name == "caracal":
        stored = io.BytesIO()
        small = quantize_rows(model.state_dict())
        torch.save({key: tuple(x) if isinstance(x, Rows) else x for key, x in small.items()}, stored)
        data = stored.getvalue()
        for start in range(0, len(data), PART):
            (options.out / f"weights.{start // PART}").write_bytes(data[start:start + PART])
    return evaluated(model, corpus, config, plan, options.device)


def evaluated(model: torch.nn.Module, corpus, config: TrainConfig, plan: Plan, device: str) -> dict:
    """Measure a model on held-out text, by position and by length, and take the gates of a Caracal apart."""
    tokens = corpus.validation[:plan.held_out + 1]
    pairs = sequential_windows(tokens, config.context)
    multiples = [m for m in (1, 2, 4, 8, 16) if m * config.context < len(tokens)]
    with autocast(device, resolve_precision("auto", device)):
        losses = token_losses(model, pairs).double()
        by_length = loss_by_context_length(model, tokens, config.context, multiples)
        own = hasattr(model, "require_tokenizer")
        apart = surgery(model, pairs[:128], (0, 4, 32)) if own else ()
    loss, length = losses.mean().item(), bytes_of_targets(pairs, corpus.tokenizer)
    return {"loss": loss, "bits_per_byte": bits_per_byte(loss, losses.numel(), length), "tokens": losses.numel(),
            "loss_by_position": losses.mean(0).tolist(), "loss_by_context_length": by_length,
            "surgery": _listed(apart)}


def pack(plan: Plan, options: argparse.Namespace) -> None:
    """Write token shards and their tokenizer; without a network, TIKTOKEN_CACHE_DIR has GPT-2's."""
    tokenizer = make_tokenizer(TrainConfig.for_preset(plan.preset).tokenizer)
    tokenize(options.pack, options.data, tokenizer, limit_tokens=options.pack_tokens, progress=False)
    save_tokenizer(tokenizer, options.data / "tokenizer")


def carry_out(rows: list[Row], options: argparse.Namespace) -> None:
    """Run the rows that the time allows; a failed one leaves its error."""
    began = time.monotonic()
    for row in rows:
        started = time.monotonic()
        left = options.limit - (started - began)
        if left < row.seconds:
            print(f"-- {row.name} needs {row.seconds:.0f} s, and {left:.0f} are left", flush=True)
            continue
        try:
            results = row.run()
        except Exception:
            traceback.print_exc()
            results = {"failed": traceback.format_exc()[-2000:]}
        line = {"row": row.name, "results": results, "seconds": time.monotonic() - started, "code": code(),
                "machine": machine(torch.device(options.device))}
        with (options.out / "rows.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"-- {row.name}, {line['seconds']:.0f} s: {json.dumps(results)[:800]}", flush=True)


def main(given: list[str] | None = None) -> None:
    """Pack text, or carry out rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default, meaning in (
            ("out", Path("runs/gpu"), "folder of what comes back"), ("runs", Path("runs"), "folder of trainings"),
            ("data", Path("packed"), "folder of packed text"), ("limit", 540.0, "seconds of this call"),
            ("minutes", 3.0, "of each training"), ("pack", "", "text to pack: a file, or a folder of files"),
            ("pack-tokens", 15_000_000, "to pack"), ("device", "auto", "auto, cpu, cuda")):
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{meaning} (default: {default})")
    parser.add_argument("--rows", nargs="+", default=[], help="names of rows (default: all that measure)")
    parser.add_argument("--rehearse", action="store_true", help="at the size of nano")
    options = parser.parse_args(given)
    plan = NANO if options.rehearse else Plan()
    options.device = find_device(options.device).type
    if options.pack:
        return pack(plan, options)
    options.out.mkdir(parents=True, exist_ok=True)
    measuring = list(measurements(plan, options.device))
    rows = {row.name: row for row in (*measuring, *trainings(plan, options))}
    carry_out([rows[name] for name in options.rows] or measuring, options)


def _listed(rows) -> list[dict]:
    return [asdict(row) for row in rows]


if __name__ == "__main__":
    main()
