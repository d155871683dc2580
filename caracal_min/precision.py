"""The device of a name, which precision it computes in, and the context that makes it so::

    bfloat16   where the device has units for it: CUDA from 8.0 on, a CPU with AMX
    float16    on CUDA without them, as a T4 or a V100; training then scales its loss, or small gradients vanish
    float32    elsewhere, also on a CPU with AVX512-BF16 alone: there a step of Tiny took 1.6 times as long in bfloat16

Under `autocast` the matrix products are done in that type, weights and their sums stay in float32, and so does the
convolution: the spectra of half precision would leak the future (Section 4.2; the book measures it in chapter 4).
"""

import torch

from .choices import PRECISIONS

__all__ = ["autocast", "find_device", "has_bfloat16", "resolve_precision"]


def find_device(name: str) -> torch.device:
    """Return the device of a name: cpu, cuda, cuda:1, mps, ..., or auto: CUDA, else MPS, else the CPU.

    On MPS (the GPU of an Apple machine) nothing here has been measured.

    Raises:
        ValueError: there is no such device here, in one line.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError) as error:  # what PyTorch raises depends on how it was built
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"device={name!r} cannot be used here ({why}); "
                         "accepted: auto, cpu, and cuda, cuda:0, ... or mps where there is such a GPU") from None
    return device


def has_bfloat16(device: torch.device | str) -> bool:
    """Return whether a device has units that make bfloat16 faster than float32, as PyTorch says.

    A CPU without them takes up to fifty times as long for a product in bfloat16, and PyTorch uses those that it has
    only if its own kernels are for AVX-512, which the environment (ATEN_CPU_CAPABILITY=avx2) may rule out.
    """
    kind = torch.device(device).type
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    units = kind == "cpu" and getattr(torch.cpu, "get_capabilities", dict)().get("amx_bf16", False)
    return units and torch.backends.cpu.get_cpu_capability() == "AVX512"


def resolve_precision(precision: str, device: torch.device | str) -> torch.dtype:
    """Return the type that matrix products are done in.

    Args:
        precision: one of `choices.PRECISIONS`; "auto" takes the fastest type that the device has units for.
        device: where it is computed.

    Raises:
        ValueError: another word.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r}; accepted: {', '.join(PRECISIONS)}")
    if precision != "auto":
        return getattr(torch, precision)
    if has_bfloat16(device):
        return torch.bfloat16
    return torch.float16 if torch.device(device).type == "cuda" else torch.float32


def autocast(device: torch.device | str, dtype: torch.dtype) -> torch.autocast:
    """Return the context in which matrix products on a device are done in `dtype`; float32 changes nothing."""
    kind = torch.device(device).type
    enabled = dtype != torch.float32
    return torch.autocast(kind, dtype if enabled else torch.bfloat16, enabled=enabled)
