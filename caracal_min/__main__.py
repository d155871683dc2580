"""The command line: `python -m caracal_min tokenize | train | sample | evaluate | benchmark | export | info`.

Options are generated from the dataclasses here and in `training`; `--help` after a command lists them.
"""

import errno
import io
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_type_hints

import torch

from .benchmark import BenchmarkConfig, run_benchmark
from .data.shards import MANIFEST
from .data.tokenizers import tokenizer_for
from .data.write_shards import TokenizeConfig, tokenize
from .evaluation.command import EvaluateConfig, run_evaluate
from .export import export_onnx, export_program
from .extras import missing
from .model import Caracal
from .precision import Precision, resolve_precision
from .recorded.record import require_recordable, require_writable
from .training.distributed import LostProcessError, find_device
from .training.folder import RunInUseError
from .training.recipe import TrainConfig
from .training.settings import require_kinds, require_range, require_text
from .training.trainer import DivergedError, Trainer
from .version import __version__
from .zoo.registry import check_kind

# Which of the errors of a file system the user can mend by another option; of a full disk, say, that is not so.
_REFUSED = (ValueError, ImportError, FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError,
            PermissionError, RunInUseError)
_REFUSED_NUMBERS = {errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS, errno.EINVAL}
_NO_MEMORY = re.compile(r"can't allocate memory|out of memory|not enough memory|storage size calculation overflow",
                        re.IGNORECASE)


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

    def __post_init__(self):
        require_kinds(self)
        require_text(self, ("model", "prompt"))
        require_range(self, ("max_new_tokens", "seed"), low=0)
        if self.temperature != 0:  # smaller ones overflow as divisors of logits, which are of type float32
            require_range(self, ("temperature",), low=1e-6)
        require_range(self, ("top_k",), low=1)
        require_range(self, ("top_p",), low=1e-6, high=1)


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

    def __post_init__(self):
        require_kinds(self)
        require_text(self, ("model",))
        require_range(self, ("length", "batch"), low=1)
        if self.out.suffix not in (".onnx", ".pt2"):
            raise ValueError(f"out={self.out}; give a name that ends in .onnx or .pt2")


@dataclass(frozen=True)
class InfoConfig:
    """Describe a preset or a trained model: layers, parameters, versions."""

    preset: str = "tiny"
    """nano, tiny, small, medium or large."""
    model: str | None = None
    """Folder or hub repository to describe instead of a preset."""

    def __post_init__(self):
        require_kinds(self)
        check_kind("caracal", self.preset, "default")
        require_text(self, ("model",))


def run_tokenize(config: TokenizeConfig) -> None:
    """Write the shards, or go on with them."""
    manifest = tokenize(**vars(config))
    print(f"{config.out} = {manifest.tokens:,} tokens, {manifest.documents:,} documents, {len(manifest.shards)} shards")


def run_train(config: TrainConfig) -> None:
    """Train, or go on with the run in `config.out`; stop cleanly, with a checkpoint, on SIGINT and SIGTERM."""
    with Trainer(config) as trainer:
        done_before = trainer.finished
        if trainer.step and not done_before and trainer.group.is_main:
            print(f"resuming {config.out} at step {trainer.step} of {config.steps}")
        with _stopped_by_signals(trainer):
            log = trainer.run()
        if not trainer.group.is_main:
            return
        state = "done" if trainer.finished else "stopped; the same command goes on from here"
        print(f"step {trainer.step} of {config.steps}: {state}{' before, left as it is' if done_before else ''}")
        measured = [entry for entry in log if "validation_loss" in entry]
        if measured:
            print(f"validation loss = {measured[-1]['validation_loss']:.4f} nats per token at step "
                  f"{measured[-1]['step']}")
        if config.out is not None and trainer.finished:
            print(f"model = {config.out / 'model'}\nrecord = {config.out / 'record.json'}")


@contextmanager
def _stopped_by_signals(trainer: Trainer) -> Iterator[None]:
    """Let SIGINT and SIGTERM stop a run after its step."""
    def stop(*_) -> None:
        trainer.stop_requested = True
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_sample(config: SampleConfig) -> None:
    """Print the prompt and its continuation."""
    model = Caracal.from_pretrained(config.model)
    model = model.to(resolve_precision(config.precision, model.embedding.weight.device))
    tokenizer = tokenizer_for(model.config.vocab_size)
    ids = tokenizer.encode(config.prompt)
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run the command and return the exit status; an error is one line on stderr.

    0     done
    1     it failed, and another command line would not have helped: the disk is full, the loss diverged, another
          process of the run has ended, a machine on the network does not answer
    2     what was given cannot be: an option, a file, a folder, a device, more than fits into memory; or a package that
          the command needs is not installed
    130   interrupted
    """
    try:
        config = _parse(sys.argv[1:] if arguments is None else list(arguments))
        if config is not None:
            dict(_COMMANDS.values())[type(config)](_checked(config))
    except (*_REFUSED, OSError, DivergedError, LostProcessError) as error:
        return _failed(error, _status(error))
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and not _NO_MEMORY.search(str(error)):
            raise
        return _failed(f"there is not enough memory for this ({error}); ask for less at once", 2)
    except KeyboardInterrupt:
        return _failed("interrupted", 130)
    return 0


def _failed(error: object, status: int) -> int:
    """Print an error as one line and return the exit status."""
    if isinstance(error, OSError) and error.strerror:
        error = ": ".join(map(str, filter(None, (error.filename, error.strerror))))
    print(f"error: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr)
    return status


def _status(error: BaseException | None) -> int:
    """Return 2 if an error, or what caused it, is the user's to mend, else 1."""
    while error is not None:
        if isinstance(error, _REFUSED) or getattr(error, "errno", None) in _REFUSED_NUMBERS:
            return 2
        error = error.__cause__
    return 1


def _parse(arguments: list[str]) -> Any:
    """Return the configuration that a command line describes; None if it asked for help, which is then printed."""
    try:
        import tyro
    except ImportError:
        raise missing("the command line", "tyro", "train") from None
    if arguments == ["--version"]:
        return print(f"caracal-min {__version__}")
    given = list(zip(arguments, [*arguments[1:], None], strict=False))
    for option, value in given:
        if option in {f"{name}=" for name in _PATHS} or option in _PATHS and value == "":
            raise ValueError(f"{option.removesuffix('=')} is empty; give a path")
    # The recipe depends on the preset, so the preset is read first: --help then shows the true defaults.
    presets = [value for option, value in given if option == "--preset"]
    presets += [option.removeprefix("--preset=") for option in arguments if option.startswith("--preset=")]
    preset = presets[-1] if presets and presets[-1] is not None else "nano"
    defaults = {"train": {"default": TrainConfig.for_preset(preset, out=Path("runs") / preset)},
                "info": {"default": InfoConfig(preset)}}
    kinds = tuple(Annotated[kind, tyro.conf.subcommand(name, **defaults.get(name, {}))]
                  for name, (kind, _) in _COMMANDS.items())
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(Union[kinds], prog="python -m caracal_min", args=arguments,  # noqa: UP007
                            description="Make, use and measure Caracal models.", config=(tyro.conf.OmitArgPrefixes,))
    except SystemExit as ended:
        if not ended.code:
            return None
        raise ValueError(_first_words(said.getvalue())) from None


def _first_words(box: str) -> str:
    """Return what the parser says in a box on several lines, up to its first rule, in one line."""
    lines = [line.strip("│ \n") for line in box.splitlines()[1:]]
    end = next((i for i, line in enumerate(lines) if line.startswith(("─", "╰"))), len(lines))
    words = re.sub(r"^Error parsing \w+: ", "", " ".join(lines[:end]))
    return f"{words}; see python -m caracal_min --help"


def _checked(config: Any) -> Any:
    """Return a configuration whose values, device and output were looked at before the work begins."""
    require_kinds(config)
    if isinstance(config, EvaluateConfig | BenchmarkConfig):
        config = replace(config, device=str(find_device(config.device)))
        if config.out is not None:
            require_recordable(config.out)
    elif isinstance(config, ExportConfig):
        require_writable(config.out)
    elif isinstance(config, TokenizeConfig):
        require_writable(config.out / MANIFEST)
    return config


_COMMANDS = {"tokenize": (TokenizeConfig, run_tokenize), "train": (TrainConfig, run_train),
             "sample": (SampleConfig, run_sample), "evaluate": (EvaluateConfig, run_evaluate),
             "benchmark": (BenchmarkConfig, run_benchmark), "export": (ExportConfig, run_export),
             "info": (InfoConfig, run_info)}
_PATHS = {f"--{field.replace('_', join)}" for kind, _ in _COMMANDS.values()
          for field, hint in get_type_hints(kind).items() if Path in (hint, *get_args(hint)) for join in "_-"}

if __name__ == "__main__":
    sys.exit(main())
