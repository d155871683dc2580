"""How few numbers the kernels of a trained Caracal can be replaced by, and what that costs.

In place of the kernel that each text writes, every channel gets one of these, from the mean gate m of other texts::

    mean gate                   m, as long as the training length
    K weights and one constant  m_0 to m_(K-1), then the mean of the later m_i
    K weights and a leaky sum   that, with the constant times exp(-(i - K) / c): a recurrence of K + 1 numbers

Means and the time constant c come from text that was trained on, and losses from held-out text.  Three models: micro as
it was trained; "nano", trained here by its own recipe with Muon; and "nano-reset", trained here on paragraphs, each of
which is read as if it stood alone, so that in its texts a position counts from the start of a paragraph.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from caracal_min.data.batches import Corpus, load_corpus, sequential_windows, tokens_of
from caracal_min.data.sources import HELD_OUT, RULE, TRAIN, documents, is_held_out
from caracal_min.evaluation import token_losses
from caracal_min.model import Caracal
from caracal_min.tokenizer import ByteTokenizer
from caracal_min.training import TrainConfig, Trainer

from .. import fineweb
from ..measured import sha256_of_tokens
from ..records import require_new, write_record
from ..rivals import weights_sha256
from .grid import one_thread
from .surgery import gate_as, gate_of_another, gate_up_to, mean_gates

__all__ = ["MODELS", "NineNumbersConfig", "run_nine_numbers", "weights_and_sum"]

_REACHES = (32, 64, 128, 256, 512)


@dataclass(frozen=True)
class NineNumbersConfig:
    """Replace the kernels of a trained model by fewer and fewer numbers, and measure the loss."""

    model: str = "micro"
    """micro, nano or nano-reset; nano and nano-reset are trained first, which takes minutes."""
    out: Path = Path("runs/nine_numbers")
    """Folder of the record and of a model that is trained here."""
    windows: int = 192
    """Held-out windows of the training length."""
    long_windows: int = 64
    """Held-out windows of 16 training lengths, fewer where the text is shorter; none for nano-reset."""
    weights: tuple[int, ...] = (1, 2, 4, 8, 16)
    """How many weights of its own a kernel keeps before the constant."""
    tokens: int = 786_432
    """Bytes that nano and nano-reset are trained on."""


def weights_and_sum(mean: Tensor, weights: int, length: int, reach: float | None = None) -> Tensor:
    """Return kernels of `weights` + 1 numbers.

    Args:
        mean: mean gates, `[D, L]`.
        weights: lags that keep their own weight; all later ones share the mean of the rest.
        length: of the result; without a reach the kernel ends with the mean gate, at L.
        reach: tokens in which the shared weight falls to 1 / e; None: it does not fall.

    Returns:
        `[D, length]`, zero beyond L where there is no reach.
    """
    lag = torch.arange(length)
    late = mean[:, weights:].mean(1, keepdim=True)
    fade = (lag < mean.shape[1]).float() if reach is None else torch.exp(-(lag - weights).clamp(min=0) / reach)
    kernel = (late * fade).where(lag >= weights, 0)
    kernel[:, :weights] = mean[:, :weights]
    return kernel


@one_thread()
def run_nine_numbers(config: NineNumbersConfig, show: Callable[[str], None] = print) -> dict:
    """Measure a model, show a line for each kernel, write the record, and return it.

    Raises:
        ValueError: there is no such model.
        FileExistsError: its record is there.
    """
    if config.model not in MODELS:
        raise ValueError(f"unknown model {config.model!r}; accepted: {', '.join(MODELS)}")
    path = config.out / f"{config.model.replace('-', '_')}_nine_numbers.json"
    require_new(path)
    began = time.monotonic()
    model, folder, corpus, training = MODELS[config.model](config)
    model.requires_grad_(False).eval()
    reset = config.model == "nano-reset"
    context = 256
    # Windows that begin with a paragraph and lie in it: none is padded, so an exchange gives it gates of real text.
    cut = _beginnings if reset else sequential_windows
    mean = mean_gates(model, cut(corpus.train, context, 96)[:, :-1])
    windows = cut(corpus.validation, context, config.windows)

    def losses(change: Callable[[], AbstractContextManager], of: Tensor = windows) -> Tensor:
        rows = 4096 // (of.shape[1] - 1)
        with change(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of texts beyond the training length
            return token_losses(model, of, rows).double()

    def few(weights: int, length: int, reach: float | None = None) -> Callable[[], AbstractContextManager]:
        return partial(gate_as, model, [weights_and_sum(m, weights, length, reach) for m in mean])

    def compared(changes: Mapping[str, tuple], of: Tensor, base: str) -> list[dict]:
        found = {name: (numbers, losses(change, of)) for name, (numbers, change) in changes.items()}
        rows = []
        for name, (numbers, loss) in found.items():
            change = (loss - found[base][1]).mean(1)
            rows.append({"kernel": name, "numbers": numbers, "loss": loss.mean().item(),
                         "change": change.mean().item(), "error": (change.std() / len(change) ** 0.5).item(),
                         "lower": int((change < 0).sum())} | _octaves(loss, found[base][1]))
            show(f"{name:<28}{rows[-1]['loss']:>9.4f}{rows[-1]['change']:>+10.4f} ± {rows[-1]['error']:.4f}")
        return rows

    # The time constant is chosen on text that was trained on, at 16 times the training length.
    far = 16 * context
    reaches = {}
    if not reset:
        taught = sequential_windows(corpus.train, far, 6)
        reaches = {reach: losses(few(8, far, reach), taught).mean().item() for reach in _REACHES}
    reach = min(reaches, key=reaches.get) if reaches else 128
    show(f"time constant {reach} of {reaches}")
    near = {"as trained": (2 * context, nullcontext),
            "gate of another text": (2 * context, partial(gate_of_another, model)),
            "mean gate": (context, partial(gate_as, model, mean)),
            "lag 0 alone": (1, partial(gate_up_to, model, 0))}
    for weights in config.weights:
        first = [m * (torch.arange(context) < weights) for m in mean]
        near[f"{weights} weights"] = weights, partial(gate_as, model, first)
        near[f"{weights} weights and one constant"] = weights + 1, few(weights, context)
    near["8 weights and a leaky sum"] = 9, few(8, context, reach)
    rows, beyond = compared(near, windows, "as trained"), []
    if not reset:
        long = sequential_windows(corpus.validation, far, config.long_windows)
        beyond = compared({
            "cut at the training length": (2 * context, partial(gate_up_to, model, context - 1)),
            "cut at half of it": (context, partial(gate_up_to, model, context // 2 - 1)),
            "mean gate, cut": (context, partial(gate_as, model, [F.pad(m, (0, far - context)) for m in mean])),
            "8 weights and one constant, cut": (9, few(8, far)),
            "8 weights and a leaky sum": (9, few(8, far, reach)),
            "as trained": (2 * far, nullcontext)}, long, "cut at the training length")
        fresh = losses(nullcontext, long.unfold(1, context + 1, context).reshape(-1, context + 1))
        beyond.append({"kernel": "fresh windows of the training length", "numbers": 2 * context,
                       "loss": fresh.mean().item()})
        show(f"fresh windows of the training length {beyond[-1]['loss']:.4f}")
    data = {"source": corpus.source, "split": "held_out", "rule": corpus.rule, "tokenizer": corpus.tokenizer.name,
            "tokens": len(corpus.validation), "sha256": sha256_of_tokens(corpus.validation)}
    return write_record(path, "surgery", asdict(config), {
        "model_sha256": weights_sha256(folder), "training": training, "context": context, "reach": reach,
        "reaches": [list(pair) for pair in reaches.items()], "rows": rows, "beyond": beyond,
        "windows": len(windows), "long_windows": 0 if reset else len(long)}, data, time.monotonic() - began,
        torch.device("cpu"))


def _octaves(loss: Tensor, base: Tensor) -> dict:
    """Return the mean loss of windows `[W, L]`, and its change, by tokens seen: up to 256, 257 to 512, ...; to L."""
    ends = [256]
    while ends[-1] < loss.shape[1]:
        ends.append(2 * ends[-1])
    pieces = list(zip([0, *ends], ends, strict=False))
    change = loss - base
    return {"by_tokens_seen": [[end, loss[:, start:end].mean().item(), change[:, start:end].mean().item()]
                               for start, end in pieces]}


def _beginnings(tokens: np.ndarray, context: int, limit: int) -> Tensor:
    """Return the first `context` + 1 tokens of documents that are as long, at most so many, spread over the text."""
    ends = np.flatnonzero(tokens == ByteTokenizer.end_of_text)
    starts = np.concatenate([[0], ends[:-1] + 1])
    long = starts[ends - starts > context]
    chosen = long[np.linspace(0, len(long) - 1, min(limit, len(long))).astype(int)]
    return torch.from_numpy(np.stack([tokens[start:start + context + 1] for start in chosen]).astype(np.int64))


def _micro(config: NineNumbersConfig) -> tuple[Caracal, str, Corpus, None]:
    model = Caracal.from_pretrained("micro", device="cpu", gate_length=None)  # as it was trained
    tokenizer = model.require_tokenizer()
    train, held_out = (tokens_of(path, tokenizer, progress=False) for path in (fineweb.TRAIN, fineweb.HELD_OUT))
    return model, "micro", Corpus(fineweb.HELD_OUT.name, tokenizer, train, held_out), None


def _nano(config: NineNumbersConfig, reset: bool = False) -> tuple[Caracal, Path, Corpus, dict]:
    recipe = TrainConfig.for_preset("nano", optimizer="muon", tokens=config.tokens, reset_documents=reset,
                                    eval_every=96, device="cpu", progress=False)
    corpus = _paragraphs() if reset else load_corpus(recipe.data, recipe.tokenizer, max_tokens=recipe.corpus_limit,
                                                     progress=False)
    with Trainer(recipe, corpus) as trainer:
        trainer.run()
        curve = [[entry["step"], entry["validation_loss"]] for entry in trainer.log if "validation_loss" in entry]
    folder = config.out / config.model
    trainer.model.save_pretrained(folder)
    return trainer.model, folder, corpus, {"recipe": vars(recipe), "text_sha256": corpus.digest, "curve": curve,
                                           "seconds": trainer.seconds}


def _paragraphs() -> Corpus:
    """Return the embedded text with each paragraph as a document; whole documents are held out."""
    parts: dict[str, list[str]] = {TRAIN: [], HELD_OUT: []}
    for text in documents("embedded"):
        parts[HELD_OUT if is_held_out(text) else TRAIN] += [part for part in text.split("\n\n") if part.strip()]
    corpus = Corpus.from_texts(parts[TRAIN], "byte", parts[HELD_OUT], "embedded, in paragraphs")
    corpus.rule = RULE
    return corpus


MODELS: dict[str, Callable] = {"micro": _micro, "nano": _nano, "nano-reset": lambda config: _nano(config, reset=True)}
"""What each model is and was trained on: from the configuration to model, folder of its weights, corpus, training."""
