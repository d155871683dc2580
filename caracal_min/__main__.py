"""The command line: `python -m caracal_min COMMAND ...`; `COMMAND --help` lists its options."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

try:
    import tyro
except ModuleNotFoundError:
    sys.exit("error: the command line needs tyro: pip install tyro")

from . import __version__, evaluation
from .config import Precision
from .data import make_tokenizer, sequential_windows, tokenize, tokens_of
from .export import export_onnx, export_program
from .generation import stream_text
from .model import CONFIG, Caracal, locate_model, shipped_models
from .precision import autocast, find_device, resolve_precision
from .training import DivergedError, StoppedError, TrainConfig, Trainer, load_run

Model = Annotated[str, tyro.conf.Positional]
# Contexts longer than those of training show whether a model extrapolates.
MULTIPLES = (1, 2, 4, 8, 16)


def train(config: TrainConfig) -> None:
    """Train a model, or resume the run in --out; Ctrl-C stops it with a checkpoint."""
    # A space belongs to the token of the next word: after one alone, samples begin with fragments.
    config = replace(config, prompt=config.prompt.rstrip(" "))
    with Trainer(config) as trainer:
        is_main = trainer.group.is_main
        if is_main and trainer.step and not trainer.finished:
            print(f"resumed after step {trainer.step} of {config.steps}", flush=True)
        trainer.run()
        if not is_main:
            return
        print(f"step {trainer.step} of {config.steps}: done")
        if config.out is not None:
            print(f"model: {config.out / 'model'}")
            # Sums over an uncut gate grow with the text, beyond the sizes seen in training.
            shape = trainer.model.config
            if shape.gate_length is None and shape.positional_encoding is None:
                print(f"for texts of more than {shape.max_positions} tokens, cut its gate: sample "
                      f"{config.out} --gate-length {shape.max_positions}")


def sample(
    model: Model,
    prompt: str = "The",
    max_new_tokens: int = 200,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    tokenizer: str | None = None,
    gate_length: int | None = None,
    device: str = "auto",
    precision: Precision = "auto",
) -> None:
    """Continue a prompt with a trained model, and print the text as it is drawn.

    Args:
        model: Shipped name (micro), folder of a run or of a model, or "owner/name" on the hub; of a
            run that has not ended, the last checkpoint is taken.
        prompt: Text to continue.  A space at its end is left out: it belongs to the next word.
        max_new_tokens: Most tokens to draw; fewer if the model ends its text.
        temperature: Logits are divided by it; 0 takes the most likely token each time.
        top_k: Draw among this many most likely tokens; left out: among all.
        top_p: Draw among the fewest tokens that together have this probability.
        seed: Makes the draws the same each time.
        tokenizer: byte, gpt2, gpt2:N or a tokenizer.json; left out: the model's own.
        gate_length: Cut the gate after so many tokens: a token then costs the same at any length.
        device: auto (a GPU if there is one), cpu, cuda, mps, ...
        precision: Of the weights; auto: the fastest that the device has units for.
    """
    loaded = _load(model, gate_length, tokenizer)
    place = find_device(device)
    # Weights are cast once: decoding reads all of them for every token.
    loaded.to(place, resolve_precision(precision, place))
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    prompt = prompt.rstrip(" ")
    print(prompt, end="", flush=True)
    encoder = loaded.require_tokenizer()
    for piece in stream_text(loaded, encoder, prompt, max_new_tokens, **options):
        print(piece, end="", flush=True)
    print()


def evaluate(
    model: Model,
    data: str = "embedded",
    split: str = "held_out",
    context: int | None = None,
    tokens: int = 262_144,
    reset_documents: bool = False,
    batch_size: int = 16,
    tokenizer: str | None = None,
    gate_length: int | None = None,
    device: str = "auto",
    precision: Precision = "auto",
) -> None:
    """Measure a model on text: loss, bits per byte, and the loss at longer contexts.

    Args:
        model: As in sample.
        data: Text, as in train: embedded, fineweb, a file, or a folder.
        split: held_out, the documents that train never reads (1 in 20, by a hash), or all.
        context: Tokens per window; left out: the length of training.
        tokens: Most tokens to measure.
        reset_documents: Read each document of a window alone, as train does with this option.
        batch_size: Windows per forward pass.
        tokenizer: byte, gpt2, gpt2:N or a tokenizer.json; left out: the model's own.
        gate_length: Cut the gate after so many tokens.
        device: auto (a GPU if there is one), cpu, cuda, mps, ...
        precision: Of the matrix products; auto: the fastest that the device has units for.
    """
    loaded = _load(model, gate_length, tokenizer)
    place = find_device(device)
    loaded.to(place)
    # Bits per byte need the text back, so a model without a tokenizer cannot be evaluated.
    encoder = loaded.require_tokenizer()
    context = context or loaded.config.max_positions
    end_of_text = encoder.end_of_text if reset_documents else None
    # One more than is measured, because the first token has nothing before it.
    most = tokens + 1
    ids = tokens_of(data, encoder, split, most)[:most]
    windows = sequential_windows(ids, context)
    fitting = [m for m in MULTIPLES if m * context < len(ids)]
    # Weights stay in float32 and products are rounded, as in training.
    with autocast(place, resolve_precision(precision, place)):
        losses = evaluation.token_losses(loaded, windows, batch_size, "loss", end_of_text)
        by_length = evaluation.loss_by_context_length(
            loaded, ids, context, fitting, batch_tokens=batch_size * context,
            end_of_text=end_of_text
        )
    loss = losses.mean().item()
    text_bytes = evaluation.bytes_of_targets(windows, encoder)
    print(f"loss = {loss:.4f} nats per token, on {losses.numel():,} tokens")
    bits = evaluation.bits_per_byte(loss, losses.numel(), text_bytes)
    print(f"bits per byte = {bits:.4f}")
    for length, value in by_length.items():
        print(f"context {length:,}: {value:.4f} nats per token")


def lm_eval() -> None:
    """Run lm-evaluation-harness on models of this package: all options are its own.

    lm_eval run --model hf --model_args pretrained=my_model --tasks piqa,hellaswag
    """


def tokenize_source(
    source: str, out: Path, tokenizer: str = "gpt2", max_tokens: int | None = None
) -> None:
    """Write a text as two files of ids, train and held out, to train on many times.

    Args:
        source: As --data of train.
        out: Folder for the files; the same command goes on after a kill.
        tokenizer: byte, gpt2, gpt2:N or a tokenizer.json.
        max_tokens: Stop after so many tokens to train on; left out: at the end of the text.
    """
    tokenize(source, out, tokenizer, max_tokens)
    print(f"tokens: {out}")


def export(model: Model, out: Path, length: int = 256, batch: int = 1) -> None:
    """Export a model for a fixed shape of input, to ONNX or as a program of PyTorch.

    Args:
        model: As in sample.
        out: File to write: one that ends in .onnx, or else a program (.pt2).
        length: Tokens of an input.
        batch: Rows of an input.
    """
    loaded = _load(model)
    # The ending of the file decides, so that no option can contradict it.
    if out.suffix == ".onnx":
        export_onnx(loaded, out, length, batch)
    else:
        import torch

        program = export_program(loaded, length, batch)
        torch.export.save(program, out)
    print(f"program: {out}")


def info(model: Model = "micro") -> None:
    """Print what a model is: shape, parameters, tokenizer.

    Args:
        model: As in sample.
    """
    loaded = _load(model)
    tokenizer = loaded.tokenizer
    print(f"caracal-min {__version__}: {model}, {loaded.num_parameters():,} parameters")
    for name, value in asdict(loaded.config).items():
        print(f"  {name} = {value}")
    print(f"  tokenizer = {tokenizer and tokenizer.name}")


def _load(name: str, gate_length: int | None = None, tokenizer: str | None = None) -> Caracal:
    # Left out, the option keeps the gate length that the model was trained with.
    changes = {}
    if gate_length is not None:
        changes["gate_length"] = gate_length
    model, step = load_run(name, **changes)
    # On stderr, so that a redirected sample holds the text alone.
    if step is not None:
        print(f"{name} has not ended: this is its checkpoint of step {step}", file=sys.stderr)
    if tokenizer is not None:
        model.tokenizer = make_tokenizer(tokenizer)
    return model


def main() -> None:
    """Parse the command line of this process, and run its command."""
    arguments = sys.argv[1:]
    # Output into a pipe has the system's encoding, which on Windows lacks most characters.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")
    if arguments[:1] == ["lm_eval"]:
        try:
            # Its parser reads sys.argv; importing hf lets transformers find our class.
            from lm_eval.__main__ import cli_evaluate

            from . import hf  # noqa: F401
        except ModuleNotFoundError as error:
            sys.exit(f"error: {error}; lm_eval needs pip install accelerate lm-eval transformers")
        sys.argv = arguments
        return cli_evaluate()
    # The other defaults of train depend on the preset, so that --help shows the truth.
    preset = "nano"
    start_settings = {}
    for option, value in zip(arguments, arguments[1:], strict=False):
        if option == "--preset":
            preset = value
        # A model of the package is named after its preset, and brings its tokenizer and its cut.
        elif option == "--start" and value in shipped_models():
            preset = value
            folder = locate_model(value)
            shape = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            start_settings["tokenizer"] = str(folder)
            start_settings["model"] = (f"gate_length={shape['gate_length']}",)
        # A finished run brings the settings of its model.
        elif option == "--start" and (Path(value) / "run.json").is_file():
            run = json.loads((Path(value) / "run.json").read_text(encoding="utf-8"))["config"]
            preset = run["preset"]
            start_settings["variant"] = run["variant"]
            start_settings["model"] = tuple(run["model"])
            start_settings["tokenizer"] = str(Path(value) / "tokenizer")
    commands = {
        "sample": sample,
        "evaluate": evaluate,
        "lm_eval": lm_eval,
        "tokenize": tokenize_source,
        "export": export,
        "info": info,
    }
    # A mistake of the user ends in one line instead of a traceback.
    try:
        recipe = TrainConfig.for_preset(preset, out=Path("runs") / preset, **start_settings)

        # Tyro reads the defaults of train from this signature.
        def train_preset(config: TrainConfig = recipe) -> None:
            train(config)

        train_preset.__doc__ = train.__doc__
        commands["train"] = train_preset
        # Without their prefix, options read --steps instead of --config.steps.
        tyro.extras.subcommand_cli_from_dict(
            commands,
            prog="python -m caracal_min",
            config=(tyro.conf.OmitArgPrefixes,),
        )
    except StoppedError as stopped:
        sys.exit(f"{stopped}; the same command resumes the run")
    except (ValueError, ImportError, OSError, DivergedError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
