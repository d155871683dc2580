"""The figure of chapter 11: what the operators of a training step take, by part, on a device, for three models."""

from dataclasses import replace

from caracal_min.config import PRESETS, CaracalConfig

from ..numbers.cost import DEVICES, PARTS, Cost, Pass, training
from .figure import Figure

__all__ = ["time_budget"]

_MODELS = {"hybrid": "hybrid Caracal", "pure": "pure Caracal", "llama": "Llama"}
_SHOWN = ("T4", "RTX 3090", "RTX 4090", "A100", "H200")  # devices of the figure
_LENGTHS = 64, 131_072  # smallest and largest; each is a power of two


def time_budget(model: str = "pure", length: int = 512, device: str = "A100", compiled: bool = False) -> Figure:
    """Show the time of a training step by part, for a hybrid and a pure Caracal and a Llama of 12 layers.

    Operators run one after the other, at the top speeds of the device, and a norm is one operator in all three models.
    The reader moves sliders for width and length, takes a device, and may fuse chains of small operators, and, up to
    4,096 tokens, the convolution.  The axis fits the longest bar with nothing fused, on this device at this length and
    width: what fuses moves no other bar.

    Args:
        model: whose parts are listed at first: hybrid, pure or llama.
        length: tokens of a sequence, a power of two from 64 to 131,072.
        device: T4, RTX 3090, RTX 4090, A100 or H200 (`numbers.cost.DEVICES`).
        compiled: whether chains of small operators are fused at first.

    Raises:
        ValueError: one of them is none of these.
    """
    if model not in _MODELS:
        raise ValueError(f"unknown model {model!r}; accepted: {', '.join(_MODELS)}")
    if device not in _SHOWN:
        raise ValueError(f"unknown device {device!r}; accepted: {', '.join(_SHOWN)}")
    if not _LENGTHS[0] <= length <= _LENGTHS[1] or length & (length - 1):
        raise ValueError(f"length={length}; give a power of two from {_LENGTHS[0]} to {_LENGTHS[1]:,}")
    devices = [{"name": name, **DEVICES[name]._asdict()} for name in _SHOWN]
    start = {"model": model, "length": length, "device": device, "width": 512, "fused": False,
             "compiled": compiled}
    return Figure("time_budget", {"devices": devices, **start}, None, _alt(start), state=tuple(start))


def _costs(start: dict) -> dict[str, dict[str, Cost]]:
    """Return the parts of each model, per token of a training step."""
    size = _size(start["width"])
    how = Pass(fused=start["fused"], compiled=start["compiled"], fused_norms=True)
    return {"hybrid": training(size, start["length"], how=how),
            "pure": training(replace(size, fourier_per_attention=None), start["length"], how=how),
            "llama": training(size, start["length"], "llama", how)}


def _size(width: int) -> CaracalConfig:
    return CaracalConfig(PRESETS["tiny"].vocab_size, width, 12, width // 64)


def _times(start: dict) -> dict[str, dict[str, float]]:
    """Return the microseconds per token, by model and part."""
    device = DEVICES[start["device"]]
    return {model: {part: 1e6 * device.seconds(part, cost) for part, cost in parts.items()}
            for model, parts in _costs(start).items()}


def _alt(start: dict) -> str:
    times, parts = _times(start), _costs(start)[start["model"]]
    whole, operations = sum(times[start["model"]].values()), sum(cost.operations for cost in parts.values())
    words = "; ".join(f"{part} {100 * parts[part].operations / operations:.1f}% of the operations, "
                      f"{100 * times[start['model']][part] / whole:.0f}% of the time, bound by "
                      f"{DEVICES[start['device']].bound(part, parts[part])}"
                      for part in PARTS if parts[part].operations)
    bars = ", ".join(f"{_MODELS[model]} {sum(of.values()):.2f}" for model, of in times.items())
    small = "fused in chains" if start["compiled"] else "one by one"
    return (f"Three bars of the time that the operators of a training step take on one {start['device']} at "
            f"{start['length']:,} tokens, small operators {small}, in microseconds a token: {bars}. "
            f"Of {_MODELS[start['model']]}: {words}. Sliders for width and length, "
            "buttons for the device, for chains of small operators and for a fused convolution.")
