"""The device of a name, the precision that it computes in, and the context that makes it so::

    bfloat16   where the device has units for it: CUDA from 8.0 on, a CPU with AMX or AVX512-BF16
    float16    on CUDA without them, as a T4 or a V100; training then scales its loss, or small
               gradients vanish
    float32    elsewhere

One processor with AVX512-BF16 alone was slower in bfloat16; precision="float32" is the way out.

Under `autocast` matrix products are done in that type.  Weights and their sums stay in float32, and
so does the convolution, because spectra in half precision would leak the future.
"""

import torch

from .config import PRECISIONS, require_known

__all__ = ["autocast", "find_device", "has_bfloat16", "resolve_precision"]


def find_device(name: str) -> torch.device:
    """Return the device of a name: cpu, cuda, cuda:1, mps, or auto: CUDA, else the CPU.

    MPS has to be asked for: nobody has measured this package there.

    Raises:
        ValueError: this machine has no such device, in one line.
    """
    if name == "auto":
        # Nothing was measured on MPS, so it is taken only if asked for by name.
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        # Only an allocation tells whether the device is there; the error depends on the build.
        torch.zeros(1, device=name)
        return torch.device(name)
    except (RuntimeError, AssertionError) as error:
        # The further lines, of debugging hints for CUDA, would hide the mistake.
        why = str(error).splitlines()[0]
        raise ValueError(f"device={name!r} cannot be used here ({why}); "
                         "give auto, cpu, cuda or mps") from None


def has_bfloat16(device: torch.device | str) -> bool:
    """Return whether a device has units that make bfloat16 faster than float32, as PyTorch says.

    A CPU without them takes up to fifty times as long for a product in bfloat16.  PyTorch uses
    those of a CPU only if its own kernels are for AVX-512, which the environment
    (ATEN_CPU_CAPABILITY=avx2) may rule out.
    """
    kind = torch.device(device).type
    # A T4 emulates bfloat16, correctly but slowly, and PyTorch would count that as support.
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if kind != "cpu":
        return False
    # Older versions of PyTorch cannot say what the processor has: take no units for granted.
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return wide and any(capabilities.get(unit) for unit in ("amx_bf16", "avx512_bf16"))


def resolve_precision(precision: str, device: torch.device | str) -> torch.dtype:
    """Return the type that matrix products are done in.

    Args:
        precision: one of `config.PRECISIONS`; "auto" takes the fastest type that the device has
            units for.
        device: where the products are computed.

    Raises:
        ValueError: another word.
    """
    require_known("precision", precision, PRECISIONS)
    if precision != "auto":
        return getattr(torch, precision)
    if has_bfloat16(device):
        return torch.bfloat16
    # Only GPUs have units for float16; elsewhere it is slower than float32.
    if torch.device(device).type == "cuda":
        return torch.float16
    return torch.float32


def autocast(device: torch.device | str, dtype: torch.dtype) -> torch.autocast:
    """Return the context in which a device multiplies in `dtype`; float32 changes nothing."""
    kind = torch.device(device).type
    # On a CPU autocast warns about float32, although there is nothing to cast.
    if dtype == torch.float32:
        return torch.autocast(kind, enabled=False)
    return torch.autocast(kind, dtype)
