"""What `gpu_runs` does on a GPU: a row for each measurement and each run, in stages."""

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch
import tune as ways

from caracal_book.benchmark import BenchmarkConfig, run_benchmark
from caracal_book.experiments.ablated import surgery
from caracal_book.fineweb import HELD_OUT
from caracal_book.numbers.roofline import RooflineConfig, measured_device, run_roofline
from caracal_book.records import code, record_of_run, save_record
from caracal_book.rivals import load_model
from caracal_min import spectral
from caracal_min.convolution import causal_conv_fft
from caracal_min.data import Corpus, load_corpus, load_tokenizer
from caracal_min.data.batches import sequential_windows
from caracal_min.evaluation import bits_per_byte, bytes_of_targets, loss_by_context_length, token_losses
from caracal_min.precision import autocast, resolve_precision
from caracal_min.training import TrainConfig, Trainer

MARGIN = 25  # seconds that a run which is stopped has for its checkpoint


@dataclass(frozen=True)
class Plan:  # how large everything is
    tiny: str = "tiny"
    micro: str = "micro"
    lengths: tuple[int, ...] = (512, 2048, 8192)
    convolutions: tuple[int, ...] = (512, 1024, 2048, 4096)
    tokens: int = 32_768  # of a batch that is timed
    repeats: int = 5
    compiled: str = "blocks"
    minutes: float = 7.0  # of training Tiny
    few_minutes: float = 2.0  # of training micro
    batch_size: int = 32  # a run of minutes needs many steps
    at_once: int = 64  # sequences per forward pass
    ablation_tokens: int = 40_000_000
    held_out_tokens: int = 262_144
    windows: int = 256  # of a validation while training
    tests: str = "tests/unit/test_devices.py"


NANO = Plan("nano", "nano", (32,), (32,), 64, 1, "no", 0.02, 0.02, 4, 4, 1024, 1024, 4,
            "tests/unit/test_loss.py::test_gradcheck")


class Row(NamedTuple):  # one measurement or one run
    name: str
    minutes: float  # without which it is not begun
    run: Callable[[], dict]


def check(plan: Plan, options: argparse.Namespace) -> Iterator[Row]:
    """The machine's rates, the convolution against float64, the tests of devices."""
    yield Row("rates", 1, lambda: measured_device(options.device)._asdict())
    yield Row("errors", 1, lambda: {f"{name}, {dtype}, {n}": _errors(context, n, dtype, options.device)
                                    for n in plan.convolutions
                                    for name, context in ways.implementations(options.device, n).items()
                                    for dtype in (torch.float32, torch.bfloat16, torch.float16)})
    yield Row("device_tests", 3, lambda: _pytest(plan.tests, options))


def tune(plan: Plan, options: argparse.Namespace) -> Iterator[Row]:
    """What `tools/tune.py` times, a row each; and a step by kind of work."""
    def timed(group: str, minutes: float, name: object = "", **changes: object) -> Row:
        given = dict(only=[group], preset=plan.tiny, length=plan.lengths[0], tokens=plan.tokens, repeats=plan.repeats,
                     device=options.device)
        return Row(f"tune_{group}{name and f'_{name}'}", minutes,
                   lambda: ways.tune(argparse.Namespace(**given | changes)))

    yield timed("vocabulary", 1)
    for length in plan.convolutions:
        yield timed("convolution", 1, length, length=length)
    for kind, parts in (("blocks", [1, 2]), ("no", [1]), ("model", [1])):
        yield timed("step", 4 if kind == "model" else 2, kind, tokens=2 * plan.tokens, compile=[kind], parts=parts)
    yield _benchmark("profile", plan, plan.lengths[0], options)
    yield from (timed(group, 2) for group in ("spectra", "loss", "short"))


def measure(plan: Plan, options: argparse.Namespace) -> Iterator[Row]:
    """Operator, layer and step at every length; a step beside that of Llama and beside its count."""
    yield from (_benchmark(group, plan, length, options)
                for group in ("convolution", "layer", "roofline", "trainer") for length in plan.lengths)


def train(plan: Plan, options: argparse.Namespace) -> Iterator[Row]:
    """Tiny, by the way that `tune` found fastest; micro, and micro without its long convolution."""
    yield _training("tiny", plan.tiny, plan, options, minutes=plan.minutes, **_fastest(plan, options.out))
    micro = dict(batch_size=plan.at_once, minutes=plan.few_minutes)
    yield _training("micro", plan.micro, plan, options, **micro)
    yield _training("micro_local", plan.micro, plan, options, model=("gate_length=1",), **micro)


def evaluate(plan: Plan, options: argparse.Namespace) -> Iterator[Row]:
    """Every model that is there by now, on held-out text."""
    for record in sorted(options.out.glob("*/record.json")):
        yield Row(f"evaluation_{record.parent.name}", 1, partial(_evaluated, record.parent, plan, options))


def ablate(plan: Plan, options: argparse.Namespace) -> Iterator[Row]:
    """Tiny and four ablations of the paper, for the same number of tokens each."""
    for variant in ("default", "no-swa", "no-swa-no-pc", "sslp", "pe"):
        yield _training(f"ablation_{variant}", plan.tiny, plan, options, variant=variant, tokens=plan.ablation_tokens,
                        **_fastest(plan, options.out))


STAGES = {stage.__name__: stage for stage in (check, tune, measure, train, evaluate, ablate)}


def _errors(context: Callable, length: int, dtype: torch.dtype, device: str) -> dict[str, float]:
    """Return the errors of r, dv and dg, relative to those of the operator in float64 on the CPU."""
    draw = torch.Generator().manual_seed(length)
    v, g, dr = torch.randn(3, 4, 64, length, generator=draw, dtype=torch.float64).to(dtype)
    results = []
    for way, place, kind in ((context, device, dtype), (nullcontext, "cpu", torch.float64)):
        inputs = [x.to(place, kind).requires_grad_() for x in (v, g)]
        with way():
            r = causal_conv_fft(*inputs)
            results.append((r, *torch.autograd.grad(r, inputs, dr.to(r))))
    return {name: ((a.double().cpu() - b).norm() / b.norm()).item()
            for name, a, b in zip(("r", "dv", "dg"), *results, strict=True)}


def _pytest(tests: str, options: argparse.Namespace) -> dict:
    if find_spec("pytest") is None:
        return {"skipped": "pytest is not installed"}
    only = ["-k", "cuda"] if options.device == "cuda" else []  # the others were run on a CPU
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-rfE", *only, tests], capture_output=True, text=True,
                          cwd=Path(__file__).resolve().parent.parent, timeout=options.deadline - time.monotonic())
    return {"exit_status": done.returncode, "last_lines": done.stdout.splitlines()[-40:]}


def _benchmark(group: str, plan: Plan, length: int, options: argparse.Namespace) -> Row:
    against = ("llama",) if find_spec("transformers") else ("no-swa",)
    given = dict(lengths=(length,), preset=plan.tiny, tokens=plan.tokens, against=against, compile=plan.compiled,
                 repeats=plan.repeats, device=options.device)
    measure = partial(run_roofline, RooflineConfig(**given)) if group == "roofline" else partial(
        run_benchmark, BenchmarkConfig(rows=(group,), **given))
    return Row(f"{group}_{length}", 0.5 if group in ("convolution", "layer") else 2,
               lambda: {"rows": [asdict(row) for row in measure()]})


def _fastest(plan: Plan, out: Path) -> dict[str, object]:
    """Return what to compile and how many sequences to take at once: the fastest that `tune` has timed, if it has."""
    times = {way: time for path in out.glob("tune_step_*.json")
             for way, time in json.loads(path.read_text())["results"]["training step"].items()}
    if not times:
        return {}
    _, kind, at_once, *_ = min(times, key=times.__getitem__).replace(",", "").split()  # "compile no, 64 sequences ..."
    return {"compile": kind, "micro_batch_size": math.gcd(int(at_once), plan.batch_size)}


def _direct(length: int, out: Path) -> int:
    """Return the longest text for the direct kernel: none, unless its tests passed and it was faster at this length."""
    found = [out / "device_tests.json", out / f"tune_convolution_{length}.json"]
    if not all(path.exists() for path in found):
        return 0
    tests, timed = (json.loads(path.read_text())["results"] for path in found)
    faster = all(times.get("direct kernel", math.inf) < times["FFT"] for times in timed.values())
    return length if faster and tests.get("exit_status") == 0 else 0


def _corpus(shards: str, validation: str | None) -> Corpus:
    return load_corpus(shards, load_tokenizer(Path(shards) / "tokenizer"), validation=validation)


def _training(name: str, preset: str, plan: Plan, options: argparse.Namespace, **changes: object) -> Row:
    shards, out = options.data / name.partition("_")[0].replace("ablation", "tiny"), options.out / name
    recipe = dict(data=str(shards), validation=str(HELD_OUT), out=out, tokens=10**9, batch_size=plan.batch_size,
                  micro_batch_size=min(plan.at_once, plan.batch_size),
                  compile=plan.compiled, device=options.device, eval_every=200, eval_windows=plan.windows,
                  prompt="The ", progress=False, checkpoint_minutes=2.0)
    config = TrainConfig.for_preset(preset, **recipe | changes)
    return Row(name, 1.5, lambda: _trained(config, _direct(config.context, options.out), options))


def _trained(config: TrainConfig, direct: int, options: argparse.Namespace) -> dict:
    """Train a model, or go on with it, to shortly before the deadline; return what came out."""
    corpus, started = _corpus(config.data, config.validation), code()
    alarm = threading.Timer(options.deadline - MARGIN - time.monotonic(), os.kill, (os.getpid(), signal.SIGINT))
    alarm.start()
    try:
        with mock.patch.dict(spectral.DIRECT, {"cuda": direct}), Trainer(config, corpus) as trainer:
            log = trainer.run()
    finally:
        alarm.cancel()
    if trainer.finished:
        save_record(record_of_run(config.out, started), config.out / "record.json")
    if config.out.name.startswith("micro"):
        trainer.model.bfloat16().save_pretrained(config.out / "bfloat16")
    peak = torch.cuda.max_memory_allocated() / 2**20 if trainer.device.type == "cuda" else None
    return {"steps": len(log), "tokens": log[-1]["tokens"], "epochs": log[-1]["tokens"] / len(corpus.train),
            "seconds": trainer.seconds, "peak_mib": peak, "compile": config.compile,
            "micro_batch_size": config.micro_batch_size, "direct_kernel_up_to": direct, "first_loss": log[0]["loss"],
            "sample": log[-1]["sample"],
            "median_tokens_per_second": statistics.median(e["tokens_per_second"] for e in log[len(log) // 2:]),
            "validation_loss": log[-1]["validation_loss"]}


def _evaluated(folder: Path, plan: Plan, options: argparse.Namespace) -> dict:
    """Measure a model on text that is held out, and take its gate apart."""
    config = json.loads((folder / "record.json").read_text())["config"]
    tokenizer, context = load_tokenizer(folder / "model"), config["context"]
    tokens = _corpus(config["data"], config["validation"]).validation[:plan.held_out_tokens + 1]
    model = load_model(folder / "model").to(options.device)
    windows = sequential_windows(tokens, context)
    multiples = [m for m in (1, 2, 4, 8, 16) if m * context < len(tokens)]
    with autocast(options.device, resolve_precision("auto", options.device)):
        losses = token_losses(model, windows).double()
        by_length = loss_by_context_length(model, tokens, context, multiples)
        found = {} if folder.name.startswith("ablation") else {"surgery": [
            asdict(outcome) for outcome in surgery(model, windows[:128], (0, 4, 32))]}
    loss, length = losses.mean().item(), bytes_of_targets(windows, tokenizer)
    return found | {"loss": loss, "bits_per_byte": bits_per_byte(loss, losses.numel(), length),
                    "tokens": losses.numel(), "bytes": length, "loss_by_position": losses.mean(0).tolist(),
                    "loss_by_context_length": by_length}
