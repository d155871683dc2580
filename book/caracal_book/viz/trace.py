"""Why a model finds a token likely, as numbers that a page can show: `viz/engine/look.js` computes the same.

The logit of a token, less the mean logit of the vocabulary, is a sum over what the embedding, the mixers and the
feed-forward layers added to the last position, with the scale of the last norm held as it is.  What a mixer added is a
sum over its units, and each unit's part one over tokens j: in a Fourier layer the units are channels, and token j adds
v_j g_{t-j} times a scale; in an attention layer they are heads, and token j adds its weight times its content.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from caracal_min import Caracal
from caracal_min.convolution import circular_conv
from caracal_min.data.batches import sequential_windows, tokens_of
from caracal_min.layers import MultiHeadFourier, SlidingWindowAttention
from caracal_min.tokenizer import END_OF_TEXT

from ..experiments.surgery import mean_gates
from ..fineweb import TRAIN
from ..web_export import dequantize_rows, quantize_rows

__all__ = ["KEPT", "LIKELIEST", "compare", "in_the_page", "mean_gates_of", "percent", "pieces_of", "read", "rounded_to",
           "shown", "trace", "widest"]

LIKELIEST = 5  # candidates that are shown
KEPT = 63  # weights that a page has of a mean gate; the later ones share one number
_UNITS = 4  # of a layer: those whose parts are largest
_WINDOWS, _TOKENS = 24, 150_000  # of training text: a mean gate of four times as many costs micro the same


def in_the_page(model: Caracal) -> Caracal:
    """Return the model with the weights that a page has of it, rounded to eight bits."""
    rounded = Caracal(model.config).eval().requires_grad_(False)
    rounded.load_state_dict(dequantize_rows(quantize_rows(model.state_dict())))
    rounded.tokenizer = model.require_tokenizer()
    return rounded


def mean_gates_of(model: Caracal) -> dict[str, Tensor]:
    """Return the mean gates of training text as a page has them, by the names of Fourier layers.

    Each is `[D, KEPT + 1]`: the first weights m_0, m_1, ... of the mean gate m, and the mean of all later ones.
    """
    model = in_the_page(model)
    tokens = tokens_of(TRAIN, model.tokenizer, max_tokens=_TOKENS, progress=False)
    length = model.config.max_positions
    means = mean_gates(model, sequential_windows(tokens, length, _WINDOWS)[:, :-1])
    means = [F.pad(m, (0, length - m.shape[1])) for m in means]  # beyond a cut, gates are 0
    names = [f"blocks.{i}.mixer" for i in range(model.config.n_layers) if i not in model.config.attention_layers]
    return {f"{name}.mean_gate": torch.cat([m[:, :KEPT], m[:, KEPT:].mean(1, keepdim=True)], 1)
            for name, m in zip(names, means, strict=True)}


def pieces_of(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return what each id adds to the text; a character that several ids share stands with the last of them."""
    pieces, done = [], 0
    for k in range(1, len(ids) + 1):
        whole = tokenizer.decode(ids[:k]).removesuffix("\N{REPLACEMENT CHARACTER}")
        pieces.append(whole[done:])
        done = max(done, len(whole))
    return pieces


def shown(piece: str) -> str:
    """Write a token as the page does: + joins it to the word before."""
    if piece == END_OF_TEXT:
        return "(end)"
    seen = piece.replace("\n", "↵").replace("\t", "⇥")
    return (seen[1:] or "␣") if piece.startswith(" ") else f"+{seen}"


def percent(p: float) -> str:
    """Write a share as the page does."""
    return "< 1 %" if 0 < p < 0.01 else f"{int(100 * p + 0.5)} %"


def rounded_to(digits: int, data: Any) -> Any:
    """Return data for a page, with its numbers to some significant digits."""
    if isinstance(data, Mapping):
        return {key: rounded_to(digits, value) for key, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [rounded_to(digits, value) for value in data]
    return float(f"{data:.{digits}g}") if isinstance(data, float) else data


@torch.no_grad()
def trace(model: Caracal, ids: Sequence[int], channels: Mapping[int, Sequence[int]] | None = None) -> dict[str, Any]:
    """Follow a text through a model to the token that it finds likeliest next, and to the four after that.

    Args:
        channels: of Fourier layers, by layer, whose gates are wanted.

    Returns:
        ``pieces`` of the text; ``gates``, of those channels, by layer; ``heads``, for each layer None or the matrices
        of its attention heads `[H, L, L]`; ``next``, for each candidate its ``piece`` and probability ``p``, its
        ``logit`` less the mean, the ``parts`` of that (the embedding's, then for each layer the mixer's and the
        feed-forward layer's), ``rest``, what the last norm's bias adds, and ``layers``, for each of them ``terms``,
        the part of each token, and ``units``, the largest ones: ``name``, ``scale``, ``content`` of each token, and of
        a channel its gates g_0 to g_t as ``gate``.
    """
    layers, parts, final = _read(model, ids)
    last, norm, embedding = final[-1], model.norm, model.embedding.weight
    logits = embedding @ norm(last)
    best = logits.softmax(-1).topk(LIKELIEST)
    scale = (last.var(correction=0) + norm.eps).rsqrt()
    found = []
    for token, p in zip(best.indices.tolist(), best.values.tolist(), strict=True):
        direction = embedding[token] - embedding.mean(0)
        a = direction * norm.weight
        a = (a - a.mean()) * scale
        found.append({"piece": model.tokenizer.decode([token]), "p": p, "logit": (logits[token] - logits.mean()).item(),
                      "parts": [(a @ part).item() for part in parts], "rest": (direction @ norm.bias).item(),
                      "layers": [_terms(block.mixer, a, *inside)
                                 for block, inside in zip(model.blocks, layers, strict=True)]})
    heads = [weights.tolist() if weights.ndim == 3 else None for _, weights in layers]
    gates = [layers[layer][1][list(wanted)].tolist() for layer, wanted in (channels or {}).items()]
    return {"pieces": pieces_of(model.tokenizer, ids), "gates": gates, "heads": heads, "next": found}


@torch.no_grad()
def widest(model: Caracal, ids: Sequence[int], count: int) -> dict[int, list[int]]:
    """Return the channels of each Fourier layer that add most from earlier tokens, by energy at the layer's output."""
    found = {}
    for layer, (block, (v, weights)) in enumerate(zip(model.blocks, _read(model, ids)[0], strict=True)):
        if weights.ndim == 2:
            energy = weights[:, 1:].square().sum(1) * v.square().sum(1) * block.mixer.to_out.weight.square().sum(0)
            found[layer] = energy.topk(min(count, len(energy))).indices.tolist()
    return found


class Reading(NamedTuple):
    """What a model made of a text."""

    ids: Sequence[int]
    log: Tensor
    """Logarithms of the probabilities after each token, `[L, V]`."""
    written: str
    """The likeliest tokens after it, one after the other."""


@torch.no_grad()
def read(model: Caracal, ids: Sequence[int], edit: Mapping[str, Any], count: int = 0) -> Reading:
    """Read a text with an edit of the model, and write so many tokens after it.

    An edit is a dictionary as `viz/engine/model.js` describes it, in which ``gates`` has one tensor `[D, L]` for each
    layer; or ``texts`` stand for the gates: ids of texts whose mean gates count, 0 beyond their ends.
    """
    seen = [*ids]
    while len(seen) < len(ids) + count:
        seen.append(_predictions(model, seen, edit)[-1].argmax().item())
    return Reading(ids, _predictions(model, ids, edit), model.tokenizer.decode(seen[len(ids):]))


def compare(*readings: Reading) -> dict[str, list]:
    """Say what two readings differ in.

    Returns:
        ``same``: tokens that both texts begin with.
        ``moved``: at each token, by how much the prediction of the next differs, as half the sum of abs(p - p').
        ``bits``: of each text, what each token but the first cost.
    """
    (one, log, _), (other, changed, _) = readings
    both = min(map(len, (one, other)))
    differ = [a != b for a, b in zip(one, other, strict=False)]
    return {"same": differ.index(True) if True in differ else both,
            "moved": ((log[:both].exp() - changed[:both].exp()).abs().sum(-1) / 2).tolist(),
            "bits": [(-log[range(len(ids) - 1), ids[1:]] / math.log(2)).tolist() for ids, log, _ in readings]}


def _predictions(model: Caracal, ids: Sequence[int], edit: Mapping[str, Any]) -> Tensor:
    """Return the logarithms of the probabilities after each token, `[L, V]`."""
    texts = edit.get("texts", ())
    gates = [[weights for _, weights in _read(model, text)[0]] for text in texts]
    mean = [sum(F.pad(g, (0, max(map(len, texts)) - g.shape[-1])) for g in layer) / len(texts) if layer[0].ndim == 2
            else None for layer in zip(*gates, strict=True)]
    return (model.norm(_read(model, ids, edit, edit.get("gates", mean))[2]) @ model.embedding.weight.T).log_softmax(-1)


def _read(model: Caracal, ids: Sequence[int], edit: Mapping[str, Any] | None = None,
          gates: Sequence[Tensor | None] = ()) -> tuple[list[tuple[Tensor, Tensor]], list[Tensor], Tensor]:
    """Return what is inside each mixer, the parts of the last position, and what the last norm gets `[L, D]`."""
    x = model.embedding(torch.tensor([ids]))
    if model.positions is not None:
        x = x + model.positions(torch.arange(len(ids)))
    inside, parts = [], [x[0, -1]]
    for layer, block in enumerate(model.blocks):
        given = gates[layer] if gates else None
        found, mixed = _mixed(block.mixer, block.mixer_norm(x), edit or {}, given)
        if f"blocks.{layer}.mixer" in (edit or {}).get("off", ()):
            mixed = torch.zeros_like(mixed)
        x = x + mixed
        fed = block.mlp(block.mlp_norm(x))
        x = x + fed
        inside.append(found)
        parts += [mixed[0, -1], fed[0, -1]]
    return inside, parts, x[0]


def _mixed(mixer: MultiHeadFourier | SlidingWindowAttention, x: Tensor, edit: Mapping[str, Any],
           gates: Tensor | None) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return the contents `[D, L]` and the gates `[D, L]`, or the weights `[H, L, L]`, and the output."""
    length = x.shape[1]
    if isinstance(mixer, MultiHeadFourier):
        v, g = mixer.streams(x)
        g = (g if gates is None else gates[None])[..., :min(length, edit.get("lags", length))]
        g = F.pad(g, (0, length - g.shape[-1]))
        points = int(edit.get("points", 2) * length + 0.5)  # two for each token are the linear convolution
        return (v[0], g[0]), mixer.to_out(circular_conv(v, g, points)[..., :length].mT)
    q, k, v = (s[0].unflatten(-1, (mixer.n_heads, -1)).transpose(0, 1) for s in mixer.to_qkv(x).chunk(3, -1))
    lag = torch.arange(length)[:, None] - torch.arange(length)
    unseen = (lag.abs() if edit.get("ahead") else lag.where(lag >= 0, mixer.window_size)) >= mixer.window_size
    weights = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(unseen, -torch.inf).softmax(-1)
    return (v.transpose(1, 2).flatten(0, 1), weights), mixer.to_out((weights @ v).transpose(0, 1).flatten(1)[None])


def _terms(mixer: MultiHeadFourier | SlidingWindowAttention, a: Tensor, v: Tensor, weights: Tensor) -> dict[str, Any]:
    """Return the parts of tokens and of units of what a mixer adds along a direction `[D]`."""
    q = mixer.to_out.weight.T @ a
    channels = weights.ndim == 2
    content = v if channels else (q[:, None] * v).unflatten(0, (mixer.n_heads, -1)).sum(1)
    scale = q if channels else torch.ones(mixer.n_heads)
    products = scale[:, None] * content * (weights.flip(-1) if channels else weights[:, -1])
    largest = products.sum(-1).abs().topk(min(_UNITS, len(content))).indices.tolist()
    units = [{"name": u, "scale": scale[u].item(), "content": content[u].tolist()}
             | ({"gate": weights[u].tolist()} if channels else {}) for u in largest]
    return {"terms": products.sum(0).tolist(), "units": units}
