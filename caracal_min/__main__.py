"""The command line: `python -m caracal_min tokenize | train | sample | evaluate | benchmark | export | info`.

Options are generated from the dataclasses here and in `training`; `--help` after a command lists them.
"""

import argparse
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Union

import torch

from .benchmark import BenchmarkConfig, run_benchmark
from .data.tokenizers import tokenizer_for
from .data.write_shards import TokenizeConfig, tokenize
from .evaluation.command import EvaluateConfig, run_evaluate
from .export import export_onnx, export_program
from .model import Caracal
from .precision import Precision, resolve_precision
from .training.recipe import TrainConfig
from .training.trainer import DivergedError, Trainer
from .version import __version__


@dataclass(frozen=True)
class SampleConfig:
    """Continue a prompt with a trained model and print the text as it is drawn."""

    model: str
    """Folder that `train` wrote (its `model` subfolder), or "owner/name" on the hub."""
    prompt: str = "The "
    """Text to continue; must not be empty."""
    max_new_tokens: int = 200
    """Most tokens to draw."""
    temperature: float = 0.8
    """0 takes the most likely token each time."""
    top_k: int | None = None
    """Draw among this many most likely tokens."""
    top_p: float | None = None
    """Draw among the fewest tokens that hold this probability."""
    seed: int | None = None
    """Makes the draws reproducible."""
    precision: Precision = "auto"
    """Of the weights: auto (the fastest that the device has units for), bfloat16, float16 or float32."""


@dataclass(frozen=True)
class ExportConfig:
    """Write a trained model as an ONNX file, or as a torch.export program if the name ends in .pt2."""

    model: str
    """Folder that `train` wrote (its `model` subfolder), or "owner/name" on the hub."""
    out: Path
    """File to write: name.onnx or name.pt2."""
    length: int
    """Tokens per sequence; the file holds this one length."""
    batch: int = 1
    """Sequences per call."""


@dataclass(frozen=True)
class InfoConfig:
    """Describe a preset or a trained model: layers, parameters, versions."""

    preset: str = "tiny"
    """nano, tiny, small, medium or large."""
    model: str | None = None
    """Folder or hub repository to describe instead of a preset."""


def run_tokenize(config: TokenizeConfig) -> None:
    """Write the shards, or go on with them."""
    manifest = tokenize(**vars(config))
    print(f"{config.out} = {manifest.tokens:,} tokens, {manifest.documents:,} documents, {len(manifest.shards)} shards")


def run_train(config: TrainConfig) -> None:
    """Train, or go on with the run in `config.out`; stop cleanly, with a checkpoint, on SIGINT and SIGTERM."""
    trainer = Trainer(config)
    if trainer.step and trainer.group.is_main:
        print(f"resuming {config.out} at step {trainer.step} of {config.steps}")

    def stop(*_) -> None:
        trainer.stop_requested = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    log = trainer.run()
    if not trainer.group.is_main:
        return
    measured = [entry for entry in log if "validation_loss" in entry]
    state = "done" if trainer.finished else "stopped; the same command goes on from here"
    print(f"step {trainer.step} of {config.steps}: {state}")
    if measured:
        print(f"validation loss = {measured[-1]['validation_loss']:.4f} nats per token at step {measured[-1]['step']}")
    if config.out is not None and trainer.finished:
        print(f"model = {config.out / 'model'}")
        print(f"record = {config.out / 'record.json'}")


def run_sample(config: SampleConfig) -> None:
    """Print the prompt and its continuation."""
    model = Caracal.from_pretrained(config.model)
    model = model.to(resolve_precision(config.precision, model.embedding.weight.device))
    tokenizer = tokenizer_for(model.config.vocab_size)
    ids = tokenizer.encode(config.prompt)
    if not ids:
        raise ValueError("the prompt is empty; give at least one character")
    print(config.prompt, end="", flush=True)
    drawn, shown = [], 0
    for token in model.stream(torch.tensor([ids]), config.max_new_tokens, temperature=config.temperature,
                              top_k=config.top_k, top_p=config.top_p, seed=config.seed,
                              stop=tokenizer.end_of_text):
        drawn.append(token.item())
        text = tokenizer.decode(drawn).removesuffix("\N{REPLACEMENT CHARACTER}")  # half a character: wait
        print(text[shown:], end="", flush=True)
        shown = max(shown, len(text))
    print()


def run_export(config: ExportConfig) -> None:
    """Write the file."""
    if config.out.suffix not in (".onnx", ".pt2"):
        raise ValueError(f"out={config.out}; give a name that ends in .onnx or .pt2")
    model = Caracal.from_pretrained(config.model)
    if config.out.suffix == ".onnx":
        export_onnx(model, config.out, config.length, config.batch)
    else:
        torch.export.save(export_program(model, config.length, config.batch), config.out)
    size = config.out.stat().st_size / 2**20
    print(f"{config.out} = {size:.1f} MiB, ids [{config.batch}, {config.length}] to logits")


def run_info(config: InfoConfig) -> None:
    """Print what a model is made of."""
    if config.model is not None:
        model = Caracal.from_pretrained(config.model)
    else:
        with torch.device("meta"):
            model = Caracal.from_preset(config.preset)
    attention = model.config.attention_layers
    layers = "".join("A" if i in attention else "F" for i in range(model.config.n_layers))
    print(f"caracal-min {__version__}, torch {torch.__version__}, "
          f"{torch.cuda.get_device_name() if torch.cuda.is_available() else 'no GPU'}")
    print(f"{config.model or config.preset}: {model.num_parameters():,} parameters, layers {layers} "
          "(F Fourier, A attention)")
    for name, value in asdict(model.config).items():
        print(f"  {name} = {value}")


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run the command and return the exit status; errors are one line on stderr."""
    try:
        import tyro
    except ImportError:
        print("the command line needs tyro: pip install 'caracal-min[train]'", file=sys.stderr)
        return 2
    arguments = sys.argv[1:] if arguments is None else arguments

    # The recipe depends on the preset, so the preset is read first: --help then shows the true defaults.
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--preset", default="nano")
    preset = first.parse_known_args(arguments)[0].preset
    try:
        defaults = {"train": {"default": TrainConfig.for_preset(preset, out=Path("runs") / preset)},
                    "info": {"default": InfoConfig(preset)}}
        kinds = tuple(Annotated[kind, tyro.conf.subcommand(name, **defaults.get(name, {}))]
                      for name, (kind, _) in _COMMANDS.items())
        config = tyro.cli(Union[kinds], prog="python -m caracal_min", args=arguments,  # noqa: UP007
                          description="Tokenize, train, sample, evaluate, measure, export and describe Caracal models.",
                          config=(tyro.conf.OmitArgPrefixes,))
        dict(_COMMANDS.values())[type(config)](config)
    except (ValueError, OSError, ImportError, DivergedError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


_COMMANDS = {"tokenize": (TokenizeConfig, run_tokenize), "train": (TrainConfig, run_train),
             "sample": (SampleConfig, run_sample), "evaluate": (EvaluateConfig, run_evaluate),
             "benchmark": (BenchmarkConfig, run_benchmark), "export": (ExportConfig, run_export),
             "info": (InfoConfig, run_info)}

if __name__ == "__main__":
    sys.exit(main())
